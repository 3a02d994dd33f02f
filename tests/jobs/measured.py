"""A plan of a benchmark and a client's result that fits it, for the functions of the benchmark's programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench_rig import Counters
from jobs.shell import LIB

sys.path.insert(0, str(LIB))
import bench_gate  # noqa: E402  (found only by the path above)
import bench_plan  # noqa: E402

ENV = {
    "BENCH_NAME": "a job", "BENCH_CLIENT": "atom", "BENCH_MODEL": "org/m", "BENCH_ISL": "100", "BENCH_OSL": "10", "BENCH_CONCURRENCIES": "4 8",
    "BENCH_PROMPTS": "40 80", "BENCH_WARMUPS": "8 16", "BENCH_GPUS_PREFILL": "4", "BENCH_GPUS_DECODE": "8", "BENCH_GPUS_ALLOCATED": "16",
}


def plan(results: Path, **env: str) -> bench_plan.Plan:
    """Two points of 100 in / 10 out tokens on 4 prefill and 8 decode GPUs; variables by their names."""
    (results / "bench").mkdir(parents=True, exist_ok=True)
    return bench_plan.load({**ENV, "SRTGEN_RESULTS": str(results), **env})


def result(completed: int = 40, tokens_in: int = 90, tokens_out: int = 9, **more: Any) -> dict[str, Any]:
    """What the client says of so many requests with so many tokens each, in 10 s."""
    times = {bench_gate.metric_key(metric, statistic): 20.0 for metric in bench_gate.METRICS for statistic in ("mean", "p50", "p90", "p99")}
    total_in, total_out = completed * tokens_in, completed * tokens_out
    return {"completed": completed, "num_prompts": 40, "max_concurrency": 4, "duration": 10.0, "total_input_tokens": total_in,
            "total_output_tokens": total_out, "output_throughput": total_out / 10, "total_token_throughput": (total_in + total_out) / 10,
            **times, **more}


def in_environment(monkeypatch: pytest.MonkeyPatch, results: Path, **env: str) -> None:
    """The plan's variables in this process, as bench.sh exports them."""
    for name, value in {**ENV, "SRTGEN_RESULTS": str(results), **env}.items():
        monkeypatch.setenv(name, value)
    (results / "bench").mkdir(exist_ok=True)


@contextmanager
def counting() -> Iterator[dict[str, Counters]]:
    """A prefill, a decode and a router whose counters a test sets."""
    servers = {"prefill_0": Counters("worker"), "decode_0": Counters("worker"), "router": Counters("router")}
    try:
        yield servers
    finally:
        for one in servers.values():
            one.shutdown()
            one.server_close()


def served(results: Path, counters: dict[str, Counters], **env: str) -> bench_plan.Plan:
    """The plan with these servers."""
    return plan(results, SRT_PREFILL_ENDPOINTS=counters["prefill_0"].url, SRT_DECODE_ENDPOINTS=counters["decode_0"].url,
                SRT_FRONTEND_HOST="127.0.0.1", BENCH_ROUTER_METRICS_PORT=str(counters["router"].server_address[1]), **env)
