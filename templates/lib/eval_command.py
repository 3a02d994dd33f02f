"""The recipe's own evaluation command (post_eval.command): run it, keep its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType
from typing import Optional

from eval_plan import FAILED, load_command, write_verdict


def main() -> int:
    """Run eval/command.sh with MODEL_NAME and EVAL_CONC; only its exit code can be judged."""
    plan = load_command()
    env = dict(os.environ, MODEL_NAME=plan.model, EVAL_CONC=os.environ.get("EVAL_CONC") or str(plan.concurrency))
    argv = ["bash", "-l", str(plan.bundle / "eval" / "command.sh")]
    process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, start_new_session=True)

    def on_signal(number: int, _frame: Optional[FrameType]) -> None:
        os.killpg(process.pid, signal.SIGTERM)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    code = process.wait()
    reason = "the evaluation command ended with exit code %d" % code if code else ""
    write_verdict(plan, FAILED if code else 0, reason, metrics={}, samples={}, command_exit_code=code)
    return FAILED if code else 0


if __name__ == "__main__":
    sys.exit(main())
