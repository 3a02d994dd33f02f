"""What the benchmark refuses before the weights load, and its other types."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench_rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_hard_limit_of_open_files_is_too_low(rig: Rig) -> None:
    """Case 091."""
    rig.points = ((2048, 20480),)
    run = rig.run("prlimit", "--nofile=1024:1024")
    assert run.code == 10
    assert run.verdict["reason"] == "open files: the hard limit is 1024, concurrency 2048 needs 2304"
    assert not (run.folder / "points.jsonl").exists()


def test_soft_limit_is_raised(rig: Rig) -> None:
    """Case 091."""
    rig.points = ((512, 5120),)
    run = rig.run("prlimit", "--nofile=256:1024")
    assert run.code == 0, run.output
    assert "open files: soft 1024, hard 1024" in run.output


def test_subset_is_checked_before_the_load(rig: Rig) -> None:
    rig.env["SRTGEN_CONCURRENCIES"] = "4 5"
    run = rig.run()
    assert (run.code, run.verdict["reason"]) == (10, "SRTGEN_CONCURRENCIES names 5; the plan has 4 8")


CLIENTS = {
    "no atom": ({}, {"PYTHONPATH": "/nowhere"}, "client atom: python3 finds no atom.benchmarks.benchmark_serving"),
    "no inferencex": ({"CLIENT": "inferencex", "CLIENT_PATH": "/no/benchmark_serving.py"}, {},
                      "client inferencex: /no/benchmark_serving.py is not there; mount it"),
    "no tokenizer": ({"TOKENIZER": "/no/model"}, {}, "tokenizer: /no/model holds none of tokenizer.json"),
    "not cached": ({"OFFLINE": "1"}, {"HF_HOME": "/no/hub"}, "tokenizer: offline, and Qwen/Qwen3-0.6B is not in /no/hub/hub"),
}


@pytest.mark.parametrize("case", CLIENTS)
def test_client_is_incomplete(rig: Rig, case: str) -> None:
    """Case 097: the tokenizer is found before the load, separately from the served name."""
    data, env, reason = CLIENTS[case]
    rig.data |= data
    rig.env |= env
    run = rig.run()
    assert run.code == 10, run.output
    assert run.verdict["reason"].startswith(reason)


def test_offline_with_a_cached_tokenizer(rig: Rig) -> None:
    snapshot = rig.root / "hub" / "models--Qwen--Qwen3-0.6B" / "snapshots" / "0a"
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").touch()
    rig.data["OFFLINE"] = "1"
    rig.env["HF_HUB_CACHE"] = str(rig.root / "hub")
    assert rig.run().code == 0


def custom(rig: Rig, *lines: str, **data: str) -> None:
    rig.data |= {"TYPE": "custom", "CLIENT": "", "CONCURRENCIES": "", "PROMPTS": "", "WARMUPS": "", **data}
    require = [line for line in lines if line.startswith("bench_require")]
    rest = [line for line in lines if line not in require]
    rig.body = "\n".join([*require, "bench_check", *rest, "bench_finish"])


def test_custom_command(rig: Rig) -> None:
    (rig.root / "bench_command.sh").write_text('printf \'%s|\' "${CONC_LIST}" "${SRT_ENDPOINT}"; pwd; cat\n')
    rig.env["CONC_LIST"] = "4 8"
    custom(rig, "bench_require CONC_LIST", "enter_role bench", 'bench_custom bash -l "${here}/bench_command.sh"')
    run = rig.run()
    assert run.code == 0, run.output
    assert "4 8|http://127.0.0.1:8000|" + str(rig.results / "work") in run.output
    assert run.verdict == {"code": 0, "reason": "", "points": None, "valid": None, "client_exit_code": 0}


def test_custom_argv_stays_literal(rig: Rig) -> None:
    custom(rig, "enter_role bench", "bench_custom printf '[%s]' 'a b' '$HOME' '*'", CWD="/")
    assert "[a b][$HOME][*]" in rig.run().output


def test_custom_failure_keeps_its_code(rig: Rig) -> None:
    """Case 090."""
    custom(rig, "enter_role bench", "bench_custom bash -c 'exit 9'")
    run = rig.run()
    assert (run.code, run.verdict["client_exit_code"]) == (20, 9)
    assert run.verdict["reason"] == "the command ended with exit code 9"


def test_custom_command_that_does_not_exist(rig: Rig) -> None:
    custom(rig, "enter_role bench", "bench_custom /no/such")
    run = rig.run()
    assert (run.code, run.verdict["reason"]) == (20, "/no/such can't be started: No such file or directory")


def test_custom_requires_variables(rig: Rig) -> None:
    custom(rig, "bench_require CONC_LIST RESULT_NAME")
    run = rig.run()
    assert (run.code, run.verdict["reason"]) == (10, "not set at submission: CONC_LIST RESULT_NAME")


def test_manual_serves_until_told(rig: Rig) -> None:
    custom(rig, "enter_role bench", "bench_manual", TYPE="manual")
    rig.env["SLURM_JOB_ID"] = "77"
    process = rig.start()
    stop = rig.results / "bench" / "stop"
    deadline = time.monotonic() + 20
    while not stop.parent.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    assert process.poll() is None
    stop.touch()
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "serving Qwen/Qwen3-0.6B at http://127.0.0.1:8000" in output and "stop.sh 77" in output


LINT = ("require-variable-braces,quote-safe-variables,deprecate-which,check-unassigned-uppercase,"
        "check-extra-masked-returns,require-double-brackets")


def test_library_is_lint_free() -> None:
    library = Path(__file__).resolve().parent.parent / "templates" / "lib" / "bench.sh"
    tool = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert tool is not None
    done = subprocess.run([tool, "-S", "style", "-o", LINT, str(library)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", sorted((Path(__file__).resolve().parent.parent / "templates" / "lib").glob("*.py")),
                         ids=lambda path: path.name)
def test_scripts_are_python_3_8(script: Path) -> None:
    ast.parse(script.read_text(), feature_version=(3, 8))
