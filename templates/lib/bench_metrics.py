"""Counters of the workers and of the router, read over HTTP before, during and after a point."""

from __future__ import annotations

import json
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from bench_plan import Plan, Worker

TIMEOUT_S = 5.0
SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
# ATOM 2026-08-14: names of /metrics. Exporters append _total to counters; both spellings are read.
WORKER_NAMES = {
    "requests": ("atom:requests_finished",),
    "running": ("atom:requests_running",),
    "prompt_tokens": ("atom:prompt_tokens",),
    "generation_tokens": ("atom:generation_tokens",),
    "preemptions": ("atom:preemptions",),
    "kv_usage": ("atom:kv_cache_usage_ratio",),
}

# A proxy variable in the job's environment must never route these requests.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Sample(NamedTuple):
    """One line of Prometheus text."""

    name: str
    labels: Dict[str, str]
    value: float


@dataclass(frozen=True)
class WorkerStats:
    """What one worker reports; a name that it does not export is absent from `values`."""

    values: Dict[str, float]
    mtp: Optional[Dict[str, Any]]


@dataclass(frozen=True)
class RouterStats:
    """Router counters, each 0 until its first event: retries, routed requests done, those that ended in an error."""

    retries: float
    done: float
    errors: float


@dataclass(frozen=True)
class Snapshot:
    """Everything readable at one moment; an unreachable source is None."""

    workers: Dict[str, Optional[WorkerStats]] = field(default_factory=dict)
    router: Optional[RouterStats] = None

    def finished(self, workers: Tuple[Worker, ...]) -> Optional[float]:
        """Requests finished by the workers that end requests (decode, aggregate); None when none tells."""
        counts = []
        for worker in workers:
            stats = self.workers.get(worker.step)
            if worker.role != "prefill" and stats is not None and "requests" in stats.values:
                counts.append(stats.values["requests"])
        return sum(counts) if counts else None


def fetch(url: str) -> str:
    """Body of a GET without any proxy; raises OSError."""
    try:
        with _OPENER.open(url, timeout=TIMEOUT_S) as reply:
            body: bytes = reply.read()
    except HTTPException as error:
        raise OSError(str(error)) from error
    return body.decode("utf-8", "replace")


def parse(text: str) -> List[Sample]:
    """Samples of Prometheus text; comments and lines that are none are left out."""
    samples = []
    for line in text.splitlines():
        match = SAMPLE.match(line.strip())
        if match is None:
            continue
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        samples.append(Sample(match.group(1), dict(LABEL.findall(match.group(2) or "")), value))
    return samples


def _worker_values(samples: List[Sample]) -> Dict[str, float]:
    values: Dict[str, float] = {}
    for key, names in WORKER_NAMES.items():
        wanted = {name + suffix for name in names for suffix in ("", "_total")}
        found = [sample.value for sample in samples if sample.name in wanted]
        if found:
            values[key] = max(found) if key == "kv_usage" else sum(found)
    return values


def worker_stats(url: str, mtp_too: bool) -> Optional[WorkerStats]:
    """/metrics and, if wanted, /debug/mtp_stats of a worker; None when it answers neither."""
    values: Dict[str, float] = {}
    mtp: Optional[Dict[str, Any]] = None
    reached = False
    try:
        values = _worker_values(parse(fetch(url + "/metrics")))
        reached = True
    except OSError:
        pass
    try:
        body = json.loads(fetch(url + "/debug/mtp_stats")) if mtp_too else None
        mtp = body if isinstance(body, dict) else None
        reached = reached or mtp_too
    except (OSError, ValueError):
        pass
    return WorkerStats(values, mtp) if reached else None


def router_retries(samples: List[Sample]) -> float:
    """Retried requests. In P/D mode the router counts one retry under prefill and decode alike: the larger
    of the two is the number (ROCm/ATOM 2026-08: mesh_worker_retries_total, labels worker_type, endpoint)."""
    by_type: Dict[str, float] = {}
    for sample in samples:
        if sample.name.endswith("_retries_total"):
            kind = sample.labels.get("worker_type", "")
            by_type[kind] = by_type.get(kind, 0.0) + sample.value
    pair = max(by_type.pop("prefill", 0.0), by_type.pop("decode", 0.0))
    return pair + sum(by_type.values())


def _total(samples: List[Sample], ending: str) -> float:
    return sum(sample.value for sample in samples if sample.name.endswith(ending))


def router_stats(url: str) -> Optional[RouterStats]:
    """Counters of the router's metrics port; None when it does not answer."""
    try:
        samples = parse(fetch(url))
    except OSError:
        return None
    # The HTTP counters also hold health checks and the client's own 404s: only routed requests tell of work.
    done = _total(samples, "_router_request_duration_seconds_count")
    return RouterStats(router_retries(samples), done, _total(samples, "_router_request_errors_total"))


def snapshot(plan: Plan, mtp_too: bool = False) -> Snapshot:
    """Read every worker and the router at once. /metrics is a read of numbers that are there; /debug/mtp_stats
    asks the engine, so it is for before and after a point only."""
    with ThreadPoolExecutor(max_workers=min(16, len(plan.workers) + 1)) as pool:
        workers = {worker.step: pool.submit(worker_stats, worker.url, mtp_too) for worker in plan.workers}
        router = pool.submit(router_stats, plan.router_metrics_url) if plan.router_metrics_url else None
        return Snapshot({step: job.result() for step, job in workers.items()}, router.result() if router else None)
