"""Containers of the docker and podman stand-ins: a process in mount and PID namespaces of its own, kept by a shim of its own.

Like a real one it lives on when its client is killed, ends with its first process, and shows only the system's
folders, what is mounted, and what <PROGRAM>_STANDIN_ROOTFS names (in place of the image's files). Needs root.

Host folders are visible below the mount point of a container's root. So all mounts happen in the container's first
process alone, in a namespace of its own, and nothing here removes a folder with what is in it: clean-up names files.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn, Optional

from standin.program import NAME
from standin.rootfs import become, build_root, checked, libc

NEW_PIDS = 0x20000000
FILES = ("spec.json", "stdin", "stdout", "stderr", "pid", "exit")


def init_loop(argv: list[str], env: dict[str, str]) -> int:
    """What --init does: hands signals on, reaps, ends with the command."""
    child = os.fork()
    if child == 0:
        run_command(argv, env)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda got, _frame: os.kill(child, got))
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def run_command(argv: list[str], env: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        print(f'{NAME}: exec: "{argv[0]}": {error.strerror}', file=sys.stderr, flush=True)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def first_process(spec: dict[str, Any], folder: Path) -> NoReturn:
    """PID 1 of a container."""
    stdin = os.open(folder / "stdin", os.O_RDONLY) if spec["interactive"] else os.open("/dev/null", os.O_RDONLY)
    os.dup2(stdin, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_APPEND), number)
    os.closerange(3, 256)
    root = str(folder.parent / "mnt")
    try:
        build_root(spec, root)
        become(spec, root)
    except OSError as error:
        print(f"{NAME}: {error}", file=sys.stderr, flush=True)
        os._exit(125)
    os.environ.clear()
    os.environ.update(spec["env"])
    if spec["init"]:
        code = init_loop(spec["argv"], spec["env"])
        os._exit(code if code >= 0 else 128 - code)
    run_command(spec["argv"], spec["env"])


def shim(folder: Path) -> None:
    """Starts a container, waits for its end and books it. Runs as a process of its own, away from the client."""
    spec = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
    time.sleep(spec["delay"])
    checked(libc.unshare(NEW_PIDS), "unshare")  # of its children; its own mounts stay the host's
    child = os.fork()
    if child == 0:
        first_process(spec, folder)
    write(folder / "pid", str(child))
    if not (folder / "spec.json").exists():  # removed while it started
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    ends = folder.parent / "ends"
    ends.mkdir(exist_ok=True)
    write(folder / "exit", str(code if code >= 0 else 128 - code))
    write(ends / folder.name, str(code if code >= 0 else 128 - code))
    if spec["remove"]:
        forget(folder)


def forget(folder: Path) -> None:
    """Removes a container's folder: its own files by name, then the folder if nothing else is in it."""
    for name in FILES:
        for path in (folder / name, folder / (name + ".part")):
            try:
                path.unlink()
            except FileNotFoundError:
                pass
    try:
        folder.rmdir()
    except FileNotFoundError:
        pass


def write(path: Path, text: str) -> None:
    """Whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, encoding="utf-8")
        part.rename(path)
    except FileNotFoundError:
        pass  # docker rm -f was faster


def read(path: Path) -> Optional[str]:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


def start(spec: dict[str, Any], folder: Path) -> None:
    """Makes a container's folder and its shim, which belongs to nobody (as one of a daemon's)."""
    folder.mkdir(parents=True)
    (folder.parent / "mnt").mkdir(exist_ok=True)
    for name in ("stdout", "stderr"):
        (folder / name).touch()
    if spec["interactive"]:
        os.mkfifo(folder / "stdin")
    write(folder / "spec.json", json.dumps(spec))
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    nowhere = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.closerange(3, 256)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    try:
        shim(folder)
    finally:
        os._exit(0)


def pid_of(folder: Path) -> Optional[int]:
    """The container's first process as the host sees it; None before it started and after it ended."""
    text = read(folder / "pid")
    if text is None or (folder / "exit").exists() or not folder.exists():
        return None
    return int(text)


def wait_gone(folder: Path, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not folder.exists() or (folder / "exit").exists():
            return True
        time.sleep(0.01)
    return False
