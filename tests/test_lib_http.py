"""The small programs that ask over HTTP (health, router, canary) and read logs (evidence), against real servers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from jobs.server import Answer, server
from jobs.shell import LIB

sys.path.insert(0, str(LIB))
import canary  # noqa: E402  (found only by the path above)
import evidence  # noqa: E402
import health_wait  # noqa: E402
import router_check  # noqa: E402

PROXIES = {name: "http://127.0.0.1:9" for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy")}


def run(program: str, *words: str, timeout: float = 30) -> tuple[int, list[list[str]]]:
    done = subprocess.run([sys.executable, "-E", "-s", "-B", str(LIB / program), *words], capture_output=True, text=True,
                          timeout=timeout, env={**PROXIES, "PATH": "/usr/bin:/bin"})
    assert done.stderr == ""
    return done.returncode, [line.split("\t") for line in done.stdout.splitlines()]


def test_wait_ends_when_all_are_ready_and_never_asks_a_proxy() -> None:
    asked: list[str] = []

    def answer(path: str, body: Any) -> tuple[int, Any]:
        asked.append(path)
        return (503 if len(asked) < 2 else 200), {}

    with server(answer) as port, server(lambda path, body: (200, {})) as other:
        code, events = run("health_wait.py", "wait", f"--worker=a=127.0.0.1:{port}", f"--worker=b=127.0.0.1:{other}")
    assert code == 0
    assert ["waiting", "a", "HTTP 503"] in events and ["ready", "a", ""] in events and ["ready", "b", ""] in events
    assert set(asked) == {"/health"}


@pytest.mark.parametrize(("line", "options", "fatal"), [
    ("RuntimeError: HIP out of memory", ["--marker=HIP out of memory"], True),
    ("rank 3: watchdog gave up", ["--pattern=rank [0-9]+: watchdog"], True), ("all is well", ["--marker=HIP out of memory"], False)])
def test_fatal_lines_of_a_log(line: str, options: list[str], fatal: bool, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    process = subprocess.Popen([sys.executable, "-B", str(LIB / "health_wait.py"), "wait", "--worker=x=127.0.0.1:9", f"--log=x={log}",
                                *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\tx\tconnection refused\n"
    with log.open("a") as stream:
        stream.write("start\n" + line[:7])
        stream.flush()
        time.sleep(0.7)
        stream.write(line[7:] + "\nmore\n")
    if fatal:
        assert process.stdout.readline() == f"fatal\tx\t{line}\n"
    else:
        time.sleep(1.2)
    process.kill()
    assert process.stdout.read() == ""
    process.wait()


def test_a_log_is_read_once_and_whole_lines_only(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    reader = health_wait.LogReader(str(log))
    assert reader.new_lines() == []
    log.write_text("one\ntw")
    assert reader.new_lines() == ["one"]
    with log.open("a") as stream:
        stream.write("o\n")
    assert (reader.new_lines(), reader.new_lines()) == (["two"], [])


WATCHED = [([200] * 8, 0, None), ([500, 200] * 4, 0, None), ([200, 500, 500], 3, "/health failed 2 times in a row: HTTP 500")]


@pytest.mark.parametrize(("answers", "least", "lost"), WATCHED)
def test_one_missed_probe_never_loses_a_worker(answers: list[int], least: int, lost: str | None, monkeypatch: pytest.MonkeyPatch,
                                               ) -> None:
    said: list[tuple[str, str, str]] = []
    seen: list[int] = []

    class Enough(Exception):
        pass

    def answer(path: str, body: Any) -> tuple[int, Any]:
        seen.append(1)
        return answers[len(seen) - 1], {}

    def sleep(seconds: float) -> None:
        if len(seen) >= len(answers):
            raise Enough

    monkeypatch.setattr(health_wait, "say", lambda *words: said.append(words))
    monkeypatch.setattr(health_wait.time, "sleep", sleep)
    with server(answer) as port:
        try:
            health_wait.watch("x", f"127.0.0.1:{port}")
        except Enough:
            pass
    assert said == ([("lost", "x", lost)] if lost else [])
    assert len(seen) >= least


def test_a_worker_without_an_answer_is_lost_and_a_slow_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, ...]] = []
    monkeypatch.setattr(health_wait, "say", lambda *words: said.append(words))
    monkeypatch.setattr(health_wait, "WATCH_ANSWER_S", 1.0)
    with server(lambda path, body: (time.sleep(2.5), (200, {}))[1]) as port:
        health_wait.watch("x", f"127.0.0.1:{port}")
    assert said == [("lost", "x", "/health gave no answer for 1 s")]
    with server(lambda path, body: (time.sleep(0.5), (200, {}))[1]) as port:
        assert health_wait.ask(f"127.0.0.1:{port}", 5) == ""


def entry(url: str, role: str, **more: object) -> dict[str, object]:
    return {"url": url, "worker_type": role, "model_id": "m", "is_healthy": True, **more}


PAIR = {("prefill", "http://p:1"): 1, ("decode", "http://d:1"): 1}
GOOD = [entry("http://p:1", "prefill"), entry("http://d:1", "decode")]
LISTS = [
    (GOOD, PAIR, ""), (GOOD[:1], PAIR, "it lists http://d:1 0 times as decode, 1 planned"),
    (GOOD + [entry("http://x:1", "decode")], PAIR, "it lists http://x:1 as decode, which is not in the plan"),
    ([GOOD[0], entry("http://d:1", "prefill")], PAIR, "it lists http://d:1 0 times as decode, 1 planned"),
    (GOOD + [GOOD[1]], PAIR, "it lists http://d:1 2 times as decode, 1 planned"),
    ([GOOD[0], entry("http://d:1", "decode", model_id="unknown")], PAIR, "http://d:1 serves the model 'unknown', not 'm'"),
    ([GOOD[0], entry("http://d:1", "decode", is_healthy=False)], PAIR, "http://d:1 is not healthy"),
    ([entry(f"http://p:1@{i}", "prefill") for i in range(8)], {("prefill", "http://p:1"): 8}, ""),
    ([entry(f"http://p:1@{i}", "prefill") for i in range(7)], {("prefill", "http://p:1"): 8}, "it lists http://p:1 7 times as prefill, 8 planned"),
    ([entry("http://a:1", "regular")], {("regular", "http://a:1"): 1}, ""),
]


@pytest.mark.parametrize(("listed", "planned", "wrong"), LISTS)
def test_the_routers_list_is_compared_with_the_plan(listed: list[dict[str, Any]], planned: router_check.Expected, wrong: str) -> None:
    assert router_check.compare(listed, planned, "m") == wrong


def router(listed: list[dict[str, object]], models: tuple[int, Any] = (200, {"data": [{"id": "m"}]})) -> Answer:
    return lambda path, body: (200, {"workers": listed}) if path == "/workers" else models


ROUTERS = [(router([entry("http://a:1", "regular")]), 0, ""), (router([]), 1, "it lists http://a:1 0 times"),
           (router([entry("http://a:1", "regular")], (503, b"No models available")), 1, "/v1/models: HTTP 503: No models available"),
           (router([entry("http://a:1", "regular")], (200, {"data": [{"id": "x"}]})), 1, "/v1/models has ['x'], not 'm'")]


@pytest.mark.parametrize(("answer", "code", "reason"), ROUTERS)
def test_router_check(answer: Answer, code: int, reason: str) -> None:
    with server(answer) as port:
        rc, events = run("router_check.py", "--url", f"http://127.0.0.1:{port}", "--model=m", "--deadline=20", "--settle=0.5",
                         "--worker", "agg=http://a:1=1")
    assert rc == code
    assert not reason or (events[-1][0] == "failed" and reason in events[-1][2])


def test_a_router_that_never_opens() -> None:
    rc, events = run("router_check.py", "--url", "http://127.0.0.1:9", "--model=m", "--deadline=0.6", "--settle=9")
    assert rc == 1 and events[-1][0] == "failed" and "refused" in events[-1][2]


class Pd:
    """A prefill, a decode and a router in one server; what each answers can be spoilt."""

    def __init__(self) -> None:
        self.prefill: tuple[int, Any] = (200, {"kv_transfer_params": {"remote_host": "h", "dp_rank": 2}})
        self.decode: tuple[int, Any] = self.tokens("abc")
        self.plain: tuple[int, Any] = self.tokens("abc")
        self.stream: tuple[int, Any] = (200, b'data: {"choices":[{"text":"a"}]}\n\ndata: {"choices":[],"usage":{}}\n\ndata: [DONE]\n\n')
        self.bodies: list[dict[str, Any]] = []

    @staticmethod
    def tokens(text: str) -> tuple[int, Any]:
        return 200, {"choices": [{"text": text, "finish_reason": "max_tokens"}], "usage": {"completion_tokens": len(text)}}

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        if path == "/kv_transfer_info":
            return 200, {"tp_size": 4, "dp_size": 1, "kv_role": "kv_producer"}
        self.bodies.append(body)
        params = body.get("kv_transfer_params") or {}
        if params.get("do_remote_decode"):
            return self.prefill
        if "remote_host" in params:
            return self.decode
        return self.stream if body.get("stream") else self.plain


def try_canary(pd: Pd, *more: str) -> tuple[int, list[list[str]]]:
    with server(pd.answer) as port:
        url = f"http://127.0.0.1:{port}"
        return run("canary.py", "--url", url, "--model=m", "--deadline=3", "--worker", f"prefill_0=prefill={url}=8", "--worker",
                   f"decode_0=decode={url}=1", *more)


def test_the_exchange_is_the_routers() -> None:
    pd = Pd()
    assert try_canary(pd)[0] == 0
    first, second = pd.bodies[0], pd.bodies[1]
    assert (first["max_tokens"], first["stream"]) == (1, False)
    assert first["kv_transfer_params"] == {"do_remote_decode": True, "do_remote_prefill": False}
    assert second["max_tokens"] > 1
    assert second["kv_transfer_params"] == {"remote_host": "h", "dp_rank": 2, "remote_tp_size": 4, "remote_dp_rank": 2, "remote_dp_size": 1}
    assert [body.get("stream", False) for body in pd.bodies[2:]] == [False, True]


def test_with_listed_ranks_decode_learns_their_number() -> None:
    pd = Pd()
    assert try_canary(pd, "--ranks-listed")[0] == 0
    assert pd.bodies[1]["kv_transfer_params"]["remote_dp_size"] == 8


SPOILT = [
    ("prefill", (200, {"kv_transfer_params": None}), "prefill half (prefill_0) failed: its answer has no kv_transfer_params (None)"),
    ("prefill", (200, {}), "prefill half (prefill_0) failed"), ("prefill", (500, {"detail": "boom"}), "prefill half (prefill_0) failed: HTTP 500"),
    ("decode", Pd.tokens(""), "decode half (decode_0) or the KV transfer failed: the completion has no tokens"),
    ("decode", (400, {"detail": "x"}), "decode half (decode_0) or the KV transfer failed: HTTP 400"),
    ("plain", (503, b"no"), "the completion through the router failed: HTTP 503: no"),
    ("stream", (200, b"data: [DONE]\n\n"), "the streamed completion through the router failed: no tokens"),
    ("stream", (200, b'data: {"choices":[{"text":"a"}]}\n\n'), "ended without [DONE]"),
    ("stream", (200, b"data: {'error': 1}\n\n"), "the stream holds data: {'error': 1}"),
]


@pytest.mark.parametrize(("part", "answer", "reason"), SPOILT)
def test_a_failure_says_which_half(part: str, answer: tuple[int, Any], reason: str) -> None:
    pd = Pd()
    setattr(pd, part, answer)
    rc, events = try_canary(pd)
    assert rc == 1 and events[-1][:2] == ["failed", "canary"] and reason in events[-1][2]


def test_every_pair_is_tried_and_the_failures_counted() -> None:
    good, bad = Pd(), Pd()
    bad.decode = Pd.tokens("")
    with server(good.answer) as one, server(bad.answer) as two:
        words = [word for name, port in (("prefill_0", one), ("prefill_1", two), ("decode_0", one), ("decode_1", two))
                 for word in ("--worker", f"{name}={name.split('_')[0]}=http://127.0.0.1:{port}=1")]
        rc, events = run("canary.py", "--url", f"http://127.0.0.1:{one}", "--model=m", "--deadline=5", *words)
    assert rc == 1
    assert "prefill_0 -> decode_1" in events[-1][2] and "(and 1 more of 4)" in events[-1][2]


def test_a_hang_ends_at_the_deadline() -> None:
    with server(lambda path, body: (time.sleep(8), (200, {}))[1]) as port:
        start = time.monotonic()
        rc, events = run("canary.py", "--url", f"http://127.0.0.1:{port}", "--model=m", "--deadline=0.6", "--worker",
                         f"agg_0=agg=http://127.0.0.1:{port}=1")
        assert time.monotonic() - start < 6
    assert rc == 1 and events[-1][2] == "agg_0 failed: no answer in time"


def test_aggregate_workers_are_asked_directly() -> None:
    pd = Pd()
    with server(pd.answer) as port:
        url = f"http://127.0.0.1:{port}"
        assert run("canary.py", "--url", url, "--model=m", "--deadline=5", "--worker", f"agg_0=agg={url}=1")[0] == 0
    assert len(pd.bodies) == 3 and all(body["prompt"] == canary.PROMPT for body in pd.bodies)


VERSIONS = [
    ("0.1.4.dev113+g5837907f3", "0.1.4.dev113+g5837907f3", "match"), ("0.1.4", "0.1.4", "match"), ("v0.1.4", "0.1.4", "match"),
    ("0.1.4", "0.1.5", "mismatch"), ("087b82d9a1", "0.1.0", "unverified"), ("0.1.4.dev113+g5837907f3", "0.1.4.dev113", "match"),
    ("5837907f3aaaaaaa", "0.1.4.dev113+g5837907f3", "match"), ("5837907f4", "0.1.4.dev113+g5837907f3", "mismatch"),
    ("0.1.4+g5837907f3", "0.1.4+g1111111", "mismatch"), ("0.1.4", "5837907f3", "unverified")]


@pytest.mark.parametrize(("expected", "seen", "status"), VERSIONS)
def test_versions_are_compared_like_with_like(expected: str, seen: str, status: str) -> None:
    assert evidence.compare_version(expected, seen) == status


def run_evidence(*words: str) -> tuple[str, dict[str, Any]]:
    rc, lines = run("evidence.py", *words)
    assert rc == 0
    return "\t".join(lines[0]), json.loads("\t".join(lines[1]))


def test_the_versions_of_the_logs(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\nsrtgen-version atom 0.1.4\nsrtgen-version torch 2.9\n")
    (tmp_path / "b").write_text("srtgen-version atom 0.1.5\n")
    verdict, report = run_evidence("versions", "--expect=atom=0.1.4", "--expect=atomesh=0.1.0", f"--log={tmp_path}/a", f"--log={tmp_path}/b",
                                   f"--log={tmp_path}/absent")
    assert verdict == "mismatch\tatom is 0.1.4 and 0.1.5, the recipe's identity says 0.1.4"
    assert {name: row["status"] for name, row in report.items()} == {"atom": "mismatch", "atomesh": "unverified", "torch": "not compared"}


RDMA_LINE = "I1130 rdma.cpp:1] installTransport, type=rdma"
TCP_LINE = "I1130 tcp_transport.cpp:553] TcpTransport: listen on port 15008"
TRANSPORTS = [
    (TCP_LINE, "tcp", True, "ok", "match"), (RDMA_LINE, "tcp", True, "mismatch", "mismatch"), (RDMA_LINE, "rdma", True, "ok", "match"),
    (TCP_LINE, "rdma", True, "mismatch", "mismatch"), (TCP_LINE, "rdma", False, "ok", "differs from the default"),
    ("nothing", "tcp", True, "ok", "unverified"), (RDMA_LINE + "\n" + TCP_LINE, "rdma", True, "ok", "match"),
    (RDMA_LINE + "\n" + TCP_LINE, "tcp", True, "mismatch", "mismatch"),
    ("Mooncake TransferEngine initialized: ip=1, protocol=tcp", "tcp", True, "ok", "unverified")]


@pytest.mark.parametrize(("line", "expected", "explicit", "verdict", "status"), TRANSPORTS)
def test_the_transport_of_the_logs(line: str, expected: str, explicit: bool, verdict: str, status: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"start\n{line}\n")
    words = ["--explicit"] if explicit else []
    said, report = run_evidence("transport", f"--expect={expected}", *words, f"--log=decode_0={tmp_path}/log")
    assert said.split("\t")[0] == verdict
    assert report["steps"]["decode_0"]["status"] == status
