"""The stand-in ATOM worker: argv by contract, a port that opens only once loaded, P/D that must match up."""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Optional

from standin import faults as fault
from standin import protocol, transfer, words
from standin.argv import parser_of
from standin.engine import Engine
from standin.http import Reply, Request, Server, json_reply, text_reply

UVICORN_FAILED = 3


def say(text: str) -> None:
    print(text, flush=True)


def glog(text: str) -> None:
    """A line in the form of Mooncake's glog."""
    stamp = time.strftime("%m%d %H:%M:%S")
    print(f"I{stamp}.{time.time_ns() // 1000 % 1000000:06d} {os.getpid():5d} transfer_engine_impl.cpp:1] {text}",
          file=sys.stderr, flush=True)


def fail(text: str, code: int = 1) -> None:
    print(text, file=sys.stderr, flush=True)
    raise SystemExit(code)


class Setup:
    """What the command line and the environment make of this worker."""

    def __init__(self, args: argparse.Namespace, faults: fault.Faults) -> None:
        tp, dp = args.tensor_parallel_size, args.data_parallel_size
        self.world = tp * dp * args.pipeline_parallel_size * args.prefill_context_parallel_size
        self.tp_size, self.dp_size = (1, tp * dp) if args.enable_dp_attention else (tp, dp)
        self.model = faults.text("model_name") or args.served_model_name or args.model
        self.max_model_len = args.max_model_len or 131072
        raw = args.kv_transfer_config
        engine_side = self._connector(self._literal(raw))
        self.role: Optional[str] = None
        if engine_side:
            self.role = engine_side.get("kv_role", "kv_producer")
        # The server reads the text once more, as JSON alone: Python-style quotes give null there.
        shown = self._connector(self._json(raw))
        self.shown_role = faults.text("kv_role") or (shown or {}).get("kv_role")
        if self.shown_role == "null":
            self.shown_role = None
        self.handshake = (engine_side or {}).get("handshake_port", 6301)
        self.shown_handshake = (shown or {}).get("handshake_port", 6301)
        self.protocol = (engine_side or {}).get("protocol", "rdma")
        if os.environ.get("MC_FORCE_TCP"):
            self.protocol = "tcp"
        self.protocol = faults.text("transport") or self.protocol

    @staticmethod
    def _json(raw: str) -> dict[str, Any]:
        try:
            value = json.loads(raw)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @staticmethod
    def _literal(raw: str) -> dict[str, Any]:
        try:
            value = json.loads(raw)
        except ValueError:
            try:
                value = ast.literal_eval(raw)
            except (ValueError, SyntaxError):
                fail(f"ValueError: kv_transfer_config is neither JSON nor a literal: {raw}")
        if not isinstance(value, dict):
            fail(f"ValueError: kv_transfer_config is not an object: {raw}")
        return value

    @staticmethod
    def _connector(config: dict[str, Any]) -> Optional[dict[str, Any]]:
        """The connector whose role counts: of several the first producer, else the first with a role."""
        if not config:
            return None
        if config.get("kv_connector") != "multi":
            return config
        subs = [sub for sub in config.get("connectors", []) if sub.get("kv_role")]
        producers = [sub for sub in subs if sub["kv_role"] == "kv_producer"]
        return (producers or subs or [{}])[0]


def check_surroundings(args: argparse.Namespace, setup: Setup) -> None:
    """What the real server trips over while loading."""
    if os.environ.get("USE_ATOMESH_ENTRYPOINTS") == "1":
        fail("stand-in: USE_ATOMESH_ENTRYPOINTS=1 would start another server", 2)
    if not 1 <= args.tensor_parallel_size <= 8:
        fail("AssertionError: 1 <= tensor_parallel_size <= 8")
    visible = os.environ.get("HIP_VISIBLE_DEVICES")
    if visible is not None and len(visible.split(",")) < setup.world:
        fail(f"RuntimeError: {setup.world} GPUs are needed, HIP_VISIBLE_DEVICES={visible}")
    if args.model.startswith("/") and not Path(args.model).is_dir():
        fail(f"OSError: {args.model} is not a local folder")
    if not isinstance(setup.handshake, int):
        fail("TypeError: handshake_port is not a number")
    ipc = f"{os.environ.get('TMPDIR', '/tmp')}/{'x' * 36}"
    if len(ipc) > 107 or not os.access(os.path.dirname(ipc), os.W_OK):
        fail(f"zmq.error.ZMQError: cannot bind ipc://{ipc}")
    try:
        Path("atom_torch_compile_cache").mkdir(exist_ok=True)
    except OSError as error:
        fail(f"{error.strerror}: the working folder {os.getcwd()} is not writable")


def hold_port(port: int) -> socket.socket:
    """Binds a port of torch.distributed on the loopback address, and keeps it."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind(("127.0.0.1", port))
        held.listen(8)
    except OSError:
        fail(f"RuntimeError: The server socket has failed to bind to 127.0.0.1:{port}: Address already in use")
    return held


class Worker:
    """One worker from its start to its end."""

    def __init__(self, args: argparse.Namespace, faults: fault.Faults) -> None:
        self.args = args
        self.faults = faults
        self.setup = Setup(args, faults)
        self.engine = Engine(self.setup.model, faults)
        self.producer: Optional[transfer.Producer] = None
        self.requests = 0
        self.healths = 0
        self.models_asked = 0
        self.mismatches = 0
        self.held: list[socket.socket] = []

    # -- life ---------------------------------------------------------------

    async def load(self) -> None:
        """Everything before the port opens. A SIGTERM in here ends the process at once."""
        faults, setup = self.faults, self.setup
        if "ignore_term" in faults:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        check_surroundings(self.args, setup)
        say(f"Loading {self.args.model} (tp {setup.tp_size}, dp {setup.dp_size})")
        if setup.dp_size > 1:
            self.held.append(hold_port(int(os.environ.get("ATOM_DP_MASTER_PORT", "29500"))))
        if os.environ.get("ATOM_DP_BASE_PORT"):
            self.held.append(hold_port(int(os.environ["ATOM_DP_BASE_PORT"])))
        await asyncio.sleep(faults.number("load_s", fault.setting("STANDIN_LOAD_S", 0.3)))
        if "log_loading" in faults:
            say(faults.text("log_loading") or "")
        if "hang_loading" in faults:
            await asyncio.Event().wait()
        if "exit_loading" in faults:
            fault.die(int(faults.number("exit_loading")))
        await self.open_transfer()

    async def open_transfer(self) -> None:
        """Announces the transport in Mooncake's own words, and opens a producer's handshake ports.

        The words are those of Mooncake's transfer_engine_impl.cpp; that ATOM's log carries them unchanged, one for
        each rank, is our assumption.
        """
        setup = self.setup
        if setup.role is None:
            return
        for _ in range(setup.world):
            if setup.protocol == "tcp":
                glog("MC_FORCE_TCP is set, using TCP transport only")
            elif setup.protocol == "rdma":
                glog("Topology discovery complete. Found 8 HCAs.")
                glog("installTransport, type=rdma")
        if setup.role != "kv_producer":
            return
        self.producer = transfer.Producer(setup.handshake, setup.tp_size, setup.dp_size, setup.protocol)
        try:
            await self.producer.listen(setup.world)
        except OSError:
            fail(f"zmq.error.ZMQError: Address already in use (addr='tcp://*:{setup.handshake}')")

    async def serve(self) -> None:
        args = self.args
        log = None if args.disable_uvicorn_access_log else self.access_log
        server = Server(self.handle, args.timeout_keep_alive, log)
        say(f"Starting server on {args.host}:{args.server_port}")
        say("Server started successfully and ready to accept requests")
        try:
            await server.listen(args.host, args.server_port)
        except OSError as error:
            fail(f"ERROR:    [Errno {error.errno}] error while attempting to bind on address "
                 f"('{args.host}', {args.server_port}): address already in use", UVICORN_FAILED)
        if "die_after_ready" in self.faults:
            delay = self.faults.number("die_after_ready")
            asyncio.get_running_loop().call_later(delay, fault.die, int(self.faults.number("die_code", 1)))
        ended = await self.wait_for_signal()
        await server.close()
        sys.stdout.flush()
        if ended == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)

    async def wait_for_signal(self) -> signal.Signals:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[signal.Signals] = loop.create_future()
        wanted = [signal.SIGINT] if "ignore_term" in self.faults else [signal.SIGTERM, signal.SIGINT]
        for number in wanted:
            loop.add_signal_handler(number, lambda n=number: ended.done() or ended.set_result(n))
        return await ended

    @staticmethod
    def access_log(request: Request, status: int) -> None:
        say(f'INFO:     {request.peer} - "{request.method} {request.path} HTTP/1.1" {status}')

    # -- HTTP ---------------------------------------------------------------

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
            say(f"ERROR: KV transfer: {mismatch}")
            raise protocol.Refused(500, f"KV transfer: {mismatch}") from mismatch


async def run(args: argparse.Namespace) -> None:
    worker = Worker(args, fault.from_environment())
    await worker.load()
    await worker.serve()


def main() -> None:
    args = parser_of("atom", prog="openai_server.py").parse_args()
    try:
        asyncio.run(run(args))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
