"""The docker stand-in's command line, and most of podman's: strict about options, mount sources, devices, names and images.

Each call is appended to $DOCKER_STANDIN_STATE/calls.jsonl as {"node", "argv"}. Settings: DOCKER_STANDIN_STATE, _IMAGES
(patterns of present images, default *), _ENV (the image's NAME=VALUE lines), _ROOTFS (host folders that stand for
the image's files), _DEVICES (paths taken as present), _DELAY (seconds a start takes), _FAIL (pattern of images or
names that fail to start), _DOWN=1 (no daemon).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from standin import container, program
from standin.docker_run import Parser, refuse, run_parser, spec_of
from standin.docker_show import find, found, image, inspect, ps

VERSION = "Docker version 27.3.1, build stand-in"


def run(argv: list[str]) -> int:
    args = run_parser().parse_args(argv)
    spec = spec_of(args)
    if args.name and find(args.name):
        refuse(f'docker: Error response from daemon: Conflict. The container name "/{args.name}" is already in use.')
    if program.fails(spec["image"], spec["name"]):
        refuse(f"{program.NAME}: Error response from daemon: failed to create task for container (_STANDIN_FAIL)")
    folder = program.state_dir() / uuid.uuid4().hex
    container.start(spec, folder)
    if args.detach:
        print(folder.name)
        return 0
    return attach(folder, spec["interactive"], args.sig_proxy == "true")


def feed(folder: Path) -> None:
    """Hands our standard input on to the container."""
    try:
        with open(folder / "stdin", "wb", buffering=0) as out:
            while True:
                piece = os.read(0, 65536)
                if not piece:
                    return
                out.write(piece)
    except OSError:
        pass


def attach(folder: Path, interactive: bool, proxy: bool) -> int:
    """Shows a container's output until it ends; hands signals on to it."""

    def hand_on(number: int, _frame: Any) -> None:
        pid = container.pid_of(folder)
        if pid and proxy:
            os.kill(pid, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, hand_on)
    if interactive:
        threading.Thread(target=feed, args=(folder,), daemon=True).start()
    logs = [(open(folder / name, "rb", buffering=0), out) for name, out in (("stdout", 1), ("stderr", 2))]
    end = folder.parent / "ends" / folder.name
    while True:
        code = container.read(end)  # before the logs: what came before the end is then not missed
        for log, out in logs:
            piece = log.read()
            if piece:
                os.write(out, piece)
        if code is not None:
            end.unlink()
            return int(code)
        time.sleep(0.02)


def remove(argv: list[str]) -> int:
    parser = Parser(prog="docker rm", allow_abbrev=False, add_help=False)
    parser.add_argument("-f", "--force", action="store_true")
    parser.add_argument("-v", "--volumes", action="store_true")
    parser.add_argument("names", nargs="+")
    args = parser.parse_args(argv)
    status = 0
    for name in args.names:
        folder = find(name)
        if folder is None:
            print(f"Error response from daemon: No such container: {name}", file=sys.stderr)
            status = 1
            continue
        pid = container.pid_of(folder)
        if pid and not args.force:
            refuse(f"Error response from daemon: cannot remove container {name}: container is running", 1)
        if pid:
            os.kill(pid, signal.SIGKILL)
            container.wait_gone(folder, 10)
        container.forget(folder)
        print(name)
    return status


def stop(argv: list[str]) -> int:
    parser = Parser(prog="docker stop", allow_abbrev=False, add_help=False)
    parser.add_argument("-t", "--time", "--timeout", type=float, default=10)
    parser.add_argument("names", nargs="+")
    args = parser.parse_args(argv)
    for name in args.names:
        folder = found(name)
        pid = container.pid_of(folder)
        if pid:
            os.kill(pid, signal.SIGTERM)
            if not container.wait_gone(folder, args.time) and container.pid_of(folder):
                os.kill(pid, signal.SIGKILL)
                container.wait_gone(folder, 10)
        print(name)
    return 0


def kill(argv: list[str]) -> int:
    parser = Parser(prog="docker kill", allow_abbrev=False, add_help=False)
    parser.add_argument("-s", "--signal", default="KILL")
    parser.add_argument("names", nargs="+")
    args = parser.parse_args(argv)
    for name in args.names:
        pid = container.pid_of(found(name))
        if pid is None:
            refuse(f"Error response from daemon: cannot kill container: {name}: is not running", 1)
        bare = args.signal.upper()
        os.kill(pid, signal.Signals[bare if bare.startswith("SIG") else "SIG" + bare])
        print(name)
    return 0


def pull(argv: list[str]) -> int:
    parser = Parser(prog="docker pull", allow_abbrev=False, add_help=False)
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("name")
    args = parser.parse_args(argv)
    if not program.image_is_there(args.name):
        refuse(f"Error response from daemon: manifest for {args.name} not found: manifest unknown", 1)
    print(args.name)
    return 0


def execute(argv: list[str]) -> int:
    """docker exec, by nsenter."""
    parser = Parser(prog="docker exec", allow_abbrev=False, add_help=False)
    parser.add_argument("-i", "--interactive", action="store_true")
    parser.add_argument("name")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    folder = found(args.name)
    pid = container.pid_of(folder)
    if pid is None:
        refuse(f"Error response from daemon: container {args.name} is not running", 1)
    env = json.loads(container.read(folder / "spec.json") or "{}")["env"]
    os.execve("/usr/bin/nsenter", ["nsenter", f"--target={pid}", "--mount", "--pid", "--root", "--wd=/", "--",
                                   *args.command], env)


def version(_argv: list[str]) -> int:
    print(VERSION)
    return 0


COMMANDS = {"run": run, "rm": remove, "stop": stop, "kill": kill, "ps": ps, "inspect": inspect, "image": image,
            "pull": pull, "exec": execute, "version": version, "info": version}


def main() -> None:
    argv = sys.argv[1:]
    program.record(argv)
    if argv in (["--version"], ["-v"]):
        raise SystemExit(version([]))
    if not argv or argv[0] not in COMMANDS:
        refuse(f"docker: '{' '.join(argv[:1])}' is not a docker command (that the stand-in knows).", 1)
    if program.setting("DOWN") == "1":
        refuse("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", 1)
    raise SystemExit(COMMANDS[argv[0]](argv[1:]))
