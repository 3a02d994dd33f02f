"""host_step.sh: the step's work folder goes with the step, and waits for nothing that Slurm would not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import script

STEP = "lib/host_step.sh"


@pytest.fixture
def job() -> Iterator[str]:
    """A job id whose work folder is removed in any case."""
    name = f"h{os.getpid()}"
    yield name
    shutil.rmtree(f"/tmp/srtgen-{name}", ignore_errors=True)


def step(text: str, tmp_path: Path, job: str, **env: str) -> tuple[int, str, str]:
    done = script.call(STEP, text, tmp_path, {"SLURM_JOB_ID": job, "SRTGEN_STEP": "agg_0", **env})
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("present", "left"), [
    (["agg_0/a b/c"], None), (["agg_0/x", "agg_1/x"], ["agg_1"]), (["agg_1"], ["agg_1"]), ([], None)])
def test_remove_work_takes_the_step_and_with_the_last_one_the_job(present: list[str], left: list[str] | None, tmp_path: Path,
                                                                  job: str) -> None:
    work = Path(f"/tmp/srtgen-{job}")
    for path in present:
        (work / path).mkdir(parents=True)
    assert step("remove_work", tmp_path, job) == (0, "", "")
    assert (sorted(path.name for path in work.iterdir()) if work.exists() else None) == left


@pytest.mark.parametrize("missing", ["SLURM_JOB_ID", "SRTGEN_STEP"])
def test_remove_work_removes_nothing_without_a_name(missing: str, tmp_path: Path, job: str) -> None:
    work = Path(f"/tmp/srtgen-{job}/agg_0")
    work.mkdir(parents=True)
    code, _, said = step(f"unset {missing}\nremove_work", tmp_path, job)
    assert code != 0 and missing in said
    assert work.exists()


# Seconds that the child lives on; whether its folder is gone when on_term returns.
CHILDREN = {"ended": ("true", "1 kept"), "ends soon": ("sleep 1", "1 kept"), "stays": ("sleep 60", "0 gone")}


@pytest.mark.parametrize("case", CHILDREN)
def test_on_term_waits_for_the_child_but_not_beyond_its_time(case: str, tmp_path: Path, job: str) -> None:
    command, expected = CHILDREN[case]
    work = Path(f"/tmp/srtgen-{job}/agg_0")
    work.mkdir(parents=True)
    text = (f"{command} >/dev/null &\nchild=$!\n{'wait' if case == 'ended' else ':'}\non_term\n"
            'over=1; kill -0 "${child}" 2>/dev/null && over=0\n'
            f'printf "%s " "${{over}}"; [[ -e {work} ]] && printf kept || printf gone\ntrap -p TERM; kill "${{child}}" 2>/dev/null || :')
    code, out, err = step(text, tmp_path, job)
    assert (code, out) == (0, expected + "trap -- '' SIGTERM\n"), err


@pytest.mark.parametrize(("script_text", "code"), [("exit 0", 0), ("exit 200", 200), ('kill -KILL "$$"', 137)])
def test_main_ends_with_the_code_of_its_child(script_text: str, code: int, tmp_path: Path, job: str) -> None:
    (tmp_path / "a role.sh").write_text(f"mkdir -p /tmp/srtgen-{job}/agg_0\nprintf '[%s]' \"$@\"\n{script_text}\n")
    got, out, _ = step("main 'a role.sh' '1 2'", tmp_path, job)
    assert (got, out) == (code, "[1 2]")
    assert not Path(f"/tmp/srtgen-{job}").exists()
