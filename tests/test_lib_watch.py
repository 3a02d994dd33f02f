"""lib/watch.sh: what an event means for the job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs.running import ENDING, RUNNING, act, end, event, judge, shown


@pytest.mark.parametrize("phase", ["load", "router", "canary", "bench"])
@pytest.mark.parametrize("code", [0, 1, 137])
def test_any_end_of_a_worker_ends_the_job(code: int, phase: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "decode_0.log").write_text("loading\nImportError: no module\n")
    rc, result = judge(tmp_path, end("decode_0", code), phase)
    signal = " (signal 9)" if code == 137 else ""
    assert (rc, result["exit_code"], result["verdict"]) == (11, 11, "failed")
    assert result["reason"] == f"decode_0 on n1 ended with exit code {code}{signal} in phase {phase}"
    assert result["failed"] == {"step": "decode_0", "node": "n1", "exit_code": code, "log": f"{tmp_path}/logs/decode_0.log",
                                "tail": ["loading", "ImportError: no module"]}


EVENTS = [
    (end("atomesh_0", 0), "router", 13, "atomesh_0 on n0 ended with exit code 0 in phase router"),
    ('printf "lost\\tdecode_0\\trefused\\n" >&"${events_fd}"; pump 1', "bench", 11, "decode_0 on n1 does not answer any more: refused"),
    ('printf "lost\\tatomesh_0\\tx\\n" >&"${events_fd}"; pump 1', "bench", 13, "atomesh_0 on n0 does not answer any more: x"),
    ('printf "fatal\\tprefill_0\\tHIP out of memory\\n" >&"${events_fd}"; pump 1', "load", 11, "prefill_0 on n0 logged: HIP out of memory"),
    (end("bench", 10), "load", 10, "benchmark client on n0: ended with exit code 10 before its turn"),
    (end("bench", 0), "load", 20, "benchmark client on n0: ended with exit code 0 before its turn"),
    (end("eval", 22), "load", 22, "evaluation: its step ended with exit code 22 in phase load"),
    (end("eval", 0), "load", 22, "evaluation: its step ended with exit code 0 in phase load"),
]


@pytest.mark.parametrize(("text", "phase", "code", "reason"), EVENTS, ids=[row[3][:40] for row in EVENTS])
def test_event(text: str, phase: str, code: int, reason: str, tmp_path: Path) -> None:
    rc, result = judge(tmp_path, text, phase)
    assert (rc, result["exit_code"], result["reason"]) == (code, code, reason)


def test_the_reason_of_an_early_client_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "verdict.json").write_text('{"code":10,"reason":"no tokenizer  here","points":null,"valid":null}')
    rc, result = judge(tmp_path, end("bench", 10))
    assert (rc, result["reason"]) == (10, "benchmark client on n0: no tokenizer here")


def test_ready_waiting_and_progress_end_nothing(tmp_path: Path) -> None:
    text = """for e in 'ready\\tdecode_0\\t' 'waiting\\tprefill_0\\trefused' 'progress\\tcanary\\t2 done' 'end\\thealth\\t0'; do
printf "${e}\\n" >&"${events_fd}"; pump 1; done
[[ ${worker_ready[decode_0]} == 1 && ${pending_reason[prefill_0]} == refused && ${task_code[health]} == 0 ]]"""
    rc, result = judge(tmp_path, text)
    assert (rc, result["verdict"]) == (0, "running")


SIGNALS = [
    ("TERM", RUNNING, "bench", "", 143, "cancelled in phase bench"),
    ("USR1", RUNNING, "load", "", 124, "the time limit is near, in phase load"),
    ("TERM", "   JobState=COMPLETING Reason=TimeLimit Dependency=(null)", "load", "", 124, "the time limit is reached, in phase load"),
    ("TERM", "   JobState=COMPLETING Reason=NodeDown Dependency=(null)", "load", "", 11,
     "node of this job died (Slurm: COMPLETING NodeDown)"),
    ("TERM", RUNNING, "bench", "PLAN_BENCH=manual", 0, ""),
    ("USR1", RUNNING, "bench", "PLAN_BENCH=manual", 0, ""),
    ("TERM", RUNNING, "load", "PLAN_BENCH=manual", 143, "cancelled in phase load"),
]


@pytest.mark.parametrize(("signal", "job", "phase", "plan", "code", "reason"), SIGNALS)
def test_signal(signal: str, job: str, phase: str, plan: str, code: int, reason: str, tmp_path: Path) -> None:
    rc, result = judge(tmp_path, f"kill -{signal} $$; pump 1", phase, job, plan)
    assert (rc, result["reason"]) == (code, reason)


def test_a_step_that_ends_because_slurm_ends_the_job_is_not_the_reason(tmp_path: Path) -> None:
    """The worker's end is seen first; Slurm's own view decides."""
    rc, result = judge(tmp_path, end("decode_0", 143), "bench", "   JobState=COMPLETING Reason=None Dependency=(null)")
    assert (rc, result["reason"]) == (143, "cancelled in phase bench")
    rc, result = judge(tmp_path, "(sleep 0.1; kill -TERM $$) & " + end("decode_0", 143), "bench")
    assert (rc, result["reason"]) == (143, "cancelled in phase bench")


def test_a_node_that_died_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "decode_0.log").write_text("srun: error: Node failure on n1\n")
    rc, result = judge(tmp_path, end("decode_0", 0), "bench")
    assert (rc, result["reason"]) == (11, "node n1 died (decode_0 ran there)")
    rc, result = judge(tmp_path, "kill -TERM $$; pump 1", "bench", "   JobState=COMPLETING Reason=NodeDown Dependency=(null)")
    assert (rc, result["reason"]) == (11, "node n1 died (Slurm: COMPLETING NodeDown)")


def test_the_first_failure_stays_the_reason(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "record_failure 11 first '' ''\nfail 143 second")
    assert (rc, result["exit_code"], result["reason"]) == (143, 11, "first")


def test_a_pump_without_an_event_finds_lost_tasks(tmp_path: Path) -> None:
    text = "true & wait $!\ntask_pid[decode_0]=$!\nfor n in 1 2 3; do pump 0.05; done"
    rc, result = judge(tmp_path, text, "bench")
    assert (rc, result["reason"]) == (11, "decode_0 on n1 ended with exit code 137 (signal 9) in phase bench")


def test_what_a_helper_says_is_kept_with_its_blanks(tmp_path: Path) -> None:
    text = event("failed", "router", "it lists  nothing") + 'pump 1; show "${helper_failure[router]}"; ' + event("progress", "canary", "2 done") + "pump 1"
    done = act(tmp_path, text)
    assert shown(done) == ["it lists  nothing"] and done.stdout.endswith(" canary: 2 done\n")


DRAINED = [
    (event("end", "decode_0", "9"), ["9", ""]), (event("end", "watch", "3"), ["", "3"]), (event("fatal", "decode_0", "HIP out of memory"), ["", ""]),
    (event("lost", "decode_0", "refused"), ["", ""]), ("kill -TERM $$\n", ["", ""]), ("", ["", ""]),
]


@pytest.mark.parametrize(("what", "codes"), DRAINED)
def test_a_job_that_is_ending_only_notes_ends(what: str, codes: list[str], tmp_path: Path) -> None:
    done = act(tmp_path, what + 'drain 0.2; show "${step_code[decode_0]:-}"; show "${task_code[watch]:-}"')
    assert shown(done) == codes


def test_a_drain_without_an_event_finds_lost_tasks(tmp_path: Path) -> None:
    text = "true & wait $!\ntask_pid[decode_0]=$!\nfor n in 1 2 3; do drain 0.05; done\nshow ${step_code[decode_0]}"
    assert shown(act(tmp_path, text)) == ["137"]


QUIET_ENDS = [("note_end health 3", "load", "task_code[health]", "3"), ("note_end judge 143", "bench", "task_code[judge]", "143"),
              ("note_end bench 20", "bench", "step_code[bench]", "20"), ("note_end bench 137", "bench", "step_code[bench]", "137"),
              ("note_end eval 0", "eval", "step_code[eval]", "0")]


@pytest.mark.parametrize(("call", "phase", "table", "code"), QUIET_ENDS)
def test_the_end_of_a_helper_or_of_the_client_in_its_phase_is_noted(call: str, phase: str, table: str, code: str, tmp_path: Path) -> None:
    assert shown(act(tmp_path, f'{call}; show "${{{table}}}"', phase)) == [code]


BAD_ENDS = [
    ("note_end decode_0 0", "canary", 11, "decode_0 on n1 ended with exit code 0 in phase canary"),
    ("note_end bench 21", "load", 21, "benchmark client on n0: ended with exit code 21 before its turn"),
    ("note_end bench 0", "eval", 20, "benchmark client on n0: ended with exit code 0 before its turn"),
    ("note_end eval 23", "bench", 23, "evaluation: its step ended with exit code 23 in phase bench"),
    ("fail_early_client 10", "load", 10, "benchmark client on n0: ended with exit code 10 before its turn"),
    ("fail_early_client 0", "router", 20, "benchmark client on n0: ended with exit code 0 before its turn"),
    ("fail_early_client 137", "router", 20, "benchmark client on n0: ended with exit code 137 (signal 9) before its turn"),
    ("fail_component prefill_0 'is gone'", "bench", 11, "prefill_0 on n0 is gone"),
    ("fail_component atomesh_0 'is gone'", "bench", 13, "atomesh_0 on n0 is gone"),
]


@pytest.mark.parametrize(("call", "phase", "code", "reason"), BAD_ENDS)
def test_an_end_that_ends_the_job(call: str, phase: str, code: int, reason: str, tmp_path: Path) -> None:
    rc, result = judge(tmp_path, call, phase)
    assert (rc, result["exit_code"], result["reason"]) == (code, code, reason)
    assert isinstance(result["failed"], dict) and result["failed"]["step"] in call.replace("early_client", "bench")


@pytest.mark.parametrize("call", ["note_end health 143", "note_end bench 137", "note_end decode_0 0"])
def test_what_ends_while_slurm_ends_the_job_is_not_the_reason(call: str, tmp_path: Path) -> None:
    rc, result = judge(tmp_path, call, "bench", ENDING)
    assert (rc, result["reason"]) == (143, "cancelled in phase bench")


DEAD = [("srun: error: Node failure on n1\n", "n1"), ("x\nsrun: error: Node failure on n2, stepid 7.1\nmore\n", "n2"), ("node failure on n3 x\n", "n3"),
        ("all is well\n", ""), ("", ""), ("\xff\0 Node failure on n4\n", "n4"), ("Node failure on n5\n" + "x" * 70000 + "\n", "")]


@pytest.mark.parametrize(("log", "node"), DEAD)
def test_the_node_that_srun_says_has_died(log: str, node: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "decode_0.log").write_bytes(log.encode("latin-1"))
    assert shown(act(tmp_path, 'find_dead_node prefill_0 decode_0; show "${REPLY}"')) == [node]


def test_without_steps_no_node_has_died(tmp_path: Path) -> None:
    """`tail` without names would read the shell's input."""
    assert shown(act(tmp_path, 'find_dead_node; show "[${REPLY}]"')) == ["[]"]


STATES = [("   JobState=RUNNING Reason=None Dependency=(null)", "RUNNING None"), ("   JobState=NODE_FAIL Reason=NodeDown Dependency=(null)", "NODE_FAIL NodeDown"),
          ("   JobState=COMPLETING Reason=TimeLimit x", "COMPLETING TimeLimit"), ("slurm_load_jobs error: Invalid job id specified", " "), ("", " ")]


@pytest.mark.parametrize(("job", "state"), STATES)
def test_slurms_view_of_the_job(job: str, state: str, tmp_path: Path) -> None:
    text = "job_state=OLD job_reason=OLD\nread_job_state\nshow \"${job_state} ${job_reason}\""
    assert shown(act(tmp_path, text, job=job)) == [state]


def test_slurm_may_not_answer(tmp_path: Path) -> None:
    text = f"printf 'exit 1\\n' >{tmp_path}/bin/scontrol\njob_state=OLD\nread_job_state\nshow \"[${{job_state}}]\""
    assert shown(act(tmp_path, text)) == ["[]"]


CANCELLED = "slurmstepd: error: *** STEP 7.1 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***\n"


@pytest.mark.parametrize(("log", "cancelled"), [(CANCELLED, "yes"), ("x\n" + CANCELLED + "srun: error: n1: task 0: Terminated\n", "yes"), ("", "no"), (None, "no"),
                                                ("STEP 7.1 CANCELLED AT x\n", "no"), (CANCELLED + "x" * 5000, "no")])
def test_a_step_that_slurm_cancelled(log: str | None, cancelled: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    if log is not None:
        (tmp_path / "logs" / "decode_0.log").write_text(log)
    assert shown(act(tmp_path, "if step_cancelled decode_0; then show yes; else show no; fi")) == [cancelled]


CONFIRMED = [(RUNNING, 0, ""), ("", 0, ""), (ENDING, 143, "cancelled in phase bench"),
             ("   JobState=TIMEOUT Reason=TimeLimit x", 124, "the time limit is reached, in phase bench")]


@pytest.mark.parametrize(("job", "code", "reason"), CONFIRMED)
def test_an_unexpected_end_is_judged_by_slurms_view(job: str, code: int, reason: str, tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "confirm_running", "bench", job)
    assert (rc, result["reason"]) == (code, reason)


@pytest.mark.parametrize(("name", "log", "looks"), [("decode_0", CANCELLED, 14), ("decode_0", "", 2), ("", CANCELLED, 2)])
def test_the_signal_of_a_cancelled_step_is_awaited_longer(name: str, log: str, looks: int, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "decode_0.log").write_text(log)
    assert shown(act(tmp_path, f"drain() {{ show look; }}\nconfirm_running {name}", "bench")) == ["look"] * looks


def test_a_signal_that_comes_a_moment_after_a_cancelled_step_is_the_reason(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "decode_0.log").write_text(CANCELLED)
    rc, result = judge(tmp_path, "(sleep 0.6; kill -TERM $$) &\nconfirm_running decode_0", "bench")
    assert (rc, result["reason"]) == (143, "cancelled in phase bench")


STOPS = [
    ("TERM", RUNNING, "", 143, "cancelled in phase bench"), ("USR1", RUNNING, "", 124, "the time limit is near, in phase bench"),
    ("TERM", "   JobState=TIMEOUT Reason=None x", "", 124, "the time limit is reached, in phase bench"),
    ("TERM", "   JobState=NODE_FAIL Reason=None x", "", 11, "node of this job died (Slurm: NODE_FAIL None)"),
    ("USR1", "   JobState=COMPLETING Reason=NodeDown x", "PLAN_BENCH=manual", 11, "node of this job died (Slurm: COMPLETING NodeDown)"),
    ("TERM", RUNNING, "PLAN_BENCH=manual", 0, ""), ("TERM", "", "", 143, "cancelled in phase bench"),
]


@pytest.mark.parametrize(("signal", "job", "plan", "code", "reason"), STOPS)
def test_why_the_job_is_stopped(signal: str, job: str, plan: str, code: int, reason: str, tmp_path: Path) -> None:
    rc, result = judge(tmp_path, f"stop_signal={signal}\nstop_requested", "bench", job, plan)
    assert (rc, result["reason"]) == (code, reason)


def test_a_signal_is_heeded_once(tmp_path: Path) -> None:
    """What looks for signals on the way out must not judge the same one again."""
    done = act(tmp_path, "trap 'show \"[${stop_signal}]\"; write_result' EXIT\nstop_signal=TERM\nstop_requested")
    assert done.returncode == 143 and done.stdout.splitlines()[-1] == "> []"


def test_a_failure_without_a_step(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "fail 10 $'why  \"so\"\\n'")
    assert (rc, result["exit_code"], result["verdict"], result["reason"], result["failed"]) == (10, 10, "failed", 'why  "so"\n', None)


@pytest.mark.parametrize(("call", "node", "code"), [("record_failure 11 why decode_0 ''", "n1", 4), ("record_failure 10 why preflight n9", "n9", None),
                                                    ("record_failure 10 why preflight ''", "", None)])
def test_a_failure_of_a_step_names_its_node_and_its_code(call: str, node: str, code: int | None, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("decode_0", "preflight"):
        (tmp_path / "logs" / f"{name}.log").write_text("first\n\nlast  line\n")
    done = act(tmp_path, f"step_code[decode_0]=4\n{call}")
    failed = json.loads((tmp_path / "result.json").read_text())["failed"]
    step = call.split()[3]
    assert failed == {"step": step, "node": node, "exit_code": code, "log": f"{tmp_path}/logs/{step}.log", "tail": ["first", "", "last  line"]}
    assert ("decode_0: last  line" in done.stdout) == (step == "decode_0")
    assert "preflight: first" not in done.stdout


def test_the_end_of_a_failed_steps_log_is_shown(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "bench.log").write_text("".join(f"line {n}\n" for n in range(30)) + "cut off")
    lines = act(tmp_path, "log_lines_of bench\nlog_lines_of absent").stdout.splitlines()
    assert [line.partition("   bench: ")[2] for line in lines] == [*(f"line {n}" for n in range(11, 30)), "cut off"]


@pytest.mark.parametrize("second", ["end atomesh_0 0", "end decode_0 1", "fatal decode_0 boom", "lost prefill_0 nothing"])
def test_what_happens_while_the_job_is_looked_at_is_not_lost(second: str, tmp_path: Path) -> None:
    """A helper's end makes the job ask Slurm; a component that ends in that very moment must still end the job."""
    kind, name, what = second.split()
    text = event("end", "judge", "143") + event(kind, name, what) + "for ((i = 0; i < 8; i++)); do pump 0.3; done"
    rc, result = judge(tmp_path, text, "router")
    assert rc in (11, 13) and result["reason"].startswith(f"{name} on ")


def test_the_end_of_the_client_in_its_phase_is_noted_once(tmp_path: Path) -> None:
    text = event("end", "judge", "143") + event("end", "bench", "0") + """pump 1
show "${step_code[bench]}"
result_phase=eval
pump 0.3
show on"""
    assert shown(act(tmp_path, text, "bench")) == ["0", "on"]


def test_a_helper_that_was_told_to_end_is_no_news(tmp_path: Path) -> None:
    text = "confirm_running() { show asked; }\nstart_helper watch sleep 30\nsleep 0.3\nend_task watch\nwhile [[ -z ${task_code[watch]:-} ]]; do pump 1; done"
    assert shown(act(tmp_path, text)) == []


@pytest.mark.parametrize(("kind", "name", "waited"), [
    ("end", "bench", True), ("end", "stage_model", True), ("end", "decode_0", False), ("end", "router", False), ("fatal", "bench", False), ("", "", False)])
def test_whose_end_somebody_waits_for(kind: str, name: str, waited: bool, tmp_path: Path) -> None:
    text = f"step_role[stage_model]=stage\nevent_kind='{kind}' event_name='{name}'\nif waited_for; then show yes; else show no; fi"
    assert shown(act(tmp_path, text, "bench")) == ["yes" if waited else "no"]
