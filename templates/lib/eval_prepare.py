"""First half of the evaluation, while the weights load: packages, task data, and a check that both work.

Writes eval/venv.json; exits with 22 and a verdict if anything is missing."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict

import eval_data
import eval_offline
import eval_venv
from eval_plan import FAILED, EvalError, EvalPlan, clean_environment, load, load_command, write_json, write_verdict


def check(plan: EvalPlan, python: str) -> Dict[str, Any]:
    """Run eval_check.py in the environment; raises EvalError if lm-eval is not from there or a task does not load."""
    argv = [python, "-I", str(Path(__file__).resolve().with_name("eval_check.py")), str(plan.bundle / "eval" / "tasks"), *plan.tasks]
    env = dict(clean_environment(plan, offline=plan.offline or plan.local), PWD=str(plan.work))
    output = eval_venv.run(["env", "-C", str(plan.work), *argv], env, "loading lm-eval and its tasks")
    # Progress bars and warnings of the libraries share the output.
    report: Dict[str, Any] = json.loads([line for line in output.splitlines() if line.startswith("{")][-1])
    if plan.packages != "existing":
        prefix = str((plan.work / "venv").resolve())
        if str(Path(report["prefix"]).resolve()) != prefix:
            raise EvalError("sys.prefix is %s, not the job's venv %s" % (report["prefix"], prefix))
        if not str(Path(report["lm_eval_file"]).resolve()).startswith(prefix + "/"):
            raise EvalError("lm_eval is imported from %s, not from the job's venv" % report["lm_eval_file"])
    return report


def supported(plan: EvalPlan) -> None:
    """Refuse what lm-eval can only assert in the middle of the run."""
    if (plan.endpoint == "chat") != plan.chat_template:
        raise EvalError("endpoint chat needs the chat template, endpoint completions must go without: lm-eval has no other way")
    if not any(plan.thresholds.values()):
        raise EvalError("eval.thresholds names no metric: a score that nothing is compared with can't pass")


def prepare(plan: EvalPlan) -> Dict[str, Any]:
    """All of it; returns the record."""
    supported(plan)
    if plan.offline:
        missing = eval_offline.problems(plan.bundle / "offline")
        if missing:
            raise EvalError("; ".join(missing[:5]))
    python = eval_venv.python(plan)
    data = eval_data.fetch_all(plan, python)
    return {"python": python, "data": data, "check": check(plan, python)}


def main() -> int:
    """Entry point; see the module's text."""
    begin = time.monotonic()
    if os.environ.get("EVAL_COMMAND") == "1":
        write_json(load_command().results / "venv.json", {"ok": True, "packages": "those of the recipe's own command"})
        return 0
    plan = load()
    try:
        record = prepare(plan)
    except (EvalError, OSError) as error:
        print("eval: %s" % error, file=sys.stderr)
        write_verdict(plan, FAILED, str(error), metrics={}, samples={})
        return FAILED
    seconds = round(time.monotonic() - begin, 1)
    write_json(plan.results / "venv.json", dict(record, ok=True, seconds=seconds, packages=plan.packages, offline=plan.offline))
    print("eval: ready after %.0f s: lm-eval %s, %s" % (seconds, record["check"]["lm_eval"], json.dumps(record["check"]["documents"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
