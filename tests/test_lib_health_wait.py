"""lib/health_wait.sh: until all workers are ready, and whether they stay so."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from jobs.running import act, event, judge, shown
from jobs.server import server
from jobs.shell import stub


def test_the_deadline_says_who_is_missing_and_where_its_log_is(tmp_path: Path) -> None:
    text = "worker_ready[prefill_0]=1\ncollect_worker_addresses\npending_reason[decode_0]='HTTP 503'\nfail_late"
    rc, result = judge(tmp_path, text)
    assert rc == 12
    assert result["reason"] == f"not ready after 900 s: decode_0 on n1 (HTTP 503, log {tmp_path}/logs/decode_0.log)"


def test_progress(tmp_path: Path) -> None:
    text = "load_start=$((SECONDS - 31))\ncollect_worker_addresses\nworker_ready[prefill_0]=1\npending_reason[decode_0]=refused\nlog_progress >out"
    judge(tmp_path, text)
    assert "loading: 31 s, ready 1/2, waiting for decode_0 (refused)" in (tmp_path / "out").read_text()


def workers(*ports: int) -> str:
    """The plan's workers at ports of this machine: one prefill, then decodes."""
    names = ["prefill_0 prefill 0 0", "decode_0 decode 0 1", "decode_1 decode 1 1"]
    return "PLAN_WORKERS=(" + " ".join(f"'{name} {port} 5400 1 0'" for name, port in zip(names, ports)) + ")"


@pytest.mark.parametrize(("plan", "wanted"), [("", "prefill_0=10.0.0.1:6100 decode_0=10.0.0.2:6100"), ("PLAN_WORKERS=()", ""),
                                              ("PLAN_WORKERS=('agg_0  agg  0   1    6105  -  8  0,1')", "agg_0=10.0.0.2:6105")])
def test_where_the_workers_are(plan: str, wanted: str, tmp_path: Path) -> None:
    text = 'node_addresses=(10.0.0.1 10.0.0.2) worker_addresses=(old=1)\ncollect_worker_addresses\nshow "${worker_addresses[*]}"'
    assert shown(act(tmp_path, text, plan=plan)) == [wanted]


@pytest.mark.parametrize(("text", "line"), [
    ("", "ready 0/2, waiting for prefill_0 (not asked yet),decode_0 (not asked yet)"),
    ("worker_ready[prefill_0]=1 worker_ready[decode_0]=1", "ready 2/2")])
def test_progress_of_none_and_of_all(text: str, line: str, tmp_path: Path) -> None:
    done = act(tmp_path, f"load_start=${{SECONDS}}\ncollect_worker_addresses\n{text}\nlog_progress")
    assert done.stdout.endswith(f" loading: 0 s, {line}\n")


def test_the_deadline_names_all_that_are_missing_and_shows_the_first(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "collect_worker_addresses\nfail_late", plan="PLAN_HEALTH_DEADLINE_S=7")
    logs = f"{tmp_path}/logs"
    assert (rc, result["reason"]) == (12, f"not ready after 7 s: prefill_0 on n0 (no answer, log {logs}/prefill_0.log), "
                                          f"decode_0 on n1 (no answer, log {logs}/decode_0.log)")
    assert isinstance(result["failed"], dict) and result["failed"]["step"] == "prefill_0"


def test_the_load_ends_when_all_workers_are_ready(tmp_path: Path) -> None:
    asked: list[str] = []

    def slow(path: str, body: Any) -> tuple[int, Any]:
        asked.append(path)
        return (200 if len(asked) > 1 else 503), {}

    with server(lambda path, body: (200, {})) as one, server(slow) as two:
        done = act(tmp_path, 'wait_for_workers; show "${!worker_ready[*]}"', plan=workers(one, two))
    assert sorted(shown(done)[0].split()) == ["decode_0", "prefill_0"]
    assert re.search(r"loading: \d+ s, ready [01]/2, waiting for ", done.stdout)
    assert "decode_0 is ready on n1" in done.stdout and "all 2 workers are ready after" in done.stdout
    assert asked == ["/health", "/health"]


def test_workers_that_are_not_ready_in_time(tmp_path: Path) -> None:
    with server(lambda path, body: (200, {})) as one, server(lambda path, body: (500, {})) as two:
        rc, result = judge(tmp_path, "wait_for_workers", plan=workers(one, two) + "\nPLAN_HEALTH_DEADLINE_S=4")
    assert (rc, result["reason"]) == (12, f"not ready after 4 s: decode_0 on n1 (HTTP 500, log {tmp_path}/logs/decode_0.log)")


FATAL = [("", "RuntimeError: HIP out of memory", 11), ("PLAN_FATAL_PATTERNS=('rank [0-9]+: watchdog  x')", "rank 3: watchdog  x", 11),
         ("PLAN_FATAL_MARKERS=()", "HIP out of memory", 12)]


@pytest.mark.parametrize(("plan", "line", "code"), FATAL)
def test_a_fatal_line_of_a_log_ends_the_load(plan: str, line: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "decode_0.log").write_text(f"start\n{line}\n")
    rc, result = judge(tmp_path, "wait_for_workers", plan=workers(9, 9) + f"\nPLAN_HEALTH_DEADLINE_S={20 if code == 11 else 2}\n{plan}")
    assert rc == code
    assert code == 12 or result["reason"] == f"decode_0 on n1 logged: {' '.join(line.split())}"


@pytest.mark.parametrize(("probe", "code"), [("exit 3", 3), ("exit 137", 137)])
def test_a_probe_that_breaks_off_ends_the_job(probe: str, code: int, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "python3", probe)
    rc, result = judge(tmp_path, "wait_for_workers", plan=workers(9))
    assert (rc, result["reason"]) == (70, f"the health probe ended with code {code}")


def test_a_plan_without_workers_is_ready(tmp_path: Path) -> None:
    assert "all 0 workers are ready" in act(tmp_path, "wait_for_workers; end_task health", plan="PLAN_WORKERS=()").stdout


def test_watching_replaces_waiting(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "python3", 'printf "progress\\twatch\\t%s\\n" "${*:4}"; exec sleep 30')
    text = """start_helper health sleep 30
worker_addresses=(prefill_0=10.0.0.1:6100 decode_0=10.0.0.2:6100)
health=${task_pid[health]}
watch_workers
pump 5
for n in {1..50}; do kill -0 "${health}" 2>/dev/null || { show gone; break; }; sleep 0.1; done
show "${!task_pid[*]}"
end_task watch"""
    done = act(tmp_path, text)
    assert shown(done) == ["gone", "watch"]
    assert done.stdout.splitlines()[0].endswith(
        f"watch: {tmp_path}/bundle/lib/health_wait.py watch --worker=prefill_0=10.0.0.1:6100 --worker=decode_0=10.0.0.2:6100")


def test_a_worker_that_stops_answering_ends_the_job(tmp_path: Path) -> None:
    text = "collect_worker_addresses\nwatch_workers\n" + event("lost", "decode_0", "/health gave no answer for 30 s") + "pump 1"
    rc, result = judge(tmp_path, text, "bench", plan=workers(9, 9))
    assert (rc, result["reason"]) == (11, "decode_0 on n1 does not answer any more: /health gave no answer for 30 s")


@pytest.mark.parametrize(("gone", "code", "who"), [("", 0, ""), ("decode_0", 11, "decode_0 on n1"), ("router", 13, "atomesh_0 on n0")])
def test_every_server_and_the_router_are_judged(gone: str, code: int, who: str, tmp_path: Path) -> None:
    with server(lambda path, body: (200, {})) as port:
        plan = workers(port, 9 if gone == "decode_0" else port) + f"\nPLAN_ROUTER_PORT={9 if gone == 'router' else port}"
        rc, result = judge(tmp_path, "collect_worker_addresses\njudge_servers", "bench", plan=plan)
    assert rc == code
    assert result["reason"] == (f"{who} does not answer any more: /health: connection refused" if gone else "")


def test_servers_that_hang_are_judged_in_time(tmp_path: Path) -> None:
    with server(lambda path, body: (time.sleep(8), (200, {}))[1]) as port:
        start = time.monotonic()
        rc, result = judge(tmp_path, "judge_servers", "bench", plan=f"PLAN_ROUTER_PORT={port}")
        assert time.monotonic() - start < 12
    assert (rc, result["reason"]) == (13, "atomesh_0 on n0 does not answer any more: no answer to /health")


def test_a_judge_that_never_ends_is_not_awaited(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "python3", "exec sleep 30")
    text = "pump() { SECONDS=$((SECONDS + 3)); }\njudge_servers\nshow \"${task_code[judge]:-none}\"\nend_task judge"
    assert shown(act(tmp_path, text, "bench")) == ["none"]
