"""The validity gate: a point counts only if its client's own figures prove that the work was done."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from bench_plan import Plan, Point

METRICS = ("ttft", "tpot", "itl", "e2el")
COUNTS = ("completed", "total_input_tokens", "total_output_tokens")
RATES = ("duration", "output_throughput", "total_token_throughput")
PROMPT_SLACK = 8  # tokens a request: the client re-encodes its random text
CLIENT_SIDE = re.compile(r"Cannot assign requested address|Too many open files|EMFILE|EADDRNOTAVAIL")
SERVER_SIDE = re.compile(
    r"Connection (?:reset|refused)|Cannot connect to host|Server ?[Dd]isconnected|Connect call failed"
    r"|ClientPayloadError|TimeoutError|(?:Internal Server Error|Bad Gateway|Service Unavailable|Gateway Time-?out)"
)


class Judgement(NamedTuple):
    """Why a point does not count (empty: it does), and what a reader should know anyway."""

    problems: List[str]
    warnings: List[str]


def read_result(path: Path) -> Tuple[Dict[str, Any], str]:
    """The client's JSON and '', or {} and what is wrong with the file."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, "the client wrote no result file"
    except (OSError, ValueError) as error:
        return {}, "the client's result file can't be read: %s" % error
    if not isinstance(result, dict):
        return {}, "the client's result file holds no JSON object"
    return result, ""


def metric_key(metric: str, statistic: str) -> str:
    """The client's name of a statistic: p50 is its median."""
    return "%s_%s_ms" % ({"p50": "median"}.get(statistic, statistic), metric)


def number(result: Mapping[str, Any], key: str) -> Optional[float]:
    """A finite number of the result, else None (NaN is what the client writes when nothing completed)."""
    value = result.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _missing(plan: Plan, result: Mapping[str, Any]) -> List[str]:
    keys = list(COUNTS + RATES)
    for metric in METRICS:
        if plan.osl > 1 or metric in ("ttft", "e2el"):
            keys += [metric_key(metric, statistic) for statistic in ("mean", "p50", "p90", "p99")]
    return [key for key in keys if number(result, key) is None]


def _bounds(plan: Plan, result: Mapping[str, Any], done: int) -> List[str]:
    ratio = float(plan.ratio)
    tokens_in, tokens_out = number(result, "total_input_tokens"), number(result, "total_output_tokens")
    problems = []
    low, high = int(ratio * plan.osl) * done - done, (plan.osl + 1) * done
    if tokens_out is not None and not low <= tokens_out <= high:
        problems.append("%d output tokens, expected %d to %d" % (tokens_out, low, high))
    low = int(ratio * plan.isl) * done - PROMPT_SLACK * done
    high = plan.isl * done + PROMPT_SLACK * done
    if tokens_in is not None and plan.chat_template and tokens_in <= 0:
        problems.append("no input tokens")
    if tokens_in is not None and not plan.chat_template and not low <= tokens_in <= high:
        problems.append("%d input tokens, expected %d to %d" % (tokens_in, low, high))
    return problems


def _consistency(plan: Plan, point: Point, result: Mapping[str, Any], wall_s: float) -> List[str]:
    problems = []
    asked, concurrency = number(result, "num_prompts"), number(result, "max_concurrency")
    if asked is not None and asked != point.prompts:
        problems.append("result is for %d prompts, %d were asked for" % (asked, point.prompts))
    if concurrency is not None and concurrency != point.concurrency:
        problems.append("result is for concurrency %d, not %d" % (concurrency, point.concurrency))
    duration, rate = number(result, "duration") or 0.0, number(result, "output_throughput") or 0.0
    tokens = number(result, "total_output_tokens") or 0.0
    if duration <= 0 or rate <= 0:
        problems.append("duration %g s and %g output tokens/s" % (duration, rate))
    elif duration > wall_s + 1:
        problems.append("result claims %.0f s, the client ran for %.0f s" % (duration, wall_s))
    elif abs(tokens / duration - rate) > 0.01 * rate:
        problems.append("%.1f output tokens/s is not %d tokens in %.1f s" % (rate, tokens, duration))
    if plan.osl > 1 and (number(result, metric_key("tpot", "p50")) or 0.0) <= 0:
        problems.append("median time per output token is not positive")
    return problems


def _means(plan: Plan, result: Mapping[str, Any], done: int) -> List[str]:
    warnings = []
    for key, length in (("total_input_tokens", plan.isl), ("total_output_tokens", plan.osl)):
        if key == "total_input_tokens" and plan.chat_template:
            continue
        expected = (int(float(plan.ratio) * length) + length) / 2
        mean = (number(result, key) or 0.0) / done
        # The mean of few uniform draws scatters by itself: four standard errors of it are no news.
        scatter = 4 * (length - int(float(plan.ratio) * length)) / math.sqrt(12 * done)
        if abs(mean - expected) > max(0.03 * expected, scatter):
            warnings.append("mean of %s is %.0f a request, planned %.0f" % (key, mean, expected))
    return warnings


def judge(plan: Plan, point: Point, result: Mapping[str, Any], wall_s: float) -> Judgement:
    """Check a client's result of a run that took `wall_s` seconds against what was asked for."""
    missing = _missing(plan, result)
    problems = ["no usable %s in the result" % ", ".join(missing)] if missing else []
    done = number(result, "completed")
    if done is None:
        return Judgement(problems, [])
    failed = point.prompts - int(done)
    if failed < 0:
        problems.append("%d requests completed, only %d were asked for" % (done, point.prompts))
    elif failed > plan.max_failed_ratio * point.prompts:
        problems.append("%d of %d requests failed" % (failed, point.prompts))
    if done <= 0:
        return Judgement(problems or ["no request completed"], [])
    problems += _bounds(plan, result, int(done)) + _consistency(plan, point, result, wall_s)
    return Judgement(problems, _means(plan, result, int(done)))


def error_sides(result: Mapping[str, Any], log: str) -> Dict[str, int]:
    """Error texts by the side that caused them: the client's own limits, the server or the way to it, or unknown."""
    listed = result.get("errors")
    texts = [text for text in listed if text] if isinstance(listed, list) else log.splitlines()
    sides = {"client": 0, "server": 0, "unknown": 0}
    for text in map(str, texts):
        if CLIENT_SIDE.search(text):
            sides["client"] += 1
        elif SERVER_SIDE.search(text):
            sides["server"] += 1
        elif isinstance(listed, list):
            sides["unknown"] += 1
    return sides
