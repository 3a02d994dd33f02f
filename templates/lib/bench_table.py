"""The lines that the benchmark prints while it runs: one a point, with elapsed time and an estimate."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from bench_plan import Plan, Point

HEAD = "%-7s %6s %8s %9s %9s %12s %11s %12s %11s  %s" % (
    "point", "conc", "prompts", "elapsed", "left", "completed", "tok/s/GPU", "tok/s/user", "ttft p50", "valid")


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    whole = int(round(seconds))
    hours, rest = divmod(whole, 3600)
    return "%d:%02d:%02d" % (hours, rest // 60, rest % 60) if hours else "%d:%02d" % (rest // 60, rest % 60)


def _place(plan: Plan, point: Point) -> str:
    return "%d/%d" % (plan.chosen.index(point) + 1, len(plan.chosen))


def _left(plan: Plan, point: Point, done: float, elapsed: float) -> str:
    later = plan.chosen[plan.chosen.index(point) + 1:]
    requests = point.prompts - done + sum(other.prompts for other in later)
    return "~" + clock(requests * elapsed / done) if done > 0 else "?"


def started_line(plan: Plan, point: Point) -> str:
    """A point begins."""
    text = "%-7s %6d %8d  started, %d warm-up requests first"
    return text % (_place(plan, point), point.concurrency, point.prompts, point.warmups)


def running_line(plan: Plan, point: Point, done: Optional[float], elapsed: float) -> str:
    """A point goes on; `done` requests of it are finished, None when the client does not tell."""
    count = "?" if done is None else "%d" % done
    left = "?" if done is None else _left(plan, point, done, elapsed)
    text = "%-7s %6d %8d %9s %9s %12s"
    return text % (_place(plan, point), point.concurrency, point.prompts, clock(elapsed), left, count)


def _figure(value: Optional[float], text: str) -> str:
    return "-" if value is None else text % value


def finished_line(plan: Plan, point: Point, record: Dict[str, Any], done: Sequence[Dict[str, Any]]) -> str:
    """A point is over; the estimate takes the rate of this point for all that are left."""
    row = record["row"]
    left = _left(plan, point, point.prompts, record["wall_s"])
    return "%-7s %6d %8d %9s %9s %12s %11s %12s %11s  %s" % (
        _place(plan, point), point.concurrency, point.prompts, clock(sum(item["wall_s"] for item in done)),
        left if point != plan.chosen[-1] else "0:00", _figure(row["completed"], "%d"),
        _figure(row["total_tok_s_per_gpu"], "%.1f"), _figure(row["interactivity"], "%.1f"),
        _figure(row["ttft_ms_p50"], "%.1f ms"), "yes" if row["valid"] else "NO")


def opening(plan: Plan, identity: Dict[str, Any]) -> List[str]:
    """What is about to be measured, and the table's head."""
    requests = sum(point.prompts for point in plan.chosen)
    lines = [
        "benchmark %s: %d points, %d requests, %d in / %d out tokens, range ratio %s, rate %s, client %s" % (
            plan.model, len(plan.chosen), requests, plan.isl, plan.osl, plan.ratio, plan.request_rate, plan.client),
        "serving on %d GPUs (%d prefill, %d decode), %d allocated; recipe %s, image %s" % (
            plan.worker_gpus, plan.prefill_gpus, plan.decode_gpus, plan.gpus_allocated,
            str(identity.get("recipe_sha256") or "?")[:12], identity.get("images", {}).get("bench") or "?"),
    ]
    if plan.chosen != plan.points:
        lines.append("SRTGEN_CONCURRENCIES: %d of %d planned points" % (len(plan.chosen), len(plan.points)))
    return lines + [HEAD]
