"""A plan of an evaluation and a task's files, for the functions of the evaluation's programs."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from jobs.shell import LIB, TEMPLATES

sys.path.insert(0, str(LIB))
import eval_plan  # noqa: E402  (found only by the path above)

VERSION = "%d.%d" % sys.version_info[:2]
PYTHON = sys.executable
ROW = '{"question": "a", "answer": "b"}\n'


def plan_in(tmp_path: Path) -> eval_plan.EvalPlan:
    """The default plan of a bundle with the real lists; its work folder is ours."""
    bundle = tmp_path / "bun dle"
    bundle.mkdir()
    (bundle / "eval").symlink_to(TEMPLATES / "eval")
    made = eval_plan.load({"SRTGEN_BUNDLE": str(bundle), "SRTGEN_RESULTS": str(tmp_path / "results"), "EVAL_MODEL": "org/m",
                           "SRT_ENDPOINT": "http://r:1/",
                           "EVAL_THRESHOLDS": '{"gsm8k": {"strict-match": 0.9}}', "EVAL_PYTHON": PYTHON})
    (tmp_path / "work").mkdir()
    return dataclasses.replace(made, work=tmp_path / "work")


def questions(folder: Path) -> Path:
    """The files of a task in a folder: two questions a split."""
    (folder / "gsm8k").mkdir(parents=True)
    for split in ("train", "test"):
        (folder / "gsm8k" / f"{split}.jsonl").write_text(ROW * 2)
    return folder
