"""The result file of a benchmark client: its keys as atom.benchmarks and InferenceX write them."""

from __future__ import annotations

import statistics
from typing import Any

from standin.load import Output


def percentile(values: list[float], share: float) -> float:
    """As numpy's default: linear between the two nearest."""
    if not values:
        return 0.0
    ordered = sorted(values)
    at = (len(ordered) - 1) * share / 100
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def samples(outputs: list[Output]) -> dict[str, list[float]]:
    """Milliseconds of each metric over the requests that came through."""
    good = [output for output in outputs if output.success]
    return {
        "ttft": [1000 * output.ttft for output in good],
        "tpot": [1000 * (o.latency - o.ttft) / (o.output_len - 1) for o in good if o.output_len > 1],
        "itl": [1000 * gap for output in good for gap in output.itl],
        "e2el": [1000 * output.latency for output in good],
    }


def latencies(outputs: list[Output], metrics: list[str], percentiles: list[str]) -> dict[str, float]:
    rows: dict[str, float] = {}
    for metric in metrics:
        values = samples(outputs)[metric]
        rows[f"mean_{metric}_ms"] = statistics.fmean(values) if values else 0.0
        rows[f"median_{metric}_ms"] = percentile(values, 50)
        rows[f"std_{metric}_ms"] = statistics.pstdev(values) if values else 0.0
        for share in percentiles:
            number = float(share)
            rows[f"p{int(number) if number.is_integer() else number}_{metric}_ms"] = percentile(values, number)
    return rows


def throughput(outputs: list[Output], duration: float) -> dict[str, Any]:
    good = [output for output in outputs if output.success]
    tokens_in = sum(output.input_len for output in good)
    tokens_out = sum(output.output_len for output in good)
    return {
        "duration": duration,
        "completed": len(good),
        "total_input_tokens": tokens_in,
        "total_output_tokens": tokens_out,
        "request_throughput": len(good) / duration,
        "request_goodput:": None,
        "output_throughput": tokens_out / duration,
        "total_token_throughput": (tokens_in + tokens_out) / duration,
    }


def details(outputs: list[Output]) -> dict[str, Any]:
    return {
        "ttfts": [output.ttft for output in outputs],
        "itls": [output.itl for output in outputs],
        "generated_texts": [output.text for output in outputs],
        "errors": [output.error for output in outputs],
    }


def lengths(outputs: list[Output]) -> dict[str, Any]:
    return {
        "input_lens": [output.input_len for output in outputs],
        "output_lens": [output.output_len for output in outputs],
    }


def report(result: dict[str, Any]) -> str:
    """The table that the clients print at the end."""
    rows = [("Successful requests:", result["completed"]), ("Benchmark duration (s):", round(result["duration"], 2)),
            ("Total input tokens:", result["total_input_tokens"]),
            ("Total generated tokens:", result["total_output_tokens"])]
    rows += [(f"{key}:", round(value, 2)) for key, value in result.items() if key.endswith("_ms")]
    title = " Serving Benchmark Result ".center(50, "=")
    return "\n".join([title, *(f"{name:<40} {value:<10}" for name, value in rows), "=" * 50])
