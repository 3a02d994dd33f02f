"""The stand-in ATOM worker: argv by contract, a port that opens only once loaded, P/D that must match up."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import time

from standin import faults as fault
from standin import transfer
from standin.api import Api
from standin.argv import parser_of
from standin.compiler import compile_kernels
from standin.faults import settle
from standin.http import Request, Server
from standin.setup import Setup, check_surroundings, fail, hold_port

UVICORN_FAILED = 3


def say(text: str) -> None:
    print(text, flush=True)


def glog(text: str) -> None:
    """A line in the form of Mooncake's glog."""
    stamp = time.strftime("%m%d %H:%M:%S")
    print(f"I{stamp}.{time.time_ns() // 1000 % 1000000:06d} {os.getpid():5d} transfer_engine_impl.cpp:1] {text}",
          file=sys.stderr, flush=True)


class Worker:
    """One worker from its start to its end."""

    def __init__(self, args: argparse.Namespace, faults: fault.Faults) -> None:
        self.args = args
        self.faults = faults
        self.setup = Setup(args, faults)
        self.api = Api(args, faults, self.setup)
        self.held: list[socket.socket] = []

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
        compile_kernels()
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
        self.api.producer = transfer.Producer(setup.handshake, setup.tp_size, setup.dp_size, setup.protocol)
        try:
            await self.api.producer.listen(setup.world)
        except OSError:
            fail(f"zmq.error.ZMQError: Address already in use (addr='tcp://*:{setup.handshake}')")

    async def serve(self) -> None:
        args = self.args
        log = None if args.disable_uvicorn_access_log else self.access_log
        server = Server(self.api.handle, args.timeout_keep_alive, log)
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
            loop.add_signal_handler(number, settle, ended, number)
        return await ended

    @staticmethod
    def access_log(request: Request, status: int) -> None:
        say(f'INFO:     {request.peer} - "{request.method} {request.path} HTTP/1.1" {status}')


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
