"""Second half of the evaluation, at its turn: lm-eval against the router, then the judgement of what it scored."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any, Dict, List, Optional

import eval_score
from eval_plan import FAILED, EvalError, EvalPlan, clean_environment, load, write_json, write_verdict

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


def protocol(plan: EvalPlan, output: Path) -> Dict[str, Any]:
    """lm-eval's whole configuration: nothing that decides a score is left to one of its defaults."""
    config: Dict[str, Any] = {
        "model": "local-%scompletions" % ("chat-" if plan.endpoint == "chat" else ""),
        "model_args": {
            "model": plan.model, "base_url": plan.endpoint_url + PATHS[plan.endpoint],
            "num_concurrent": plan.concurrency, "max_retries": 5, "timeout": plan.request_timeout_s,
            "tokenizer_backend": "none", "tokenized_requests": False, "max_length": plan.max_length, "eos_string": "</s>",
        },
        "tasks": list(plan.tasks), "include_path": str(plan.bundle / "eval" / "tasks"), "batch_size": 1,
        "apply_chat_template": plan.chat_template,
        # lm-eval 0.4.13 would turn the shots into turns with a chat template; the thresholds are from one message.
        "fewshot_as_multiturn": False,
        "gen_kwargs": dict({"max_tokens": plan.max_tokens}, **plan.gen_kwargs),
        "seed": [0, 1234, 1234, 1234], "log_samples": True, "output_path": str(output),
    }
    if plan.num_fewshot is not None:
        config["num_fewshot"] = plan.num_fewshot
    if plan.limit is not None:
        config["limit"] = plan.limit
    return config


def environment(plan: EvalPlan) -> Dict[str, str]:
    """The prepared environment's, without proxies: every request goes to the job's own router."""
    env = clean_environment(plan, offline=plan.offline or plan.local)
    names = ("http_proxy", "https_proxy", "all_proxy")
    return {name: value for name, value in env.items() if name.lower() not in names}


def evaluate(plan: EvalPlan, python: str) -> int:
    """Run lm-eval in a process group of its own; its exit code. Its files end up beside ours, flat."""
    output = Path(tempfile.mkdtemp(prefix="output-", dir=str(plan.work)))
    write_json(plan.results / "lm_eval.json", protocol(plan, output))
    argv = [python, "-I", "-m", "lm_eval", "run", "--config", str(plan.results / "lm_eval.json")]
    process = subprocess.Popen(argv, cwd=str(plan.work), env=environment(plan), stdin=subprocess.DEVNULL, start_new_session=True)

    def on_signal(number: int, _frame: Optional[FrameType]) -> None:
        signal.signal(number, signal.SIG_IGN)
        os.killpg(process.pid, signal.SIGTERM)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    code = process.wait()
    for path in sorted(output.rglob("*.json*")):
        shutil.copyfile(str(path), str(plan.results / path.name))
    return 128 - code if code < 0 else code


def meta(plan: EvalPlan) -> Dict[str, Any]:
    """meta_env.json: what a score belongs to (InferenceX 2026-08-21)."""
    return dict(plan.meta, model=plan.model, conc=plan.concurrency, tasks=list(plan.tasks))


def fresh(plan: EvalPlan) -> None:
    """No result of an earlier run may lie where ours is looked for."""
    for pattern in ("results_*.json", "samples_*.jsonl", "verdict.json", "meta_env.json"):
        for path in plan.results.glob(pattern):
            path.unlink()


def main() -> int:
    """Entry point; see the module's text."""
    plan = load()
    try:
        prepared = json.loads((plan.results / "venv.json").read_text(encoding="utf-8"))
        fresh(plan)
        code = evaluate(plan, prepared["python"])
        write_json(plan.results / "meta_env.json", meta(plan))
        if code != 0:
            raise EvalError("lm-eval ended with exit code %d" % code)
        score = eval_score.judge(plan, prepared["check"]["documents"])
    except (EvalError, OSError, ValueError, KeyError) as error:
        print("eval: %s" % error, file=sys.stderr)
        write_verdict(plan, FAILED, str(error), metrics={}, samples={})
        return FAILED
    write_verdict(plan, score.code, score.reason, metrics=score.metrics, samples=score.samples, shares=score.shares)
    lines: List[str] = ["%s %s: %.4f" % (task, name, value) for task, named in score.metrics.items() for name, value in named.items()]
    print("\n".join("eval: " + line for line in lines + [score.reason or "passed"]), flush=True)
    return score.code


if __name__ == "__main__":
    sys.exit(main())
