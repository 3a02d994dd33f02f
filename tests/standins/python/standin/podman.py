"""The podman stand-in: docker's commands with podman's own options, a store of its own for each --root, no daemon.

Stricter than the real one: --root and --runroot must be given (a batch job has no home and no login session to keep them
in), and an image's name must hold its registry. Settings as docker's: CONTAINERS_STANDIN_STATE, _IMAGES, _ENV, ….
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path

from standin import docker, program
from standin.docker_run import Parser, refuse


def global_options(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options before the command, and the rest."""
    parser = Parser(prog="podman", allow_abbrev=False, add_help=False)
    parser.add_argument("--root")
    parser.add_argument("--runroot")
    parser.add_argument("--cgroup-manager", choices=("cgroupfs", "systemd"))
    parser.add_argument("command", choices=sorted({*docker.COMMANDS} - {"info"}))
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    return args, [args.command, *args.rest]


def open_store(args: argparse.Namespace) -> None:
    """Makes the folders as podman does, and refuses a run root that is not the one the store was made with."""
    if not (args.root and args.runroot):
        refuse("Error: the stand-in has no home folder to keep a store in: --root and --runroot must be given")
    try:
        for folder in (args.root, args.runroot, os.environ.get("XDG_RUNTIME_DIR", args.runroot)):
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        known = Path(args.root) / "runroot"
        if not known.exists():
            known.write_text(args.runroot, encoding="utf-8")
        elif known.read_text(encoding="utf-8") != args.runroot:
            refuse(f'Error: database run root "{known.read_text(encoding="utf-8")}" does not match our "{args.runroot}"')
    except OSError as error:
        refuse(f"Error: creating runtime static files directory: {error}")
    program.store = hashlib.sha256(args.root.encode()).hexdigest()[:12]


def main() -> None:
    argv = sys.argv[1:]
    program.record(argv)
    if argv in (["--version"], ["-v"]):
        print("podman version 4.3.1 (stand-in)")
        raise SystemExit(0)
    args, command = global_options(argv)
    open_store(args)
    if program.setting("DOWN") == "1":
        refuse("Error: creating lock manager: no space left on device")
    raise SystemExit(docker.COMMANDS[command[0]](command[1:]))
