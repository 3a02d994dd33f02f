"""health_wait, router_check, canary and what they share (http_json), function by function, against real servers."""

from __future__ import annotations

import http.client
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jobs.server import Answer, server
from jobs.shell import LIB

sys.path.insert(0, str(LIB))
import canary  # noqa: E402  (found only by the path above)
import health_wait  # noqa: E402
import http_json  # noqa: E402
import router_check  # noqa: E402

NOTHING = 9  # a port that nobody listens to


@contextmanager
def raw(answer: bytes, hold_s: float = 0) -> Iterator[int]:
    """A server that answers each request with these bytes and keeps the connection for a while."""
    def serve(connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            connection.sendall(answer)
            ended.wait(hold_s)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)


def soon(seconds: float = 5) -> float:
    return time.monotonic() + seconds


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What health_wait says, in place of standard output."""
    words: list[tuple[str, ...]] = []
    monkeypatch.setattr(health_wait, "say", lambda *line: words.append(line))
    return words


# ---- http_json -------------------------------------------------------------------------------------------------------


ERRORS = [(TimeoutError("timed out"), "no answer in time"), (OSError("The read operation timed out"), "no answer in time"),
          (ConnectionRefusedError(111, "Connection refused"), "[Errno 111] Connection refused"),
          (http.client.RemoteDisconnected(), "RemoteDisconnected"), (http.client.BadStatusLine("x"), "x")]


@pytest.mark.parametrize(("error", "words"), ERRORS)
def test_explain(error: BaseException, words: str) -> None:
    assert http_json.explain(error) == words


@pytest.mark.parametrize("body", [None, {"a": [1, "é"]}, []])
def test_connect_gets_without_and_posts_with_a_body(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", url_of(NOTHING))
    seen: list[tuple[str, Any]] = []

    def answer(path: str, got: Any) -> tuple[int, Any]:
        seen.append((path, got))
        return 404, b"no"

    with server(answer) as port:
        connection, response = http_json.connect(url_of(port), "/x?y=1", body, soon())
        assert (response.status, response.read()) == (404, b"no")
        connection.close()
    assert seen == [("/x?y=1", body)]


REPLIES = [((200, {"a": 1}), {"a": 1}), ((201, b"[]"), []), ((200, b"null"), None), ((200, b"{"), "not JSON: {"), ((200, b""), "not JSON: "),
           ((404, b" so \n it is "), "HTTP 404: so it is"), ((500, {"detail": "x" * 400}), 'HTTP 500: {"detail": "' + "x" * 288),
           ((302, b""), "HTTP 302: ")]


@pytest.mark.parametrize(("reply", "expected"), REPLIES)
def test_read_json(reply: tuple[int, Any], expected: Any) -> None:
    with server(lambda path, body: reply) as port:
        try:
            assert http_json.read_json(url_of(port), "/", None, soon()) == expected
        except http_json.Failure as failure:
            assert str(failure) == expected


BROKEN = {"nothing": (b"", 0, "Remote end closed connection without response"), "no HTTP": (b"hello\r\n\r\n", 0, "hello"),
          "cut": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", 0, "IncompleteRead(1 bytes read, 8 more expected)"),
          "stalls": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", 8, "no answer in time"), "silent": (b"", 8, "no answer in time")}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_answer_is_a_failure_in_time(case: str) -> None:
    answer, hold_s, words = BROKEN[case]
    begin = time.monotonic()
    with raw(answer, hold_s) as port, pytest.raises(http_json.Failure, match="^" + re.escape(words)):
        http_json.read_json(url_of(port), "/", None, soon(0.7))
    assert time.monotonic() - begin < 6


def test_no_request_is_made_after_the_deadline() -> None:
    with pytest.raises(http_json.Failure, match="^no time left$"):
        http_json.connect(url_of(NOTHING), "/", None, time.monotonic() - 1)
    with pytest.raises(http_json.Failure, match="refused"):
        http_json.read_json(url_of(NOTHING), "/", None, soon())


# ---- health_wait -----------------------------------------------------------------------------------------------------


def test_say_is_one_line_in_one_write(capfd: pytest.CaptureFixture[str]) -> None:
    health_wait.say("lost", "decode_0", "a\tb\n c" + "x" * 500)
    assert capfd.readouterr().out == "lost\tdecode_0\t" + ("a b c" + "x" * 500)[:400] + "\n"


ANSWERS = [((200, {}), ""), ((204, b""), ""), ((503, b""), "HTTP 503"), ((301, b""), "HTTP 301")]


@pytest.mark.parametrize(("reply", "reason"), ANSWERS)
def test_ask(reply: tuple[int, Any], reason: str) -> None:
    asked: list[str] = []

    def answer(path: str, body: Any) -> tuple[int, Any]:
        asked.append(path)
        return reply

    with server(answer) as port:
        assert health_wait.ask(f"127.0.0.1:{port}", 5) == reason
    assert asked == ["/health"]


def test_ask_what_does_not_answer() -> None:
    assert health_wait.ask(f"127.0.0.1:{NOTHING}", 5) == "connection refused"
    with raw(b"", 8) as port:
        assert health_wait.ask(f"127.0.0.1:{port}", 0.3) == "timeout"
    with raw(b"") as port:
        assert health_wait.ask(f"127.0.0.1:{port}", 5) == "Remote end closed connection without response"


def test_wait_for_says_each_reason_once(said: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_wait, "WAIT_POLL_S", 0.01)
    monkeypatch.setattr(health_wait, "WAIT_ANSWER_S", 1.0)
    statuses = iter([503, 503, 500, 0, 503, 200])

    def answer(path: str, body: Any) -> tuple[int, Any]:
        status = next(statuses)
        if not status:
            time.sleep(2)
        return status or 200, {}

    with server(answer) as port:
        health_wait.wait_for("a", f"127.0.0.1:{port}")
    assert said == [("waiting", "a", "HTTP 503"), ("waiting", "a", "HTTP 500"), ("waiting", "a", "no answer in 1 s"), ("waiting", "a", "HTTP 503"),
                    ("ready", "a", "")]


def test_watch_counts_refusals_in_a_row_only(said: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_wait, "WATCH_POLL_S", 0.01)
    statuses = [500, 200, 500, 200, 500, 503]
    answer: Answer = lambda path, body: (statuses.pop(0), {})  # noqa: E731
    with server(answer) as port:
        health_wait.watch("a", f"127.0.0.1:{port}")
    assert (said, statuses) == ([("lost", "a", "/health failed 2 times in a row: HTTP 503")], [])


JUDGED = [([500, 500, 200], None, 3), ([200], None, 1), ([500, 500, 503, 200], "/health: HTTP 503", 3)]


@pytest.mark.parametrize(("statuses", "lost", "asked"), JUDGED)
def test_judge_takes_one_good_answer_of_three(statuses: list[int], lost: str | None, asked: int, said: list[tuple[str, ...]],
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_wait, "JUDGE_POLL_S", 0.01)
    left = list(statuses)
    with server(lambda path, body: (left.pop(0), {})) as port:
        health_wait.judge("a", f"127.0.0.1:{port}")
    assert said == ([("lost", "a", lost)] if lost else []) and len(statuses) - len(left) == asked


def test_judge_of_a_worker_that_hangs(said: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_wait, "WAIT_ANSWER_S", 0.6)
    monkeypatch.setattr(health_wait, "JUDGE_POLL_S", 0.01)
    with raw(b"", 8) as port:
        health_wait.judge("a", f"127.0.0.1:{port}")
    assert said == [("lost", "a", "no answer to /health")]


LOGS = [(["fine", "a HIP error b", "HIP error"], ["HIP error"], [], "a HIP error b"),
        (["rank 12: gone"], [], ["rank [0-9]+: gone$"], "rank 12: gone"),
        (["HIP", "rank x: gone"], ["HIP error"], ["rank [0-9]+"], None), ([], ["x"], [], None), (["a.b"], ["a+b"], [], None)]


@pytest.mark.parametrize(("lines", "markers", "patterns", "found"), LOGS)
def test_fatal_line(lines: list[str], markers: list[str], patterns: list[str], found: str | None) -> None:
    assert health_wait.fatal_line(lines, markers, [re.compile(pattern) for pattern in patterns]) == found


def test_a_log_that_grows_faster_than_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_wait, "CHUNK", 4)
    log = tmp_path / "log"
    log.write_bytes(b"ab\ncd\xff\nefghijk\nl\n")
    reader = health_wait.LogReader(str(log))
    assert [reader.new_lines() for _ in range(6)] == [["ab"], ["cd\ufffd"], [], ["fghijk"], ["l"], []]  # a long line keeps its end


def test_watch_logs_says_the_first_fatal_line_of_each_log(tmp_path: Path, said: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_wait, "WAIT_POLL_S", 0.02)
    (tmp_path / "a").write_text("bad 1\nbad 2\n")
    threading.Timer(0.3, lambda: (tmp_path / "b").write_text("good\nbad 3\n")).start()
    readers = {name: health_wait.LogReader(str(tmp_path / name)) for name in ("a", "b")}
    health_wait.watch_logs(readers, ["bad"], [])
    assert said == [("fatal", "a", "bad 1"), ("fatal", "b", "bad 3")]


def test_pairs_split_at_the_first_sign() -> None:
    assert health_wait.pairs(["a=h:1", "b=/x=y z", "c"]) == [("a", "h:1"), ("b", "/x=y z"), ("c", "")]


@pytest.mark.parametrize(("mode", "status", "expected"), [("wait", 200, "ready"), ("watch", 500, "lost"), ("judge", 500, "lost"),
                                                          ("judge", 200, None)])
def test_main_of_health_wait_asks_all_at_once(mode: str, status: int, expected: str | None, said: list[tuple[str, ...]],
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WAIT_POLL_S", "WATCH_POLL_S", "JUDGE_POLL_S"):
        monkeypatch.setattr(health_wait, name, 0.01)
    together = threading.Barrier(2, timeout=10)

    def answer(path: str, body: Any) -> tuple[int, Any]:
        together.wait()
        return status, {}

    with server(answer) as port:
        assert health_wait.main([mode, f"--worker=a=127.0.0.1:{port}", f"--worker=b=127.0.0.1:{port}"]) == 0
    assert sorted(line[:2] for line in said) == ([(expected, "a"), (expected, "b")] if expected else [])


# ---- router_check ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("say", "name"), [(router_check.say, "router"), (canary.say, "canary")])
def test_events_of_router_and_canary(say: Callable[[str, str], None], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    say("failed", "a\tb\n " + "x" * 700)
    assert capsys.readouterr().out == f"failed\t{name}\t" + ("a b " + "x" * 700)[:600] + "\n"


def test_expected_workers_in_the_routers_words() -> None:
    found = router_check.expected_workers(["agg=http://a:1=1", "prefill=http://p:1=8", "decode=http://d:1=1"])
    assert found == {("regular", "http://a:1"): 1, ("prefill", "http://p:1"): 8, ("decode", "http://d:1"): 1}


WORKER = {"url": "http://a:1", "worker_type": "regular", "model_id": "m", "is_healthy": True}
ROUTERS: list[tuple[Any, Any, tuple[bool, str]]] = [
    ({"workers": [WORKER]}, {"data": [{"id": "x"}, {"id": "m"}]}, (True, "")), ({"other": 1}, {}, (True, "/workers has no list of workers")),
    ([], {}, (True, "/workers has no list of workers")), ({"workers": []}, {}, (True, "it lists http://a:1 0 times as regular, 1 planned")),
    ({"workers": [WORKER]}, b"soon", (True, "/v1/models: not JSON: soon")),
    ({"workers": [WORKER]}, {"data": []}, (True, "/v1/models has [], not 'm'")),
    (b"starting", {}, (False, "not JSON: starting"))]


@pytest.mark.parametrize(("workers", "models", "expected"), ROUTERS)
def test_check_of_a_router(workers: Any, models: Any, expected: tuple[bool, str]) -> None:
    with server(lambda path, body: (200, workers if path == "/workers" else models)) as port:
        assert router_check.check(url_of(port), {("regular", "http://a:1"): 1}, "m") == expected


def test_check_of_a_router_that_is_not_up() -> None:
    up, wrong = router_check.check(url_of(NOTHING), {}, "m")
    assert not up and "refused" in wrong


def test_main_of_router_check_gives_a_wrong_list_its_time_and_no_more(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_check, "POLL_S", 0.02)
    lists = iter([[], [], [WORKER]])
    answer: Answer = lambda path, body: (200, {"workers": next(lists)} if path == "/workers" else {"data": [{"id": "m"}]})  # noqa: E731
    words = ["--model=m", "--deadline=20", "--worker=agg=http://a:1=1"]
    with server(answer) as port:
        assert router_check.main(["--url", url_of(port), "--settle=20", *words]) == 0
    assert capsys.readouterr().out == "waiting\trouter\tit lists http://a:1 0 times as regular, 1 planned\n"
    begin = time.monotonic()
    with server(lambda path, body: (200, {"workers": []})) as port:
        assert router_check.main(["--url", url_of(port), "--settle=0.1", *words]) == 1
    assert time.monotonic() - begin < 10 and capsys.readouterr().out.splitlines()[-1].startswith("failed\trouter\tit lists")


# ---- canary ----------------------------------------------------------------------------------------------------------


def test_request_body_leaves_nothing_to_chance() -> None:
    body = canary.request_body("org/m")
    assert (body["model"], body["temperature"], body["ignore_eos"]) == ("org/m", 0, True) and body["max_tokens"] > 1
    assert canary.request_body("org/m") is not body


COMPLETIONS = [({"choices": [{"text": "a"}], "usage": {"completion_tokens": 1}}, True),
               ({"choices": [{"text": ""}], "usage": {"completion_tokens": 5}}, False),
               ({"choices": [{"text": "a"}], "usage": {"completion_tokens": 0}}, False), ({"choices": [{"text": "a"}]}, False),
               ({"choices": [], "usage": None}, False), ({}, False), ({"choices": [{"text": None, "finish_reason": "abort"}], "usage": {}}, False)]


@pytest.mark.parametrize(("reply", "good"), COMPLETIONS)
def test_require_tokens(reply: dict[str, Any], good: bool) -> None:
    if good:
        canary.require_tokens(reply)
        return
    with pytest.raises(http_json.Failure, match="the completion has no tokens") as failed:
        canary.require_tokens(reply)
    choices = reply.get("choices")
    assert repr((choices or [{}])[0].get("finish_reason")) in str(failed.value)


TOKENS = {"choices": [{"text": "ab"}], "usage": {"completion_tokens": 2}}


@pytest.mark.parametrize(("reply", "said"), [((200, TOKENS), None), ((200, {}), "agg_0 failed: the completion has no tokens"),
                                             ((503, b"x"), "agg_0 failed: HTTP 503: x")])
def test_try_worker(reply: tuple[int, Any], said: str | None) -> None:
    with server(lambda path, body: reply) as port:
        failure = canary.try_worker(canary.Worker("agg_0", "agg", url_of(port), 1), "m", soon())
    assert failure is None if said is None else failure is not None and failure.startswith(said)


@pytest.mark.parametrize(("ranks_listed", "size"), [(False, 1), (True, 4)])
def test_try_pair_hands_the_parameters_on(ranks_listed: bool, size: int) -> None:
    seen: list[dict[str, Any]] = []

    def prefill(path: str, body: Any) -> tuple[int, Any]:
        return 200, {"tp_size": 2} if path == "/kv_transfer_info" else {"kv_transfer_params": {"remote_host": "h", "dp_rank": None}}

    def decode(path: str, body: Any) -> tuple[int, Any]:
        seen.append(body["kv_transfer_params"])
        return 200, TOKENS

    with server(prefill) as one, server(decode) as two:
        pair = canary.Worker("prefill_0", "prefill", url_of(one), 4), canary.Worker("decode_0", "decode", url_of(two), 1)
        assert canary.try_pair(*pair, "m", ranks_listed, soon()) is None
        failure = canary.try_pair(pair[0]._replace(url=url_of(NOTHING)), pair[1], "m", ranks_listed, soon())
    assert seen == [{"remote_host": "h", "dp_rank": None, "remote_tp_size": 2, "remote_dp_rank": 0, "remote_dp_size": size}]
    assert failure is not None and failure.startswith("prefill_0 -> decode_0: the prefill half (prefill_0) failed: ") and "refused" in failure


def events(*lines: str) -> bytes:
    return "".join(f"{line}\n\n" for line in lines).encode()


STREAMS = [
    (events('data: {"choices":[{"text":"a"}]}', ": ping", 'data: {"choices":[{"text":null}]}', 'data: {"choices":[{"text":"b"}]}', "data: [DONE]",
            "data: {"), "ab"),
    (events('data: {"choices":[],"usage":{}}', "data: [DONE]"), ""),
    (events('data: {"choices":[{"text":"a"}]}'), "Failure: the stream ended without [DONE]"),
    (events("data: oops"), "Failure: the stream holds data: oops"), (b"", "Failure: the stream ended without [DONE]")]


@pytest.mark.parametrize(("stream", "expected"), STREAMS)
def test_streamed_text(stream: bytes, expected: str) -> None:
    bodies: list[Any] = []

    def answer(path: str, body: Any) -> tuple[int, Any]:
        bodies.append(body["stream"])
        return 200, stream

    with server(answer) as port:
        try:
            assert canary.streamed_text(url_of(port), "m", soon()) == expected
        except http_json.Failure as failure:
            assert f"Failure: {failure}" == expected
    assert bodies == [True]


SILENT = b"HTTP/1.1 200 OK\r\n\r\n" + events('data: {"choices":[{"text":"a"}]}')


@pytest.mark.parametrize(("answer", "hold_s", "words"), [
    (SILENT, 8, "no answer in time"), (b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno", 0, "HTTP 500: no"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\ndata: {}\n", 0, "ended without")])
def test_a_stream_that_breaks_is_a_failure_in_time(answer: bytes, hold_s: float, words: str) -> None:
    begin = time.monotonic()
    with raw(answer, hold_s) as port, pytest.raises(http_json.Failure, match=words):
        canary.streamed_text(url_of(port), "m", soon(2))
    assert time.monotonic() - begin < 6


def test_a_stream_without_an_end_is_left_at_the_deadline() -> None:
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + events('data: {"choices":[{"text":"a"}]}') * 50_000
    with raw(endless, 5) as port, pytest.raises(http_json.Failure, match="the stream did not end in time|no answer in time"):
        canary.streamed_text(url_of(port), "m", soon(0.2))


ROUTED = [(TOKENS, events('data: {"choices":[{"text":"a"}]}', "data: [DONE]"), None),
          ({}, b"", "the completion through the router failed: the completion has no"),
          (TOKENS, events("data: [DONE]"), "the streamed completion through the router failed: no tokens")]


@pytest.mark.parametrize(("plain", "stream", "said"), ROUTED)
def test_try_router(plain: Any, stream: bytes, said: str | None) -> None:
    with server(lambda path, body: (200, stream if body["stream"] else plain)) as port:
        failure = canary.try_router(url_of(port), "m", soon())
    assert failure is None if said is None else failure is not None and failure.startswith(said)


@pytest.mark.parametrize(("broken", "said", "progress"), [
    (set(), None, ["2 direct exchanges came through"]), ({"agg_1"}, "agg_1 failed: HTTP 500: x", ["agg_1 failed: HTTP 500: x"]),
    ({"agg_0", "agg_1"}, "agg_0 failed: HTTP 500: x (and 1 more of 2)", ["agg_0 failed: HTTP 500: x", "agg_1 failed: HTTP 500: x"])])
def test_try_workers(broken: set[str], said: str | None, progress: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    good: Answer = lambda path, body: (200, TOKENS)  # noqa: E731
    bad: Answer = lambda path, body: (500, b"x")  # noqa: E731
    with server(good) as one, server(bad) as two:
        workers = [canary.Worker(name, "agg", url_of(two if name in broken else one), 1) for name in ("agg_0", "agg_1")]
        assert canary.try_workers(workers, "m", False, soon()) == said
    assert [line.split("\t")[2] for line in capsys.readouterr().out.splitlines()] == progress


def test_main_of_canary_asks_the_router_only_if_the_workers_work(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def answer(path: str, body: Any) -> tuple[int, Any]:
        asked.append(json.dumps(body))
        return 500, b"x"

    with server(answer) as port:
        words = ["--model=m", "--deadline=5", f"--worker=agg_0=agg={url_of(port)}=1"]
        assert canary.main(["--url", url_of(port), *words]) == 1
    assert len(asked) == 1 and capsys.readouterr().out.splitlines()[-1] == "failed\tcanary\tagg_0 failed: HTTP 500: x"
