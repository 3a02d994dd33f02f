"""operate.sh: where a job's results are and what Slurm says of it, function by function."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from jobs.shell import bash, stub

SBATCH = """#!/usr/bin/env bash
readonly PLAN_NAME=my-job
readonly PLAN_OUTPUT_DIR='/sha red/it'\\''s'
readonly PLAN_EMPTY=''
readonly PLAN_NAME_LONGER=no
  readonly PLAN_INDENTED=no
"""


def operate(text: str, tmp_path: Path, sbatch: str = SBATCH, **env: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "bundle").mkdir(exist_ok=True)
    (tmp_path / "bundle" / "run.sbatch").write_text(sbatch)
    return bash("shopt -s nullglob\n" + text, tmp_path, ["operate"], env)


CONSTANTS = {"PLAN_NAME": "my-job\n", "PLAN_OUTPUT_DIR": "/sha red/it's\n", "PLAN_EMPTY": "\n", "PLAN_INDENTED": "", "PLAN_ABSENT": ""}


@pytest.mark.parametrize("name", CONSTANTS)
def test_plan_constant(name: str, tmp_path: Path) -> None:
    done = operate(f"plan_constant {name}", tmp_path)
    assert (done.returncode, done.stdout) == (0, CONSTANTS[name])


ROOTS = [("readonly PLAN_OUTPUT_DIR=''", {}, ["{t}/results", "{t}/bundle/results"]),
         ("readonly PLAN_OUTPUT_DIR='/a b'", {"SRTGEN_RESULTS_DIR": "/x y"}, ["/x y", "/a b", "{t}/results", "{t}/bundle/results"]),
         ("readonly PLAN_OUTPUT_DIR=out", {"SRTGEN_RESULTS_DIR": "mine"},
          ["{t}/mine", "{t}/bundle/mine", "{t}/out", "{t}/bundle/out", "{t}/results", "{t}/bundle/results"])]


@pytest.mark.parametrize(("line", "env", "expected"), ROOTS)
def test_results_roots(line: str, env: dict[str, str], expected: list[str], tmp_path: Path) -> None:
    done = operate("results_roots", tmp_path, line + "\n", **env)
    assert done.stdout.splitlines() == [root.format(t=tmp_path) for root in expected]


def results(folder: Path, name: str = "my-job", age: float = 0) -> Path:
    """A job's folder; `age` seconds since its log was written."""
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"schema": "x", "id": "y", "name": name, "more": 1}, indent=1) + "\n")
    (folder / "job.log").touch()
    os.utime(folder / "job.log", (2e9 - age, 2e9 - age))
    return folder


OURS = {"ours": ('{\n "name": "my-job",\n', True), "another": ('{\n "name": "my-job-2",\n', False), "none": (None, False), "empty": ("", False),
        "deep below": ('{\n' + '"x": 1,\n' * 9 + '"name": "my-job",\n', False)}


@pytest.mark.parametrize("case", OURS)
def test_is_ours(case: str, tmp_path: Path) -> None:
    text, expected = OURS[case]
    (tmp_path / "f o").mkdir()
    if text is not None:
        (tmp_path / "f o" / "manifest.json").write_text(text)
    assert operate("is_ours 'f o' && printf yes || printf no", tmp_path).stdout == ("yes" if expected else "no")


ATTEMPTS: list[tuple[Sequence[str], str]] = [
    (["7"], "7"), (["7", "7.r2", "7.r10"], "7.r10"), (["7.r1", "77"], "7.r1"), (["70", "7x"], ""), ([], ""), (["7.r"], "")]


@pytest.mark.parametrize(("present", "expected"), ATTEMPTS)
def test_latest_attempt_counts_and_does_not_sort_text(present: list[str], expected: str, tmp_path: Path) -> None:
    for name in present:
        (tmp_path / "ro ot" / name).mkdir(parents=True)
    done = operate("latest_attempt 'ro ot' 7", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"ro ot/{expected}\n" if expected else "\n")


@pytest.mark.parametrize(("folder", "number"), [("/a.r3/7", "0"), ("/a/7.r12", "12"), ("7.r0", "0")])
def test_attempt_of(folder: str, number: str, tmp_path: Path) -> None:
    assert operate(f"attempt_of {folder}", tmp_path).stdout == f"{number}\n"


def test_newest_of_is_ours_that_wrote_last(tmp_path: Path) -> None:
    results(tmp_path / "r" / "5", age=30)
    results(tmp_path / "r" / "41", age=10)
    results(tmp_path / "r" / "9", age=20)
    results(tmp_path / "r" / "50", name="another")
    results(tmp_path / "r" / "old-5")
    assert operate("newest_of r", tmp_path).stdout == "r/41\n"
    assert operate("newest_of nowhere", tmp_path).stdout == "\n"


def test_find_results_looks_root_by_root(tmp_path: Path) -> None:
    results(tmp_path / "bundle" / "results" / "7")
    results(tmp_path / "results" / "8", age=50)
    plain = "readonly PLAN_OUTPUT_DIR=''\nreadonly PLAN_NAME=my-job\n"
    found = operate("find_results 7; find_results ''; find_results 9 || printf 'none %s' $?", tmp_path, plain)
    assert found.stdout == f"{tmp_path}/bundle/results/7\n{tmp_path}/results/8\nnone 1"
    results(tmp_path / "results" / "7.r1")
    assert operate("find_results 7", tmp_path, plain).stdout == f"{tmp_path}/results/7.r1\n"


RESULT = r'{"schema":"x","verdict":"failed","reason":"said \"phase\":\"no\" \\","phase":"load","exit_code":11,"seconds":1.5,"failed":null,"empty":""}'
FIELDS = [("result_text", "verdict", "failed\n", 0), ("result_text", "reason", '''said \\"phase\\":\\"no\\" \\\\\n''', 0),
          ("result_text", "phase", "load\n", 0),
          ("result_text", "empty", "\n", 0), ("result_text", "exit_code", "", 1), ("result_text", "absent", "", 1),
          ("result_number", "exit_code", "11\n", 0), ("result_number", "seconds", "1.5\n", 0), ("result_number", "failed", "null\n", 0),
          ("result_number", "verdict", "", 1), ("result_number", "absent", "", 1)]


@pytest.mark.parametrize(("function", "key", "out", "code"), FIELDS)
def test_fields_of_a_result(function: str, key: str, out: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(RESULT + "\n")
    done = operate(f"rc=0; {function} result.json {key} || rc=$?; exit $rc", tmp_path)
    assert (done.stdout, done.returncode) == (out, code)
    assert operate(f"{function} nowhere.json {key} || printf none", tmp_path).stdout == "none"


STATES = [
    ("printf 'JobId=7 JobName=x JobState=RUNNING Reason=None Requeue=0\\n'", "exit 1", "RUNNING None\n", 0),
    ("printf 'JobId=7 JobState=PENDING Reason=Nodes_required(x,y) A=b\\n'", "exit 1", "PENDING Nodes_required(x,y)\n", 0),
    ("exit 1", "printf 'CANCELLED by 1000\\n'", "CANCELLED None\n", 0), ("exit 1", "printf 'FAILED\\nCOMPLETED\\n'", "COMPLETED None\n", 0),
    ("printf 'JobId=7\\n'; exit 1", "printf 'TIMEOUT\\n'", "TIMEOUT None\n", 0), ("exit 1", "exit 1", "", 1), ("exit 1", "exit 0", "", 1)]


@pytest.mark.parametrize(("scontrol", "sacct", "out", "code"), STATES)
def test_slurm_state(scontrol: str, sacct: str, out: str, code: int, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", f'[[ "$*" == "--oneliner show job 7" ]] || exit 9\n{scontrol}')
    stub(tmp_path / "bin", "sacct", f'[[ "$*" == *"-j 7"* ]] || exit 9\n{sacct}')
    done = operate("rc=0; slurm_state 7 || rc=$?; exit $rc", tmp_path)
    assert (done.stdout, done.returncode) == (out, code)


LIVE = "PENDING CONFIGURING RUNNING COMPLETING SUSPENDED REQUEUED RESIZING SIGNALING STAGE_OUT STOPPED".split()
OVER = "COMPLETED FAILED CANCELLED TIMEOUT NODE_FAIL OUT_OF_MEMORY BOOT_FAIL DEADLINE PREEMPTED RUN ''".split()


def test_is_live(tmp_path: Path) -> None:
    lines = "".join(f"is_live {state} && printf '1' || printf '0'\n" for state in [*LIVE, *OVER])
    assert operate(lines, tmp_path).stdout == "1" * len(LIVE) + "0" * len(OVER)


LINES = [(b"one\ntwo\n\n   \n", "two\n"), (b"one\n 50%\r100%\r\n", "100%\n"), (b"\x1b[31mred\x07\n", "[31mred\n"), (b"no end", "no end\n"),
         (b"x" * 300 + b"\n", "x" * 160 + "\n"), (b"y\n" + b"z" * 5000, "z" * 160 + "\n")]


@pytest.mark.parametrize(("content", "expected"), LINES)
def test_last_line(content: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "-l og").write_bytes(content)
    assert operate("last_line '-l og'", tmp_path).stdout == expected


@pytest.mark.parametrize("content", [b"", b"\n \n", None])
def test_last_line_of_nothing(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "log").write_bytes(content)
    assert operate("last_line log || :", tmp_path).stdout == ""


PROCESSES = """{
 "name": "x",
 "processes": [
  {"step": "decode_0", "role": "decode", "index": 0},
  {"step": "prefill_10", "role": "prefill"},
  {"step": "bench", "role": "bench", "argv": ["{\\"step\\": \\"evil\\", \\"role\\": \\"x\\"}"]},
  {"step": "bench", "role": "bench"}
 ]
}
"""


@pytest.mark.parametrize(("logs", "more"), [([], []), (["eval"], ["eval bench"]), (["bench", "preflight"], [])])
def test_job_steps_in_the_manifests_order_each_once(logs: list[str], more: list[str], tmp_path: Path) -> None:
    (tmp_path / "f" / "logs").mkdir(parents=True)
    (tmp_path / "f" / "manifest.json").write_text(PROCESSES)
    for name in logs:
        (tmp_path / "f" / "logs" / f"{name}.log").touch()
    done = operate("job_steps f", tmp_path)
    assert done.stdout.splitlines() == ["decode_0 decode", "prefill_10 prefill", "bench bench", *more]


# The mark of a run in an allocation -> what is read of it.
MARKS = [("7.1 n0 4711 srtgen-run-7.x\n", "7.1 n0 4711 srtgen-run-7.x"), ("7.12 gpu-n[1] 1 a b\n", "7.12 gpu-n[1] 1 a b"), ("", "no"), (None, "no")]


@pytest.mark.parametrize(("mark", "said"), MARKS)
def test_allocation_run(mark: str | None, said: str, tmp_path: Path) -> None:
    (tmp_path / "f o").mkdir()
    if mark is not None:
        (tmp_path / "f o" / ".allocation").write_text(mark)
    done = operate('if allocation_run "f o"; then printf "%s" "${run_step} ${run_host} ${run_pid} ${run_name}"; else printf no; fi', tmp_path)
    assert (done.stdout, done.stderr) == (said, "")


# verdict, what squeue says of the allocation's steps -> whether step 7.1 of the run lives
RUNS = [("running", "printf '7.0\\n7.1\\n7.extern\\n'", "yes"), ("running", "printf '7.1'", "yes"), ("running", "printf '7.0\\n7.11\\n17.1\\n'", "no"),
        ("running", "printf ''", "no"), ("running", "printf '7.1\\n'; exit 1", "yes"), ("running", "exit 1", "no"), ("passed", "printf '7.1\\n'", "no"),
        (None, "printf '7.1\\n'", "no")]


@pytest.mark.parametrize(("verdict", "squeue", "said"), RUNS)
def test_run_lives(verdict: str | None, squeue: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "f o").mkdir()
    if verdict:
        (tmp_path / "f o" / "result.json").write_text(json.dumps({"verdict": verdict}, separators=(",", ":")))
    stub(tmp_path / "bin", "squeue", f'[[ " $* " == *" --steps --jobs=7 "* ]] || exit 9\n{squeue}')
    done = operate("run_step=7.1\nif run_lives 'f o'; then printf yes; else printf no; fi", tmp_path)
    assert (done.stdout, done.stderr) == (said, "")


def test_a_later_attempt_that_was_refused_does_not_hide_the_run_that_lives(tmp_path: Path) -> None:
    for name, step, verdict in (("7", "7.1", "running"), ("7.r1", "7.2", "failed"), ("7.r2", "7.3", "failed")):
        (tmp_path / "r" / name).mkdir(parents=True)
        (tmp_path / "r" / name / ".allocation").write_text(f"{step} n0 1 x\n")
        (tmp_path / "r" / name / "result.json").write_text(f'{{"verdict":"{verdict}"}}')
    stub(tmp_path / "bin", "squeue", "cat steps")
    for steps, best in (("7.1\n7.2\n", "7"), ("7.2\n", "7.r2")):
        (tmp_path / "steps").write_text(steps)
        assert operate("latest_attempt r 7", tmp_path).stdout == f"r/{best}\n"
