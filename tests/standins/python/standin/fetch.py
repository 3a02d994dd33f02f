"""A small HTTP/1.1 client on asyncio: one connection a request, whole bodies or chunk by chunk."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator, Optional
from urllib.parse import urlsplit


class Answer:
    """Status and headers of a reply whose body is still to be read."""

    def __init__(self, status: int, headers: dict[str, str], reader: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes; raises EOFError (IncompleteReadError) if it is cut off."""
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            length = self.headers.get("content-length")
            yield await (self._reader.read(-1) if length is None else self._reader.readexactly(int(length)))
            return
        while True:
            line = await self._reader.readline()
            if not line:
                raise EOFError("the stream was cut off")
            size = int(line.split(b";")[0], 16)
            data = await self._reader.readexactly(size + 2)
            if not size:
                return
            yield data[:-2]

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.chunks()])


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@asynccontextmanager
async def request(method: str, url: str, body: Optional[bytes] = None, headers: Optional[dict[str, str]] = None,
                  connect_s: float = 10.0) -> AsyncIterator[Answer]:
    """Sends one request; raises OSError or asyncio.TimeoutError if nobody answers."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    opening = asyncio.open_connection(parts.hostname, parts.port or 80, limit=1 << 20)
    reader, writer = await asyncio.wait_for(opening, connect_s)
    try:
        lines = [f"{method} {target} HTTP/1.1", f"host: {parts.netloc}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body is not None:
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.split(":", 1) for line in head[1:] if ":" in line)
        got = {name.strip().lower(): value.strip() for name, value in pairs}
        yield Answer(int(head[0].split(" ")[1]), got, reader)
    finally:
        writer.close()


async def get(url: str, timeout_s: float) -> tuple[int, bytes]:
    """Status and whole body of a GET, within a time limit for all of it."""

    async def whole() -> tuple[int, bytes]:
        async with request("GET", url, connect_s=timeout_s) as answer:
            return answer.status, await answer.read()

    return await asyncio.wait_for(whole(), timeout_s)
