"""The stand-in AToMesh router: life cycle and status endpoints.

STANDIN_ROUTER_SCALE multiplies its waits (probe pauses, worker wait, health interval, open circuit); 1 is real.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import string
import sys
from typing import Any, Optional

from standin import clap, fetch
from standin import faults as fault
from standin.clap import Options
from standin.dispatch import Dispatcher
from standin.faults import settle
from standin.http import Reply, Request, Server, text_reply
from standin.registry import Registry
from standin.status import Status

METRICS_PORT_TAKEN = 101
VERSION = "0.1.0"


def say(text: str) -> None:
    print(text, flush=True)


class Router:
    """One router from its start to its end."""

    def __init__(self, options: Options, faults: fault.Faults) -> None:
        self.options = options
        self.faults = faults
        self.scale = fault.setting("STANDIN_ROUTER_SCALE", 1.0)
        self.registry = Registry(options, self.scale)
        self.status = Status(options, self.registry)
        self.dispatcher = Dispatcher(options, self.registry, faults)
        self.jobs: list[asyncio.Future[Any]] = []

    # -- life ---------------------------------------------------------------

    def announce(self) -> None:
        options = self.options
        pd = options["pd-disaggregation"]
        say("Atomesh starting...")
        say(f"Host: {options['host']}:{options['port']}")
        say("Mode: PD Disaggregated" if pd else f"Mode: Regular ({options['backend']})")
        say(f"Policy: {options['policy']}")
        if pd and options["prefill"]:
            say(f"Prefill nodes: {options['prefill']}")
            say(f"Decode nodes: {options['decode']}")

    async def run(self) -> None:
        """Until the main port is open there is no signal handler: a SIGTERM kills at once."""
        if "ignore_term" in self.faults:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.announce()
        await self.open_metrics()
        await asyncio.sleep(self.faults.number("load_s"))
        if "log_loading" in self.faults:
            say(self.faults.text("log_loading") or "")
        if "exit_loading" in self.faults:
            fault.die(int(self.faults.number("exit_loading")))
        if "hang_loading" in self.faults:
            await asyncio.Event().wait()
        await self.register()
        if self.options["pd-disaggregation"] and self.options["backend"] == "atom":
            await self.ask_prefills()
        await self.serve()

    async def open_metrics(self) -> None:
        try:
            server = Server(self.metrics)
            await server.listen(self.options["prometheus-host"], self.options["prometheus-port"])
        except OSError as error:
            print("thread 'main' panicked at src/observability/metrics/mesh_metrics.rs: failed to install Prometheus "
                  f"metrics exporter: {error}", file=sys.stderr, flush=True)
            os._exit(METRICS_PORT_TAKEN)

    def planned(self) -> list[tuple[str, str, Optional[int]]]:
        """URL, role and bootstrap port of each worker on the command line."""
        options = self.options
        if not options["pd-disaggregation"]:
            return [(url, "regular", None) for url in options["worker-urls"]]
        return ([(url, "prefill", port) for url, port in options["prefill"]]
                + [(url, "decode", None) for url in options["decode"]])

    async def register(self) -> None:
        """Waits for all workers, at most T + 60 s; then goes on with what it has."""
        planned = self.planned()
        if "list_minus_one" in self.faults:
            planned = planned[:-1]
        for url, role, port in planned:
            self.jobs.append(asyncio.ensure_future(self.registry.add(url, role, port)))
        loop = asyncio.get_running_loop()
        end = loop.time() + (self.options["worker-startup-timeout-secs"] + 60) * self.scale
        urls = [url for url, _, _ in planned]
        while not self.registry.registered(urls) or len(self.registry.entries) < len(urls):
            if loop.time() >= end:
                missing = sorted(set(urls) - {entry.base for entry in self.registry.entries})
                say(f"WARN mesh: Timed out waiting for workers: {missing}")
                return
            await asyncio.sleep(0.5 * self.scale)

    async def ask_prefills(self) -> None:
        """Each prefill must say that it is one; otherwise the router ends with 1."""
        bases = sorted({entry.base for entry in self.registry.of("prefill")})
        if not bases:
            clap.reject("no prefill worker registered")
        for base in bases:
            try:
                status, body = await fetch.get(base + "/kv_transfer_info", 10)
                info = json.loads(body) if status == 200 else {}
            except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
                clap.reject(f"{base}/kv_transfer_info: {error}")
            if not isinstance(info.get("tp_size"), int) or info.get("kv_role") != "kv_producer":
                clap.reject(f"{base} is no kv_producer: {info}")
            self.dispatcher.tp_sizes[base] = info["tp_size"]

    async def serve(self) -> None:
        options, loop = self.options, asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        wanted = (signal.SIGINT,) if "ignore_term" in self.faults else (signal.SIGTERM, signal.SIGINT)
        for number in wanted:
            loop.add_signal_handler(number, settle, ended, None)
        server = Server(self.handle, keep_alive_s=75)
        try:
            await server.listen(options["host"], options["port"])
        except OSError as error:
            clap.reject(str(error))
        say(f"INFO mesh: Starting server on {options['host']}:{options['port']}")
        if not options["disable-health-check"]:
            self.jobs.append(asyncio.ensure_future(self.registry.health_loop()))
        if "die_after_ready" in self.faults:
            delay = self.faults.number("die_after_ready")
            loop.call_later(delay, fault.die, int(self.faults.number("die_code", 1)))
        await ended
        await server.close(options["shutdown-grace-period-secs"])
        sys.stdout.flush()
        os._exit(0)

    # -- HTTP ---------------------------------------------------------------

    async def metrics(self, request: Request) -> Reply:
        """The metrics port: any path. Retries have AToMesh's own name and labels; the other names are the stand-in's."""
        if request.path == "/health":
            return text_reply("OK")
        kinds = ("prefill", "decode") if self.options["pd-disaggregation"] else ("regular",)
        retried = (f'mesh_worker_retries_total{{worker_type="{kind}",endpoint="completions"}}' for kind in kinds)
        rows = {"standin_router_requests": self.dispatcher.requests,
                **dict.fromkeys(retried, self.dispatcher.retries),
                "standin_router_workers": len(self.registry.entries)}
        return text_reply("".join(f"{name} {value}\n" for name, value in rows.items()))

    async def handle(self, request: Request) -> Reply:
        reply = await self.route(request)
        given = (request.headers.get(name) for name in ("x-request-id", "x-correlation-id", "x-trace-id", "request-id"))
        kinds = {"/v1/completions": "cmpl-", "/v1/chat/completions": "chatcmpl-"}
        made = "".join(random.choices(string.ascii_letters + string.digits, k=24))
        reply.headers["x-request-id"] = next(filter(None, given), kinds.get(request.path, "req-") + made)
        return reply

    async def route(self, request: Request) -> Reply:
        path = request.path
        if path in ("/v1/completions", "/v1/chat/completions") and request.method == "POST":
            if self.dispatcher.requests + 1 == self.faults.number("die_at_request"):
                fault.die(int(self.faults.number("die_code", 1)))
            return await self.dispatcher.complete(request, "chat" in path)
        return self.status.route(request)


def main() -> None:
    argv = sys.argv[1:]
    if argv and argv[-1] in ("-V", "--version", "--version-verbose"):
        say(f"atomesh {os.environ.get('STANDIN_ATOMESH_VERSION') or VERSION}")
        raise SystemExit(0)
    if argv and argv[-1] in ("-h", "--help"):
        say("Usage: atomesh launch [OPTIONS]")
        raise SystemExit(0)
    options = clap.parse(argv)
    clap.validate(options)
    try:
        asyncio.run(Router(options, fault.from_environment()).run())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
