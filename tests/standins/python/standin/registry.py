"""The stand-in router's workers: registration, health, breaker and choice (ROCm/ATOM ffdf3bb5, atom/mesh/src)."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Iterable, Optional

from standin import fetch
from standin.clap import Options

PAUSES = (1.0, 2.0, 3.0, 4.0)  # then always the last one below
LAST_PAUSE = 5.0


@dataclass
class Entry:
    """One logical worker: a URL, or one rank of it."""

    url: str
    role: str
    model: str
    rank: Optional[int] = None
    ranks: int = 1
    bootstrap: Optional[int] = None
    healthy: bool = True
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    failures: int = 0
    open_until: float = 0.0
    checks_failed: int = 0
    checks_passed: int = 0
    load: int = 0

    @property
    def base(self) -> str:
        return self.url.split("@")[0]

    def shown(self) -> dict[str, Any]:
        row: dict[str, Any] = {"id": self.id, "url": self.url, "model_id": self.model, "priority": 50, "cost": 1.0,
                               "worker_type": self.role, "is_healthy": self.healthy, "load": self.load,
                               "connection_mode": "HTTP"}
        if self.model != "unknown":
            row["metadata"] = {"model_path": self.model}
        row["disable_health_check"] = False
        if self.bootstrap is not None:
            row["bootstrap_port"] = self.bootstrap
        return row


class Registry:
    """All workers. Times are the real router's, multiplied by scale."""

    def __init__(self, options: Options, scale: float) -> None:
        self.entries: list[Entry] = []
        self._options = options
        self._scale = scale
        self._taken: set[str] = set()
        self._turns = itertools.count()

    # -- registration -------------------------------------------------------

    def attempts(self) -> int:
        """So many probes a worker gets: the last one falls at about 0.9 of the time limit."""
        left = 0.9 * self._options["worker-startup-timeout-secs"] - 10
        return 3 if left <= 0 else 5 + math.ceil(left / 5)

    async def add(self, url: str, role: str, bootstrap: Optional[int] = None) -> None:
        """Probes a worker until it answers, then registers it; gives up quietly."""
        if url in self._taken:
            print(f"ERROR mesh: Failed job: type=AddWorker, worker={url} error=already exists", flush=True)
            return
        self._taken.add(url)
        if not await self._probe(url):
            self._taken.discard(url)
            print(f"ERROR mesh: Failed job: type=AddWorker, worker={url} error=timed out", flush=True)
            return
        model = await self._model_of(url)
        if not self._options["dp-aware"]:
            self.entries.append(Entry(url, role, model, bootstrap=bootstrap))
            return
        ranks = await self._ranks_of(url)
        if ranks is None:
            print(f"ERROR mesh: Failed job: type=AddWorker, worker={url} error=no dp_size", flush=True)
            return
        self.entries += [Entry(f"{url}@{rank}", role, model, rank, ranks, bootstrap) for rank in range(ranks)]

    async def _probe(self, url: str) -> bool:
        pauses = itertools.chain(PAUSES, itertools.repeat(LAST_PAUSE))
        for _ in range(self.attempts()):
            if await self.check(url + "/health"):
                return True
            await asyncio.sleep(next(pauses) * self._scale)
        return False

    async def check(self, url: str) -> bool:
        try:
            status, _ = await fetch.get(url, self._options["health-check-timeout-secs"])
        except (OSError, EOFError, ValueError, asyncio.TimeoutError):
            return False
        return 200 <= status < 300

    async def _model_of(self, url: str) -> str:
        try:
            _, body = await fetch.get(url + "/v1/models", 10)
            return next(str(card["id"]) for card in json.loads(body)["data"] if card.get("id"))
        except (OSError, EOFError, ValueError, KeyError, StopIteration, asyncio.TimeoutError):
            return "unknown"

    async def _ranks_of(self, url: str) -> Optional[int]:
        for path in ("/server_info", "/kv_transfer_info"):
            try:
                _, body = await fetch.get(url + path, 10)
                return int(json.loads(body)["dp_size"])
            except (OSError, EOFError, ValueError, KeyError, asyncio.TimeoutError):
                continue
        return None

    def registered(self, urls: Iterable[str]) -> bool:
        return set(urls) <= {entry.base for entry in self.entries}

    # -- health and choice --------------------------------------------------

    async def health_loop(self) -> None:
        while True:
            await asyncio.sleep(self._options["health-check-interval-secs"] * self._scale)
            for entry in list(self.entries):
                self._book(entry, await self.check(entry.base + self._options["health-check-endpoint"]))

    def _book(self, entry: Entry, good: bool) -> None:
        entry.checks_failed, entry.checks_passed = (0, entry.checks_passed + 1) if good else (entry.checks_failed + 1, 0)
        if entry.healthy and entry.checks_failed >= self._options["health-failure-threshold"]:
            entry.healthy = False
        elif not entry.healthy and entry.checks_passed >= self._options["health-success-threshold"]:
            entry.healthy = True

    def book(self, entry: Entry, good: bool) -> None:
        """Counts one upstream result for the circuit breaker."""
        if self._options["disable-circuit-breaker"]:
            return
        entry.failures = 0 if good else entry.failures + 1
        if entry.failures >= self._options["cb-failure-threshold"]:
            entry.open_until = time.monotonic() + self._options["cb-timeout-duration-secs"] * self._scale

    def of(self, role: str, model: Optional[str] = None) -> list[Entry]:
        return [entry for entry in self.entries if entry.role == role and model in (None, entry.model)]

    def usable(self, role: str, model: str) -> list[Entry]:
        now = time.monotonic()
        return [entry for entry in self.of(role, model) if entry.healthy and entry.open_until <= now]

    def choose(self, candidates: list[Entry], policy: str) -> Entry:
        """round_robin exactly; least loaded for the policies that look at load; else by chance."""
        if policy == "round_robin":
            return candidates[next(self._turns) % len(candidates)]
        if policy in ("cache_aware", "dp_sticky"):
            least = min(entry.load for entry in candidates)
            return random.choice([entry for entry in candidates if entry.load == least])
        return random.choice(candidates)
