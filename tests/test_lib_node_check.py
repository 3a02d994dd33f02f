"""node_check, its report in the shell, and node_clean, function by function."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest
from jobs.script import gone
from jobs.shell import LIB, bash, stub

sys.path.insert(0, str(LIB))
import node_check  # noqa: E402  (found only by the path above)
import node_clean  # noqa: E402

# ---- node_check ------------------------------------------------------------------------------------------------------


def test_say_is_one_line_of_fields(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n3")
    node_check.say("check", "ports", "fail", "a\tb\n  c ", "")
    assert capsys.readouterr().out == "n3\tcheck\tports\tfail\ta b c\t\n"


def crashing(plan: Namespace) -> tuple[str, str]:
    raise KeyError("x")


CHECKS = [(lambda plan: ("note", "so\nso"), [], "note\tso so"), (crashing, [], "fail\tthe check itself failed: KeyError: 'x'"),
          (crashing, ["mine"], "skip\tSRTGEN_SKIP_CHECKS"), (lambda plan: ("ok", ""), ["other"], "ok\t")]


@pytest.mark.parametrize(("check", "skip", "line"), CHECKS)
def test_run_check(check: node_check.Check, skip: list[str], line: str, monkeypatch: pytest.MonkeyPatch,
                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    node_check.run_check("mine", check, Namespace(skip=skip))
    assert capsys.readouterr().out == f"\tcheck\tmine\t{line}\n"


COMMANDS = [("true", "ok", ""), ("printf ' fine \\n'; printf more >&2", "ok", "fine \nmore"), ("printf no; exit 3", "fail", "exit code 3: no"),
            ("read x", "fail", "exit code 1: "), ("printf '%0400d' 1; exit 1", "fail", "exit code 1: " + "0" * 299 + "1")]


@pytest.mark.parametrize(("command", "status", "text"), COMMANDS)
def test_profile_check_is_a_command_of_bash_without_input(command: str, status: str, text: str) -> None:
    assert node_check.profile_check(command)(Namespace()) == (status, text)


def test_a_profile_check_that_hangs_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = subprocess.run
    monkeypatch.setattr(node_check.subprocess, "run", lambda *words, **more: real(*words, **{**more, "timeout": 0.3}))
    node_check.run_check("mine", node_check.profile_check("exec sleep 20"), Namespace(skip=[]))
    assert "fail\tthe check itself failed: TimeoutExpired" in capsys.readouterr().out


def test_parse_arguments_has_defaults_and_lists() -> None:
    empty = node_check.parse_arguments([])
    assert (empty.bundle, empty.gpus, empty.image, empty.running_job) == ("", 0, [], [])
    plan = node_check.parse_arguments(["--gpus=8", "--image", "a", "--image", "b c", "--node-cpus=n0=4", "--cpus-per-task=6", "--ib-device=x,y"])
    assert (plan.gpus, plan.image, plan.node_cpus, plan.cpus_per_task, plan.ib_device) == (8, ["a", "b c"], ["n0=4"], "6", "x,y")
    with pytest.raises(SystemExit):
        node_check.parse_arguments(["--gpus=many"])


def test_main_reports_addresses_edits_every_check_and_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                            capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {"gone file": {"sha256": "0"}}}))
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    skips = [f"--skip={name}" for name, _ in node_check.CHECKS if name != "bundle"]
    assert node_check.main(["--bundle", str(tmp_path), "--command=mine\texit 4", *skips]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert ["n1", "modified", "gone file"] in rows and ["n1", "fact", "kernel", os.uname().release] in rows
    assert ["n1", "check", "bundle", "note", "edited since generation: gone file"] in rows and rows[-1][2:4] == ["mine", "fail"]
    assert [row[2] for row in rows if row[1] == "check"] == [name for name, _ in node_check.CHECKS] + ["mine"]


def test_report_of_the_shell_part_is_the_same_line(tmp_path: Path) -> None:
    text = (LIB / "node_check.sh").read_text()
    functions = text[text.index("report() {"): text.index("\ntools=ok")]
    done = bash(functions + "\nreport tools fail 'a b: no'", tmp_path, env={"SLURMD_NODENAME": "n9"})
    assert done.stdout == "n9\tcheck\ttools\tfail\ta b: no\n"


def test_a_node_without_tools_names_them_all(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "curl").symlink_to("/bin/true")
    (tmp_path / "manifest.json").write_text('{\n "id": "abc"\n}\n')
    done = subprocess.run(["/bin/bash", "-c", (LIB / "node_check.sh").read_text(), "node_check", str(tmp_path), "abc"], text=True,
                          env={"PATH": f"{tmp_path}/bin", "SLURMD_NODENAME": "n1"}, capture_output=True, timeout=20)
    assert done.stdout == "n1\tcheck\ttools\tfail\tbash is missing, python3 is missing, timeout is missing\nn1\tend\n"


# ---- node_clean ------------------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> str:
    return f"c{os.getpid()}{tmp_path.name}"


def step_of(job: str, process: list[subprocess.Popen[str]], text: str = "sleep 60", **env: str) -> int:
    names = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", "SRTGEN_RUN": job, "SRTGEN_STEP": "agg_0", "SLURM_STEP_ID": "3", **env}
    one = subprocess.Popen(["bash", "-c", f"{text} & printf 'up\\n'; wait; wait"], env={n: v for n, v in names.items() if v}, text=True,
                           stdout=subprocess.PIPE, start_new_session=True)
    assert one.stdout is not None and one.stdout.readline() == "up\n"
    process.append(one)
    return one.pid


def test_environment_and_name_of_a_process(process: list[subprocess.Popen[str]], job: str) -> None:
    pid = step_of(job, process, ODD="a=b c", EMPTY="")
    assert node_clean.environment(pid).items() >= {"SRTGEN_RUN": job, "ODD": "a=b c"}.items()
    assert node_clean.name_of(pid) == "bash"
    assert (node_clean.environment(1 << 30), node_clean.name_of(1 << 30)) == ({}, "")


@pytest.mark.parametrize(("env", "ours"), [({}, True), ({"SRTGEN_RUN": "other"}, False), ({"SRTGEN_STEP": ""}, False),
                                           ({"SLURM_STEP_ID": ""}, False)])
def test_leftovers_are_processes_of_the_jobs_steps(env: dict[str, str], ours: bool, process: list[subprocess.Popen[str]], job: str) -> None:
    pid = step_of(job, process, **env)
    assert (pid in node_clean.leftovers(job)) == ours


def test_leftovers_leave_srun_alone(process: list[subprocess.Popen[str]], job: str, tmp_path: Path) -> None:
    (tmp_path / "srun").symlink_to("/usr/bin/sleep")
    names = {"SRTGEN_RUN": job, "SRTGEN_STEP": "agg_0", "SLURM_STEP_ID": "3"}
    one = subprocess.Popen([str(tmp_path / "srun"), "60"], env=names, text=True, start_new_session=True)
    process.append(one)
    end = time.monotonic() + 10
    while node_clean.name_of(one.pid) != "srun":
        assert time.monotonic() < end
        time.sleep(0.01)
    assert node_clean.leftovers(job) == []


def test_send_reaches_all_that_live(process: list[subprocess.Popen[str]], job: str) -> None:
    pid = step_of(job, process)
    node_clean.send([1 << 30, pid], signal.SIGKILL)
    assert process[0].wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(("trap", "code"), [("trap 'exit 3' TERM; sleep 60", 3), ("trap '' TERM; sleep 60", -9)])
def test_end_processes_asks_and_then_kills(trap: str, code: int, process: list[subprocess.Popen[str]], job: str,
                                           capfd: pytest.CaptureFixture[str]) -> None:
    pid = step_of(job, process, trap)
    node_clean.end_processes(job)
    assert process[0].wait(10) == code
    assert all(gone(left) for left in node_clean.leftovers(job)) and gone(pid)  # a killed child takes a moment
    assert f"{pid} (bash)" in capfd.readouterr().out
    node_clean.end_processes(job)
    assert capfd.readouterr().out == ""


DOCKER = """printf '%s|' "$@" >>{t}/calls; printf '\\n' >>{t}/calls
[[ "$1" != ps ]] || printf '{names}'"""


@pytest.mark.parametrize(("names", "removed"), [("aa\\nbb\\n", "rm|--force|aa|bb|"), ("", None)])
def test_remove_containers_of_the_job_only(names: str, removed: str | None, path: Path, tmp_path: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    stub(path, "docker", DOCKER.format(t=tmp_path, names=names))
    node_clean.remove_containers("7", ["docker"])
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["ps|--all|--quiet|--filter|label=srtgen.job=7|"] + ([removed] if removed else [])
    assert bool(capsys.readouterr().out) == bool(removed)


@pytest.mark.parametrize(("runtime", "asked"), [("docker", True), ("pyxis", False), ("none", False)])
def test_main_of_node_clean_removes_the_work_folder(runtime: str, asked: bool, path: Path, tmp_path: Path, job: str) -> None:
    stub(path, "docker", DOCKER.format(t=tmp_path, names=""))
    work = Path(f"/tmp/srtgen-{job}")
    (work / "agg_0" / "x").mkdir(parents=True)
    node_clean.main(job, runtime, job, [])
    assert not work.exists() and (tmp_path / "calls").exists() == asked
    node_clean.main(job, runtime, job, [])


def shared_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Path:
    """A folder in the place of /tmp/srtgen-jit."""
    found = node_clean.glob.glob
    monkeypatch.setattr(node_clean.glob, "glob", lambda pattern: found(f"{tmp_path}{pattern}"))
    folder = tmp_path / "tmp" / "srtgen-jit"
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}.lock").touch()
        (folder / name / "triton").mkdir(parents=True)
    return folder


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_remove_jit_folders_leaves_what_a_worker_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is that of an open file: jit_role.sh's server holds it to its end, whatever end that is."""
    folder = shared_tmp(tmp_path, monkeypatch, "0", "1", "2")
    with open(folder / "1.lock") as server:
        fcntl.flock(server, fcntl.LOCK_EX)
        node_clean.remove_jit_folders()
        assert left(folder) == ["1", "1.lock"] and left(folder / "1") == ["triton"]
    node_clean.remove_jit_folders()
    assert not folder.exists()
    node_clean.remove_jit_folders()


def test_remove_jit_folders_removes_no_more_than_what_has_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shared_tmp(tmp_path, monkeypatch, "0", "1")
    (folder / "notes").mkdir()
    (folder / "1.lock").unlink()
    (folder / "2.lock").mkdir()  # no lock of ours, and no reason to stop
    node_clean.remove_jit_folders()
    assert left(folder) == ["1", "2.lock", "notes"]
    assert left(tmp_path / "tmp") == ["srtgen-jit"]


def test_remove_jit_folders_removes_a_lock_whose_worker_made_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shared_tmp(tmp_path, monkeypatch)
    (folder / "0.lock").touch()
    node_clean.remove_jit_folders()
    assert not folder.exists()
