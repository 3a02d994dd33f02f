"""lib/teardown.sh: the one way out. Slurm's programs are small scripts; steps are processes of their own where a process matters."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.running import ENDING, RUNNING, act, event, judge, shown
from jobs.shell import stub

QUIET = "set +eE\n"  # as the EXIT trap has it
LISTED = 'step_ids() { REPLY="$(squeue 2>/dev/null)" || REPLY=""; }\n'  # Slurm's own words: test_lib_steps.py
ALL = ["prefill_0", "decode_0", "atomesh_0", "bench", "eval"]
STEPS = "".join(f"printf '%s\\n' '{name} 7.{number}'\n" for number, name in enumerate(ALL))
NEVER = "drain() { SECONDS=$((SECONDS + 1)); }\n"  # no step ends, and time flies


def slurm(tmp_path: Path, squeue: str = STEPS, scancel: str = "") -> None:
    """Slurm that lists steps, and writes down what is sent to them."""
    stub(tmp_path / "bin", "squeue", squeue)
    stub(tmp_path / "bin", "scancel", f'printf "%s\\n" "$*" >>{tmp_path}/sent\n{scancel}')


def sent(tmp_path: Path) -> list[str]:
    path = tmp_path / "sent"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(("ended", "asked", "left"), [("", "bench eval", "bench eval"), ("bench", "bench eval", "eval"), ("bench eval", "bench eval", ""),
                                                      ("", "", ""), ("", "absent decode_0", "decode_0")])
def test_the_steps_that_have_not_ended(ended: str, asked: str, left: str, tmp_path: Path) -> None:
    text = f'for n in {ended}; do step_code[$n]=0; done\nrunning_steps {asked}; show "[${{REPLY}}]"'
    assert shown(act(tmp_path, text)) == [f"[{left}]"]


STATES = [(RUNNING, "no"), (ENDING, "yes"), ("   JobState=TIMEOUT Reason=TimeLimit x", "yes"), ("", "no"), ("slurm_load_jobs error", "no")]


@pytest.mark.parametrize(("job", "ending"), STATES)
def test_whether_slurm_is_ending_the_job(job: str, ending: str, tmp_path: Path) -> None:
    text = "if job_is_ending; then show yes; else show no; fi\nif cut_short; then show yes; else show no; fi\n"
    text += "teardown_signal=1\nif cut_short; then show yes; else show no; fi"
    assert shown(act(tmp_path, text, job=job)) == [ending, "no", ending]


def test_slurm_is_asked_in_a_teardown_only_after_a_signal(tmp_path: Path) -> None:
    text = "read_job_state() { show asked; }\njob_state=''\ncut_short || :\nteardown_signal=1\ncut_short || :"
    assert shown(act(tmp_path, text)) == ["asked"]


@pytest.mark.parametrize(("config", "seconds"), [("KillWait                = 5 sec\nx = 9 sec", 5), ("OverKillWait = 4 sec", 30), ("KillWait=7", 30), ("", 30)])
def test_kill_wait(config: str, seconds: int, tmp_path: Path) -> None:
    text = f"printf '#!/bin/bash\\n[[ $* == \"show config\" ]] && cat config\\n' >bin/scontrol\nprintf '%s\\n' '{config}' >config\nkill_wait; show ${{REPLY}}"
    assert shown(act(tmp_path, text)) == [str(seconds)]


def test_kill_wait_of_a_slurm_that_does_not_answer(tmp_path: Path) -> None:
    assert shown(act(tmp_path, "printf '#!/bin/bash\\nexit 1\\n' >bin/scontrol\nkill_wait; show ${REPLY}")) == ["30"]


WAITS = [("", "5", "ended", 0), ("", "5 bench", "still: bench", 5), (event("end", "bench", "0"), "5 bench", "ended", 0),
         (event("end", "bench", "0"), "2 bench eval", "still: eval", 2), ("step_code[bench]=0", "0 bench", "ended", 0), ("", "0 bench", "still: bench", 0)]


@pytest.mark.parametrize(("before", "words", "outcome", "seconds"), WAITS)
def test_steps_are_awaited_up_to_a_limit(before: str, words: str, outcome: str, seconds: int, tmp_path: Path) -> None:
    text = f"""drain() {{ next_event 0.05; [[ ${{event_kind}} != end ]] || step_code[${{event_name}}]=${{event_text}}; SECONDS=$((SECONDS + 1)); }}
{before}
SECONDS=0
if wait_steps {words}; then show ended; else show "still: ${{REPLY}}"; fi
((SECONDS >= {seconds} && SECONDS < {seconds} + 4)) || show "after ${{SECONDS}} s\""""
    assert shown(act(tmp_path, text)) == [outcome]


def test_each_step_gets_its_signal_once(tmp_path: Path) -> None:
    slurm(tmp_path)
    text = LISTED + """terminate_steps bench decode_0
terminate_steps bench decode_0
terminate_steps bench decode_0 eval
show "${!step_signalled[*]}\""""
    done = act(tmp_path, text)
    assert sent(tmp_path) == ["--signal=TERM 7.1 7.3", "--signal=TERM 7.4"]
    assert sorted(shown(done)[0].split()) == ["bench", "decode_0", "eval"]


@pytest.mark.parametrize(("squeue", "scancel"), [("exit 1", ""), ("printf ''", ""), ("printf 'bench\\n'", ""), ("printf 'benchx 7.1\\nextern 7.x\\n'", "")])
def test_a_step_that_slurm_does_not_list_gets_its_signal_later(squeue: str, scancel: str, tmp_path: Path) -> None:
    slurm(tmp_path, squeue, scancel)
    assert shown(act(tmp_path, LISTED + 'terminate_steps bench; show "${#step_signalled[@]}"')) == ["0"]
    assert sent(tmp_path) == []


@pytest.mark.parametrize(("signal", "code"), [("TERM", 143), ("KILL", 137)])
def test_the_srun_of_a_step_is_ended(signal: str, code: int, tmp_path: Path) -> None:
    text = QUIET + f"""start_task decode_0 sleep 30
start_task bench sleep 0.5
until [[ -n $(</proc/${{task_pid[decode_0]}}/task/${{task_pid[decode_0]}}/children) ]]; do sleep 0.05; done
kill_srun {signal} absent decode_0 2>/dev/null
for n in 1 2; do next_event 5; show "${{event_name}} ${{event_text}}"; done"""
    done = act(tmp_path, f"exec 3>&2 2>/dev/null\n{text}\nexec 2>&3")
    assert shown(done) == [f"decode_0 {code}", "bench 0"]


def test_an_srun_that_is_gone_already(tmp_path: Path) -> None:
    text = QUIET + "true & wait $!\ntask_pid[decode_0]=$!\nkill_srun KILL decode_0\nkill_srun KILL\nshow on"
    assert shown(act(tmp_path, text)) == ["on"]


def test_stopping_what_has_ended_does_nothing(tmp_path: Path) -> None:
    slurm(tmp_path)
    done = act(tmp_path, QUIET + "step_code[bench]=0\nask_steps 9 bench absent\nask_steps 9\nkill_steps bench\nkill_steps")
    assert (done.returncode, done.stdout, sent(tmp_path)) == (0, "", [])


def test_steps_that_end_when_they_are_told(tmp_path: Path) -> None:
    slurm(tmp_path, scancel="printf 'end\\tbench\\t143\\nend\\teval\\t0\\n' >q/events")
    done = act(tmp_path, QUIET + LISTED + 'SECONDS=0\nask_steps 20 bench eval\nshow "${step_code[bench]} ${step_code[eval]}"\n((SECONDS < 15)) || show late')
    assert shown(done) == ["143 0"]
    assert sent(tmp_path) == ["--signal=TERM 7.3 7.4"]
    assert [line.partition(" ")[2] for line in done.stdout.splitlines() if not line.startswith("> ")] == ["stopping bench eval"]


def test_a_step_that_does_not_end_is_killed_step_by_step(tmp_path: Path) -> None:
    slurm(tmp_path)
    text = QUIET + LISTED + NEVER + """kill_srun() { show "${SECONDS} srun $*"; }
signal_steps() { show "${SECONDS} steps $*"; }
step_code[eval]=0 SECONDS=0
ask_steps 8 bench eval decode_0
kill_steps bench eval decode_0
show "${SECONDS}\""""
    done = act(tmp_path, text, env={"SRTGEN_GRACE_S": "8"})
    moments, said = zip(*(line.partition(" ")[::2] for line in shown(done)))
    assert said == ("steps KILL bench decode_0", "srun TERM bench decode_0", "srun KILL bench decode_0", "")
    assert [abs(int(moment) - wanted) < 3 for moment, wanted in zip(moments, (8, 18, 21, 24))] == [True] * 4
    assert sent(tmp_path) == ["--signal=TERM 7.1 7.3"]
    assert "still there after 8 s, killing: bench decode_0" in done.stdout and "warning: would not end: bench decode_0" in done.stdout


LADDER = ["steps KILL", "srun TERM", "srun KILL"]


@pytest.mark.parametrize("rung", range(3))
def test_a_step_that_ends_at_a_rung_needs_no_further_one(rung: int, tmp_path: Path) -> None:
    slurm(tmp_path)
    text = QUIET + NEVER + f"""climb() {{ show "$1 $2"; [[ "$1 $2" != '{LADDER[rung]}' ]] || step_code[bench]=9; }}
kill_srun() {{ climb srun "$1"; }}
signal_steps() {{ climb steps "$1"; }}
kill_steps bench
show "${{#result_warnings[@]}}\""""
    assert shown(act(tmp_path, text, env={"SRTGEN_GRACE_S": "1"})) == [*LADDER[:rung + 1], "0"]


def test_a_stop_is_broken_off_when_slurm_ends_the_job(tmp_path: Path) -> None:
    slurm(tmp_path)
    text = QUIET + LISTED + NEVER + "kill_srun() { show srun; }\nsignal_steps() { show steps; }\nSECONDS=0 teardown_signal=1\nask_steps 20 bench\n((SECONDS < 5)) || show late"
    assert shown(act(tmp_path, text, job=ENDING)) == []
    assert sent(tmp_path) == ["--signal=TERM 7.3"]


SRUN = """IFS=,
for word in "$@"; do [[ ${word} != --nodelist=* ]] || hosts="${word#*=}"; done
printf '%s\\n' "${hosts}" >>calls
printf '%s: removed x\\n' ${hosts}; printf 'srun: error: y\\n'
[[ ,${hosts}, != *,n1,* || -z ${BAD:-} ]]"""
CLEANED = [("null", "", ["n0,n1"], []), ("11", "", ["n0", "n1"], []), ("11", "1", ["n0", "n1"], ["could not clean n1"]),
           ("null", "1", ["n0,n1"], ["could not clean n0,n1"])]


@pytest.mark.parametrize(("code", "bad", "calls", "warnings"), CLEANED)
def test_nodes_are_cleaned_together_or_after_a_failure_one_by_one(code: str, bad: str, calls: list[str], warnings: list[str], tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", SRUN)
    text = QUIET + f"result_code={code}\nclean_nodes\nresult_code=null"
    done = act(tmp_path, text, env={"BAD": bad})
    assert sorted((tmp_path / "calls").read_text().splitlines()) == calls
    said = [line.partition(" ")[2] for line in done.stdout.splitlines()]
    assert sorted(line for line in said if line.startswith("clean: ")) == ["clean: n0: removed x", "clean: n1: removed x"]
    assert [line for line in said if line.startswith("warning: ")] == [f"warning: {text}" for text in warnings]
    assert not [line for line in said if "srun: " in line]


def test_a_job_that_never_started_a_step_leaves_nothing_to_clean(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", SRUN)
    assert act(tmp_path, QUIET + "steps=()\nclean_nodes").stdout == ""
    assert not (tmp_path / "calls").exists()


def test_cleaning_has_its_limit(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", "exec sleep 0.7")
    rc, result = judge(tmp_path, QUIET + NEVER + "clean_nodes")
    assert (rc, result["warnings"]) == (0, ["could not clean n0,n1"])


@pytest.mark.parametrize(("hosts", "count"), [("n0", 1), ("n0,n1,n2", 3)])
def test_the_cleaning_step(hosts: str, count: int, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", 'printf "%s\\n" "$@" >argv; printf "in=%s\\n" "$(cat)"; printf "err\\n" >&2; exit 3')
    (tmp_path / "report").write_text("old\n")
    assert shown(act(tmp_path, f"clean_hosts {hosts} report || show $?", plan="PLAN_RUNTIME=docker")) == ["3"]
    argv = (tmp_path / "argv").read_text().splitlines()
    for word in ("--job-name=teardown", "--overlap", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--nodelist={hosts}", "--wait=0"):
        assert word in argv
    assert argv[-7:] == ["-E", "-s", "-B", f"{tmp_path}/bundle/lib/node_clean.py", "7", "docker", "run7"]
    assert (tmp_path / "report").read_text() == "old\nin=\nerr\n"


WAITED = [("5", "SECONDS=$((SECONDS + 1))", 3, True), ("2", "SECONDS=$((SECONDS + 1))", 1, True), ("30", "step_code[bench]=0", 0, False)]


@pytest.mark.parametrize(("limit", "drain", "seconds", "killed"), WAITED)
def test_slurm_gets_its_time_but_for_a_moment(limit: str, drain: str, seconds: int, killed: bool, tmp_path: Path) -> None:
    text = QUIET + f"""kill_wait() {{ REPLY={limit}; }}
kill_srun() {{ show "$*"; }}
drain() {{ {drain}; }}
for n in prefill_0 decode_0 atomesh_0 eval; do step_code[$n]=0; done
SECONDS=0
wait_for_slurm
show $((SECONDS >= {seconds} && SECONDS < {seconds} + 3))"""
    done = act(tmp_path, text, job=ENDING)
    assert shown(done) == (["KILL bench"] if killed else []) + ["1"]
    assert "Slurm is ending the job: waiting for its steps" in done.stdout and ("not ended by themselves: bench" in done.stdout) == killed


WAYS = 'ask_steps() { show "ask $*"; }\nkill_steps() { show "kill $*"; }\nSECONDS=0\nclean_nodes() { show clean; }\nwait_for_slurm() { show wait; }\n'
# One grace for all, 20 s: the client's share ends at 10, the router's at 15.
STORY = ["ask 10 bench eval", "ask 15 atomesh_0", "ask 20 prefill_0 decode_0", "kill prefill_0 decode_0 atomesh_0 bench eval"]


@pytest.mark.parametrize(("job", "more", "story"), [
    (RUNNING, "", [*STORY, "clean"]), ("", "", [*STORY, "clean"]), (ENDING, "", ["wait"]), (RUNNING, "teardown_signal=1", [*STORY, "clean"])])
def test_the_client_goes_first_then_the_router_then_the_workers(job: str, more: str, story: list[str], tmp_path: Path) -> None:
    assert shown(act(tmp_path, f"{QUIET}{WAYS}{more}\nteardown", job=job)) == story


def test_a_teardown_before_any_step(tmp_path: Path) -> None:
    assert shown(act(tmp_path, f"{QUIET}{WAYS}steps=()\nteardown; show on")) == ["ask 10 bench eval", "ask 15 atomesh_0", "ask 20", "kill ", "clean", "on"]


@pytest.mark.parametrize("rung", range(3))
def test_a_teardown_that_slurm_cuts_short_waits_for_slurm(rung: int, tmp_path: Path) -> None:
    text = f"""ask_steps() {{ show "ask $*"; rung=$((rung + 1)); ((rung <= {rung})) || teardown_signal=1; }}
rung=0
job_is_ending() {{ ((rung > {rung})); }}
teardown"""
    assert shown(act(tmp_path, QUIET + WAYS + text)) == [*STORY[:rung + 1], "wait"]


def test_helpers_end_first(tmp_path: Path) -> None:
    text = QUIET + WAYS + """for n in health watch router canary judge other; do start_helper $n sleep 30; done
teardown
show "${!task_pid[*]}\""""
    assert shown(act(tmp_path, text))[-1] == "other"
