"""bench.sh: the data of the measurement, then one array a point."""

from __future__ import annotations

from typing import Any

from srtgen import words
from srtgen.arguments import json_text
from srtgen.bench import Point
from srtgen.bench import command as custom_command
from srtgen.plan import Plan
from srtgen.views.labels import labels
from srtgen.views.role import exports
from srtgen.words import Shell


def bench_view(plan: Plan) -> dict[str, Any]:
    """bench.sh: the data of the measurement, then one array a point."""
    bench, sweep = plan.recipe.benchmark, plan.recipe.benchmark.type == "sa-bench"
    constants: dict[str, str | int] = {
        "BENCH_TYPE": bench.type,
        "BENCH_NAME": plan.recipe.name,
        "BENCH_MODEL": plan.served.name,
        "BENCH_CLIENT": bench.client if sweep else "",
        "BENCH_CLIENT_PATH": bench.client_path if sweep and bench.client == "inferencex" else "",
        "BENCH_TOKENIZER": bench.tokenizer or (plan.served.argument if sweep and plan.served.argument != plan.served.name else ""),
        "BENCH_OFFLINE": int(plan.recipe.model.offline),
        "BENCH_ISL": bench.isl,
        "BENCH_OSL": bench.osl,
        "BENCH_RATIO": bench.range_ratio,
        "BENCH_REQUEST_RATE": bench.req_rate,
        "BENCH_CHAT_TEMPLATE": int(bench.chat_template or any(s.key in ("use-chat-template", "dsv4") for s in bench.client_args)),
        "BENCH_MAX_FAILED_RATIO": bench.max_failed_ratio,
        "BENCH_STALL_TIMEOUT_S": bench.stall_timeout_s if sweep or "stall_timeout_s" in bench.fields else 0,
        "BENCH_CONCURRENCIES": " ".join(str(p.concurrency) for p in plan.points),
        "BENCH_PROMPTS": " ".join(str(p.prompts) for p in plan.points),
        "BENCH_WARMUPS": " ".join(str(p.warmups) for p in plan.points),
        "BENCH_CWD": bench.cwd or "",
        "BENCH_GPUS_PREFILL": plan.gpus_of("prefill"),
        "BENCH_GPUS_DECODE": plan.gpus_of("decode"),
        "BENCH_GPUS_AGG": plan.gpus_of("agg"),
        "BENCH_GPUS_ALLOCATED": plan.placement.nodes * plan.placement.gpus_per_node,
        "BENCH_ROUTER_METRICS_PORT": plan.ports.router_metrics,
        "BENCH_META": json_text(labels(plan)),
    }
    return {
        "name": words.plain(plan.recipe.name),
        "constants": constants.items(),
        "exports": exports(plan.client, frozenset()),
        **_bench_calls(plan),
    }


def _bench_calls(plan: Plan) -> dict[str, Any]:
    """What bench.sh calls: one array a point of a sweep, one for a custom command, none for manual."""
    bench = plan.recipe.benchmark
    required = " ".join(words.quote(name) for name in bench.require_env)
    before = Shell(f"bench_require {required}" if required else "")
    if bench.type == "lm-eval":
        return {"before": before, "begin": Shell(""), "points": [], "finish": Shell(": # the evaluation is the benchmark")}
    if bench.type == "manual":
        return {"before": before, "begin": Shell(""), "points": [], "finish": Shell("bench_manual")}
    run = Shell('bench_custom "${argv[@]}"')
    command = {"title": Shell("The command."), "argv": [[w] for w in custom_command(bench)], "call": run}
    return {
        "before": before,
        "begin": Shell("bench_begin" if plan.points else ""),
        "points": [_point(n, len(plan.points), p) for n, p in enumerate(plan.points, 1)] or [command],
        "finish": Shell("bench_finish"),
    }


def _point(number: int, count: int, point: Point) -> dict[str, Any]:
    title = (
        f"Point {number} of {count}: concurrency {point.concurrency}, "
        f"{point.prompts} prompts behind {point.warmups} warm-up requests."
    )
    call = f'bench_point {words.quote(point.name)} {point.concurrency} {point.prompts} "${{argv[@]}}"'
    return {"title": words.plain(title), "argv": point.lines, "call": Shell(call)}
