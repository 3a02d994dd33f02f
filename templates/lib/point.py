"""Measure one point: `point.py run NAME CONCURRENCY PROMPTS argv…`, or `point.py custom argv…`.

Appends one record to bench/points.jsonl. Exit code: 0 whatever the point gave (the record tells),
128+n when a signal ended it, 2 for a call that does not fit the plan."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Optional, Sequence

import bench_gate
import bench_row
import bench_run
from bench_metrics import Snapshot, snapshot
from bench_plan import Plan, PlanError, Point, load
from bench_table import finished_line, started_line
from bench_watch import Observer, say, settled
from summary import records, write_summary

def stall_reason(outcome: bench_run.Outcome, point: Point, log_count: Optional[float]) -> str:
    """Why the client was stopped."""
    done = "" if log_count is None else " (%d of %d done)" % (log_count, point.prompts)
    what = "no finished request" if outcome.started else "not one request finished"
    return "%s for %.0f s%s: the client was stopped" % (what, outcome.stalled_s, done)


def client_problems(outcome: bench_run.Outcome, point: Point, observer: Observer) -> List[str]:
    """What the client's end alone says."""
    if outcome.stalled_s:
        return [stall_reason(outcome, point, bench_run.client_count(observer.log, point.prompts))]
    return ["the client ended with exit code %d" % outcome.exit_code] if outcome.exit_code else []


def evaluate(
    plan: Plan, point: Point, outcome: bench_run.Outcome, observer: Observer, after: Snapshot, early: Sequence[str]
) -> Dict[str, Any]:
    """Record of a point that ran: figures, judgement and the counters behind them."""
    raw = plan.folder / (point.name + ".json")
    result, unreadable = bench_gate.read_result(raw)
    verdict = bench_gate.judge(plan, point, result, outcome.wall_s) if not unreadable else None
    problems = list(early) + ([unreadable] if verdict is None else verdict.problems)
    before = observer.before
    workers = {
        worker.step: bench_row.worker_record(
            before.workers.get(worker.step), after.workers.get(worker.step), observer.kv_peak.get(worker.step))
        for worker in plan.workers
    }
    row = bench_row.figures(plan, point, result)
    row["retried"] = bench_row.retried(result, before, after)
    if (row["retried"] or 0) > plan.max_failed_ratio * point.prompts:
        problems.append("%d requests were retried: a failed try counts as a slow success" % row["retried"])
    row.update(valid=not problems, reason="; ".join(problems), raw=raw.name if raw.exists() else "")
    return {
        "name": point.name, "row": row, "workers": workers, "wall_s": round(outcome.wall_s, 3),
        "client_exit_code": outcome.exit_code, "stalled": bool(outcome.stalled_s),
        "warnings": ([] if verdict is None else verdict.warnings) + warnings(plan, point, row, before, after, workers),
        "error_sides": bench_gate.error_sides(result, bench_run.log_tail(observer.log, 1 << 20)) if problems else {},
        "fatal": bool(outcome.stalled_s) or (outcome.exit_code != 0 and not result) or not row["completed"],
    }


def warnings(
    plan: Plan, point: Point, row: Dict[str, Any], before: Snapshot, after: Snapshot, workers: Dict[str, Any]
) -> List[str]:
    """What does not make the point invalid, but must not stay unseen."""
    found = bench_row.imbalance(plan.workers, workers) + bench_row.surplus(plan, point, before, after)
    if row["retried"] is None:
        found.append("the router's metrics port does not answer: retries are unknown")
    elif row["retried"] and row["valid"]:
        found.append("%d requests were retried" % row["retried"])
    if before.router and after.router and after.router.errors > before.router.errors:
        found.append("the router counts %d requests that ended in an error" % (after.router.errors - before.router.errors))
    return found


def refused(plan: Plan, point: Point, problem: str) -> Dict[str, Any]:
    """Record of a point whose client was not started."""
    row = bench_row.figures(plan, point, {})
    row.update(valid=False, reason=problem, raw="")
    return {"name": point.name, "row": row, "workers": {}, "wall_s": 0.0, "client_exit_code": 0, "stalled": False,
            "warnings": [], "error_sides": {}, "fatal": True}


def measure(plan: Plan, point: Point, argv: Sequence[str]) -> Dict[str, Any]:
    """Run the client of one point and judge what it brought."""
    raw = plan.folder / (point.name + ".json")
    if raw.exists():
        return refused(plan, point, "%s exists before the point ran" % raw.name)
    before = snapshot(plan, mtp_too=True)
    observer = Observer(plan, point, before)
    every = min(5.0, max(0.2, plan.stall_timeout_s / 10)) if plan.stall_timeout_s else 5.0
    try:
        outcome = bench_run.run(argv, observer.log, observer.look, observer.progress(before), plan.stall_timeout_s, every)
        early = client_problems(outcome, point, observer)
    except OSError as error:
        outcome = bench_run.Outcome(127, 0.0, 0.0, False)
        early = bench_run.not_started(argv, error)
    return evaluate(plan, point, outcome, observer, settled(plan, point, before), early)


def append(plan: Plan, record: Dict[str, Any]) -> None:
    """Add a record and renew the summary, so that a job killed later keeps what it has."""
    with (plan.folder / "points.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record, sort_keys=True) + "\n")
    write_summary(plan)


def run_point(plan: Plan, name: str, concurrency: int, prompts: int, argv: Sequence[str]) -> int:
    """Measure the named point unless it is not chosen or an earlier one made going on pointless."""
    found = [point for point in plan.points if point.name == name]
    if not found or (found[0].concurrency, found[0].prompts) != (concurrency, prompts):
        raise PlanError("point %s (concurrency %d, %d prompts) is not in the plan" % (name, concurrency, prompts))
    point = found[0]
    if point not in plan.chosen or any(record["fatal"] for record in records(plan)):
        return 0
    say(started_line(plan, point))
    record = measure(plan, point, argv)
    append(plan, record)
    say(finished_line(plan, point, record, records(plan)))
    for warning in record["warnings"]:
        say("  warning: " + warning)
    if not record["row"]["valid"]:
        say("  invalid: " + record["row"]["reason"])
        say("\n".join("  | " + line for line in bench_run.log_tail(plan.folder / (name + ".log"), 2048).splitlines()[-12:]))
    return 0


def run_custom(plan: Plan, argv: Sequence[str], cwd: Optional[str]) -> int:
    """Run a command of the recipe; only its exit code and progress at the workers can be judged."""
    before = snapshot(plan)

    def look() -> bench_run.Progress:
        now = snapshot(plan)
        return bench_run.Progress(now.finished(plan.workers), now.router.done if now.router else None, None)

    begin = bench_run.Progress(before.finished(plan.workers), before.router.done if before.router else None, None)
    try:
        outcome = bench_run.run(argv, None, look, begin, plan.stall_timeout_s, 5.0, cwd)
        problem = "the command ended with exit code %d" % outcome.exit_code if outcome.exit_code else ""
        if outcome.stalled_s:
            problem = "no finished request for %.0f s: the command was stopped" % outcome.stalled_s
    except OSError as error:
        outcome = bench_run.Outcome(127, 0.0, 0.0, False)
        problem = bench_run.not_started(argv, error)[0]
    append(plan, {"name": "custom", "client_exit_code": outcome.exit_code, "problem": problem, "fatal": bool(problem),
                  "stalled": bool(outcome.stalled_s), "wall_s": round(outcome.wall_s, 3), "warnings": []})
    return 0


def main(words: List[str]) -> int:
    """Entry point; see the module's text."""
    try:
        plan = load()
        if words[0] == "custom":
            return run_custom(plan, words[2:], words[1] or None)
        return run_point(plan, words[1], int(words[2]), int(words[3]), words[4:])
    except bench_run.Cancelled as cancelled:
        return cancelled.code
    except PlanError as error:
        print("bench: %s" % error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
