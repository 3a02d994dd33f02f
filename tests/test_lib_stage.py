"""lib/stage.sh: one step a thing on many nodes. srun is a small program that writes what its tasks and itself would say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from jobs.running import act, event, judge, shown
from jobs.shell import stub

PHASE = "preflight"
NEW = "steps=() step_role=() step_host=()\n"  # nothing has been started before
HOSTS = "stage_hosts=(n0 n1)\n"
SAYS = 'exec >>"logs/${SRTGEN_STEP}.log"\n'  # as --output has it


def logged(tmp_path: Path, *lines: str) -> None:
    """The log of step x."""
    (tmp_path / "logs").mkdir(exist_ok=True)
    (tmp_path / "logs" / "x.log").write_text("".join(f"{line}\n" for line in lines))


def lasting(tmp_path: Path, says: str) -> str:
    """Shell text: srun says something and goes on until the job is over."""
    stub(tmp_path / "bin", "srun", SAYS + says + "\n: >up\nuntil [[ -e over ]]; do sleep 0.05; done")
    return NEW + "trap ': >over; write_result' EXIT\n"


def said_by(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The job's log without its times."""
    return [line.partition(" ")[2] for line in done.stdout.splitlines() if not line.startswith("> ")]


def test_the_weights_come_one_after_the_other(tmp_path: Path) -> None:
    assert shown(act(tmp_path, "stage_model() { show model; }\nprefetch_model() { show prefetch; }\nstage_all")) == ["model", "prefetch"]


@pytest.mark.parametrize("limit", ["2h", "0", "-1", "1.5", "x", "08", "9" * 10])
def test_a_limit_that_is_no_number_of_seconds(limit: str, tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "stage_all", PHASE, env={"SRTGEN_STAGE_LIMIT_S": limit})
    assert (rc, result["reason"]) == (10, f"SRTGEN_STAGE_LIMIT_S: {limit} is no number of seconds")


@pytest.mark.parametrize("limit", ["", "1", "86400"])
def test_a_limit_of_the_operator(limit: str, tmp_path: Path) -> None:
    assert shown(act(tmp_path, 'stage_all; show "${STAGE_LIMIT_S}"', PHASE, env={"SRTGEN_STAGE_LIMIT_S": limit})) == [limit or "7200"]


WORKERS = [(["prefill_0 prefill 0 0 6100", "decode_0 decode 0 1 6100"], "n0,n1"), (["a agg 0 2 6100", "b agg 1 0 6100", "c agg 2 2 6101"], "n0,n2"),
           (["  agg_0   agg  0  1  6100"], "n1"), ([], "")]


@pytest.mark.parametrize(("workers", "hosts"), WORKERS)
def test_the_hosts_of_the_workers_are_in_the_order_of_the_nodes(workers: list[str], hosts: str, tmp_path: Path) -> None:
    plan = f"PLAN_WORKERS=({' '.join(repr(line) for line in workers)})"
    text = 'node_hosts=(n0 n1 n2)\nworker_hosts\nshow "${REPLY}"\nwords="a b,c"; set -- ${words}; show "$#"'
    assert shown(act(tmp_path, text, plan=plan)) == [hosts, "2"]


@pytest.mark.parametrize(("nodes", "hosts"), [("2 0 2", "n0,n2"), ("1", "n1"), ("", ""), ("7", "")])
def test_the_hosts_of_some_nodes(nodes: str, hosts: str, tmp_path: Path) -> None:
    assert shown(act(tmp_path, f'node_hosts=(n0 n1 n2)\nhosts_of {nodes}\nshow "${{REPLY}}"')) == [hosts]


CPUS = [("", {}, []), ("PLAN_CPUS_PER_TASK=16", {"SLURM_CPUS_PER_TASK": "8"}, ["--cpus-per-task=16"]), ("", {"SLURM_CPUS_PER_TASK": "8"}, ["--cpus-per-task=8"])]


@pytest.mark.parametrize(("plan", "env", "cpus"), CPUS)
def test_one_task_on_every_host(plan: str, env: dict[str, str], cpus: list[str], tmp_path: Path) -> None:
    text = 'stage_hosts=(n0 n3 n1)\nstage_argv x n0,n3,n1\nfor word in "${argv[@]}"; do show "${word}"; done'
    words = shown(act(tmp_path, text, PHASE, plan=plan, env=env))
    for word in ("--job-name=x", "--overlap", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--nodelist=n0,n3,n1", "--distribution=block",
                 "--kill-on-bad-exit=1", "--wait=0", "--export=ALL", "--label", f"--output={tmp_path}/logs/x.log", "--open-mode=append"):
        assert word in words
    assert words[0] == "srun" and [word for word in words if word.startswith("--cpus")] == cpus


def test_the_log_says_where_each_task_is_and_what_srun_says(tmp_path: Path) -> None:
    logged(tmp_path, "of an earlier attempt")
    stub(tmp_path / "bin", "srun", 'printf "%s|" "$@" "${SRTGEN_STEP}" "in=$(cat)"; printf "srun: y\\n" >&2; exit 6')
    done = act(tmp_path, f"{HOSTS}run_stage x srun 'a  b' '' <<<typed || show \"$? ${{SRTGEN_STEP}}\"", PHASE)
    assert done.stdout == "a  b||x|in=|> 6 x\n"
    assert (tmp_path / "logs" / "x.log").read_text() == "of an earlier attempt\nsrtgen: task 0 is on n0\nsrtgen: task 1 is on n1\nsrun: y\n"


FAILED = [
    (["0: x", "srun: error: n1: task 1: Exited with exit code 7", "srun: error: n0: task 0: Killed"], "1 Exited with exit code 7"),
    (["srun: error: n[0-1]: tasks 0-1: Killed"], "0 Killed"), (["srun: error: n[0-3]: tasks 12,14-15: Exited with exit code 1"], "12 Exited with exit code 1"),
    (["srun: error: n0: task 0:"], "0 "), (["0: srun: error: n1: task 1: Killed", " srun: error: n1: task 1: Killed"], None),
    (["srun: error: Node failure on n1", "srun: error: n1: tasks are late", "srun: Terminating StepId=7.0"], None), ([], None),
]


@pytest.mark.parametrize(("lines", "said"), FAILED)
def test_the_first_task_that_failed(lines: list[str], said: str | None, tmp_path: Path) -> None:
    logged(tmp_path, *lines)
    assert shown(act(tmp_path, 'if find_failed_task x; then show "[${REPLY}]"; else show none; fi', PHASE)) == [f"[{said}]" if said else "none"]


def test_no_task_failed_in_a_log_that_is_not_there(tmp_path: Path) -> None:
    assert shown(act(tmp_path, "if find_failed_task x; then show yes; else show no; fi", PHASE)) == ["no"]


@pytest.mark.parametrize(("line", "code", "reason"), [("srun: error: Node failure on n1", 11, "node n1 died (x ran there)"), ("0: fine", 0, "")])
def test_a_node_that_died_is_the_reason(line: str, code: int, reason: str, tmp_path: Path) -> None:
    logged(tmp_path, line)
    rc, result = judge(tmp_path, "step_role[x]=stage step_host[x]=n0\nfail_if_node_died x", PHASE)
    assert (rc, result["reason"]) == (code, reason)
    if code:
        assert isinstance(result["failed"], dict) and (result["failed"]["step"], result["failed"]["node"]) == ("x", "n1")


WORDS = [
    (["0: 1 of 2", "1: hello", "0:  2 of 2 "], {"n0": "2 of 2", "n1": "hello"}),
    ([" 0: a", "1: ", "1:", "x: y", "no label", "srun: error: n1: task 1: Killed"], {"n0": "a"}),
    (["0: mine", "0: slurmstepd: error: *** STEP 7.1 ON n0 CANCELLED AT x ***"], {"n0": "mine"}),
    (["1: mine", "1: /b/lib/host_step.sh: line 34:    12 Killed      bash x"], {"n1": "mine"}),
    (["0: a: b: c", "7: of nobody"], {"n0": "a: b: c", "none": "of nobody"}), (["0: " + "y" * 400], {"n0": "y" * 300}),
    (['0: a "b" \\ $(c) é'], {"n0": 'a "b" \\ $(c) é'}), ([], {}),
]


@pytest.mark.parametrize(("lines", "words"), WORDS)
def test_what_each_host_said_last(lines: list[str], words: dict[str, str], tmp_path: Path) -> None:
    logged(tmp_path, *lines)
    text = HOSTS + 'stage_words[n9]=old\nread_stage_words x\nfor host in "${!stage_words[@]}"; do show "${host}=${stage_words[${host}]}"; done'
    assert sorted(shown(act(tmp_path, text, PHASE))) == sorted(f"{host}={said}" for host, said in words.items())


@pytest.mark.parametrize(("lines", "said"), [(["1: 5 %"], "n0: no word yet; n1: 5 %"), ([], "n0: no word yet; n1: no word yet"), (["1: b", "0: a"], "n0: a; n1: b")])
def test_the_progress_names_every_host(lines: list[str], said: str, tmp_path: Path) -> None:
    logged(tmp_path, *lines)
    assert shown(act(tmp_path, HOSTS + 'stage_progress x; show "${REPLY}"', PHASE)) == [said]


KILLED = "srun: error: n1: task 1: Killed"
EXITED = "srun: error: n1: task 1: Exited with exit code {}"
REASONS = [
    (["0: fine", "1: no room", EXITED.format(1)], "1", "x on n1: no room"), (["1: half", EXITED.format(137)], "137", 'x on n1: Exited with exit code 137 after "half"'),
    (["1: half", EXITED.format(128)], "128", "x on n1: half"), (["1: half", KILLED], "137", 'x on n1: Killed after "half"'), (["0: fine", KILLED], "137", "x on n1: Killed"),
    (["0: fine", EXITED.format(2)], "2", "x on n1: Exited with exit code 2"), (["0: fine"], "3", "x: srun ended with exit code 3"),
    (["srun: error: a", "srun: error: Unable to create step: b", "0: c"], "1", "x: srun: error: Unable to create step: b"),
    (["1: late", "srun: error: Node failure on n1", EXITED.format(1)], "1", "node n1 died (x ran there)"), ([], "137", "x: srun ended with exit code 137 (signal 9)"),
]


@pytest.mark.parametrize(("lines", "code", "reason"), REASONS)
def test_the_reason_is_what_the_failed_task_said_last(lines: list[str], code: str, reason: str, tmp_path: Path) -> None:
    logged(tmp_path, *lines)
    rc, result = judge(tmp_path, HOSTS + f"drain() {{ :; }}\nsteps=(x) step_role[x]=stage step_host[x]=n0 step_code[x]={code}\nfail_stage x", PHASE)
    assert (rc, result["reason"]) == (11 if "died" in reason else 10, reason)
    failed = result["failed"]
    assert isinstance(failed, dict) and (failed["step"], failed["exit_code"]) == ("x", int(code))
    assert failed["node"] == ("n1" if "n1" in reason else "n0")


def test_the_last_words_are_waited_for_but_not_long(tmp_path: Path) -> None:
    """srun of the failed task is still there: its words come with its end, or do not come at all."""
    logged(tmp_path, KILLED)
    text = HOSTS + "steps=(x) step_role[x]=stage step_host[x]=n0\n"
    late = "pump() { [[ -n ${said:-} ]] || printf '1: late words\\n' >>logs/x.log; said=1; step_code[x]=1; }\n"
    never = "pump() { SECONDS=$((SECONDS + 1)); turns=$((${turns:-0} + 1)); ((turns < 9)) || exit 9; }\n"
    assert judge(tmp_path, text + late + "fail_stage x", PHASE)[1]["reason"] == 'x on n1: Killed after "late words"'
    rc, result = judge(tmp_path, text + never + "fail_stage x", PHASE)
    assert (rc, result["reason"]) == (10, 'x on n1: Killed after "late words"')


def test_a_step_ends_when_its_command_has_on_every_host(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", 'printf "%s\\0" "$@" >argv\n' + SAYS + 'printf "0: a\\n1: b\\n"')
    text = NEW + 'stage_step x 60 n0,n1 --export=A,B bash -c \'echo "$1"\' "" "two  words"\nshow "${#steps[@]} ${step_role[x]} ${step_host[x]} ${step_code[x]}"'
    done = act(tmp_path, text, PHASE)
    assert shown(done) == ["0 stage n0 0"]
    argv = (tmp_path / "argv").read_text().split("\0")[:-1]
    assert "--nodelist=n0,n1" in argv and "--nodes=2" in argv and argv[-6:] == ["--export=A,B", "bash", "-c", 'echo "$1"', "", "two  words"]
    assert said_by(done)[0] == f"x: on 2 nodes, log {tmp_path}/logs/x.log" and said_by(done)[-1].startswith("x: done after ")
    assert (tmp_path / "logs" / "x.log").read_text().splitlines()[:2] == ["srtgen: task 0 is on n0", "srtgen: task 1 is on n1"]


def test_steps_of_before_stay_known(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", "exit 0")
    text = 'steps=("a" b)\nstage_step x 60 n1 true\nstage_step y 60 n0 true\nshow "${steps[*]} ${step_host[x]} ${step_host[y]}"'
    assert shown(act(tmp_path, text, PHASE)) == ["a b n1 n0"]


ENDS = [("printf '1: no room\\n'; printf 'srun: error: n1: task 1: Exited with exit code 4\\n' >&2; exit 4", 10, "x on n1: no room"),
        ("printf 'srun: error: Node failure on n1\\n' >&2", 11, "node n1 died (x ran there)"),
        ("printf 'srun: error: Invalid node name specified\\n' >&2; exit 1", 10, "x: srun: error: Invalid node name specified"),
        ("exit 5", 10, "x: srun ended with exit code 5"), ("kill -KILL $$", 10, "x: srun ended with exit code 137 (signal 9)")]


@pytest.mark.parametrize(("srun", "code", "reason"), ENDS)
def test_a_step_that_fails_is_the_jobs_end(srun: str, code: int, reason: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", SAYS + srun)
    rc, result = judge(tmp_path, NEW + "exec 2>/dev/null\nstage_step x 60 n0,n1 true\nshow on", PHASE)
    assert (rc, result["reason"]) == (code, reason)


def test_the_first_failure_does_not_wait_for_the_others(tmp_path: Path) -> None:
    text = lasting(tmp_path, "printf '1: no room\\n'; printf 'srun: error: n1: task 1: Exited with exit code 4\\n' >&2")
    rc, result = judge(tmp_path, text + "stage_step x 60 n0,n1 true", PHASE)
    assert (rc, result["reason"]) == (10, "x on n1: no room")
    assert isinstance(result["failed"], dict) and result["failed"]["exit_code"] is None


PUMP = "pump() { until [[ -e up ]]; do sleep 0.05; done; SECONDS=$((SECONDS + 10)); turns=$((${turns:-0} + 1)); ((turns < 20)) || exit 9; }\nSECONDS=0\n"


def test_a_step_has_its_limit_and_tells_its_progress(tmp_path: Path) -> None:
    text = lasting(tmp_path, "printf '0: 5 %%\\n'").replace("trap '", "trap 'show \"${turns}\"; ") + PUMP
    done = act(tmp_path, text + "stage_step x 95 n0,n1 true", PHASE)
    assert done.returncode == 10
    said = [line for line in said_by(done) if "no word yet" in line]
    assert [line.partition(" s, ")[0] for line in said[:3]] == ["x: 30", "x: 60", "x: 90"] and said[0].endswith(" s, n0: 5 %; n1: no word yet")
    assert done.stdout.splitlines()[-1] in ("> 9", "> 10")
    assert said[3:] == ["FAILED (10): x: not done after 95 s: n0: 5 %; n1: no word yet"]


def test_a_job_that_is_cancelled_while_it_stages(tmp_path: Path) -> None:
    text = lasting(tmp_path, "").replace("trap '", "trap 'show \"${steps[*]}\"; ")
    done = act(tmp_path, text + event("signal") + "stop_signal=TERM\nstage_step x 60 n0 true", PHASE)
    assert done.returncode == 143 and "FAILED (143): cancelled in phase preflight" in done.stdout
    assert done.stdout.splitlines()[-1] == "> x"  # what the teardown has to stop
