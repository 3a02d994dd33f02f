"""The benchmark while it runs, function by function: checks, counters, the client's process, looks at it."""

from __future__ import annotations

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
from jobs.measured import counting, in_environment, plan, served
from jobs.script import gone
from jobs.server import server
from jobs.shell import LIB

sys.path.insert(0, str(LIB))
import bench_check  # noqa: E402  (found only by the path above)
import bench_metrics  # noqa: E402
import bench_run  # noqa: E402
import bench_watch  # noqa: E402
from bench_metrics import RouterStats, Snapshot, WorkerStats  # noqa: E402


@pytest.fixture
def counters() -> Iterator[dict[str, Counters]]:
    with counting() as servers:
        yield servers


# ---- bench_check -----------------------------------------------------------------------------------------------------


def test_highest_of_the_chosen_points(tmp_path: Path) -> None:
    assert bench_check.highest(plan(tmp_path)) == 8 and bench_check.highest(plan(tmp_path, SRTGEN_CONCURRENCIES="4")) == 4
    assert bench_check.highest(plan(tmp_path, BENCH_CONCURRENCIES="", BENCH_PROMPTS="", BENCH_WARMUPS="")) == 0


UNLIMITED = resource.RLIM_INFINITY
LIMITS = [((264, 264), ""), ((263, 999), "soft limit stayed at 263, concurrency 8 needs 264"),
          ((263, 263), "hard limit is 263, concurrency 8 needs 264"),
          ((UNLIMITED, UNLIMITED), ""), ((100, UNLIMITED), "soft limit stayed at 100")]


@pytest.mark.parametrize(("limits", "said"), LIMITS)
def test_open_files(limits: tuple[int, int], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_check.resource, "getrlimit", lambda which: limits)
    found = bench_check.open_files(plan(tmp_path))
    assert len(found) == bool(said) and said in "".join(found)


@pytest.mark.parametrize(("text", "said"), [("1000\t1263\n", ""), ("1000 1262", "local ports: 1000 to 1262 are too few for concurrency 8"),
                                            ("odd", ""), (None, "")])
def test_local_ports(text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if text is not None:
        (tmp_path / "range").write_text(text)
    monkeypatch.setattr(bench_check, "PORT_RANGE", tmp_path / "range")
    assert bench_check.local_ports(plan(tmp_path)) == ([said] if said else [])
    assert (" local ports (1000 to 126" in capsys.readouterr().out) == (text or "odd").startswith("1000")


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


@pytest.mark.parametrize(("text", "count"), [(" 5/40 [a\r12/40 [b", 12.0), ("12/400 [b 3/4 [c", None), ("12/40 done", None), ("", None),
                                             ("112/40 [x", 112.0)])
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


BEGIN = bench_run.Progress(None, None, None)


@pytest.mark.parametrize(("text", "code"), [("printf out; printf err >&2; exit 3", 3), ("kill -KILL $$", 137), ("read x || exit 4", 4),
                                            ("pwd >&2; exit 0", 0)])
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
    process = subprocess.Popen(["bash", "-c", "trap '' TERM; printf up; while :; do sleep 0.05; done"], stdout=subprocess.PIPE,
                               start_new_session=True)
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
