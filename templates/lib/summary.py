"""Summary of the benchmark: summary.json, summary.csv, curve.svg and, at the end, the verdict.

`summary.py begin` prints the table's head, `update` renews the files, `finish` also writes verdict.json and
exits with 0, 20 (the client failed) or 21 (a point is invalid)."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import bench_curve
import bench_identity
import bench_inferencex
from bench_plan import Plan, PlanError, Point, load
from bench_row import COLUMNS, figures
from bench_table import opening

FAILED, INVALID = 20, 21


def write_atomic(path: Path, text: str) -> None:
    """Replace a file at once, so that a reader never sees half of it."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(str(temporary), str(path))


def records(plan: Plan) -> List[Dict[str, Any]]:
    """Records of the points measured so far, in the order of measurement."""
    try:
        text = (plan.folder / "points.jsonl").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines()]


def _absent(plan: Plan, point: Point, fatal: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    reason = "not run: point %s ended the sweep" % fatal["name"] if fatal else "not run, or not finished"
    row = figures(plan, point, {})
    row.update(valid=False, reason=reason, raw="")
    return {"name": point.name, "row": row, "warnings": [], "client_exit_code": None}


def complete(plan: Plan) -> List[Dict[str, Any]]:
    """A record for every chosen point: one that was not measured counts as invalid, it never goes missing."""
    found = {record["name"]: record for record in records(plan)}
    fatal = next((record for record in found.values() if record["fatal"]), None)
    return [found.get(point.name) or _absent(plan, point, fatal) for point in plan.chosen]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "%.6g" % value if isinstance(value, float) and abs(value) < 1e6 else str(value)


def to_csv(rows: List[Dict[str, Any]]) -> str:
    """The rows with the fixed columns; an unknown figure is an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(row[column]) for column in COLUMNS] for row in rows)
    return stream.getvalue()


def document(plan: Plan, done: List[Dict[str, Any]], identity: Dict[str, Any]) -> Dict[str, Any]:
    """Content of summary.json."""
    return {
        "schema": "srtgen/bench/1", "name": plan.name, "type": plan.kind, "model": plan.model,
        "client": {"name": plan.client, "path": plan.client_path, "tokenizer": plan.tokenizer or plan.model,
                   "endpoint": plan.endpoint, "chat_template": plan.chat_template, "request_rate": plan.request_rate},
        "planned": [point.concurrency for point in plan.points],
        "chosen": [point.concurrency for point in plan.chosen],
        "subset": plan.chosen != plan.points,
        "gpus": dict(plan.gpus, allocated=plan.gpus_allocated),
        "valid": sum(record["row"]["valid"] for record in done if "row" in record),
        "points": done, "identity": identity,
    }


def write_summary(plan: Plan) -> None:
    """Renew all summary files from the records."""
    identity = bench_identity.gather(plan.results)
    done = complete(plan) if plan.points else records(plan)
    text = json.dumps(document(plan, done, identity), indent=1, ensure_ascii=False) + "\n"
    write_atomic(plan.folder / "summary.json", text)
    if not plan.points:
        return
    rows = [record["row"] for record in done]
    write_atomic(plan.folder / "summary.csv", to_csv(rows))
    write_atomic(plan.folder / "curve.svg", bench_curve.draw(plan, rows))
    for point, row in zip(plan.chosen, rows):
        if row["valid"]:
            bench_inferencex.write(plan, point, row, identity)


def _code(record: Dict[str, Any]) -> int:
    if record.get("stalled") or record.get("client_exit_code"):
        return FAILED
    return INVALID


def verdict(plan: Plan) -> Dict[str, Any]:
    """Code and reason of the whole benchmark: those of its first bad point, in order of measurement."""
    if plan.kind == "custom":
        return _custom_verdict(records(plan))
    done = complete(plan)
    bad = [record for record in done if not record["row"]["valid"]]
    base = {"points": len(done), "valid": len(done) - len(bad), "client_exit_code": None}
    if not done:
        return dict(base, code=INVALID, reason="no point was planned")
    if not bad:
        return dict(base, code=0, reason="")
    first = bad[0]
    place = "%d of %d" % (done.index(first) + 1, len(done))
    reason = "point %s (%s): %s" % (first["name"], place, first["row"]["reason"])
    return dict(base, code=_code(first), reason=reason, client_exit_code=first["client_exit_code"])


def _custom_verdict(done: List[Dict[str, Any]]) -> Dict[str, Any]:
    base: Dict[str, Any] = {"points": None, "valid": None}
    if not done:
        return dict(base, code=FAILED, reason="the command did not run", client_exit_code=None)
    problem = done[-1]["problem"]
    return dict(base, code=FAILED if problem else 0, reason=problem, client_exit_code=done[-1]["client_exit_code"])


def main(words: List[str]) -> int:
    """Entry point; see the module's text."""
    try:
        plan = load()
    except PlanError as error:
        print("bench: %s" % error, file=sys.stderr)
        return 2
    if words == ["begin"]:
        print("\n".join(opening(plan, bench_identity.gather(plan.results))), flush=True)
        return 0
    write_summary(plan)
    if words != ["finish"]:
        return 0
    result = verdict(plan)
    write_atomic(plan.folder / "verdict.json", json.dumps(result, sort_keys=True) + "\n")
    print("benchmark %s" % ("passed" if result["code"] == 0 else "failed (%(code)d): %(reason)s" % result), flush=True)
    return int(result["code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
