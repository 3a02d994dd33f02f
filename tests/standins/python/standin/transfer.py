"""The KV transfer between a prefill and a decode stand-in: nothing is moved, but everything must match.

A producer listens on one port per GPU from its handshake port on. A consumer redeems the transfer of each request
there: the transfer must be known, of the same prompt, over the same protocol, and unused.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import uuid
from typing import Any, Optional

REQUIRED = ("remote_engine_id", "remote_host", "remote_handshake_port", "transfer_id", "first_token_id",
            "tp_size", "dp_rank", "remote_tp_size", "remote_dp_size", "remote_dp_rank")


class Mismatch(Exception):
    """The parameters of a request do not belong to a transfer that is waiting."""


def digest(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()


def own_address() -> str:
    """As ATOM's get_ip(): ATOM_HOST_IP, else the source of a route to 8.8.8.8, else 0.0.0.0."""
    named = os.environ.get("ATOM_HOST_IP")
    if named:
        return named
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("8.8.8.8", 1))
        except OSError:
            return "0.0.0.0"
        return str(probe.getsockname()[0])


class Producer:
    """The prefill side."""

    def __init__(self, port: int, tp_size: int, dp_size: int, protocol: str) -> None:
        self.engine_id = uuid.uuid4().hex
        self._port = port
        self._tp_size = tp_size
        self._dp_size = dp_size
        self._protocol = protocol
        self._waiting: dict[int, str] = {}
        self._next = 0
        self.used = 0
        self.refused = 0

    @property
    def issued(self) -> int:
        return self._next

    async def listen(self, ranks: int) -> None:
        """Binds one port per rank; raises OSError if one is taken."""
        for rank in range(ranks):
            await asyncio.start_server(self._connection, "0.0.0.0", self._port + rank, backlog=1024)

    def issue(self, prompt: str, prompt_tokens: int, dp_rank: int) -> dict[str, Any]:
        """A new transfer, as the reply of a prefill names it."""
        self._next += 1
        self._waiting[self._next] = digest(prompt)
        blocks = list(range(1, 2 + prompt_tokens // 16))
        return {
            "do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": blocks,
            "remote_swa_block_ids": [], "remote_engine_id": self.engine_id, "remote_host": own_address(),
            "remote_port": self._port, "remote_handshake_port": self._port, "tp_size": self._tp_size,
            "dp_rank": dp_rank, "remote_pp_size": 1, "transfer_id": self._next, "first_token_id": 42,
            "draft_token_ids": [], "local_slot_index": -1, "prefix_cache_hit_tokens": 0,
        }

    def _redeem(self, claim: dict[str, Any]) -> Optional[str]:
        """What is wrong with a claim, None if nothing is."""
        if claim.get("engine_id") != self.engine_id:
            return "another engine made this transfer"
        if claim.get("protocol") != self._protocol:
            return f"prefill uses {self._protocol}, decode {claim.get('protocol')}"
        if claim.get("tp_size") != self._tp_size:
            return f"remote_tp_size {claim.get('tp_size')}, but the prefill has {self._tp_size}"
        waiting = self._waiting.pop(claim.get("transfer_id", -1), None)
        if waiting is None:
            return "unknown transfer, or used twice"
        return None if waiting == claim.get("digest") else "the transfer is of another prompt"

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            problem = self._redeem(json.loads(await reader.readline()))
            if problem:
                self.refused += 1
            else:
                self.used += 1
            writer.write(json.dumps({"problem": problem}).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError):
            pass
        finally:
            writer.close()


async def redeem(params: dict[str, Any], prompt: str, protocol: str) -> None:
    """The decode side: claims a transfer from the prefill that made it; raises Mismatch."""
    missing = [key for key in REQUIRED if params.get(key) is None]
    if missing:
        raise Mismatch(f"kv_transfer_params lacks {', '.join(missing)}")
    offset = params["remote_dp_rank"] * params["remote_tp_size"]
    claim = {"engine_id": params["remote_engine_id"], "transfer_id": params["transfer_id"], "protocol": protocol,
             "tp_size": params["remote_tp_size"], "digest": digest(prompt)}
    where = (params["remote_host"], params["remote_handshake_port"] + offset)
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(*where), 5)
    except (OSError, asyncio.TimeoutError) as error:
        raise Mismatch(f"no prefill at {where[0]}:{where[1]}: {error}") from error
    try:
        writer.write(json.dumps(claim).encode() + b"\n")
        answer = json.loads(await asyncio.wait_for(reader.readline(), 5) or b'{"problem": "the prefill hung up"}')
    finally:
        writer.close()
    if answer["problem"]:
        raise Mismatch(answer["problem"])
