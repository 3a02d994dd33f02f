"""A small HTTP/1.1 server on asyncio: keep-alive, chunked streams, and a close that lets open requests finish."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, AsyncIterator, Awaitable, Callable, Optional

MAX_HEAD = 65536


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    peer: str


@dataclass
class Reply:
    """An answer; with a stream the body is sent chunk by chunk as it comes."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    stream: Optional[AsyncIterator[bytes]] = None


Handler = Callable[[Request], Awaitable[Reply]]


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return Reply(status, text.encode(), headers={k.replace("_", "-"): v for k, v in headers.items()})


def text_reply(text: str, status: int = 200) -> Reply:
    return Reply(status, text.encode(), "text/plain; charset=utf-8")


class BadRequest(Exception):
    """Not HTTP/1.1, such as the preface of HTTP/2."""


class Server:
    """One listening socket; counts the requests in flight."""

    def __init__(self, handler: Handler, keep_alive_s: float = 5.0,
                 access_log: Optional[Callable[[Request, int], None]] = None) -> None:
        self._handler = handler
        self._keep_alive_s = keep_alive_s
        self._access_log = access_log
        self._server: Optional[asyncio.AbstractServer] = None
        self._idle: set[asyncio.StreamWriter] = set()
        self._closing = False
        self.in_flight = 0

    async def listen(self, host: str, port: int) -> None:
        """Binds the port; raises OSError if it is taken."""
        self._server = await asyncio.start_server(self._connection, host, port, backlog=2048, limit=MAX_HEAD)

    async def close(self, grace_s: Optional[float] = None) -> None:
        """Refuses new connections and waits for the open requests, at most grace_s seconds."""
        self._closing = True
        if self._server:
            self._server.close()
        for writer in list(self._idle):
            writer.close()
        end = None if grace_s is None else asyncio.get_running_loop().time() + grace_s
        while self.in_flight and (end is None or asyncio.get_running_loop().time() < end):
            await asyncio.sleep(0.02)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not self._closing and await self._exchange(reader, writer):
                pass
        except BadRequest:
            writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
                         b"connection: close\r\ncontent-length: 30\r\n\r\nInvalid HTTP request received.")
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError):
            pass
        finally:
            self._idle.discard(writer)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its reply; tells whether the connection stays open."""
        self._idle.add(writer)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self._keep_alive_s)
        self._idle.discard(writer)
        self.in_flight += 1
        try:
            request = await self._read(head, reader, writer)
            reply = await self._handler(request)
            if self._access_log:
                self._access_log(request, reply.status)
            keep = request.headers.get("connection", "").lower() != "close" and not self._closing
            await self._write(request, reply, writer, keep)
            return keep
        finally:
            self.in_flight -= 1

    async def _read(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
            raise BadRequest
        pairs = (line.split(":", 1) for line in lines[1:] if ":" in line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        peer = writer.get_extra_info("peername") or ("?", 0)
        return Request(words[0], words[1].split("?")[0], headers, body, f"{peer[0]}:{peer[1]}")

    async def _write(self, request: Request, reply: Reply, writer: asyncio.StreamWriter, keep: bool) -> None:
        phrase = HTTPStatus(reply.status).phrase
        lines = [f"HTTP/1.1 {reply.status} {phrase}", f"content-type: {reply.content_type}"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        lines.append("transfer-encoding: chunked" if reply.stream else f"content-length: {len(reply.body)}")
        if not keep:
            lines.append("connection: close")
        writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
        if reply.stream is None:
            if request.method != "HEAD":
                writer.write(reply.body)
            await writer.drain()
            return
        async for piece in reply.stream:
            if piece:
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
