"""Run one client process and watch that its requests keep finishing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Callable, List, NamedTuple, Optional, Sequence

POLL_S = 0.2
KILL_AFTER_S = 10.0
SETUP_FACTOR = 3.0
TAIL_BYTES = 8192


class Progress(NamedTuple):
    """Requests seen finished, by source; None where the source does not tell."""

    workers: Optional[float]
    router: Optional[float]
    client: Optional[float]

    def passed(self, earlier: "Progress") -> bool:
        """True if any source counts more than `earlier` did."""
        pairs = zip(self, earlier)
        return any(now is not None and now > (before or 0.0) for now, before in pairs)


@dataclass(frozen=True)
class Outcome:
    """How a client ended; `exit_code` is its own (128+n for signal n), `stalled_s` > 0 if it was stopped for that."""

    exit_code: int
    wall_s: float
    stalled_s: float
    started: bool


def log_tail(path: Path, size: int = TAIL_BYTES) -> str:
    """End of a log, carriage returns as line ends; '' when there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - size))
            return stream.read().decode("utf-8", "replace").replace("\r", "\n")
    except OSError:
        return ""


def client_count(path: Path, prompts: int) -> Optional[float]:
    """Finished requests by the client's progress bar (`12/40 [...`), of a bar over exactly `prompts`."""
    found = re.findall(r"(\d+)/%d \[" % prompts, log_tail(path))
    return float(found[-1]) if found else None


class Cancelled(BaseException):
    """SIGTERM or SIGINT came; `code` is the exit code that belongs to it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _on_signal(number: int, _frame: Optional[FrameType]) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise Cancelled(128 + number)


def _signal_group(process: "subprocess.Popen[bytes]", number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def stop(process: "subprocess.Popen[bytes]") -> None:
    """TERM to the client's process group, KILL after a grace; also clears what a dead client left behind."""
    _signal_group(process, signal.SIGTERM)
    try:
        process.wait(KILL_AFTER_S)
    except subprocess.TimeoutExpired:
        pass
    _signal_group(process, signal.SIGKILL)
    process.wait()


class Watch:
    """Decides when a client counts as stalled: `limit_s` without a newly finished request (0: never).

    Before the first request is seen the client loads its tokenizer and makes its prompts, which takes
    minutes for thousands of long prompts: that phase may take SETUP_FACTOR times the limit."""

    def __init__(self, limit_s: float, begin: Progress, now: float) -> None:
        self.limit_s = limit_s
        self.seen = begin
        self.since = now
        self.started = False

    def stalled_s(self, progress: Progress, now: float) -> float:
        """Note `progress`; seconds without any if that is too long, else 0."""
        if progress.passed(self.seen):
            self.seen, self.since, self.started = progress, now, True
        limit = self.limit_s if self.started else self.limit_s * SETUP_FACTOR
        idle = now - self.since
        return idle if self.limit_s > 0 and idle > limit else 0.0


def run(
    argv: Sequence[str], log: Optional[Path], look: Callable[[], Progress], begin: Progress,
    limit_s: float, every_s: float, cwd: Optional[str] = None,
) -> Outcome:
    """Run `argv` in a process group of its own, output to `log` (None: ours); raises Cancelled, OSError."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _on_signal)
    output = log.open("xb") if log is not None else None
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT if output else None,
            start_new_session=True, cwd=cwd,
        )
    finally:
        if output is not None:
            output.close()
    try:
        return _supervise(process, look, Watch(limit_s, begin, start), start, every_s)
    finally:
        stop(process)


def _supervise(
    process: "subprocess.Popen[bytes]", look: Callable[[], Progress], watch: Watch, start: float, every_s: float
) -> Outcome:
    next_look = start + every_s
    while process.poll() is None:
        time.sleep(POLL_S)
        now = time.monotonic()
        if now < next_look:
            continue
        idle = watch.stalled_s(look(), now)
        if idle and process.poll() is None:
            stop(process)
            return Outcome(_code(process), time.monotonic() - start, idle, watch.started)
        next_look = time.monotonic() + every_s
    return Outcome(_code(process), time.monotonic() - start, 0.0, watch.started)


def _code(process: "subprocess.Popen[bytes]") -> int:
    code = process.returncode
    return 128 - code if code < 0 else code


def not_started(argv: Sequence[str], error: OSError) -> List[str]:
    """Reason for a client that could not even be run."""
    return ["%s can't be started: %s" % (argv[0], error.strerror or error)]
