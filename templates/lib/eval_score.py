"""Is a score worth anything, and is it high enough?"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from eval_plan import BELOW, FAILED, EvalError, EvalPlan

UNEXTRACTED = "[invalid]"  # lm-eval 0.4.13: what a regex filter gives when it finds nothing
STRICT = "strict-match"


class Score(NamedTuple):
    """Code 0, 22 (not valid) or 23 (below a threshold), and what led to it."""

    code: int
    reason: str
    metrics: Dict[str, Dict[str, float]]
    samples: Dict[str, int]
    shares: Dict[str, Dict[str, float]]


def single(folder: Path, pattern: str) -> Path:
    """The one file of a pattern."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise EvalError("%d files %s in %s, expected one" % (len(found), pattern, folder.name))
    return found[0]


def expected(plan: EvalPlan, documents: Optional[int]) -> Optional[int]:
    """Samples that must have been scored: the split that was loaded in the preparation, cut by the limit."""
    if documents is None:
        return None
    return documents if plan.limit is None else min(plan.limit, documents)


def metrics_of(results: Mapping[str, Any], task: str) -> Dict[str, float]:
    """Finite figures of a task by filter name (`exact_match,strict-match` is `strict-match`)."""
    named: Dict[str, float] = {}
    for label, value in results.get("results", {}).get(task, {}).items():
        metric, _, name = label.partition(",")
        if name and not metric.endswith("_stderr") and isinstance(value, (int, float)) and math.isfinite(value):
            named[name] = float(value)
    return named


def _answers(path: Path) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _empty(sample: Mapping[str, Any]) -> bool:
    text = sample["resps"][0][0] if sample.get("resps") and sample["resps"][0] else ""
    return not str(text or "").strip()


def shares_of(samples: List[Dict[str, Any]]) -> Dict[str, float]:
    """Share of empty answers, and of those from which the strict filter took nothing."""
    strict = [sample for sample in samples if sample.get("filter") == STRICT] or samples
    count = len(strict)
    if not count:
        return {"empty": 1.0, "unextracted": 1.0}
    nothing = [sample for sample in strict if (sample.get("filtered_resps") or [""])[0] in ("", UNEXTRACTED, None)]
    return {"empty": sum(map(_empty, strict)) / count, "unextracted": len(nothing) / count}


def _task_problems(plan: EvalPlan, task: str, results: Mapping[str, Any], documents: Optional[int],
                   samples: List[Dict[str, Any]], shares: Mapping[str, float]) -> List[str]:
    problems = []
    scored = results.get("n-samples", {}).get(task, {}).get("effective")
    wanted = expected(plan, documents)
    ids = {sample.get("doc_id") for sample in samples}
    if not scored or (wanted is not None and scored != wanted):
        problems.append("%s: %s samples scored, expected %s" % (task, scored, wanted))
    elif len(ids) != scored:
        problems.append("%s: %d samples recorded of %d scored" % (task, len(ids), scored))
    if shares["empty"] > plan.max_empty_ratio:
        problems.append("%s: %.1f %% of the answers are empty, allowed %.1f %%" % (task, 100 * shares["empty"], 100 * plan.max_empty_ratio))
    limit = plan.max_unextracted_ratio
    if limit is not None and shares["unextracted"] > limit:
        problems.append("%s: nothing to extract in %.1f %% of the answers, allowed %.1f %%" % (task, 100 * shares["unextracted"], 100 * limit))
    return problems


def below(plan: EvalPlan, metrics: Mapping[str, Mapping[str, float]]) -> List[str]:
    """Metrics under their threshold; raises EvalError for one that was not measured."""
    found, checked = [], 0
    for task, named in plan.thresholds.items():
        for name, threshold in named.items():
            value = metrics.get(task, {}).get(name)
            if value is None:
                raise EvalError("%s %s has a threshold and no score" % (task, name))
            checked += 1
            if value < threshold:
                found.append("%s %s %.4f is below %g" % (task, name, value, threshold))
    if not checked:
        raise EvalError("no metric was compared with a threshold")
    return found


def judge(plan: EvalPlan, documents: Mapping[str, Optional[int]]) -> Score:
    """Validity first, then thresholds; `documents` are the sizes of the test splits that were loaded."""
    results = json.loads(single(plan.results, "results_*.json").read_text(encoding="utf-8"))
    metrics: Dict[str, Dict[str, float]] = {}
    counts: Dict[str, int] = {}
    shares: Dict[str, Dict[str, float]] = {}
    problems: List[str] = []
    for task in plan.tasks:
        samples = _answers(single(plan.results, "samples_%s_*.jsonl" % task))
        metrics[task], shares[task] = metrics_of(results, task), shares_of(samples)
        counts[task] = len({sample.get("doc_id") for sample in samples})
        problems += _task_problems(plan, task, results, documents.get(task), samples, shares[task])
    low = below(plan, metrics)
    if problems:
        return Score(FAILED, "; ".join(problems), metrics, counts, shares)
    return Score(BELOW if low else 0, "; ".join(low), metrics, counts, shares)
