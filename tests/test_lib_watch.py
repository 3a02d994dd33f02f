"""lib/watch.sh: what an event means for the job."""

from __future__ import annotations

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
