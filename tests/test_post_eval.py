"""post_eval of srt-slurm recipes at generation: what the bundle holds, in both layouts. Jobs: test_jobs_post_eval.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from shipped import ROOT, from_text, put
from srtgen.errors import RecipeError
from test_shell import shellcheck

COMMAND = '''
post_eval:
  command: |
    export TASK='it''s gsm8k'
    exec python3 /tools/score.py --url "${SRT_ENDPOINT}" --model "${MODEL_NAME}"
  passthrough_env: [HF_TOKEN, ISL, MY_SETTING]
'''
PLAN = """export EVAL_MODEL=Qwen/Qwen3-0.6B
export EVAL_CONCURRENCY=4
export EVAL_COMMAND=1
"""
LM_EVAL = {"prefetch.sh", "eval/tasks/gsm8k.yaml", "eval/requirements-3.12.txt"}


def smoke(more: str = "") -> str:
    return (ROOT / "recipes" / "atom" / "qwen3-0.6b-1p1d-shared-node.yaml").read_text() + more


def test_bundle(tmp_path: Path) -> None:
    files = from_text(smoke(COMMAND)).files
    assert files["eval/command.sh"].content.decode() == (
        "export TASK='it''s gsm8k'\nexec python3 /tools/score.py --url \"${SRT_ENDPOINT}\" --model \"${MODEL_NAME}\"\n")
    assert PLAN in files["eval/plan.sh"].content.decode()
    assert "EVAL_TASKS" not in files["eval/plan.sh"].content.decode()
    job = files["run.sbatch"].content.decode()
    assert "readonly PLAN_EVAL=off\n" in job
    passed = job.partition("readonly PLAN_EVAL_PASS_ENV=(\n")[2].partition("\n)")[0].split()
    assert {"RUN_EVAL", "ISL", "DECODE_NUM_WORKERS", "HF_TOKEN", "MY_SETTING"} <= set(passed) and passed.count("ISL") == 1
    assert not LM_EVAL & set(files)
    folder = put(files, tmp_path)
    shellcheck(folder / "run.sbatch", folder / "eval" / "run.sh", folder / "eval" / "plan.sh", cwd=Path("/"))


@pytest.mark.parametrize("run", ["after_benchmark", "only"])
def test_the_recipe_may_ask_for_it(run: str) -> None:
    job = from_text(smoke(f"post_eval: {{command: x, run: {run}}}\n")).files["run.sbatch"].content.decode()
    assert f"readonly PLAN_EVAL={run}\n" in job


def test_layout_1_gives_the_same() -> None:
    """The same block under the same key."""
    pair = [(ROOT / "tests" / "layout1" / f"agg-floor.{layout}.yaml").read_text() + COMMAND for layout in (1, 2)]
    first, second = (from_text(text).files for text in pair)
    for path in ("eval/command.sh", "eval/plan.sh"):
        assert first[path] == second[path]


def test_forced_acceptance_excludes_it() -> None:
    """A score of an output that is not the model's."""
    text = smoke("post_eval: {command: x, run: only}\n")
    forced = [("set", f"roles.decode.args.{key}") for key in
              ("method=mtp", "num-speculative-tokens=3", "spec-decode-acceptance-rate=0.66")]
    with pytest.raises(RecipeError) as raised:
        from_text(text, None, *forced)
    assert any(problem.code == "forced-acceptance" for problem in raised.value.problems)


EVAL = "eval: {thresholds: {gsm8k: {'exact_match,strict-match': 0.9}}}\n"
ROWS = {"22": "| 22 | evaluation failed |", "23": "| 23 | evaluation below its threshold |"}
OFF = " (`RUN_EVAL=1` at submission starts it)"
READMES = [
    ("", [], ""),
    (COMMAND, ["22"], f"- the evaluation command{OFF} ends with another code than 0 (22)"),
    (EVAL, ["22", "23"], f"- the evaluation{OFF} cannot be prepared or fails (22), or a score is below its threshold (23)"),
    (EVAL.replace("{", "{run: only, ", 1), ["22", "23"], "- the evaluation cannot be prepared or fails (22), or a score is below its threshold (23)"),
]


@pytest.mark.parametrize(("more", "codes", "failure"), READMES)
def test_exit_codes_of_the_evaluation_in_the_bundles_readme(more: str, codes: list[str], failure: str) -> None:
    """Exit codes that the bundle can't end with are not in its table."""
    lines = from_text(smoke(more)).files["README.md"].content.decode().splitlines()
    start = lines.index("| exit code | meaning |")
    table = [line.split(" | ")[0][2:] for line in lines[start + 2: lines.index("", start)]]
    assert table == ["0", *"10 11 12 13 14 15 20 21".split(), *codes, "70", "124", "143"]
    assert {ROWS[code] for code in codes} <= set(lines)
    assert [line for line in lines if "evaluation" in line and line.startswith("- ")] == ([failure] if failure else [])


def test_a_recipe_that_only_evaluates_needs_no_variable() -> None:
    """The benchmark is the evaluation, whatever `eval.run` says."""
    recipe, _, _ = smoke().partition("\nbenchmark:")
    text = from_text(f"{recipe}\nbenchmark: {{type: lm-eval}}\n{EVAL}").files["README.md"].content.decode()
    assert "- the evaluation cannot be prepared or fails (22)" in text and "RUN_EVAL" not in text
