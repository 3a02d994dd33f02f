"""What a worker's command line and environment make of it, and what it trips over while loading."""

from __future__ import annotations

import argparse
import ast
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn, Optional

from standin.faults import Faults


def fail(text: str, code: int = 1) -> NoReturn:
    print(text, file=sys.stderr, flush=True)
    raise SystemExit(code)


class Setup:
    """Sizes, names, role and transport of one worker."""

    def __init__(self, args: argparse.Namespace, faults: Faults) -> None:
        tp, dp = args.tensor_parallel_size, args.data_parallel_size
        self.world = tp * dp * args.pipeline_parallel_size * args.prefill_context_parallel_size
        self.tp_size: int = 1 if args.enable_dp_attention else tp
        self.dp_size: int = tp * dp if args.enable_dp_attention else dp
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
        subs: list[dict[str, Any]] = [sub for sub in config.get("connectors", []) if sub.get("kv_role")]
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
