"""eval.sh and eval/run.sh: the order of the halves, codes and signals, beside small programs in place of the evaluation's."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from jobs.script import gone
from jobs.shell import HEAD, LIB, TEMPLATES, bash

PROGRAM = """import os, signal, sys, time
with open({calls!r}, "a") as stream:
    stream.write({name!r} + " " + str(os.getpid()) + "\\n")
if os.environ.get("HANG") == {name!r}:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(5))
    print("up", flush=True)
    time.sleep(60)
sys.exit(int(os.environ.get("CODE_" + {name!r}, "0")))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle with the real eval.sh and run.sh."""
    lib = tmp_path / "bun dle" / "lib"
    lib.mkdir(parents=True)
    shutil.copy(LIB / "eval.sh", lib)
    for name in ("eval_prepare", "eval_run", "eval_command"):
        (lib / f"{name}.py").write_text(PROGRAM.format(calls=f"{tmp_path}/calls", name=name))
    (lib / "role.sh").write_text(f'enter_role() {{ printf "turn of %s\\n" "$1" >>{tmp_path}/calls; [[ -z "${{LEAVE:-}}" ]] || exit 143; }}\n')
    (lib.parent / "eval").mkdir()
    shutil.copy(TEMPLATES / "eval" / "run.sh", lib.parent / "eval")
    (lib.parent / "eval" / "plan.sh").write_text("export EVAL_MODEL='a b'\n")
    return tmp_path


def source(folder: Path) -> str:
    return f". {folder}/'bun dle'/lib/eval.sh\n"


def calls(folder: Path) -> list[str]:
    file = folder / "calls"
    return [line.split(" ")[0] for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize(("code", "out"), [("0", "on"), ("22", ""), ("143", "")])
def test_eval_script_ends_the_step_if_it_fails(code: str, out: str, folder: Path) -> None:
    done = bash(source(folder) + "eval_script eval_run\nprintf on; trap -p TERM INT", folder, env={"CODE_eval_run": code})
    assert (done.returncode, done.stdout) == (int(code), out)


@pytest.mark.parametrize("call", ["eval_script eval_prepare", "eval_prepare"])
def test_a_signal_reaches_the_script_and_is_not_waited_out(call: str, folder: Path) -> None:
    process = subprocess.Popen(["bash", "-c", HEAD + source(folder) + call + "\nprintf on"], stdout=subprocess.PIPE, text=True,
                               env={"PATH": "/usr/bin:/bin", "HANG": "eval_prepare"})
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    child = int((folder / "calls").read_text().split()[1])
    begin = time.monotonic()
    process.terminate()
    assert process.wait(20) == 143 and process.stdout.read() == ""
    assert time.monotonic() - begin < 20 and gone(child)


MEASURES = [("0", "eval_run", "0", 0), ("1", "eval_command", "0", 0), ("0", "eval_run", "23", 23), ("1", "eval_command", "22", 22)]


@pytest.mark.parametrize(("command", "program", "code", "end"), MEASURES)
def test_eval_measure_runs_the_one_that_is_planned_and_ends(command: str, program: str, code: str, end: int, folder: Path) -> None:
    done = bash(source(folder) + "eval_measure\nprintf on", folder, env={"EVAL_COMMAND": command, f"CODE_{program}": code})
    assert (done.returncode, done.stdout, calls(folder)) == (end, "", [program])


def test_eval_measure_is_lm_eval_unless_told(folder: Path) -> None:
    assert bash(source(folder) + "eval_measure", folder).returncode == 0
    assert calls(folder) == ["eval_run"]


RUNS = [({}, 0, ["eval_prepare", "turn", "eval_run"]), ({"CODE_eval_prepare": "22"}, 22, ["eval_prepare"]),
        ({"LEAVE": "1"}, 143, ["eval_prepare", "turn"]), ({"CODE_eval_run": "23"}, 23, ["eval_prepare", "turn", "eval_run"]),
        ({"EVAL_COMMAND": "1"}, 0, ["eval_prepare", "turn", "eval_command"])]


@pytest.mark.parametrize(("env", "code", "order"), RUNS)
def test_run_prepares_before_its_turn_and_measures_after_it(env: dict[str, str], code: int, order: list[str], folder: Path) -> None:
    done = subprocess.run(["bash", str(folder / "bun dle" / "eval" / "run.sh")], env={"PATH": "/usr/bin:/bin", **env}, cwd="/",
                          capture_output=True, text=True, timeout=30)
    assert (done.returncode, calls(folder)) == (code, order), done.stderr


def test_eval_prepare_keeps_a_code_for_signals_between_the_halves(folder: Path) -> None:
    done = bash(source(folder) + 'eval_prepare\nkill -TERM "$$"\nprintf on', folder)
    assert (done.returncode, done.stdout) == (143, "")
