"""lib/allocation.sh: what it reads of Slurm about an allocation, and which steps of it are this run's."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs.running import act, shown
from jobs.shell import bash, stub

LIBRARIES = ["log", "result", "events", "steps", "allocation", "watch", "preflight"]
SETUP = "job_folder=/nowhere\nallocation=1\n"


@pytest.mark.parametrize(("text", "seconds"), [
    ("5:00", "300"), ("59", "59"), ("1:00:08", "3608"), ("2-03:04:05", "183845"), ("08:09", "489"), ("0:00", "0"),
    ("UNLIMITED", "no"), ("INVALID", "no"), ("", "no"), ("NOT_SET", "no")])
def test_durations_of_slurm(text: str, seconds: str, tmp_path: Path) -> None:
    done = bash(f'if duration_s "{text}"; then printf "%s" "${{REPLY}}"; else printf no; fi', tmp_path, LIBRARIES, plan="")
    assert (done.stdout, done.stderr) == (seconds, "")


@pytest.mark.parametrize(("answer", "left"), [
    ("10:00|10:00", 540), ("1:40:00|2:00:00", 5700), ("0:30|1:00", 24), ("UNLIMITED|UNLIMITED", None), ("9:00|UNLIMITED", 240)])
def test_the_end_of_an_allocation_comes_a_tenth_earlier(answer: str, left: int | None, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "squeue", f"printf '%s\\n' '{answer}'")
    done = bash(SETUP + 'SECONDS=0; read_allocation_end; printf "%s" "${allocation_end}"', tmp_path, LIBRARIES, plan="")
    assert (done.stdout, done.stderr) == ("" if left is None else str(left), "")


def test_an_end_that_slurm_does_not_tell_stays_as_it_was(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "squeue", "exit 1")
    done = bash(SETUP + 'allocation_end=77; read_allocation_end; printf "%s" "${allocation_end}"', tmp_path, LIBRARIES, plan="")
    assert done.stdout == "77"


@pytest.mark.parametrize(("setup", "signal"), [
    ("allocation_end=10", "USR1"), ("allocation_end=500", ""), ("allocation_end=''", ""),
    ("allocation_end=10 allocation=0", ""), ("allocation_end=10 stop_signal=TERM", "TERM"),
    ("allocation_end=500 allocation_ask=50", "USR1")])
def test_the_run_is_stopped_before_the_allocation_ends(setup: str, signal: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "squeue", "printf '0:05|10:00\\n'")  # shortened meanwhile; asked only when it is time
    text = SETUP + f'allocation_ask=1000 {setup}\nSECONDS=100; check_allocation_end; printf "%s" "${{stop_signal}}"'
    assert bash(text, tmp_path, LIBRARIES, plan="").stdout == signal


@pytest.mark.parametrize(("is_one", "hosts", "used"), [(1, "a b c", "a b"), (1, "a b", "a b"), (1, "a", "a"), (0, "a b c", "a b c")])
def test_a_larger_allocation_gives_its_first_nodes(is_one: int, hosts: str, used: str, tmp_path: Path) -> None:
    text = f'{SETUP}allocation={is_one}\nnode_hosts=({hosts})\ntrim_allocation\nprintf "%s" "${{node_hosts[*]}}"'
    out = bash(text, tmp_path, LIBRARIES, plan="").stdout
    assert out.splitlines()[-1] == used
    assert ("used are a b" in out) == (is_one == 1 and hosts == "a b c")


def test_descent(tmp_path: Path) -> None:
    text = """
bash -c 'sleep 5 & echo $!; wait' >child &
parent=$!
until [[ -s child ]]; do sleep 0.05; done
child=$(<child)
for pair in "${child} ${parent}" "${child} $$" "${child} ${child}" "${parent} ${child}" "99999999 $$" "${child} 0"; do
  if descends_from ${pair}; then printf 'yes '; else printf 'no '; fi
done
kill "${child}"
"""
    assert bash(text, tmp_path, LIBRARIES, plan="").stdout == "yes yes yes no no no "


STEP = ("StepId=7.{id} UserId=0 StartTime=2026 TimeLimit=UNLIMITED State=RUNNING Partition=debug NodeList=n0 Nodes=1 CPUs=16 Tasks=1 "
        "Name={name} Network=(null) TRES=cpu=16 ResvPorts=(null) CPUFreqReq=Default Dist=Cyclic SrunHost:Pid=n0:{pid} ")


def test_only_steps_of_our_own_srun_are_ours(tmp_path: Path) -> None:
    """Another step of the allocation may have any name."""
    rows = [STEP.format(id=0, name="bench", pid="%s"), STEP.format(id=1, name="bench", pid=str(os.getpid())),
            STEP.format(id=2, name="prefill_0", pid="%s"), STEP.format(id="extern", name="extern", pid="0")]
    text = """
bash -c 'sleep 5 & echo $!; wait' >child &
task_pid[bench]=$!
until [[ -s child ]]; do sleep 0.05; done
step_ids
printf '%s' "${REPLY}"
kill "$(<child)"
"""
    stub(tmp_path / "bin", "scontrol", "[[ \"$*\" == '--oneliner show step 7' ]] || exit 3; child=$(<child)\n" +
         "\n".join(f"printf '%s\\n' \"{row.replace('%s', '${child}')}\"" for row in rows))
    assert bash(text, tmp_path, LIBRARIES, plan="").stdout == "bench 7.0"


def alone(tmp_path: Path, pid: int | str, older: bool, job: str) -> subprocess.CompletedProcess[str]:
    """check_alone beside another run's folder."""
    other = Path(f"/tmp/srtgen-run-{job}.other")
    other.mkdir()
    try:
        own = tmp_path / "run"
        own.mkdir()
        for folder, age in ((own, 100), (other, 200 if older else 50)):
            (folder / "pid").write_text(f"{pid}\n")
            os.utime(folder / "pid", (10_000 - age, 10_000 - age))
        text = f"{SETUP}run_folder={own}\nresult_code=null\ncheck_alone\nprintf 'alone %s' \"$(ls -d {other} 2>&1)\""
        return bash(text, tmp_path, LIBRARIES, {"SLURM_JOB_ID": job, "SLURMD_NODENAME": "n0"}, plan="")
    finally:
        subprocess.run(["rm", "-rf", str(other)], check=True)


def test_of_two_runs_in_an_allocation_the_older_one_stays(tmp_path: Path) -> None:
    job = f"t{os.getpid()}"
    with subprocess.Popen(["bash", "-c", "sleep 20; :", "run.sbatch"]) as process:
        first, second = tmp_path / "1", tmp_path / "2"
        first.mkdir(), second.mkdir()
        refused = alone(first, process.pid, True, job)
        assert (refused.returncode, f"pid {process.pid} on n0" in refused.stdout) == (10, True), refused
        assert alone(second, process.pid, False, job).stdout.startswith("alone /tmp")
        process.kill()


def test_a_killed_run_is_no_other_run(tmp_path: Path) -> None:
    assert alone(tmp_path, os.getpid(), True, f"u{os.getpid()}").stdout.startswith("alone /tmp")  # that pid is another's now


@pytest.mark.parametrize(("state", "code"), [("RUNNING", 0), ("NODE_FAIL", 11), ("", 11)])
def test_a_success_counts_only_in_an_allocation_that_is_there(state: str, code: int, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "squeue", f"printf '%s' '{state}'")
    done = bash("check_node_lives", tmp_path, LIBRARIES, plan="")
    assert done.returncode == code
    assert ("the allocation ended" in done.stderr) == (code == 11)


@pytest.mark.parametrize(("job_text", "said"), [
    ("   JobState=PENDING Reason=None BatchFlag=0 ", "is not running"), ("   JobState=RUNNING Reason=None BatchFlag=0 ", "has no nodes")])
def test_an_allocation_that_cannot_be_used(job_text: str, said: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", "exit 1")
    done = bash(f"job_text='{job_text}'\nstart_story", tmp_path, LIBRARIES, plan="")
    assert done.returncode == 10 and said in done.stderr


def test_a_batch_job_is_no_run_in_an_allocation(tmp_path: Path) -> None:
    text = 'in_allocation() { return 1; }\nenter_allocation\njob_folder=. run_folder=.\njoin_allocation\nprintf "%s" "${allocation}"'
    assert bash(text, tmp_path, LIBRARIES, plan="").stdout == "0"
    assert not (tmp_path / ".allocation").exists()


STEP_HERE = 'while [[ "$1" == --* ]]; do shift; done; exec "$@"'  # srun runs its command here


def test_the_first_node_gets_a_private_copy_of_the_script(tmp_path: Path) -> None:
    content = b"#!/bin/bash\n# \x00\xff no text\n"
    (tmp_path / "carried").write_bytes(content)
    stub(tmp_path / "bin", "srun", f'printf "%s\\n" "$@" >{tmp_path}/words; {STEP_HERE}')
    done = bash("SINGLE_FILE=carried\nsend_to_first n3 \"${PWD}/it's a copy\"\nprintf on", tmp_path, LIBRARIES, plan="")
    assert (done.stdout, done.stderr) == ("on", "")
    copy = tmp_path / "it's a copy"
    assert copy.read_bytes() == content and copy.stat().st_mode & 0o777 == 0o600
    assert {"--nodelist=n3", "--overlap", "--nodes=1", "--ntasks=1"} <= set((tmp_path / "words").read_text().splitlines())


@pytest.mark.parametrize(("srun", "path"), [("exit 1", "copy"), (STEP_HERE, "absent/copy")])
def test_a_script_that_cannot_be_copied_names_the_node(srun: str, path: str, tmp_path: Path) -> None:
    (tmp_path / "carried").touch()
    stub(tmp_path / "bin", "srun", srun)
    done = bash(f"SINGLE_FILE=carried\nsend_to_first n3 {path}\nprintf on", tmp_path, LIBRARIES, plan="")
    assert (done.returncode, done.stdout) == (10, "") and done.stderr.endswith("refused: the script cannot be copied to n3\n")


CONTROLS = {"before there is a pipe": ("control=''", ""), "to the story": ("exec {control}>said", "stop\nstop\n"),
            "to a story that has ended": ("mkfifo p; exec {reader}<>p {control}>p; exec {reader}<&-; trap '' PIPE", "")}


@pytest.mark.parametrize("case", CONTROLS)
def test_a_signal_is_handed_on(case: str, tmp_path: Path) -> None:
    before, said = CONTROLS[case]
    (tmp_path / "said").touch()
    done = bash(f'stopped=0\n{before}\nhand_on\nhand_on\nprintf "%s" "${{stopped}}"', tmp_path, LIBRARIES, plan="")
    assert (done.returncode, done.stdout, done.stderr, (tmp_path / "said").read_text()) == (0, "1", "", said)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """An allocation's id and a live run's pid. The runs: ours, one that lives, two that were killed, one that just begins; and another job's."""
    job = f"r{os.getpid()}{time.monotonic_ns()}"
    ended = subprocess.Popen(["true"])
    ended.wait()
    live = subprocess.Popen(["bash", "-c", "sleep 30; :", "run.sbatch"])
    pids = {"own": live.pid, "live": live.pid, "dead": ended.pid, "reused": os.getpid(), "new": None}
    folders = {Path(f"/tmp/srtgen-run-{job}.{name}"): pid for name, pid in pids.items()} | {Path(f"/tmp/srtgen-run-{job}0.x"): live.pid}
    try:
        for folder, pid in folders.items():
            folder.mkdir()
            if pid is not None:
                (folder / "pid").write_text(f"{pid}\n")
        yield job, live.pid
    finally:
        live.kill()
        live.wait()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def test_other_runs_of_the_allocation(runs: tuple[str, int], tmp_path: Path) -> None:
    job, pid = runs
    done = bash(f"{SETUP}run_folder=/tmp/srtgen-run-{job}.own\nother_runs", tmp_path, LIBRARIES, {"SLURM_JOB_ID": job}, plan="")
    wanted = [f"{number} /tmp/srtgen-run-{job}.{name}" for name, number in (("dead", 0), ("live", pid), ("reused", 0))]
    assert (done.stdout.splitlines(), done.stderr) == (wanted, "")


def test_an_allocation_without_other_runs(tmp_path: Path) -> None:
    done = bash(f"{SETUP}run_folder=/nowhere\nother_runs\nprintf on", tmp_path, LIBRARIES, {"SLURM_JOB_ID": f"none{os.getpid()}"}, plan="")
    assert (done.stdout, done.stderr) == ("on", "")


@pytest.mark.parametrize(("is_one", "code"), [(1, 0), (1, 1), (0, 0)])
def test_killed_runs_are_cleaned_up_after(is_one: int, code: int, runs: tuple[str, int], tmp_path: Path) -> None:
    """On all nodes of the allocation, under the name of the run that left something."""
    job, _ = runs
    stub(tmp_path / "bin", "srun", f'printf "%s\\n" "$*" >>{tmp_path}/calls; printf said; exit {code}')
    text = f"allocation={is_one} run_folder=/tmp/srtgen-run-{job}.own\nclean_killed_runs\nshow \"$(printf '%q' \"${{IFS}}\") ${{SRTGEN_RUN}} ${{#result_warnings[@]}}\""
    done = act(tmp_path, text, job="n0\nn1", env={"SLURM_JOB_ID": job, "SRTGEN_RUN": "mine"})
    assert shown(done) == [f"$' \\t\\n' mine {2 * code * is_one}"]
    left = {path.name.partition(".")[2] for path in Path("/tmp").glob(f"srtgen-run-{job}.*")}
    calls = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
    if not is_one:
        assert (calls, left) == ([], {"own", "live", "dead", "reused", "new"})
        return
    assert left == {"own", "live", "new"}
    assert [call.split()[-1] for call in calls] == [f"srtgen-run-{job}.{name}" for name in ("dead", "reused")]
    assert all("--nodes=2 " in call and "--nodelist=n0,n1 " in call and f"/lib/node_clean.py {job} " in call for call in calls)
    assert Path(f"/tmp/srtgen-run-{job}.own/clean_killed").read_text() == "saidsaid"
