"""Faults on demand: STANDIN_FAULT="STEP:NAME=VALUE,NAME=VALUE;STEP:...", addressed by $SRTGEN_STEP.

STEP is a pattern as for file names (prefill_*). A name that no stand-in knows ends the process with 2: a misspelt
fault must not pass as a healthy run. Values hold neither ',' nor ';'.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from fnmatch import fnmatchcase
from typing import Any, NoReturn, Optional

NAMES = frozenset(
    # any server
    "load_s exit_loading hang_loading log_loading ignore_term die_after_ready die_at_request die_code "
    # worker
    "hang_completions slow_health slow_health_at model_name models_error kv_null kv_role transport tpot_s "
    "empty empty_after fail_ratio fail_after fail_status stall_stream stall_stream_after answer_wrong answer_empty "
    # router
    "list_minus_one "
    # client
    "exit nothing hang retries exit_after "
    # hub library
    "no_network denied chunk_s drop_after".split()
)


class Faults:
    """The faults of this process; all absent unless STANDIN_FAULT names its step."""

    def __init__(self, spec: str, step: str) -> None:
        self._values: dict[str, str] = {}
        self._sums: dict[str, float] = {}
        for entry in filter(None, (part.strip() for part in spec.split(";"))):
            pattern, _, rest = entry.partition(":")
            for assignment in rest.split(","):
                name, _, value = assignment.partition("=")
                if name not in NAMES:
                    print(f"stand-in: unknown fault {name!r} in STANDIN_FAULT", file=sys.stderr)
                    raise SystemExit(2)
                if fnmatchcase(step, pattern):
                    self._values[name] = value or "1"

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> Optional[str]:
        return self._values.get(name)

    def number(self, name: str, default: float = 0.0) -> float:
        return float(self._values.get(name, default))

    def due(self, name: str, request: int) -> bool:
        """True if NAME is set and this request comes after the first NAME_after ones."""
        return name in self._values and request > self.number(f"{name}_after")

    def hits(self, name: str) -> bool:
        """True for the named share of all calls, evenly spread: 0.5 is every second one."""
        total = self._sums.get(name, 0.0) + self.number(name)
        self._sums[name] = total % 1.0
        return total >= 1.0


def from_environment() -> Faults:
    return Faults(os.environ.get("STANDIN_FAULT", ""), os.environ.get("SRTGEN_STEP", ""))


def setting(name: str, default: float) -> float:
    """A number from the environment (STANDIN_...)."""
    return float(os.environ.get(name) or default)


def die(code: int) -> NoReturn:
    """Ends this process at once, as code says: above 128 by that signal, so that the parent sees a real kill."""
    sys.stdout.flush()
    if code > 128:
        os.kill(os.getpid(), signal.Signals(code - 128))
    os._exit(code)


def settle(future: asyncio.Future[Any], value: Any) -> None:
    """For signal handlers: the first signal counts."""
    if not future.done():
        future.set_result(value)
