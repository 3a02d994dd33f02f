"""The benchmark while it runs, function by function: checks, counters, the client's process, a point, the summary."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_rig import Counters
from jobs.measured import ENV, plan, result
from jobs.script import gone
from jobs.server import server
from jobs.shell import LIB, stub

sys.path.insert(0, str(LIB))
import bench_check  # noqa: E402  (found only by the path above)
import bench_metrics  # noqa: E402
import bench_plan  # noqa: E402
import bench_run  # noqa: E402
import bench_watch  # noqa: E402
import point  # noqa: E402
import summary  # noqa: E402
from bench_metrics import RouterStats, Snapshot, WorkerStats  # noqa: E402

# ---- bench_check -----------------------------------------------------------------------------------------------------


def test_highest_of_the_chosen_points(tmp_path: Path) -> None:
    assert bench_check.highest(plan(tmp_path)) == 8 and bench_check.highest(plan(tmp_path, SRTGEN_CONCURRENCIES="4")) == 4
    assert bench_check.highest(plan(tmp_path, BENCH_CONCURRENCIES="", BENCH_PROMPTS="", BENCH_WARMUPS="")) == 0


UNLIMITED = resource.RLIM_INFINITY
LIMITS = [((264, 264), ""), ((263, 999), "soft limit stayed at 263, concurrency 8 needs 264"), ((263, 263), "hard limit is 263, concurrency 8 needs 264"),
          ((UNLIMITED, UNLIMITED), ""), ((100, UNLIMITED), "soft limit stayed at 100")]


@pytest.mark.parametrize(("limits", "said"), LIMITS)
def test_open_files(limits: tuple[int, int], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_check.resource, "getrlimit", lambda which: limits)
    found = bench_check.open_files(plan(tmp_path))
    assert len(found) == bool(said) and said in "".join(found)


@pytest.mark.parametrize(("text", "said"), [("1000\t1263\n", ""), ("1000 1262", "local ports: 1000 to 1262 are too few for concurrency 8"), ("odd", ""), (None, "")])
def test_local_ports(text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if text is not None:
        (tmp_path / "range").write_text(text)
    monkeypatch.setattr(bench_check, "PORT_RANGE", tmp_path / "range")
    assert bench_check.local_ports(plan(tmp_path)) == ([said] if said else [])


def test_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inferencex = {"BENCH_CLIENT": "inferencex", "BENCH_CLIENT_PATH": str(tmp_path / "x.py")}
    assert "is not there; mount it" in bench_check.client(plan(tmp_path, **inferencex))[0]
    (tmp_path / "x.py").touch()
    assert bench_check.client(plan(tmp_path, **inferencex)) == [] == bench_check.client(plan(tmp_path, BENCH_CLIENT="other"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    (tmp_path / "site/atom/benchmarks").mkdir(parents=True)
    (tmp_path / "site/atom/__init__.py").write_text("raise SystemExit(9)\n")  # found, never imported
    assert "finds no atom.benchmarks" in bench_check.client(plan(tmp_path))[0]
    (tmp_path / "site/atom/benchmarks/benchmark_serving.py").touch()
    assert bench_check.client(plan(tmp_path)) == []


HUBS = [({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"), ({"HUGGINGFACE_HUB_CACHE": "/c", "HF_HOME": "/b"}, "/c"), ({"HF_HOME": "/b"}, "/b/hub"),
        ({"HOME": "/h"}, "/h/.cache/huggingface/hub"), ({}, "/root/.cache/huggingface/hub")]


@pytest.mark.parametrize(("env", "folder"), HUBS)
def test_hub_folder(env: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert bench_check.hub_folder() == Path(folder)


def test_tokenizer_by_path_and_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert bench_check.cached_tokenizer("org/m") is None
    snapshots = tmp_path / "hub/models--org--m/snapshots"
    for name in ("a", "b"):
        (snapshots / name).mkdir(parents=True)
    (snapshots / "b" / "vocab.json").touch()
    assert bench_check.cached_tokenizer("org/m") == snapshots / "b" and bench_check.cached_tokenizer("org/other") is None
    assert bench_check.tokenizer(plan(tmp_path)) == [] == bench_check.tokenizer(plan(tmp_path, BENCH_OFFLINE="1"))
    wrong = bench_check.tokenizer(plan(tmp_path, BENCH_OFFLINE="1", BENCH_TOKENIZER="org/other"))
    assert wrong == [f"tokenizer: offline, and org/other is not in {tmp_path}/hub"]
    assert bench_check.tokenizer(plan(tmp_path, BENCH_TOKENIZER=str(snapshots / "b"))) == []
    assert [bench_check._has_tokenizer(snapshots / name) for name in ("a", "b", "no")] == [False, True, False]
    assert "holds none of tokenizer.json" in bench_check.tokenizer(plan(tmp_path, BENCH_TOKENIZER=str(snapshots / "a")))[0]


def in_environment(monkeypatch: pytest.MonkeyPatch, results: Path, **env: str) -> None:
    for name, value in {**ENV, "SRTGEN_RESULTS": str(results), **env}.items():
        monkeypatch.setenv(name, value)
    (results / "bench").mkdir(exist_ok=True)


def test_main_of_bench_check_writes_all_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    in_environment(monkeypatch, tmp_path, BENCH_CLIENT="inferencex", BENCH_CLIENT_PATH="/no", BENCH_TOKENIZER="/no")
    assert bench_check.main() == 10
    verdict = json.loads((tmp_path / "bench" / "verdict.json").read_text())
    assert verdict["code"] == 10 and verdict["reason"].startswith("client inferencex: /no is not there; mount it; tokenizer: /no holds none")
    assert capsys.readouterr().err.count("bench: ") == 2
    in_environment(monkeypatch, tmp_path, BENCH_TYPE="custom")
    (tmp_path / "bench" / "verdict.json").unlink()
    assert bench_check.main() == 0 and not (tmp_path / "bench" / "verdict.json").exists()
    in_environment(monkeypatch, tmp_path, BENCH_ISL="x")
    assert bench_check.main() == 10 and "BENCH_ISL is not a number" in capsys.readouterr().err


# ---- bench_metrics ---------------------------------------------------------------------------------------------------


PROMETHEUS = """# HELP a b
atom:requests_finished_total 5.0
atom:requests_finished_total{rank="1",odd="a\\"b,c"} 2 1700000000
atom:kv_cache_usage_ratio{rank="0"} 0.25
atom:kv_cache_usage_ratio{rank="1"} 0.5
no value
x NaNo
  y{} +Inf
"""


def test_parse_takes_samples_and_nothing_else() -> None:
    samples = bench_metrics.parse(PROMETHEUS)
    assert [(sample.name, sample.value) for sample in samples] == [
        ("atom:requests_finished_total", 5.0), ("atom:requests_finished_total", 2.0), ("atom:kv_cache_usage_ratio", 0.25),
        ("atom:kv_cache_usage_ratio", 0.5), ("y", float("inf"))]
    assert samples[1].labels == {"rank": "1", "odd": 'a\\"b,c'} and samples[4].labels == {}
    assert bench_metrics.parse("") == []


def test_fetch_never_uses_a_proxy_and_raises_for_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with server(lambda path, body: (200, b"ab\xff") if path == "/ok" else (500, b"")) as port:
        assert bench_metrics.fetch(f"http://127.0.0.1:{port}/ok") == "ab\ufffd"
        with pytest.raises(OSError, match="500"):
            bench_metrics.fetch(f"http://127.0.0.1:{port}/other")
    with pytest.raises(OSError, match="refused"):
        bench_metrics.fetch("http://127.0.0.1:9/")


def test_sums_of_samples() -> None:
    samples = bench_metrics.parse(PROMETHEUS + "atom:requests_running 3\natom:requests_running 4\n")
    assert bench_metrics._worker_values(samples) == {"requests": 7.0, "kv_usage": 0.5, "running": 7.0} and bench_metrics._worker_values([]) == {}
    assert bench_metrics._total(samples, "_total") == 7.0 and bench_metrics._total(samples, "absent") == 0


MTP = {"enabled": True, "total_draft_tokens": 4}
WORKERS: list[tuple[tuple[int, Any], tuple[int, Any], bool, WorkerStats | None]] = [
    ((200, PROMETHEUS.encode()), (200, MTP), True, WorkerStats({"requests": 7.0, "kv_usage": 0.5}, MTP)),
    ((200, PROMETHEUS.encode()), (200, MTP), False, WorkerStats({"requests": 7.0, "kv_usage": 0.5}, None)),
    ((404, b""), (200, [1]), True, WorkerStats({}, None)), ((404, b""), (404, b""), True, None), ((404, b""), (200, MTP), False, None),
    ((200, b"\n"), (200, b"{"), True, WorkerStats({}, None))]


@pytest.mark.parametrize(("metrics", "mtp", "mtp_too", "expected"), WORKERS)
def test_worker_stats(metrics: tuple[int, Any], mtp: tuple[int, Any], mtp_too: bool, expected: WorkerStats | None) -> None:
    with server(lambda path, body: metrics if path == "/metrics" else mtp) as port:
        assert bench_metrics.worker_stats(f"http://127.0.0.1:{port}", mtp_too) == expected


ROUTER = """mesh_worker_retries_total{worker_type="prefill",endpoint="a"} 3
mesh_worker_retries_total{worker_type="prefill",endpoint="b"} 1
mesh_worker_retries_total{worker_type="decode",endpoint="a"} 3
mesh_worker_retries_total{worker_type="regular"} 2
mesh_worker_retries_exhausted_total 99
mesh_router_request_duration_seconds_count{x="1"} 10
mesh_router_request_duration_seconds_count{x="2"} 5
mesh_router_request_errors_total 2
mesh_http_responses_total 77
"""


def test_router_retries_count_a_pair_once() -> None:
    assert bench_metrics.router_retries(bench_metrics.parse(ROUTER)) == 4 + 2
    assert bench_metrics.router_retries([]) == 0


def test_router_stats() -> None:
    with server(lambda path, body: (200, ROUTER.encode())) as port:
        assert bench_metrics.router_stats(f"http://127.0.0.1:{port}/metrics") == RouterStats(6, 15, 2)
    assert bench_metrics.router_stats("http://127.0.0.1:9/metrics") is None


@pytest.fixture
def counters() -> Iterator[dict[str, Counters]]:
    """A prefill, a decode and a router."""
    servers = {"prefill_0": Counters("worker"), "decode_0": Counters("worker"), "router": Counters("router")}
    yield servers
    for one in servers.values():
        one.shutdown()
        one.server_close()


def served(results: Path, counters: dict[str, Counters], **env: str) -> bench_plan.Plan:
    return plan(results, SRT_PREFILL_ENDPOINTS=counters["prefill_0"].url, SRT_DECODE_ENDPOINTS=counters["decode_0"].url,
                SRT_FRONTEND_HOST="127.0.0.1", BENCH_ROUTER_METRICS_PORT=str(counters["router"].server_address[1]), **env)


def test_snapshot_and_what_finished(tmp_path: Path, counters: dict[str, Counters]) -> None:
    made = served(tmp_path, counters)
    counters["prefill_0"].requests, counters["decode_0"].requests, counters["router"].requests = 9, 5, 4
    seen = bench_metrics.snapshot(made, mtp_too=True)
    assert seen.finished(made.workers) == 5 and seen.router is not None and seen.router.done == 4
    assert seen.workers["decode_0"] is not None and seen.workers["decode_0"].mtp is not None
    assert bench_metrics.snapshot(made).workers["decode_0"] == WorkerStats({"requests": 5.0, "kv_usage": 0.5}, None)
    alone = bench_metrics.snapshot(plan(tmp_path, SRT_DECODE_ENDPOINTS="http://127.0.0.1:9"))
    assert (alone.workers, alone.router) == ({"decode_0": None}, None)
    assert alone.finished(made.workers) is None and Snapshot({"decode_0": WorkerStats({}, None)}).finished(made.workers) is None


# ---- bench_run -------------------------------------------------------------------------------------------------------


PASSED = [((None, None, 1.0), (None, None, None), True), ((None, None, 0.0), (None, None, None), False), ((5.0, 3.0, None), (5.0, 2.0, 9.0), True),
          ((5.0, 3.0, 9.0), (5.0, 3.0, 9.0), False), ((None, None, None), (5.0, 3.0, 9.0), False), ((4.0, None, None), (5.0, 3.0, 9.0), False)]


@pytest.mark.parametrize(("now", "earlier", "passed"), PASSED)
def test_progress_passed(now: tuple[float | None, ...], earlier: tuple[float | None, ...], passed: bool) -> None:
    assert bench_run.Progress(*now).passed(bench_run.Progress(*earlier)) == passed


def test_log_tail(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"abc\r\xffdef\r\n")
    assert bench_run.log_tail(tmp_path / "log") == "abc\n\ufffddef\n\n" and bench_run.log_tail(tmp_path / "log", 5) == "def\n\n"
    assert bench_run.log_tail(tmp_path / "absent") == ""


@pytest.mark.parametrize(("text", "count"), [(" 5/40 [a\r12/40 [b", 12.0), ("12/400 [b 3/4 [c", None), ("12/40 done", None), ("", None), ("112/40 [x", 112.0)])
def test_client_count(text: str, count: float | None, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    assert bench_run.client_count(tmp_path / "log", 40) == count


def test_watch_forgives_the_setup_and_then_counts_idle_time() -> None:
    none, some, more = (bench_run.Progress(None, None, count) for count in (None, 1.0, 2.0))
    watch = bench_run.Watch(10, none, 100)
    assert [watch.stalled_s(none, now) for now in (111, 130)] == [0, 0] and watch.stalled_s(none, 130.5) == 30.5 and not watch.started
    watch = bench_run.Watch(10, none, 100)
    assert watch.stalled_s(some, 129) == 0 and watch.started
    assert watch.stalled_s(some, 139) == 0 and watch.stalled_s(some, 139.5) == 10.5
    assert watch.stalled_s(more, 140) == 0 and watch.stalled_s(some, 149) == 0
    assert bench_run.Watch(0, none, 100).stalled_s(none, 1e9) == 0


@pytest.fixture
def handlers() -> Iterator[None]:
    """Signal handlers as they were."""
    old = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in old.items():
        signal.signal(number, handler)


BEGIN = bench_run.Progress(None, None, None)


@pytest.mark.parametrize(("text", "code"), [("printf out; printf err >&2; exit 3", 3), ("kill -KILL $$", 137), ("read x || exit 4", 4), ("pwd >&2; exit 0", 0)])
def test_run_keeps_output_and_code(text: str, code: int, tmp_path: Path, handlers: None) -> None:
    outcome = bench_run.run(["bash", "-c", text], tmp_path / "log", lambda: BEGIN, BEGIN, 0, 5, str(tmp_path))
    assert (outcome.exit_code, outcome.stalled_s, outcome.started) == (code, 0, False) and 0 <= outcome.wall_s < 20
    expected = {"printf out; printf err >&2; exit 3": "outerr", "pwd >&2; exit 0": f"{tmp_path}\n"}
    assert (tmp_path / "log").read_text() == expected.get(text, "")
    with pytest.raises(FileExistsError):
        bench_run.run(["true"], tmp_path / "log", lambda: BEGIN, BEGIN, 0, 5)


def test_run_of_what_is_missing(tmp_path: Path, handlers: None) -> None:
    with pytest.raises(OSError) as failed:
        bench_run.run(["/no/such"], None, lambda: BEGIN, BEGIN, 0, 5)
    assert bench_run.not_started(["/no/such", "x"], failed.value) == ["/no/such can't be started: No such file or directory"]
    assert bench_run.not_started(["a"], OSError("odd")) == ["a can't be started: odd"]


def test_run_stops_a_client_that_stalls_and_what_it_started(tmp_path: Path, handlers: None) -> None:
    text = f"sleep 60 & printf '%s' $! >{tmp_path}/pid; trap 'exit 5' TERM; wait"
    looks = iter([bench_run.Progress(None, None, 1.0)])
    outcome = bench_run.run(["bash", "-c", text], tmp_path / "log", lambda: next(looks, BEGIN), BEGIN, 0.3, 0.05)
    assert outcome.exit_code == 5 and outcome.stalled_s > 0.3 and outcome.started
    assert gone(int((tmp_path / "pid").read_text()))


def test_run_clears_what_a_dead_client_left(tmp_path: Path, handlers: None) -> None:
    text = f"trap '' TERM; sleep 60 >/dev/null & printf '%s' $! >{tmp_path}/pid"
    assert bench_run.run(["bash", "-c", text], tmp_path / "log", lambda: BEGIN, BEGIN, 0, 5).exit_code == 0
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_run_and_its_client(number: signal.Signals, tmp_path: Path, handlers: None) -> None:
    threading.Timer(0.5, os.kill, (os.getpid(), number)).start()
    with pytest.raises(bench_run.Cancelled) as cancelled:
        bench_run.run(["bash", "-c", f"printf '%s' $$ >{tmp_path}/pid; exec sleep 60"], None, lambda: BEGIN, BEGIN, 0, 5)
    assert cancelled.value.code == 128 + number
    assert gone(int((tmp_path / "pid").read_text())) and signal.getsignal(number) == signal.SIG_IGN


def test_a_signal_counts_once(handlers: None) -> None:
    with pytest.raises(bench_run.Cancelled) as cancelled:
        bench_run._on_signal(signal.SIGTERM, None)
    assert cancelled.value.code == 143 and signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_a_group_that_is_gone_and_codes() -> None:
    process = subprocess.Popen(["bash", "-c", "kill -TERM $$"], start_new_session=True)
    process.wait()
    assert bench_run._code(process) == 143
    bench_run._signal_group(process, signal.SIGKILL)
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    bench_run._signal_group(process, signal.SIGKILL)
    assert process.wait(10) == -9 and bench_run._code(process) == 137


def test_supervise_looks_only_when_it_is_time() -> None:
    looked: list[float] = []

    def look() -> bench_run.Progress:
        looked.append(time.monotonic())
        return BEGIN

    begin = time.monotonic()
    process = subprocess.Popen(["sleep", "1"], start_new_session=True)
    outcome = bench_run._supervise(process, look, bench_run.Watch(0, BEGIN, begin), begin, 0.4)
    assert outcome.exit_code == 0 and 1 <= len(looked) <= 3 and looked[0] - begin >= 0.4 and outcome.wall_s >= 1


def test_stop_kills_what_heeds_no_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_run, "KILL_AFTER_S", 0.3)
    process = subprocess.Popen(["bash", "-c", "trap '' TERM; printf up; while :; do sleep 0.05; done"], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None and process.stdout.read(2) == b"up"
    bench_run.stop(process)
    assert process.returncode == -9
    bench_run.stop(process)


# ---- bench_watch -----------------------------------------------------------------------------------------------------


def test_observer_keeps_the_peak_and_says_a_line_a_minute(tmp_path: Path, counters: dict[str, Counters], capsys: pytest.CaptureFixture[str],
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    made = served(tmp_path, counters)
    observer = bench_watch.Observer(made, made.points[0], Snapshot())
    counters["decode_0"].requests, counters["router"].requests = 5, 3
    (tmp_path / "bench" / "c4.log").write_text("7/40 [x")
    observer.kv_peak = {"decode_0": 0.75}
    assert observer.look() == bench_run.Progress(5, 3, 7)
    assert observer.kv_peak == {"decode_0": 0.75, "prefill_0": 0.5} and capsys.readouterr().out == ""
    monkeypatch.setattr(bench_watch, "LINE_EVERY_S", 0.0)
    observer.look()
    assert capsys.readouterr().out.split()[:3] == ["1/2", "4", "40"]
    assert observer.progress(Snapshot()) == bench_run.Progress(None, None, 7)


def test_say_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    bench_watch.say("a  b")
    assert capsys.readouterr().out == "a  b\n"


@pytest.mark.parametrize("reached", [True, False])
def test_settled_waits_for_the_workers_but_not_for_ever(reached: bool, tmp_path: Path, counters: dict[str, Counters],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_watch, "SETTLE_S", 20.0 if reached else 0.5)
    made = served(tmp_path, counters)
    decode = counters["decode_0"]
    decode.requests = 7
    before = bench_metrics.snapshot(made)
    decode.requests = 7 + 47
    timer = threading.Timer(0.7, lambda: setattr(decode, "requests", 7 + 48 + (not reached)))
    timer.start()
    after = bench_watch.settled(made, made.points[0], before)
    timer.join()
    assert after.finished(made.workers) == 7 + (48 if reached else 47)
    assert after.workers["decode_0"] is not None and after.workers["decode_0"].mtp is not None


def test_settled_does_not_wait_for_workers_that_tell_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_watch, "SETTLE_S", 60.0)
    made = plan(tmp_path)
    assert bench_watch.settled(made, made.points[0], Snapshot()) == Snapshot()


# ---- point -----------------------------------------------------------------------------------------------------------


OUTCOME = bench_run.Outcome(0, 11.0, 0.0, True)


@pytest.mark.parametrize(("started", "count", "said"), [(True, 3.0, "no finished request for 60 s (3 of 40 done): the client was stopped"),
                                                        (False, None, "not one request finished for 60 s: the client was stopped")])
def test_stall_reason(started: bool, count: float | None, said: str, tmp_path: Path) -> None:
    outcome = dataclasses.replace(OUTCOME, stalled_s=60.2, started=started)
    assert point.stall_reason(outcome, plan(tmp_path).points[0], count) == said


def test_client_problems(tmp_path: Path) -> None:
    made = plan(tmp_path)
    observer = bench_watch.Observer(made, made.points[0], Snapshot())
    (tmp_path / "bench" / "c4.log").write_text("5/40 [")
    assert point.client_problems(OUTCOME, made.points[0], observer) == []
    assert point.client_problems(dataclasses.replace(OUTCOME, exit_code=9), made.points[0], observer) == ["the client ended with exit code 9"]
    stalled = point.client_problems(dataclasses.replace(OUTCOME, exit_code=143, stalled_s=5.0), made.points[0], observer)
    assert stalled == ["no finished request for 5 s (5 of 40 done): the client was stopped"]


# the client's file, outcome, early problems -> valid, reason, fatal
EVALUATED: dict[str, tuple[Any, bench_run.Outcome, list[str], bool, str, bool]] = {
    "good": (result(), OUTCOME, [], True, "", False), "half": (result(completed=20), OUTCOME, [], False, "20 of 40 requests failed", False),
    "no file": (None, OUTCOME, [], False, "the client wrote no result file", True),
    "failed with a result": (result(), dataclasses.replace(OUTCOME, exit_code=1), ["code 1"], False, "code 1", False),
    "failed without": (None, dataclasses.replace(OUTCOME, exit_code=1), ["code 1"], False, "code 1; the client wrote no result file", True),
    "stalled": (result(), dataclasses.replace(OUTCOME, stalled_s=9.0), ["stalled"], False, "stalled", True),
    "nothing completed": (result(completed=0), OUTCOME, [], False, "40 of 40 requests failed", True)}


@pytest.mark.parametrize("case", EVALUATED)
def test_evaluate(case: str, tmp_path: Path) -> None:
    content, outcome, early, valid, reason, fatal = EVALUATED[case]
    made = plan(tmp_path)
    if content is not None:
        (tmp_path / "bench" / "c4.json").write_text(json.dumps(content))
    (tmp_path / "bench" / "c4.log").write_text("Connection refused\n")
    observer = bench_watch.Observer(made, made.points[0], Snapshot())
    record = point.evaluate(made, made.points[0], outcome, observer, Snapshot(), early)
    row = record["row"]
    assert (row["valid"], row["reason"], record["fatal"], row["raw"]) == (valid, reason, fatal, "c4.json" if content else "")
    assert record["error_sides"] == ({} if valid else {"client": 0, "server": 1, "unknown": 0})
    assert (record["name"], record["wall_s"], record["stalled"]) == ("c4", 11.0, case == "stalled")
    assert record["warnings"] == ["the router's metrics port does not answer: retries are unknown"]


@pytest.mark.parametrize(("allowed", "retries", "valid"), [("0", 0, True), ("0", 1, False), ("0.025", 1, True), ("0.025", 2, False)])
def test_retried_requests_count_as_failed_ones(allowed: str, retries: int, valid: bool, tmp_path: Path) -> None:
    made = plan(tmp_path, BENCH_MAX_FAILED_RATIO=allowed)
    (tmp_path / "bench" / "c4.json").write_text(json.dumps(result()))
    before, after = (Snapshot({}, RouterStats(count, 0, 0)) for count in (5, 5 + retries))
    record = point.evaluate(made, made.points[0], OUTCOME, bench_watch.Observer(made, made.points[0], before), after, [])
    assert (record["row"]["valid"], record["row"]["retried"]) == (valid, retries)
    assert valid or record["row"]["reason"].startswith(f"{retries} requests were retried")


def test_refused_ends_the_sweep_without_a_fault_of_the_client(tmp_path: Path) -> None:
    made = plan(tmp_path)
    record = point.refused(made, made.points[1], "so it is")
    assert (record["name"], record["row"]["valid"], record["row"]["reason"], record["fatal"], record["client_exit_code"]) == ("c8", False, "so it is", True, 0)
    keep(made, record)
    assert summary.verdict(made)["code"] == 21


def test_warnings_of_a_point(tmp_path: Path) -> None:
    made = plan(tmp_path, SRT_DECODE_ENDPOINTS="http://d:1,http://d:2")
    before, after = (Snapshot({"decode_0": WorkerStats({"requests": count}, None)}, RouterStats(0, 0, errors)) for count, errors in ((0.0, 1), (90.0, 3)))
    workers = {"decode_0": {"requests": 90}, "decode_1": {"requests": 0}}
    found = point.warnings(made, made.points[0], {"retried": 4, "valid": True}, before, after, workers)
    assert [text.split(" ")[0] + " " + text.split(" ")[1] for text in found] == ["uneven load", "the workers", "4 requests", "the router"]
    assert found[3] == "the router counts 2 requests that ended in an error"
    quiet = {"decode_0": {"requests": 20}, "decode_1": {"requests": 20}}
    for row in ({"retried": 0, "valid": True}, {"retried": 4, "valid": False}):  # of an invalid point the reason tells
        assert point.warnings(made, made.points[0], row, before, before, quiet) == []


def client_argv(tmp_path: Path, content: dict[str, Any], name: str = "c4", code: int = 0) -> list[str]:
    """A client that leaves this result."""
    (tmp_path / f"{name}.src").write_text(json.dumps(content))
    return ["bash", "-c", f"sleep 0.1; cp {tmp_path}/{name}.src {tmp_path}/bench/{name}.json; exit {code}"]


GOOD = result(duration=0.1, output_throughput=3600.0, total_token_throughput=39600.0)


def test_measure_runs_the_client_once(tmp_path: Path, counters: dict[str, Counters], handlers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_watch, "SETTLE_S", 0.1)
    made = served(tmp_path, counters)
    record = point.measure(made, made.points[0], client_argv(tmp_path, GOOD))
    assert (record["row"]["valid"], record["row"]["retried"], record["workers"]["decode_0"]["requests"]) == (True, 0, 0)
    again = point.measure(made, made.points[0], ["touch", str(tmp_path / "ran")])
    assert again["row"]["reason"] == "c4.json exists before the point ran" and not (tmp_path / "ran").exists()
    missing = point.measure(made, made.points[1], ["/no/such"])
    assert missing["client_exit_code"] == 127 and missing["fatal"] and missing["row"]["reason"].startswith("/no/such can't be started: No such file")


def test_append_keeps_records_and_renews_the_summary(tmp_path: Path) -> None:
    made = plan(tmp_path, BENCH_CONCURRENCIES="", BENCH_PROMPTS="", BENCH_WARMUPS="")
    for name in ("a", "b"):
        point.append(made, {"name": name, "fatal": False})
    assert [record["name"] for record in summary.records(made)] == ["a", "b"]
    assert len(json.loads((tmp_path / "bench" / "summary.json").read_text())["points"]) == 2


def test_run_point(tmp_path: Path, handlers: None, capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(tmp_path, SRTGEN_CONCURRENCIES="8")
    for name, concurrency, prompts in (("c5", 4, 40), ("c4", 5, 40), ("c4", 4, 41)):
        with pytest.raises(bench_plan.PlanError, match=f"point {name} .* is not in the plan"):
            point.run_point(made, name, concurrency, prompts, ["true"])
    assert point.run_point(made, "c4", 4, 40, ["/no/such"]) == 0 and summary.records(made) == []  # not chosen
    argv = client_argv(tmp_path, GOOD | {"num_prompts": 80, "max_concurrency": 8}, "c8")
    assert point.run_point(made, "c8", 8, 80, argv) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[3] == "started," and out[1].endswith("NO") and out[2].startswith("  warning: ") and out[3] == "  invalid: 40 of 80 requests failed"
    made = plan(tmp_path)
    assert point.run_point(made, "c4", 4, 40, ["/no/such"]) == 0 and summary.records(made)[-1]["fatal"]
    capsys.readouterr()
    assert point.run_point(made, "c8", 8, 80, ["true"]) == 0 and len(summary.records(made)) == 2 and capsys.readouterr().out == ""


CUSTOMS = [(["bash", "-c", "exit 3"], 3, "the command ended with exit code 3"), (["bash", "-c", "[[ $PWD == / ]]"], 0, ""),
           (["/no/such"], 127, "/no/such can't be started: No such file or directory")]


@pytest.mark.parametrize(("argv", "code", "problem"), CUSTOMS)
def test_run_custom(argv: list[str], code: int, problem: str, tmp_path: Path, handlers: None) -> None:
    made = plan(tmp_path, BENCH_TYPE="custom", BENCH_CONCURRENCIES="", BENCH_PROMPTS="", BENCH_WARMUPS="")
    assert point.run_custom(made, argv, "/") == 0
    (record,) = summary.records(made)
    assert (record["client_exit_code"], record["problem"], record["fatal"], record["stalled"]) == (code, problem, bool(problem), False)


MAINS = [(["run", "c9", "1", "2", "true"], {}, 2, "point c9"), (["run", "c4", "4", "40", "true"], {"BENCH_ISL": "x"}, 2, "BENCH_ISL is not a number"),
         (["custom", "", "bash", "-c", "exit 3"], {"BENCH_CONCURRENCIES": "", "BENCH_PROMPTS": "", "BENCH_WARMUPS": ""}, 0, "")]


@pytest.mark.parametrize(("words", "env", "code", "said"), MAINS)
def test_main_of_point(words: list[str], env: dict[str, str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                       capsys: pytest.CaptureFixture[str], handlers: None) -> None:
    in_environment(monkeypatch, tmp_path, **env)
    assert point.main(words) == code and said in capsys.readouterr().err


def test_main_of_point_ends_with_the_signals_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handlers: None) -> None:
    in_environment(monkeypatch, tmp_path, BENCH_CONCURRENCIES="", BENCH_PROMPTS="", BENCH_WARMUPS="")
    stub(tmp_path / "bin", "ends_us", f"kill -INT {os.getpid()}; sleep 60")
    assert point.main(["custom", "", str(tmp_path / "bin" / "ends_us")]) == 130
    assert not (tmp_path / "bench" / "points.jsonl").exists()


# ---- summary ---------------------------------------------------------------------------------------------------------


def test_write_atomic_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old and long")
    summary.write_atomic(tmp_path / "f", "é")
    assert [path.name for path in tmp_path.iterdir()] == ["f"] and (tmp_path / "f").read_text(encoding="utf-8") == "é"


def record(made: bench_plan.Plan, index: int, valid: bool = True, reason: str = "", **more: Any) -> dict[str, Any]:
    row = {**summary.figures(made, made.points[index], result()), "valid": valid, "reason": reason, "raw": ""}
    return {"name": made.points[index].name, "row": row, "warnings": [], "client_exit_code": 0, "fatal": False, "stalled": False, **more}


def keep(made: bench_plan.Plan, *rows: dict[str, Any]) -> None:
    (made.folder / "points.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_complete_has_every_chosen_point(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert summary.records(made) == []
    assert [(row["name"], row["row"]["valid"], row["row"]["reason"]) for row in summary.complete(made)] == [
        ("c4", False, "not run, or not finished"), ("c8", False, "not run, or not finished")]
    keep(made, record(made, 0, False, "it hung", fatal=True))
    assert [row["row"]["reason"] for row in summary.complete(made)] == ["it hung", "not run: point c4 ended the sweep"]
    assert [row["name"] for row in summary.complete(plan(tmp_path, SRTGEN_CONCURRENCIES="8"))] == ["c8"]


@pytest.mark.parametrize(("value", "cell"), [(None, ""), (True, "true"), (False, "false"), (1.23456789, "1.23457"), (12345678.9, "12345678.9"), (7, "7"), ("a,b", "a,b"), (0.0, "0")])
def test_cells_of_the_table(value: Any, cell: str) -> None:
    rows = [dict.fromkeys(summary.COLUMNS) | {"reason": value}]
    (row,) = csv.DictReader(io.StringIO(summary.to_csv(rows)))
    assert row["reason"] == cell and row["completed"] == "" and tuple(row) == summary.COLUMNS


def test_parts_of_a_summary(tmp_path: Path) -> None:
    assert [summary._cell(value) for value in (None, True, 2.0, 3, "x")] == ["", "true", "2", "3", "x"]
    assert [summary._code(found) for found in ({"stalled": True}, {"client_exit_code": 3}, {"client_exit_code": 0}, {})] == [20, 20, 21, 21]
    made = plan(tmp_path)
    assert summary._absent(made, made.points[0], {"name": "c1"})["row"]["reason"] == "not run: point c1 ended the sweep"
    absent = summary._absent(made, made.points[0], None)
    assert (absent["row"]["valid"], absent["row"]["completed"], absent["client_exit_code"]) == (False, None, None)
    assert summary._custom_verdict([])["client_exit_code"] is None


def test_document(tmp_path: Path) -> None:
    made = plan(tmp_path, SRTGEN_CONCURRENCIES="8", BENCH_TOKENIZER="", SRT_ENDPOINT="http://r:1")
    document = summary.document(made, [record(made, 1), record(made, 1, False), {"name": "custom"}], {"job_id": "7"})
    assert (document["planned"], document["chosen"], document["subset"], document["valid"]) == ([4, 8], [8], True, 1)
    assert document["client"]["tokenizer"] == "org/m" and document["client"]["endpoint"] == "http://r:1"
    assert document["gpus"] == {"prefill": 4, "decode": 8, "agg": 0, "allocated": 16} and document["identity"] == {"job_id": "7"}


def test_write_summary_writes_all_files_and_other_names_of_valid_points_only(tmp_path: Path) -> None:
    made = plan(tmp_path)
    keep(made, record(made, 0), record(made, 1, False, "bad"))
    for name, valid in (("c4", True), ("c8", False)):
        (made.folder / f"{name}.json").write_text(json.dumps(result()))
        lines = [json.loads(line) for line in (made.folder / "points.jsonl").read_text().splitlines()]
        next(line for line in lines if line["name"] == name)["row"].update(raw=f"{name}.json", valid=valid)
        keep(made, *lines)
    summary.write_summary(made)
    names = sorted(path.name for path in made.folder.rglob("*") if path.is_file())
    stem = "concurrency_4_req_rate_inf_gpus_12_ctx_4_gen_8.json"
    assert names == sorted(["points.jsonl", "summary.json", "summary.csv", "curve.svg", "c4.json", "c8.json", stem, f"agg_{stem}"])


VERDICTS: dict[str, tuple[list[tuple[int, bool, str, dict[str, Any]]], int, str, int]] = {
    "good": ([(0, True, "", {}), (1, True, "", {})], 0, "", 2), "nothing ran": ([], 21, "point c4 (1 of 2): not run, or not finished", 0),
    "second invalid": ([(0, True, "", {}), (1, False, "bad", {})], 21, "point c8 (2 of 2): bad", 1),
    "client failed": ([(0, False, "code 7", {"client_exit_code": 7}), (1, False, "bad", {})], 20, "point c4 (1 of 2): code 7", 0),
    "stalled": ([(0, True, "", {}), (1, False, "hung", {"stalled": True})], 20, "point c8 (2 of 2): hung", 1)}


@pytest.mark.parametrize("case", VERDICTS)
def test_verdict_and_main_of_summary(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows, code, reason, valid = VERDICTS[case]
    made = plan(tmp_path)
    keep(made, *(record(made, index, good, why, **more) for index, good, why, more in rows))
    found = summary.verdict(made)
    assert (found["code"], found["reason"], found["valid"], found["points"]) == (code, reason, valid, 2)
    in_environment(monkeypatch, tmp_path)
    assert summary.main(["update"]) == 0 and not (made.folder / "verdict.json").exists()
    assert summary.main(["finish"]) == code and json.loads((made.folder / "verdict.json").read_text()) == found
    assert capsys.readouterr().out == ("benchmark passed\n" if code == 0 else f"benchmark failed ({code}): {reason}\n")


CUSTOM_VERDICTS = [([], 20, "the command did not run", None), ([{"problem": "", "client_exit_code": 0}], 0, "", 0),
                   ([{"problem": "", "client_exit_code": 0}, {"problem": "so", "client_exit_code": 3}], 20, "so", 3)]


@pytest.mark.parametrize(("rows", "code", "reason", "client"), CUSTOM_VERDICTS)
def test_verdict_of_a_custom_command(rows: list[dict[str, Any]], code: int, reason: str, client: int | None, tmp_path: Path) -> None:
    made = plan(tmp_path, BENCH_TYPE="custom")
    keep(made, *rows)
    assert summary.verdict(made) == {"code": code, "reason": reason, "points": None, "valid": None, "client_exit_code": client}


def test_a_plan_without_points_is_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    env = {"BENCH_CONCURRENCIES": "", "BENCH_PROMPTS": "", "BENCH_WARMUPS": ""}
    assert summary.verdict(plan(tmp_path, **env))["reason"] == "no point was planned"
    in_environment(monkeypatch, tmp_path, BENCH_ISL="x")
    assert summary.main(["finish"]) == 2 and "BENCH_ISL" in capsys.readouterr().err


def test_main_of_summary_begins_with_the_tables_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    in_environment(monkeypatch, tmp_path)
    assert summary.main(["begin"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("point ") and not (tmp_path / "bench" / "summary.json").exists()
