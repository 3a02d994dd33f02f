"""lib/client.sh: the benchmark client's environment, its turn, and what its end means."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.running import act, event, judge, shown


CLIENT = [
    ("0", "", 0, ""), ("20", "", 20, "benchmark: the client ended with exit code 20"),
    ("21", '{"reason":"3 of 10 failed","points":2,"valid":1}', 21, "benchmark: 3 of 10 failed"),
    ("137", "", 20, "benchmark: the client ended with exit code 137 (signal 9)"), ("1", "", 20, "benchmark: the client ended with exit code 1"),
]
NO_PROBE = "judge_servers() { :; }\n"
NO_WAIT = NO_PROBE + "pump() { SECONDS=$((SECONDS + 1)); }\n"


@pytest.mark.parametrize(("code", "verdict", "wanted", "reason"), CLIENT)
def test_the_end_of_the_client(code: str, verdict: str, wanted: int, reason: str, tmp_path: Path) -> None:
    if verdict:
        (tmp_path / "bench").mkdir()
        (tmp_path / "bench" / "verdict.json").write_text(verdict)
    rc, result = judge(tmp_path, f"{NO_WAIT}step_code[bench]={code}\njudge_client", "bench")
    assert (rc, result["reason"]) == (wanted, reason)
    assert result["bench"] == ({"points": 2, "valid": 1} if verdict else None)


def test_a_component_that_dies_after_the_client_failed_is_the_reason(tmp_path: Path) -> None:
    text = NO_PROBE + """step_code[bench]=1
(sleep 1; printf 'end\\tdecode_0\\t1\\n' >&"${events_fd}") &
judge_client"""
    rc, result = judge(tmp_path, text, "bench")
    assert (rc, result["reason"]) == (11, "decode_0 on n1 ended with exit code 1 in phase bench")


def test_a_server_that_is_gone_when_the_client_fails_is_the_reason(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "step_code[bench]=1\nworker_addresses=(decode_0=127.0.0.1:9)\njudge_client", "bench",
                       plan="PLAN_ROUTER_PORT=9")
    assert rc in (11, 13)
    assert "does not answer any more: /health: connection refused" in str(result["reason"])


def test_a_client_without_a_sign_of_life(tmp_path: Path) -> None:
    text = "beat_since=$((SECONDS - 3))\ncheck_beat\nprintf 'alive\\n' >alive"
    rc, result = judge(tmp_path, text, "bench", env={"SRTGEN_CLIENT_SILENT_S": "2"})
    assert rc == 11 and "no sign of life for 2 s" in str(result["reason"])
    (tmp_path / "logs" / ".bench.alive").write_text("10\n")
    rc, _ = judge(tmp_path, text, "bench", env={"SRTGEN_CLIENT_SILENT_S": "2"})
    assert rc == 0 and (tmp_path / "alive").exists()


def test_clients_know_every_server(tmp_path: Path) -> None:
    judge(tmp_path, "node_addresses=(10.0.0.1 10.0.0.2)\nexport_client_environment\nenv >out")
    env = dict(line.split("=", 1) for line in (tmp_path / "out").read_text().splitlines() if "=" in line)
    wanted = {"SRT_ENDPOINT": "http://10.0.0.1:8000", "SRT_FRONTEND_HOST": "10.0.0.1", "SRT_FRONTEND_PORT": "8000",
              "SRT_MODEL_NAME": "Qwen/Qwen3-0.6B", "SRT_JOB_ID": "7", "SRT_LOG_DIR": f"{tmp_path}/logs", "SRT_PREFILL_IPS": "10.0.0.1",
              "SRT_PREFILL_ENDPOINTS": "http://10.0.0.1:6100", "SRT_DECODE_IPS": "10.0.0.2", "SRT_AGG_IPS": "", "SRT_AGG_ENDPOINTS": "",
              "SRTCTL_FRONTEND_TYPE": "atomesh",
              "AIPERF_SERVER_METRICS_URLS": "http://10.0.0.1:6100/metrics,http://10.0.0.2:6100/metrics"}
    assert {name: env.get(name) for name in wanted} == wanted


def test_clients_of_aggregate_servers_in_a_container(tmp_path: Path) -> None:
    plan = "PLAN_RUNTIME=pyxis\nPLAN_ROUTER_NODE=1\nPLAN_WORKERS=('agg_0 agg 0 0 6100 - 1 0' 'agg_1 agg 1 0 6101 - 1 1' 'agg_2 agg 2 1 6100 - 1 0')"
    judge(tmp_path, "node_addresses=(10.0.0.1 10.0.0.2)\nexport_client_environment\nenv >out", plan=plan)
    env = dict(line.split("=", 1) for line in (tmp_path / "out").read_text().splitlines() if "=" in line)
    wanted = {"SRT_ENDPOINT": "http://10.0.0.2:8000", "SRT_LOG_DIR": "/logs", "SRT_AGG_IPS": "10.0.0.1,10.0.0.1,10.0.0.2", "SRT_PREFILL_IPS": "",
              "SRT_AGG_ENDPOINTS": "http://10.0.0.1:6100,http://10.0.0.1:6101,http://10.0.0.2:6100", "SRT_DECODE_ENDPOINTS": "",
              "AIPERF_SERVER_METRICS_URLS": "http://10.0.0.1:6100/metrics,http://10.0.0.1:6101/metrics,http://10.0.0.2:6100/metrics"}
    assert {name: env.get(name) for name in wanted} == wanted


VERDICTS = [
    (None, "", "null"), ('{"code":21,"reason":"3 of  10\\nfailed","points":2,"valid":1,"more":[1]}', "3 of 10 failed", '{"points":2,"valid":1}'),
    ("{}", "", '{"points":null,"valid":null}'), ("{", "", "null"), ("[]", "", "null"), ("", "", "null"),
]


@pytest.mark.parametrize(("text", "reason", "kept"), VERDICTS)
def test_the_verdict_of_the_client(text: str | None, reason: str, kept: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "bench").mkdir()
        (tmp_path / "bench" / "verdict.json").write_text(text)
    assert shown(act(tmp_path, 'REPLY=old\nread_verdict\nshow "${REPLY}|${result_bench}"')) == [f"{reason}|{kept}"]


@pytest.mark.parametrize(("code", "of_job"), [(0, 0), (10, 10), (20, 20), (21, 21), (22, 22), (23, 23), (1, 20), (2, 20), (11, 20), (24, 20), (137, 20), (143, 20)])
def test_the_jobs_code_for_the_clients(code: int, of_job: int, tmp_path: Path) -> None:
    assert shown(act(tmp_path, f'client_code {code}; show "${{REPLY}}"')) == [str(of_job)]


BEATS = [
    ("", 3, None, 11), ("10\n", 3, None, 0), ("10\n", 3, "10", 11), ("11\n", 3, "10", 0), ("10\n", 1, "10", 0), ("", 1, None, 0),
]


@pytest.mark.parametrize(("beat", "ago", "seen", "code"), BEATS)
def test_a_heart_that_stands_still_ends_the_job(beat: str, ago: int, seen: str | None, code: int, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    if beat:
        (tmp_path / "logs" / ".bench.alive").write_text(beat)
    text = f"SECONDS=100\nbeat_seen={seen or ''} beat_since=$((100 - {ago}))\ncheck_beat\n[[ {beat!r} != '11\\n' ]] || show ${{beat_since}}"
    rc, result = judge(tmp_path, text, "bench", env={"SRTGEN_CLIENT_SILENT_S": "2"})
    assert rc == code
    assert (code == 0) == (result["failed"] is None)


def test_a_beat_that_is_just_being_written_counts(tmp_path: Path) -> None:
    """The file is emptied before its new number stands in it."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / ".bench.alive").touch()
    text = "SECONDS=100\nbeat_seen=5 beat_since=0\ncheck_beat; show ${beat_since}\nSECONDS=200\ncheck_beat; show ${beat_since}"
    assert shown(act(tmp_path, text, "bench")) == ["100", "200"]


def test_a_client_that_ended_while_nobody_looked_is_not_silent(tmp_path: Path) -> None:
    text = f"SECONDS=1000\nbeat_since=0\n{event('end', 'bench', '0')}check_beat\nshow \"${{step_code[bench]}}\""
    assert shown(act(tmp_path, text, "bench")) == ["0"]


def test_the_client_gets_its_turn_and_runs_to_its_end(tmp_path: Path) -> None:
    text = """open_turn bench q
start_task bench bash -c 'read -r line <q/turn_bench; [[ ${line} == go ]]'
run_client
show "${step_code[bench]}\""""
    assert shown(act(tmp_path, text, "bench")) == ["0"]


def test_a_client_that_fails_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "verdict.json").write_text('{"reason":"3 of 10 failed","points":2,"valid":1}')
    text = NO_PROBE + "open_turn bench q\nstart_task bench bash -c 'read -r line <q/turn_bench; exit 21'\nrun_client"
    rc, result = judge(tmp_path, text, "bench")
    assert (rc, result["reason"], result["bench"]) == (21, "benchmark: 3 of 10 failed", {"points": 2, "valid": 1})


FAST = "give_turn() { :; }\njudge_client() { show judged; }\ncheck_beat() { show beat $((SECONDS - started)); }\n"


def test_while_the_client_runs_its_heart_is_looked_at_and_its_time_is_told(tmp_path: Path) -> None:
    text = FAST + """turns=0 started=${SECONDS}
pump() { SECONDS=$((SECONDS + 100)); turns=$((turns + 1)); ((turns < 4)) || step_code[bench]=0; }
run_client"""
    done = act(tmp_path, text, "bench")
    assert [line.split()[0] for line in shown(done)] == ["beat"] * 4 + ["judged"]
    assert [line.partition(" ")[2] for line in done.stdout.splitlines() if "running" in line] == ["benchmark: running for 300 s"]


def test_the_heart_is_not_looked_at_all_the_time(tmp_path: Path) -> None:
    text = FAST + """turns=0 started=${SECONDS}
pump() { SECONDS=$((SECONDS + 1)); turns=$((turns + 1)); ((turns < 25)) || step_code[bench]=0; }
run_client"""
    assert [line.split()[0] for line in shown(act(tmp_path, text, "bench"))] == ["beat"] * 5 + ["judged"]


def test_a_worker_that_ends_while_the_client_runs_ends_the_job(tmp_path: Path) -> None:
    text = "open_turn bench q\n" + event("end", "decode_0", "1") + "run_client"
    rc, result = judge(tmp_path, text, "bench")
    assert (rc, result["reason"]) == (11, "decode_0 on n1 ended with exit code 1 in phase bench")


def test_results_that_were_lost_are_part_of_the_reason(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, NO_WAIT + "result_lost=1\nstep_code[bench]=1\njudge_client", "bench")
    assert rc == 20
    assert result["reason"] == ("benchmark: the client ended with exit code 1, and nothing can be written into the results folder: "
                                "is the disk full?")
