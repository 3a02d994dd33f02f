"""One measured point as a record: the summary row, and behind it what the workers and the router counted."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from bench_gate import METRICS, metric_key, number
from bench_metrics import Snapshot, WorkerStats
from bench_plan import Plan, Point, Worker

STATISTICS = ("mean", "p50", "p90", "p99")
COLUMNS = (
    "concurrency", "isl", "osl", "random_range_ratio", "num_prompts", "completed", "failed", "retried",
    "duration_s", "output_tok_s", "total_tok_s", "gpus_allocated", "total_tok_s_per_gpu",
    "input_tok_s_per_prefill_gpu", "output_tok_s_per_decode_gpu", "interactivity",
) + tuple("%s_ms_%s" % (metric, statistic) for metric in METRICS for statistic in STATISTICS) + (
    "valid", "reason", "raw",
)
IMBALANCE = 1.5
MIN_REQUESTS = 10


def _share(value: Optional[float], gpus: int) -> Optional[float]:
    return value / gpus if value is not None and gpus else None


def figures(plan: Plan, point: Point, result: Mapping[str, Any]) -> Dict[str, Any]:
    """The row's numbers from a client's result; None where it does not tell."""
    duration, completed = number(result, "duration"), number(result, "completed")
    tokens_in = number(result, "total_input_tokens")
    output, total = number(result, "output_throughput"), number(result, "total_token_throughput")
    tpot = number(result, metric_key("tpot", "p50"))
    row: Dict[str, Any] = {
        "concurrency": point.concurrency, "isl": plan.isl, "osl": plan.osl, "random_range_ratio": plan.ratio,
        "num_prompts": point.prompts,
        "completed": None if completed is None else int(completed),
        "failed": None if completed is None else max(0, point.prompts - int(completed)),
        "retried": None, "duration_s": duration, "output_tok_s": output, "total_tok_s": total,
        "gpus_allocated": plan.gpus_allocated,
        "total_tok_s_per_gpu": _share(total, plan.worker_gpus),
        "input_tok_s_per_prefill_gpu": _share(tokens_in / duration if tokens_in and duration else None, plan.prefill_gpus),
        "output_tok_s_per_decode_gpu": _share(output, plan.decode_gpus),
        "interactivity": 1000 / tpot if tpot else None,
    }
    for metric in METRICS:
        for statistic in STATISTICS:
            row["%s_ms_%s" % (metric, statistic)] = number(result, metric_key(metric, statistic))
    return row


def client_retries(result: Mapping[str, Any]) -> float:
    """Retries that the client itself reports; clients that never retry have no such key."""
    found = [number(result, key) for key in ("retried", "retries", "num_retries", "total_retries")]
    return max([value for value in found if value is not None], default=0.0)


def retried(result: Mapping[str, Any], before: Snapshot, after: Snapshot) -> Optional[int]:
    """Retries of the client and of the router during the point; None when the router does not tell."""
    if before.router is None or after.router is None:
        return None
    return int(client_retries(result) + max(0.0, after.router.retries - before.router.retries))


def surplus(plan: Plan, point: Point, before: Snapshot, after: Snapshot) -> List[str]:
    """A warning if the workers finished more requests than were asked for: someone sent some twice, or is not us."""
    old, new = before.finished(plan.workers), after.finished(plan.workers)
    asked = point.prompts + point.warmups + 1  # clients try one prompt before the warm-ups
    if old is None or new is None or new - old <= asked:
        return []
    return ["the workers finished %d requests, the client was to send %d: retries, or other traffic" % (new - old, asked)]


def _delta(before: Optional[WorkerStats], after: WorkerStats, key: str) -> Optional[float]:
    if before is None or key not in before.values or key not in after.values:
        return None
    return after.values[key] - before.values[key]


def _steps(stats: Mapping[str, Any]) -> float:
    spread = stats.get("distribution")
    return float(sum(spread.values())) if isinstance(spread, dict) else 0.0


def _acceptance(before: Optional[WorkerStats], after: WorkerStats) -> Dict[str, Optional[float]]:
    """Share of draft tokens taken and tokens per forward during the point (the statistics count since start)."""
    old, new = (before.mtp if before else None) or {}, after.mtp or {}
    drafted = (number(new, "total_draft_tokens") or 0.0) - (number(old, "total_draft_tokens") or 0.0)
    accepted = (number(new, "total_accepted_tokens") or 0.0) - (number(old, "total_accepted_tokens") or 0.0)
    steps = _steps(new) - _steps(old)
    return {
        "acceptance_rate": accepted / drafted if drafted > 0 else None,
        "tokens_per_forward": 1 + accepted / steps if drafted > 0 and steps > 0 else None,
    }


def worker_record(before: Optional[WorkerStats], after: Optional[WorkerStats], kv_peak: Optional[float]) -> Dict[str, Any]:
    """What one worker did during the point, None where it does not tell."""
    if after is None:
        return {"reached": False}
    record: Dict[str, Any] = {"reached": True, "kv_usage_peak": kv_peak}
    for key in ("requests", "prompt_tokens", "generation_tokens", "preemptions"):
        record[key] = _delta(before, after, key)
    record.update(_acceptance(before, after))
    return record


def imbalance(workers: Tuple[Worker, ...], records: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """Warnings for roles whose busiest worker got more than IMBALANCE times its share of the requests."""
    warnings = []
    for role in ("prefill", "decode", "agg"):
        steps = [worker.step for worker in workers if worker.role == role]
        counts = {step: records.get(step, {}).get("requests") for step in steps}
        if len(steps) < 2 or any(count is None for count in counts.values()):
            continue
        total = sum(counts.values())
        share = total / len(steps)
        if share >= MIN_REQUESTS and (max(counts.values()) > IMBALANCE * share or min(counts.values()) < share / 2):
            text = ", ".join("%s %d" % item for item in counts.items())
            warnings.append("uneven load on %s workers: %s requests" % (role, text))
    return warnings
