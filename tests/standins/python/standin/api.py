"""The worker's HTTP surface: status endpoints, completions, and its half of a P/D exchange."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Optional

from standin import faults as fault
from standin import protocol, transfer, words
from standin.engine import Engine
from standin.http import Reply, Request, json_reply, text_reply
from standin.setup import Setup


class Api:
    """Answers requests; the producer comes with the end of loading."""

    def __init__(self, args: argparse.Namespace, faults: fault.Faults, setup: Setup) -> None:
        self.args = args
        self.faults = faults
        self.setup = setup
        self.engine = Engine(setup.model, faults)
        self.producer: Optional[transfer.Producer] = None
        self.requests = 0
        self.healths = 0
        self.models_asked = 0
        self.mismatches = 0

    async def handle(self, request: Request) -> Reply:
        gets = {"/health": self.health, "/v1/models": self.models, "/server_info": self.server_info,
                "/kv_transfer_info": self.kv_transfer_info, "/metrics": self.metrics,
                "/debug/mtp_stats": self.mtp_stats, "/debug/cache_stats": self.cache_stats}
        posts = {"/v1/completions": False, "/v1/chat/completions": True}
        if request.path in gets:
            wrong = request.method != "GET" and not (request.path == "/metrics" and request.method == "HEAD")
            return json_reply({"detail": "Method Not Allowed"}, 405) if wrong else await gets[request.path]()
        if request.path in posts:
            if request.method != "POST":
                return json_reply({"detail": "Method Not Allowed"}, 405)
            return await self.complete(request, posts[request.path])
        if request.path in ("/start_profile", "/stop_profile") and request.method == "POST":
            return json_reply({"status": "success", "message": "Profiling"})
        return json_reply({"detail": "Not Found"}, 404)

    async def health(self) -> Reply:
        self.healths += 1
        if "slow_health" in self.faults and self.healths == self.faults.number("slow_health_at", 3):
            await asyncio.sleep(self.faults.number("slow_health"))
        return json_reply({"status": "ok"})

    async def models(self) -> Reply:
        self.models_asked += 1
        if self.models_asked <= self.faults.number("models_error"):
            return json_reply({"detail": "fault"}, 500)
        card = {"id": self.setup.model, "object": "model", "created": int(time.time()), "owned_by": "atom"}
        return json_reply({"object": "list", "data": [card]})

    async def server_info(self) -> Reply:
        setup = self.setup
        return json_reply({"model_id": setup.model, "served_model_name": setup.model,
                           "tp_size": setup.tp_size, "dp_size": setup.dp_size})

    async def kv_transfer_info(self) -> Reply:
        setup = self.setup
        return json_reply({"tp_size": setup.tp_size, "dp_size": setup.dp_size, "kv_role": setup.shown_role,
                           "handshake_port": setup.shown_handshake})

    async def metrics(self) -> Reply:
        """ATOM's gauges, and the stand-in's own counters under the prefix standin_."""
        producer = self.producer
        rows = {
            "atom:requests_running": self.engine.running, "atom:requests_waiting": 0,
            "standin_requests": self.requests, "standin_tokens": self.engine.tokens,
            "standin_transfer_mismatches": self.mismatches,
            "standin_transfers_issued": producer.issued if producer else 0,
            "standin_transfers_used": producer.used if producer else 0,
            "standin_transfers_refused": producer.refused if producer else 0,
        }
        return text_reply("".join(f"{name} {value}\n" for name, value in rows.items()))

    async def mtp_stats(self) -> Reply:
        accepted = 1.0 + 0.8 * self.args.num_speculative_tokens if self.args.method else None
        rate = 0.8 if self.args.method else None
        return json_reply({"enabled": bool(self.args.method), "accept_length": accepted, "acceptance_rate": rate})

    async def cache_stats(self) -> Reply:
        return json_reply({"enabled": self.args.enable_prefix_caching, "hit_rate": 0.0})

    async def complete(self, request: Request, chat: bool) -> Reply:
        self.requests += 1
        if self.requests == self.faults.number("die_at_request"):
            fault.die(int(self.faults.number("die_code", 1)))
        try:
            ask = protocol.parse(request.body, chat, self.setup.model)
            self.check_length(ask)
            if "hang_completions" in self.faults:
                await asyncio.Event().wait()
            if self.requests > self.faults.number("fail_after") and self.faults.hits("fail_ratio"):
                raise protocol.Refused(int(self.faults.number("fail_status", 500)), "stand-in fault: fail_ratio")
            return await self.answer(ask)
        except protocol.Refused as refused:
            return refused.reply

    def check_length(self, ask: protocol.Ask) -> None:
        prompt = words.count_tokens(ask.prompt)
        if prompt + ask.max_tokens > self.setup.max_model_len:
            raise protocol.Refused(400, f"This model's maximum context length is {self.setup.max_model_len} tokens. "
                                        f"However, you requested {ask.max_tokens} output tokens and your prompt "
                                        f"contains {prompt} input tokens.")

    async def answer(self, ask: protocol.Ask) -> Reply:
        """Plain generation, or one half of a P/D exchange."""
        if ask.params.get("do_remote_decode"):
            if self.producer is None:
                raise protocol.Refused(500, "AssertionError: a consumer was asked for do_remote_decode")
            if not 0 <= ask.dp_rank < self.setup.dp_size:
                raise protocol.Refused(400, f"data_parallel_rank {ask.dp_rank} of {self.setup.dp_size}")
            params = self.producer.issue(ask.prompt, words.count_tokens(ask.prompt), ask.dp_rank)
            return await self.engine.run(ask, None if "kv_null" in self.faults else params)
        if ask.params.get("do_remote_prefill"):
            await self.take_over(ask)
        return await self.engine.run(ask)

    async def take_over(self, ask: protocol.Ask) -> None:
        try:
            if self.setup.role in (None, "kv_producer"):
                raise transfer.Mismatch("AssertionError: not a consumer, asked for do_remote_prefill")
            await transfer.redeem(ask.params, ask.prompt, self.setup.protocol)
        except transfer.Mismatch as mismatch:
            self.mismatches += 1
            print(f"ERROR: KV transfer: {mismatch}", flush=True)
            raise protocol.Refused(500, f"KV transfer: {mismatch}") from mismatch
