"""lib/single.sh, lib/node_results.sh and lib/keeper.sh: a bundle that travels in run.sbatch, without Slurm."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from jobs.shell import LIB, bash, stub

LIBRARIES = ["log", "result", "events", "steps", "allocation", "single", "node_results", "watch", "teardown"]
SINGLE = "SINGLE_FILE=run.sbatch\nBUNDLE_SHA256=x UNPACK=y\njob_folder=${PWD}/r run_folder=${PWD}\nmkdir -p r/logs\nresult_code=null\n"
FAR = "PLAN_BENCH_NODE=1"


@pytest.mark.parametrize(("setup", "env", "wanted"), [
    ("", {}, "{bundle}/results"), ("SINGLE_FILE=x", {}, f"/tmp/srtgen-results-{os.geteuid()}"),
    ("SINGLE_FILE=x", {"SLURM_SUBMIT_DIR": "/absent"}, f"/tmp/srtgen-results-{os.geteuid()}"),
    ("SINGLE_FILE=x", {"SLURM_SUBMIT_DIR": "{tmp}"}, "{tmp}/results"), ("", {"SLURM_SUBMIT_DIR": "{tmp}"}, "{bundle}/results")])
def test_where_results_go_by_default(setup: str, env: dict[str, str], wanted: str, tmp_path: Path) -> None:
    given = {name: value.format(tmp=tmp_path) for name, value in env.items()}
    done = bash(f'{setup}\ndefault_results\nprintf "%s" "${{REPLY}}"', tmp_path, LIBRARIES, given, plan="")
    assert done.stdout == wanted.format(tmp=tmp_path, bundle=tmp_path / "bundle")


@pytest.mark.parametrize("single", [False, True])
def test_steps_find_results_under_one_path(single: bool, tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "r").mkdir()
    text = f'{"SINGLE_FILE=x" if single else ""}\njob_folder={tmp_path}/r\nplace_results\n: >"${{results_seen}}/file"\nprintf "%s" "${{results_seen}}"'
    done = bash(text, tmp_path, LIBRARIES, plan="")
    assert done.stdout == str(tmp_path / ("bundle/results" if single else "r")) and (tmp_path / "r" / "file").exists()


def test_a_bundle_of_many_files_is_not_handed_over(tmp_path: Path) -> None:
    text = 'hand_over_bundle; leave_nodes; fetch_client; send_identity; pack_and_leave; printf "%s" "${#keeper_hosts[@]}"'
    done = bash(text, tmp_path, LIBRARIES, plan=FAR)
    assert (done.stdout, done.stderr) == ("0", "")


@pytest.mark.parametrize(("code", "said", "reason"), [
    (1, "sbcast: error: REQUEST_FILE_BCAST(n1): No space left on device", "copied to n1: sbcast: error"),
    (127, "sbcast: command not found", "copied to the other nodes: sbcast: command not found"),
    (124, "", "copied to the other nodes: sbcast ended with code 124"), (0, "whatever", "")])
def test_a_copy_that_fails_names_its_node(code: int, said: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "said").write_text(f"{said}\n")
    done = bash(f"{SINGLE}check_sbcast {code} said", tmp_path, LIBRARIES, plan="")
    assert done.returncode == (10 if reason else 0) and reason in done.stdout


@pytest.mark.parametrize(("report", "ended", "code", "reason"), [
    ("n1\tok\t\nn2\tok\t\n", "", 0, ""), ("n1\tok\t\nn2\tfail\tNo space left\n", "", 10, "bundle: on n2: No space left"),
    ("n1\tok\t\nsrun: error: n2: no\n", "1", 10, "bundle: n2 does not take it: srun: error: n2: no")])
def test_the_job_waits_for_every_keeper(report: str, ended: str, code: int, reason: str, tmp_path: Path) -> None:
    (tmp_path / "report").write_text(report)
    text = f"{SINGLE}events_open .\nkeeper_hosts=(n1 n2)\n{'task_code[keeper]=1' if ended else ''}\nawait_keepers report"
    done = bash(text, tmp_path, LIBRARIES, plan="")
    assert done.returncode == code and reason in done.stdout


@pytest.mark.parametrize(("plan", "setup", "far"), [
    (FAR, "SINGLE_FILE=x", "yes"), (FAR, "", "no"), ("PLAN_BENCH_NODE=0", "SINGLE_FILE=x", "no")])
def test_a_far_client(plan: str, setup: str, far: str, tmp_path: Path) -> None:
    assert bash(f"{setup}\nif client_is_far; then printf yes; else printf no; fi", tmp_path, LIBRARIES, plan=plan).stdout == far


def test_results_of_another_node(tmp_path: Path) -> None:
    """srun runs its command here; the node's own folder lies beside the job's."""
    node = tmp_path / "bundle" / "results"
    (node / "bench").mkdir(parents=True)
    (node / "bench" / "verdict.json").write_text("{}")
    (tmp_path / "bundle" / "lib").symlink_to(LIB)
    stub(tmp_path / "bin", "srun", 'while [[ "$1" == --* ]]; do shift; done; exec "$@"')
    text = f'{SINGLE}node_hosts=(n0 n1)\nfetch_client\nprintf x >r/nodes.tsv\nsend_identity'
    done = bash(text, tmp_path, LIBRARIES, plan=FAR)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "r" / "bench" / "verdict.json").read_text() == "{}" and (node / "nodes.tsv").read_text() == "x"
    stub(tmp_path / "bin", "srun", "exit 1")
    assert "cannot fetch results from n1" in bash(f"{SINGLE}node_hosts=(n0 n1)\nfetch_client", tmp_path, LIBRARIES, plan=FAR).stdout


def test_copies_without_a_keeper_are_dropped(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", f'printf "%s\\n" "$*" >>{tmp_path}/calls')
    done = bash(f"{SINGLE}keeper_hosts=(n1 n2)\nscript_sent=1\nleave_nodes", tmp_path, LIBRARIES, plan="")
    assert done.returncode == 0, done.stderr
    assert "--nodelist=n1,n2" in (tmp_path / "calls").read_text() and f"rm -f -- {tmp_path}/bundle.sbatch" in (tmp_path / "calls").read_text()


def test_the_last_words_say_how_to_fetch_the_results(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "lib").symlink_to(LIB)
    (tmp_path / "bundle.sbatch").touch()
    text = f"{SINGLE}allocation=1\nSINGLE_FILE=${{PWD}}/copy\n: >copy\nprintf x >r/job.log\npack_and_leave"
    done = bash(text, tmp_path, LIBRARIES, {"SLURMD_NODENAME": "n0"}, plan="")
    assert done.stdout.splitlines()[-1].endswith(
        f"fetch them: srun -N1 -n1 --nodelist=n0 cat {tmp_path}/r.tar.gz >r.tar.gz   (or scp n0:{tmp_path}/r.tar.gz .)")
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(("bin", "."))) == ["r", "r.tar.gz"]


# -- keeper.sh ----------------------------------------------------------------


def keeper(tmp_path: Path, *argv: str, program: str = "pass", **popen: object) -> subprocess.Popen[str]:
    words = ["bash", "-c", (LIB / "keeper.sh").read_text(), "keeper", *(argv or ("keep", str(tmp_path / "b"), "sha", program, "all"))]
    return subprocess.Popen(words, env={"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True, start_new_session=True)


@pytest.mark.parametrize("by_signal", [False, True])
def test_a_keeper_keeps_its_bundle_until_the_end(by_signal: bool, tmp_path: Path) -> None:
    (tmp_path / "b.sbatch").touch()
    process = keeper(tmp_path, program="import sys; open(sys.argv[3] + '/made', 'w')")
    assert process.stdout is not None and process.stdout.readline() == "n1\tok\t\n"
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["made", "results"]
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700 and not (tmp_path / "b.sbatch").exists()
    if by_signal:
        os.killpg(process.pid, 15)
        assert process.wait(10) == 143
    else:
        process.communicate(timeout=10)
        assert process.returncode == 0
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(("program", "taken", "said"), [
    ("import sys; sys.exit('first\\nNo space left')", False, "No space left"), ("pass", True, "File exists")])
def test_a_keeper_that_cannot_unpack_says_why_and_leaves_nothing(program: str, taken: bool, said: str, tmp_path: Path) -> None:
    if taken:
        (tmp_path / "b").mkdir()
    (tmp_path / "b.sbatch").touch()
    out, _ = keeper(tmp_path, program=program).communicate(timeout=10)
    assert out.startswith("n1\tfail\t") and said in out
    assert not (tmp_path / "b.sbatch").exists() and not (tmp_path / "b").exists()


def test_bundles_of_jobs_that_have_ended_are_removed() -> None:
    mark = f"{os.getpid()}{time.monotonic_ns()}"
    jobs = [f"{mark}{end}" for end in "12"]
    folders = [Path(f"/tmp/srtgen-bundle-{job}.x") for job in jobs]
    try:
        for folder in folders:
            folder.mkdir()
        others = " ".join(path.name.removeprefix("srtgen-bundle-").split(".")[0] for path in Path("/tmp").glob("srtgen-bundle-*")
                          if path not in folders)
        for running, left in (("all", folders), (f"{others}\n{jobs[1]}", folders[1:])):
            keeper(folders[0], "old", running).communicate(timeout=10)
            assert [folder for folder in folders if folder.exists()] == left
    finally:
        for folder in folders:
            folder.rmdir() if folder.exists() else None
