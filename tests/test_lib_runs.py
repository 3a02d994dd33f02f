"""stop.sh and wait.sh on a run inside an allocation, function by function: the allocation stays, the run's step ends."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from jobs import script
from jobs.shell import stub

NAME, RUN = "my-job", "srtgen-run-7.x"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Results of a run that is going on as step 7.1: Slurm's programs write down what they are told, squeue shows `steps`."""
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "run.sbatch").write_text(f"readonly PLAN_NAME={NAME}\nreadonly PLAN_OUTPUT_DIR=''\nreadonly PLAN_RUNTIME=podman\n")
    folder = tmp_path / "bundle" / "results" / "7"
    folder.mkdir(parents=True)
    (folder / ".allocation").write_text(f"7.1 n0 4711 {RUN}\n")
    (folder / "nodes.tsv").write_text("node\thost\taddress\n0\tn0\t10.0.0.1\n1\tn1\t10.0.0.2\n")
    result(folder)
    (tmp_path / "steps").write_text("7.0\n7.1\n")
    stub(tmp_path / "bin", "squeue", f"cat {tmp_path}/steps")
    for name in ("scancel", "srun"):
        stub(tmp_path / "bin", name, f'printf "%s\\n" "{name} $*" >>{tmp_path}/told')
    return folder


def result(folder: Path, verdict: str = "running", phase: str = "load", code: int | None = None) -> None:
    values = {"name": NAME, "phase": phase, "verdict": verdict, "reason": "it is so", "exit_code": code}
    (folder / "result.json").write_text(json.dumps(values, separators=(",", ":")) + "\n")


def told(tmp_path: Path) -> list[str]:
    return (tmp_path / "told").read_text().splitlines() if (tmp_path / "told").exists() else []


def call(name: str, text: str, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return script.call(name, text, tmp_path, {"SRTGEN_STOP_GRACE_S": "20", "SRTGEN_WAIT_POLL_S": "0.05", **env})


@pytest.mark.parametrize(("scontrol", "said"), [
    ("printf 'JobId=7 JobName=x\\n   Restarts=0 BatchFlag=0 Reboot=0\\n'", "yes"), ("printf '   Restarts=0 BatchFlag=1 Reboot=0\\n'", "no"),
    ("printf '   A=b BatchFlag=01 x\\n'", "no"), ("exit 1", "no")])
def test_is_allocation(scontrol: str, said: str, run: Path, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", f'[[ "$*" == "show job 7" ]] || exit 9\n{scontrol}')
    done = call("stop.sh", "if is_allocation 7; then printf yes; else printf no; fi", tmp_path)
    assert (done.stdout, done.stderr) == (said, "")


def test_clean_after_run_goes_to_each_of_its_nodes(run: Path, tmp_path: Path) -> None:
    done = call("stop.sh", f'allocation_run {run}\nclean_after_run {run}\nprintf "%q" "${{IFS}}"', tmp_path)
    assert (done.stdout, done.stderr) == ("$' \\t\\n'", "")
    (said,) = told(tmp_path)
    assert {"--jobid=7", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--nodelist=n0,n1", "--overlap"} <= set(said.split())
    assert said.endswith(f" python3 -E -s -B {tmp_path}/bundle/lib/node_clean.py 7 podman {RUN}")


def test_a_run_that_knew_no_nodes_left_nothing_on_them(run: Path, tmp_path: Path) -> None:
    (run / "nodes.tsv").unlink()
    done = call("stop.sh", f"allocation_run {run}\nclean_after_run {run}\nprintf on", tmp_path)
    assert (done.stdout, done.stderr, told(tmp_path)) == ("on", "", [])


LEFT = "stop.sh: allocation 7 is left as it is"
VERDICT = "stop.sh: job 7: failed, it is so"


def test_stop_run_asks_the_story_itself(run: Path, tmp_path: Path) -> None:
    """scancel would reach the step's srun processes too: the story's shell alone is signalled, where it runs."""
    stub(tmp_path / "bin", "srun", f'printf "%s\\n" "$*" >>{tmp_path}/told; sed -i s/running/failed/ {run}/result.json')
    done = call("stop.sh", "stop_run 7 0\nprintf on", tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == ["stop.sh: asking the run in allocation 7 to end; it has 20 s", VERDICT, LEFT]
    (said,) = told(tmp_path)
    assert "--jobid=7 " in said and "--nodelist=n0 " in said and said.endswith(" kill -TERM 4711")


@pytest.mark.parametrize("srun", ["exit 0", "exit 1"])
def test_stop_run_of_a_run_that_does_not_heed(srun: str, run: Path, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", srun)
    done = call("stop.sh", "stop_run 7 0", tmp_path, SRTGEN_STOP_GRACE_S="1")
    assert (done.returncode, told(tmp_path)) == (1, [])
    assert done.stderr.splitlines()[-1] == "stop.sh: still there after 1 s; stop.sh --now 7 ends its step"
    assert ("could not be signalled" in done.stderr) == (srun == "exit 1")


def test_stop_run_waits_until_the_step_is_gone(run: Path, tmp_path: Path) -> None:
    """Without a verdict, as when the run was killed."""
    stub(tmp_path / "bin", "srun", f"(sleep 1; printf '7.0\\n7.11\\n' >{tmp_path}/steps) >/dev/null 2>&1 &")
    done = call("stop.sh", "stop_run 7 0", tmp_path)
    assert (done.returncode, done.stderr.splitlines()[1:]) == (0, ["stop.sh: job 7: running, it is so", LEFT])


def test_stop_run_now_ends_the_step_and_cleans_up(run: Path, tmp_path: Path) -> None:
    done = call("stop.sh", "stop_run 7 1", tmp_path)
    assert (done.returncode, done.stderr.splitlines()[0], done.stderr.splitlines()[-1]) == (0, "stop.sh: cancelling step 7.1", LEFT)
    first, second = told(tmp_path)
    assert first == "scancel 7.1" and second.startswith("srun ") and second.endswith(f"node_clean.py 7 podman {RUN}")


@pytest.mark.parametrize("now", [0, 1])
@pytest.mark.parametrize("ended", ["verdict", "step"])
def test_stop_run_of_a_run_that_has_ended(ended: str, now: int, run: Path, tmp_path: Path) -> None:
    if ended == "verdict":
        result(run, "failed", "done", 11)
    else:
        (tmp_path / "steps").write_text("7.0\n")
    done = call("stop.sh", f"stop_run 7 {now}", tmp_path)
    assert (done.returncode, told(tmp_path)) == (0, [])
    assert done.stderr.splitlines() == ["stop.sh: the run in allocation 7 has ended already",
                                        VERDICT if ended == "verdict" else "stop.sh: job 7: running, it is so", LEFT]


@pytest.mark.parametrize("has_results", [True, False])
def test_stop_run_leaves_an_allocation_without_a_run_of_this_bundle_alone(has_results: bool, run: Path, tmp_path: Path) -> None:
    (run / ".allocation").unlink()
    if not has_results:
        run.rename(run.with_name("8"))
    done = call("stop.sh", "stop_run 7 1", tmp_path)
    assert (done.returncode, told(tmp_path)) == (1, [])
    assert done.stderr == "stop.sh: job 7 is an allocation, and no run of this bundle is in it; scancel 7 ends it\n"


@pytest.mark.parametrize(("verdict", "code"), [("passed", 0), ("failed", 11), ("stopped", 143)])
def test_wait_for_run_ends_with_the_runs_code(verdict: str, code: int, run: Path, tmp_path: Path) -> None:
    result(run, verdict, "done", code)
    done = call("wait.sh", f"allocation_run {run}\nwait_for_run {run}\nprintf on", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_wait_for_run_shows_each_phase_once(run: Path, tmp_path: Path) -> None:
    """Each question of Slurm takes the run one step further."""
    stories = [("load", "running"), ("load", "running"), ("bench", "running"), ("bench", "running"), ("done", "failed")]
    for number, (phase, verdict) in enumerate(stories, 1):
        result(run, verdict, phase, 20)
        (run / "result.json").rename(run / f"{number}.json")
    result(run, phase="start")
    stub(tmp_path / "bin", "squeue", f"""printf x >>{tmp_path}/n; n=$(wc -c <{tmp_path}/n)
mv {run}/$n.json {run}/result.json; printf '7.1\\n'""")
    done = call("wait.sh", f"allocation_run {run}\nwait_for_run {run}", tmp_path)
    assert [line.split(" ", 1)[1] for line in done.stdout.splitlines()] == [f"run 7: phase {phase}" for phase in ("load", "bench", "done")]
    assert (done.returncode, done.stderr) == (20, "")


@pytest.mark.parametrize("answers", [0, 2])
def test_wait_for_run_of_a_run_that_was_killed(answers: int, run: Path, tmp_path: Path) -> None:
    """Before the first look, or between two: the phase is the last one in its result."""
    stub(tmp_path / "bin", "squeue", f"""printf x >>{tmp_path}/n
if (($(wc -c <{tmp_path}/n) <= {answers})); then printf '7.1\\n'; else sed -i s/load/bench/ {run}/result.json; fi""")
    done = call("wait.sh", f"allocation_run {run}\nwait_for_run {run}", tmp_path)
    assert (done.returncode, done.stderr) == (70, "wait.sh: the run ended in phase bench, before it could say why\n")
    assert len(done.stdout.splitlines()) == min(answers, 1)


def test_main_of_wait_goes_by_the_run_and_not_by_its_allocation(run: Path, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", "printf '   JobState=RUNNING Reason=None\\n'")
    result(run, "failed", "done", 11)
    assert call("wait.sh", "main 7", tmp_path).returncode == 11


def test_main_of_stop_goes_to_the_run_of_an_allocation(run: Path, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", "printf '   JobState=RUNNING Reason=None\\n   A=b BatchFlag=0 x\\n   Command=(null)\\n'")
    (run / "manifest.json").write_text(f'{{\n "name": "{NAME}",\n}}\n')
    done = call("stop.sh", "main --now 7", tmp_path)
    assert done.returncode == 0 and told(tmp_path)[0] == "scancel 7.1", done.stderr


def test_what_podman_keeps_is_looked_for_where_the_job_had_it(run: Path, tmp_path: Path) -> None:
    with (tmp_path / "bundle" / "run.sbatch").open("a") as script_file:
        script_file.write("readonly PLAN_CONTAINER_STORAGE='/local/it'\\''s'\n")
    call("stop.sh", f"allocation_run {run}\nclean_after_run {run}", tmp_path)
    (said,) = told(tmp_path)
    assert f" podman {RUN} --root /local/it's/srtgen-" in said and said.endswith(" --cgroup-manager cgroupfs")


@pytest.mark.parametrize(("asked", "words"), [("n0", "--nodelist=n0 --exclude=n1"), ("n[0-1]", "--nodelist=n0"), ("(null)", "--nodelist=n0")])
def test_steps_of_stop_stay_on_their_node(asked: str, words: str, run: Path, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", f"""case "$*" in
"show job 7") printf '   ReqNodeList={asked} ExcNodeList=(null)\\n   NodeList=n[0-1]\\n' ;;
"show hostnames n0") echo n0 ;;
"show hostnames n[0-1]") printf 'n0\\nn1\\n' ;;
esac""")
    done = call("stop.sh", 'read_allocation 7\nbind_step n0\nprintf "%s" "${node_options[*]}"', tmp_path)
    assert (done.stdout, done.stderr) == (words, "")


@pytest.mark.parametrize(("now", "state", "asked"), [(0, "RUNNING None", ["scancel --batch --signal=TERM 7"]), (1, "RUNNING None", ["scancel 7"]),
                                                     (0, "PENDING Priority", ["scancel 7"])])
def test_stop_job_asks_what_can_answer(now: int, state: str, asked: list[str], run: Path, tmp_path: Path) -> None:
    call("stop.sh", f'wait_for_end() {{ :; }}\nstop_job 7 {now} "{state}"', tmp_path)
    assert told(tmp_path) == asked
