"""What is to be measured, read from the constants that bench.sh exports and from the job's environment."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

ROLES = ("prefill", "decode", "agg")


class PlanError(Exception):
    """A constant or variable that makes the benchmark impossible; the text is for the operator."""


@dataclass(frozen=True)
class Point:
    """One planned measurement; `number` counts from 1 over the whole plan."""

    number: int
    name: str
    concurrency: int
    prompts: int
    warmups: int


@dataclass(frozen=True)
class Worker:
    """One engine process as the client reaches it."""

    step: str
    role: str
    url: str


@dataclass(frozen=True)
class Plan:
    """All of bench.sh's data block, typed; `points` are planned, `chosen` are those of this run."""

    name: str
    kind: str
    client: str
    client_path: str
    model: str
    tokenizer: str
    offline: bool
    isl: int
    osl: int
    ratio: str
    request_rate: str
    chat_template: bool
    max_failed_ratio: float
    stall_timeout_s: float
    points: Tuple[Point, ...]
    chosen: Tuple[Point, ...]
    gpus: Dict[str, int]
    gpus_allocated: int
    router_metrics_url: str
    workers: Tuple[Worker, ...]
    meta: Dict[str, Any]
    results: Path
    endpoint: str

    @property
    def folder(self) -> Path:
        """Folder of this benchmark's files."""
        return self.results / "bench"

    @property
    def worker_gpus(self) -> int:
        """GPUs that serve, over all roles."""
        return sum(self.gpus.values())

    @property
    def prefill_gpus(self) -> int:
        """GPUs that read prompts: the prefill workers', or all of an aggregate."""
        return self.gpus["prefill"] or self.gpus["agg"]

    @property
    def decode_gpus(self) -> int:
        """GPUs that write tokens: the decode workers', or all of an aggregate."""
        return self.gpus["decode"] or self.gpus["agg"]


def point_names(concurrencies: List[int]) -> List[str]:
    """`c8`, and `c8_2`, `c8_3` for repeats: unique file names in plan order."""
    seen: Dict[int, int] = {}
    names = []
    for value in concurrencies:
        seen[value] = seen.get(value, 0) + 1
        names.append("c%d" % value if seen[value] == 1 else "c%d_%d" % (value, seen[value]))
    return names


def _integers(env: Mapping[str, str], name: str) -> List[int]:
    try:
        return [int(word) for word in env.get(name, "").split()]
    except ValueError:
        raise PlanError("%s is not a list of whole numbers: %r" % (name, env.get(name))) from None


def _points(env: Mapping[str, str]) -> Tuple[Point, ...]:
    concurrencies = _integers(env, "BENCH_CONCURRENCIES")
    prompts = _integers(env, "BENCH_PROMPTS")
    warmups = _integers(env, "BENCH_WARMUPS") or [0] * len(prompts)
    if not len(concurrencies) == len(prompts) == len(warmups):
        raise PlanError("BENCH_CONCURRENCIES, BENCH_PROMPTS and BENCH_WARMUPS differ in length")
    rows = zip(point_names(concurrencies), concurrencies, prompts, warmups)
    return tuple(Point(number, *row) for number, row in enumerate(rows, 1))


def choose(points: Tuple[Point, ...], wanted: Optional[str]) -> Tuple[Point, ...]:
    """The points whose concurrency `wanted` (SRTGEN_CONCURRENCIES, blanks or commas) names; all when empty."""
    words = (wanted or "").replace(",", " ").split()
    if not words:
        return points
    planned = {str(point.concurrency) for point in points}
    unknown = [word for word in words if word not in planned]
    if unknown:
        text = "SRTGEN_CONCURRENCIES names %s; the plan has %s"
        raise PlanError(text % (" ".join(unknown), " ".join(str(point.concurrency) for point in points)))
    return tuple(point for point in points if str(point.concurrency) in words)


def _workers(env: Mapping[str, str]) -> Tuple[Worker, ...]:
    found = []
    for role in ROLES:
        urls = [url for url in env.get("SRT_%s_ENDPOINTS" % role.upper(), "").split(",") if url]
        found += [Worker("%s_%d" % (role, index), role, url.rstrip("/")) for index, url in enumerate(urls)]
    return tuple(found)


def _number(env: Mapping[str, str], name: str, default: str) -> float:
    text = env.get(name) or default
    try:
        return float(text)
    except ValueError:
        raise PlanError("%s is not a number: %r" % (name, text)) from None


def load(env: Mapping[str, str] = os.environ) -> Plan:
    """Read the plan; raises PlanError naming the constant that is wrong or missing."""
    if not env.get("SRTGEN_RESULTS"):
        raise PlanError("SRTGEN_RESULTS is not set: the benchmark does not know where its results go")
    points = _points(env)
    host, port = env.get("SRT_FRONTEND_HOST", ""), env.get("BENCH_ROUTER_METRICS_PORT", "")
    return Plan(
        name=env.get("BENCH_NAME", ""),
        kind=env.get("BENCH_TYPE", "sa-bench"),
        client=env.get("BENCH_CLIENT", ""),
        client_path=env.get("BENCH_CLIENT_PATH", ""),
        model=env.get("BENCH_MODEL", ""),
        tokenizer=env.get("BENCH_TOKENIZER", ""),
        offline=env.get("BENCH_OFFLINE") == "1",
        isl=int(_number(env, "BENCH_ISL", "0")),
        osl=int(_number(env, "BENCH_OSL", "0")),
        ratio=env.get("BENCH_RATIO") or "0.8",
        request_rate=env.get("BENCH_REQUEST_RATE") or "inf",
        chat_template=env.get("BENCH_CHAT_TEMPLATE") == "1",
        max_failed_ratio=_number(env, "BENCH_MAX_FAILED_RATIO", "0"),
        stall_timeout_s=_number(env, "BENCH_STALL_TIMEOUT_S", "0"),
        points=points,
        chosen=choose(points, env.get("SRTGEN_CONCURRENCIES")),
        gpus={role: int(_number(env, "BENCH_GPUS_%s" % role.upper(), "0")) for role in ROLES},
        gpus_allocated=int(_number(env, "BENCH_GPUS_ALLOCATED", "0")),
        router_metrics_url="http://%s:%s/metrics" % (host, port) if host and port else "",
        workers=_workers(env),
        meta=json.loads(env.get("BENCH_META") or "{}"),
        results=Path(env["SRTGEN_RESULTS"]),
        endpoint=env.get("SRT_ENDPOINT", ""),
    )
