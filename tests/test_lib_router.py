"""lib/router.sh: from ready workers to a system that answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs.running import act, event, judge, shown
from jobs.server import server
from jobs.shell import stub


@pytest.mark.parametrize(("sentence", "step"), [
    ("prefill_0 -> decode_0: the decode half (decode_0) failed", "decode_0"), ("decode_0 installed rdma", "decode_0"),
    ("the completion through the router failed", "")])
def test_the_worker_that_a_sentence_blames(sentence: str, step: str, tmp_path: Path) -> None:
    judge(tmp_path, f"named_worker '{sentence}' >out")
    assert (tmp_path / "out").read_text().strip() == step


@pytest.mark.parametrize(("plan", "url"), [("", "http://10.0.0.1:8000"), ("PLAN_ROUTER_NODE=1\nPLAN_ROUTER_PORT=8123", "http://10.0.0.2:8123")])
def test_where_the_router_is(plan: str, url: str, tmp_path: Path) -> None:
    assert shown(act(tmp_path, 'node_addresses=(10.0.0.1 10.0.0.2)\nrouter_url; show "${REPLY}"', plan=plan)) == [url]


HELPERS = [
    ("start_helper router true", "ok"), ("start_helper router bash -c 'exit 3'", "failed: the check ended with code 3"),
    ("start_helper router bash -c 'printf \"failed\\trouter\\tit lists  x\\n\"; exit 1'", "failed: it lists  x"),
    ("task_code[router]=0", "ok"), ("task_code[router]=1", "failed: the check ended with code 1"),
]


@pytest.mark.parametrize(("start", "outcome"), HELPERS)
def test_a_helper_is_awaited(start: str, outcome: str, tmp_path: Path) -> None:
    text = f'{start}\nif await_helper router; then show ok; else show "failed: ${{REPLY}}"; fi'
    assert shown(act(tmp_path, text, "router")) == [outcome]


def test_a_helper_that_takes_long_says_now_and_then_what_it_waits_for(tmp_path: Path) -> None:
    text = """turns=0
pump() { SECONDS=$((SECONDS + 16)); turns=$((turns + 1)); ((turns < 3)) || pending_reason[router]='503 yet'; ((turns < 5)) || task_code[router]=0; }
await_helper router"""
    lines = [line.partition(" ")[2] for line in act(tmp_path, text, "router").stdout.splitlines()]
    assert lines == ["router: still waiting: no word yet", "router: still waiting: 503 yet"]


def test_while_a_helper_is_awaited_a_worker_may_end_the_job(tmp_path: Path) -> None:
    text = "start_helper canary sleep 30\n" + event("end", "decode_0", "1") + "await_helper canary"
    rc, result = judge(tmp_path, text, "canary")
    assert (rc, result["reason"]) == (11, "decode_0 on n1 ended with exit code 1 in phase canary")


RANKS = "PLAN_WORKERS=('prefill_0 prefill 0 0 6100 5400 8 0' 'decode_0 decode 0 1 6200 5400 4 0')"
PROGRAM = "-E -s -B {t}/bundle/lib/"
ROUTER = PROGRAM + "router_check.py --url http://10.0.0.1:8000 --model=Qwen/Qwen3-0.6B --deadline {d} --settle {s}"
STARTS = [
    ("", {}, ROUTER + " --worker prefill=http://10.0.0.1:6100=1 --worker decode=http://10.0.0.2:6100=1", "300", "20"),
    (RANKS, {"SRTGEN_ROUTER_DEADLINE_S": "5"}, ROUTER + " --worker prefill=http://10.0.0.1:6100=1 --worker decode=http://10.0.0.2:6200=1", "5", "20"),
    (RANKS + "\nPLAN_ROUTER_RANKS=1", {"SRTGEN_ROUTER_SETTLE_S": "2"},
     ROUTER + " --worker prefill=http://10.0.0.1:6100=8 --worker decode=http://10.0.0.2:6200=4", "300", "2"),
]


@pytest.mark.parametrize(("plan", "env", "argv", "deadline", "settle"), STARTS)
def test_the_router_is_sent_off_and_asked_for_the_plan(plan: str, env: dict[str, str], argv: str, deadline: str, settle: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "python3", f'printf "%s" "$*" >{tmp_path}/argv')
    text = """node_addresses=(10.0.0.1 10.0.0.2)
open_turn atomesh_0 q
start_router
read -r -t 2 -u "${turn_fd[atomesh_0]}" line; show "${line}\""""
    assert shown(act(tmp_path, text, "router", plan=plan, env=env)) == ["go"]
    assert (tmp_path / "argv").read_text() == argv.format(t=tmp_path, d=deadline, s=settle)


def test_a_router_that_is_not_as_planned_ends_the_job(tmp_path: Path) -> None:
    def answer(path: str, body: Any) -> tuple[int, Any]:
        return 200, {"workers": []}

    with server(answer) as port:
        text = "open_turn atomesh_0 q\nstart_router"
        rc, result = judge(tmp_path, text, "router", plan=f"PLAN_ROUTER_PORT={port}", env={"SRTGEN_ROUTER_SETTLE_S": "0.2"})
    assert (rc, result["reason"]) == (13, f"the router at http://127.0.0.1:{port} is not as planned: it lists http://127.0.0.1:6100 0 times as prefill, "
                                          "1 planned")
    assert isinstance(result["failed"], dict) and result["failed"]["step"] == "atomesh_0"


def test_a_router_as_planned(tmp_path: Path) -> None:
    def answer(path: str, body: Any) -> tuple[int, Any]:
        if path == "/v1/models":
            return 200, {"data": [{"id": "Qwen/Qwen3-0.6B"}]}
        return 200, {"workers": [{"url": f"http://127.0.0.1:{number}", "worker_type": role, "model_id": "Qwen/Qwen3-0.6B", "is_healthy": True}
                                 for role, number in (("prefill", 6100), ("decode", 6101))]}

    plan = "PLAN_WORKERS=('prefill_0 prefill 0 0 6100 5400 8 0' 'decode_0 decode 0 1 6101 5400 1 0')"
    with server(answer) as port:
        assert shown(act(tmp_path, "open_turn atomesh_0 q\nstart_router; show on", "router", plan=f"{plan}\nPLAN_ROUTER_PORT={port}")) == ["on"]


EVIDENCE = [
    ("printf 'ok\\t\\n{\"a\":1}\\n'", 'ok||{"a":1}|0'), ("printf 'mismatch\\tx is  y\\n{}\\n'", "bad|x is  y|{}|0"),
    ("printf 'Traceback\\nKeyError: z\\n' >&2; exit 1", "ok|old|{}|1"),
]


@pytest.mark.parametrize(("program", "outcome"), EVIDENCE)
def test_what_the_logs_prove(program: str, outcome: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "python3", f"[[ $* == *lib/evidence.py\\ versions\\ --log=x* ]] || exit 9\n{program}")
    text = """REPLY=old
if run_evidence versions --log=x; then state=ok; else state=bad; fi
show "${state}|${REPLY}|${evidence_json}|${#result_warnings[@]}\""""
    done = act(tmp_path, text)
    assert shown(done) == [outcome]
    assert ("warning: the check of versions broke off: KeyError: z" in done.stdout) == outcome.endswith("|1")


def versions(tmp_path: Path, **seen: str) -> None:
    (tmp_path / "logs").mkdir()
    for step, version in seen.items():
        (tmp_path / "logs" / f"{step}.log").write_text(f"srtgen-version atom {version}\n")


IDENTITY = [({"decode_0": "0.1.4"}, 0, "match", ""), ({}, 0, "unverified", ""),
            ({"decode_0": "0.1.4", "atomesh_0": "0.1.5"}, 15, "mismatch", "identity: atom is 0.1.4 and 0.1.5, the recipe's identity says 0.1.4")]


@pytest.mark.parametrize(("seen", "code", "status", "reason"), IDENTITY)
def test_versions_of_all_steps_are_compared(seen: dict[str, str], code: int, status: str, reason: str, tmp_path: Path) -> None:
    versions(tmp_path, **seen)
    rc, result = judge(tmp_path, "check_identity", "router", plan="PLAN_IDENTITY=(atom=0.1.4)")
    assert (rc, result["reason"]) == (code, reason)
    assert isinstance(result["versions"], dict) and result["versions"]["atom"]["status"] == status


def test_versions_are_kept_without_an_expectation(tmp_path: Path) -> None:
    versions(tmp_path, bench="0.1.4")
    rc, result = judge(tmp_path, "check_identity", "router")
    assert (rc, result["versions"]) == (0, {"atom": {"expected": None, "seen": ["0.1.4"], "status": "not compared"}})


TCP, RDMA = "TcpTransport: listen on port 15008", "installTransport, type=rdma"
WARNINGS = {"unverified": "transport: not every worker's log says what it installed (unverified)",
            "differs": "transport: installed is not what ATOM's default (rdma) says"}
TRANSPORTS = [
    ("tcp", 1, TCP, TCP, 0, "", []), ("tcp", 1, TCP, "x", 0, "", [WARNINGS["unverified"]]),
    ("tcp", 1, TCP, RDMA, 14, "transport: decode_0 installed rdma, the recipe says tcp", []), ("rdma", 0, RDMA, TCP, 0, "", [WARNINGS["differs"]]),
    ("rdma", 0, TCP, "x", 0, "", [WARNINGS["unverified"], WARNINGS["differs"]]),
]


@pytest.mark.parametrize(("expected", "explicit", "prefill", "decode", "code", "reason", "warnings"), TRANSPORTS)
def test_the_transport_of_each_worker(expected: str, explicit: int, prefill: str, decode: str, code: int, reason: str, warnings: list[str],
                                      tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "prefill_0.log").write_text(prefill + "\n")
    (tmp_path / "logs" / "decode_0.log").write_text(decode + "\n")
    plan = f"PLAN_TRANSPORT={expected}\nPLAN_TRANSPORT_EXPLICIT={explicit}"
    rc, result = judge(tmp_path, "check_transport", "router", plan=plan)
    assert (rc, result["reason"], result["warnings"]) == (code, reason, warnings)
    transport = result["transport"]
    assert isinstance(transport, dict) and set(transport["steps"]) == {"prefill_0", "decode_0"}
    assert code == 0 or (isinstance(result["failed"], dict) and result["failed"]["step"] == "decode_0")


def test_a_plan_without_a_transport_is_not_checked(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "python3", f"printf x >{tmp_path}/asked")
    rc, result = judge(tmp_path, "check_transport", "router", plan="PLAN_TRANSPORT=")
    assert (rc, result["transport"]) == (0, {}) and not (tmp_path / "asked").exists()


CANARY = PROGRAM + "canary.py --url http://10.0.0.1:8000 --model=Qwen/Qwen3-0.6B --deadline {d}"
CANARIES = [
    ("", {}, CANARY + " --worker prefill_0=prefill=http://10.0.0.1:6100=1 --worker decode_0=decode=http://10.0.0.2:6100=1", "300"),
    (RANKS + "\nPLAN_ROUTER_RANKS=1", {"SRTGEN_CANARY_DEADLINE_S": "9"},
     CANARY + " --worker prefill_0=prefill=http://10.0.0.1:6100=8 --worker decode_0=decode=http://10.0.0.2:6200=4 --ranks-listed", "9"),
]


@pytest.mark.parametrize(("plan", "env", "argv", "deadline"), CANARIES)
def test_the_canary_knows_every_worker(plan: str, env: dict[str, str], argv: str, deadline: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "python3", f'printf "%s" "$*" >{tmp_path}/argv')
    assert shown(act(tmp_path, "node_addresses=(10.0.0.1 10.0.0.2)\nrun_canary; show on", "canary", plan=plan, env=env)) == ["on"]
    assert (tmp_path / "argv").read_text() == argv.format(t=tmp_path, d=deadline)


@pytest.mark.parametrize(("said", "reason", "step"), [
    ("the decode half (decode_0) or the KV transfer failed: HTTP 500", "canary: the decode half (decode_0) or the KV transfer failed: HTTP 500", "decode_0"),
    ("the completion through the router failed: HTTP 503", "canary: the completion through the router failed: HTTP 503", None),
    ("", "canary: the check ended with code 1", None)])
def test_a_canary_that_fails_names_the_worker(said: str, reason: str, step: str | None, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "python3", f"printf 'failed\\tcanary\\t%s\\n' '{said}'\nexit 1" if said else "exit 1")
    rc, result = judge(tmp_path, "run_canary", "canary")
    assert (rc, result["reason"]) == (14, reason)
    failed = result["failed"]
    assert (failed["step"] if isinstance(failed, dict) else None) == step
