"""An evaluation by the recipe's own command (post_eval), and results that are wanted elsewhere, under every runtime."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from jobs_rig import Live, Outcome, Scenario
from jobs_runner import check, on

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("post-eval")]

WORDS = "'model=%s conc=%s isl=%s mine=%s other=%s flag=%s\\n'"
NAMES = '"${MODEL_NAME}" "${EVAL_CONC}" "${ISL:-}" "${MINE:-}" "${OTHER:-}" "${FLAG}"'
COMMAND = (
    f"printf {WORDS} {NAMES}\n"
    'python3 -c "import urllib.request as u; print(u.urlopen(\\"${SRT_ENDPOINT}/v1/models\\").status)"\n'
    'printf \'{"score": 1}\' >"${SRTGEN_RESULTS}/eval/results_mine.json"\n'
)
OWN = (f"post_eval.command={json.dumps(COMMAND)}", "post_eval.passthrough_env=[MINE]", "benchmark.env={FLAG: 'a b, c'}")
SUBMITTED = {"RUN_EVAL": "true", "ISL": "8192", "MINE": "yes, mine", "OTHER": "not to be seen",
             "SRTGEN_LM_EVAL_RESULT_DIR": "{folder}/wanted/here", "SRTCTL_LM_EVAL_RESULT_DIR": "relative"}


def not_writable(live: Live) -> None:
    (live.folder / "wanted").write_text("a file")


def fill_later(live: Live) -> None:
    """The folder takes a probe, and nothing that is larger."""
    folder = live.folder / "small"
    folder.mkdir()
    live.mount_tmpfs(live.nodes[0], folder, "8k")


GREEN = [Scenario(f"own-command-{runtime}", profile=runtime, sets=OWN, env=SUBMITTED) for runtime in ("none", "pyxis", "docker")]
RED = [
    Scenario("own-command-fails", 22, "evaluation: the evaluation command ended with exit code 3", "eval", "eval",
             sets=("post_eval.command='echo to be seen; exit 3'", "post_eval.run=only"),
             env={"SRTGEN_LM_EVAL_RESULT_DIR": "{folder}/wanted"}),
    Scenario("result-folder-no-folder", 10, "SRTGEN_LM_EVAL_RESULT_DIR: cannot write into", "preflight", profile="pyxis",
             sets=OWN, env=SUBMITTED, prepare=not_writable),
    Scenario("result-folder-full", 22, "its results could not be copied: ", "eval", "eval",
             sets=("post_eval.command='head -c 50000 /dev/zero >${SRTGEN_RESULTS}/eval/results_large.json'", "post_eval.run=only"),
             env={"SRTGEN_LM_EVAL_RESULT_DIR": "{folder}/small"}, prepare=fill_later),
]
NOT_ASKED = Scenario("own-command-not-asked-for", sets=OWN, env={"SRTGEN_LM_EVAL_RESULT_DIR": "{folder}/wanted"})


@on(*GREEN)
def test_own_command(outcome: Outcome) -> None:
    check(outcome)
    live, contained = outcome.live, outcome.live.scenario.profile != "none"
    said = outcome.log("eval")
    other = "" if contained else "not to be seen"  # on the host everything passes
    model = live.manifest()["served_model"]
    assert f"model={model} conc=2 isl=8192 mine=yes, mine other={other} flag=a b, c\n" in said
    assert "\n200\n" in said
    assert [row["name"] for row in outcome.result["phases"]][-4:] == ["bench", "eval", "teardown", "done"]
    assert outcome.result["eval"] is not None and outcome.result["bench"]["valid"] == 1
    for folder in (live.folder / "wanted" / "here", live.folder / "relative"):
        assert os.listdir(folder) == ["results_mine.json"]
        assert (folder / "results_mine.json").read_text() == '{"score": 1}'


@on(*RED)
def test_red(outcome: Outcome) -> None:
    check(outcome)
    if outcome.live.scenario.name == "own-command-fails":
        assert "to be seen" in outcome.log("eval")
        assert "bench" not in {row["name"] for row in outcome.result["phases"]}
        assert json.loads((outcome.live.results / "eval" / "verdict.json").read_text())["command_exit_code"] == 3


@on(NOT_ASKED)
def test_off_unless_asked_for(outcome: Outcome) -> None:
    """As srt-slurm does: the recipe has a command, RUN_EVAL or EVAL_ONLY runs it."""
    check(outcome)
    assert "eval" not in outcome.live.steps()
    assert not Path(outcome.live.folder / "wanted").exists()
