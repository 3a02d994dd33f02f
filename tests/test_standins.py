"""The stand-ins as separate processes over real HTTP: the worker's rules, P/D through the router, the clients, faults."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import STANDINS

BASE_ENV = {"PATH": f"{STANDINS}/bin:{os.environ['PATH']}", "PYTHONPATH": f"{STANDINS}/python",
            "ATOM_HOST_IP": "127.0.0.1", "STANDIN_LOAD_S": "0.05",
            "STANDIN_ROUTER_SCALE": "0.02"}
WORKER = [sys.executable, "-m", "atom.entrypoints.openai_server"]
BENCH = [sys.executable, "-m", "atom.benchmarks.benchmark_serving"]
ROUTER = [f"{STANDINS}/bin/atomesh", "launch"]
INFERENCEX = [sys.executable, f"{STANDINS}/inferencex/utils/bench_serving/benchmark_serving.py"]
NAME = "org/model"


def free_ports(count: int) -> list[int]:
    """Free TCP ports, all different."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Lab:
    """Starts stand-ins in a folder of their own and ends them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self, argv: list[str], fault: str = "", **env: str) -> subprocess.Popen[str]:
        log = (self.folder / f"log.{len(self.started)}").open("w")
        process = subprocess.Popen(argv, env=BASE_ENV | {"SRTGEN_STEP": "me", "STANDIN_FAULT": fault} | env,
                                   cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, text=True)
        self.started.append(process)
        return process

    def log(self, number: int = -1) -> str:
        return (self.folder / f"log.{number % len(self.started)}").read_text()

    def worker(self, *flags: str, fault: str = "", ready: bool = True, **env: str) -> int:
        port, = free_ports(1)
        argv = [*WORKER, "--model", NAME, "--host", "127.0.0.1", "--server-port", str(port), *flags]
        process = self.start(argv, fault, **env)
        if ready:
            wait_http(f"http://127.0.0.1:{port}/health", process)
        return port

    def pair(self, fault: str = "", prefill: str = "tcp", decode: str = "tcp") -> tuple[int, int]:
        """A prefill and a decode worker."""
        handshake, = free_ports(1)
        ports = []
        for role, protocol in (("kv_producer", prefill), ("kv_consumer", decode)):
            config = {"kv_role": role, "kv_connector": "mooncake", "handshake_port": handshake, "protocol": protocol}
            ports.append(self.worker("--kv-transfer-config", json.dumps(config), fault=fault, SRTGEN_STEP=role))
        return ports[0], ports[1]

    def router(self, *flags: str, fault: str = "", ready: bool = True) -> int:
        port, metrics = free_ports(2)
        process = self.start([*ROUTER, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics),
                              "--backend", "atom", "--policy", "random", *flags], fault)
        if ready:
            wait_http(f"http://127.0.0.1:{port}/health", process)
        return port

    def pd_router(self, *flags: str, pair: tuple[int, int], fault: str = "") -> int:
        return self.router("--pd-disaggregation", "--prefill", url(pair[0]), "--decode", url(pair[1]), *flags,
                           fault=fault)

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.close()


def url(port: int, path: str = "") -> str:
    return f"http://127.0.0.1:{port}{path}"


def call(address: str, body: Any = None, timeout: float = 10, method: str | None = None) -> tuple[int, str]:
    """Status and text of a GET, or of a POST of JSON (bytes go as they are)."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def wait_http(address: str, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 15
    while time.monotonic() < end and process.poll() is None:
        try:
            if call(address, timeout=5)[0] == 200:
                return
        except OSError:
            time.sleep(0.02)
    raise AssertionError(f"{address} did not answer")


def events(text: str) -> list[dict[str, Any]]:
    frames = [line[len("data: "):] for line in text.split("\n\n") if line]
    assert frames[-1] == "[DONE]"
    return [json.loads(frame) for frame in frames[:-1]]


def counter(port: int, name: str) -> int:
    rows = dict(line.split() for line in call(url(port, "/metrics"))[1].splitlines())
    return int(rows[name])


# -- worker --------------------------------------------------------------------


@pytest.mark.parametrize("flags, code", [
    (["--bogus"], 2), (["stray"], 2), (["--"], 2), (["--tp", "8"], 2), (["-tp8"], 2),
    (["--enable_prefix_caching=false"], 2), (["--kv-cache-dtype", "fp4"], 2), (["--hf-overrides", "{"], 2),
    (["--tensor", "2"], 2), (["--model", "/no/such/folder"], 1), (["-tp", "9"], 1),
    (["--kv-transfer-config", "{"], 1),
])
def test_worker_refuses_a_wrong_command_line(lab: Lab, flags: list[str], code: int) -> None:
    process = lab.start([*WORKER, "--server-port", str(free_ports(1)[0]), *flags], "me:exit_loading=77")
    assert process.wait(15) == code


@pytest.mark.parametrize("flags", [
    ["--kv_cache_dtype", "fp8"], ["--kv-cache-dtype", "fp8"], ["--no-enable-prefix-caching"],
    ["--no-enable_prefix_caching"], ["-tp=8"], ["--tensor-p", "8"], ["--enable-tbo"], ["--enable-tbo", "all"],
    ["--load_dummy"], ["-tp", "2", "-tp", "4"], ["--cudagraph-capture-sizes", "[1,2]"], ["--eplb-enable"],
])
def test_worker_accepts_declared_aliased_and_short_spellings(lab: Lab, flags: list[str]) -> None:
    process = lab.start([*WORKER, *flags], "me:exit_loading=77")
    assert process.wait(15) == 77, lab.log()


def test_worker_port_is_closed_until_it_is_loaded(lab: Lab) -> None:
    port = lab.worker(ready=False, STANDIN_LOAD_S="0.8")
    time.sleep(0.4)
    with pytest.raises(urllib.error.URLError, match="refused"):
        call(url(port, "/health"))
    wait_http(url(port, "/health"), lab.started[-1])
    assert "Starting server on" in lab.log()
    assert "Server started successfully and ready to accept requests" in lab.log()


def test_worker_status(lab: Lab) -> None:
    port = lab.worker("-tp", "4", "--enable-dp-attention", ATOM_DP_MASTER_PORT=str(free_ports(1)[0]))
    assert json.loads(call(url(port, "/health"))[1]) == {"status": "ok"}
    cards = json.loads(call(url(port, "/v1/models"))[1])["data"]
    assert [(card["id"], card["owned_by"]) for card in cards] == [(NAME, "atom")]
    assert json.loads(call(url(port, "/kv_transfer_info"))[1]) == {
        "tp_size": 1, "dp_size": 4, "kv_role": None, "handshake_port": 6301}
    assert call(url(port, "//health"))[0] == 404
    assert call(url(port, "/health"), {})[0] == 405


@pytest.mark.parametrize("path, body, status", [
    ("/v1/completions", {"prompt": "a b", "max_tokens": 2}, 200),
    ("/v1/completions", {"prompt": "a", "model": NAME + "/", "max_tokens": 2}, 200),
    ("/v1/completions", b"{", 422),
    ("/v1/completions", {"max_tokens": 2}, 422),
    ("/v1/completions", {"prompt": ["a"]}, 422),
    ("/v1/completions", {"prompt": [1, 2]}, 422),
    ("/v1/completions", {"prompt": "a", "stop": "b"}, 422),
    ("/v1/completions", {"prompt": "a", "max_tokens": "2"}, 422),
    ("/v1/completions", {"prompt": "a", "model": "other"}, 400),
    ("/v1/completions", {"prompt": "a", "max_tokens": 64}, 400),
    ("/v1/chat/completions", {"model": NAME}, 400),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}, 200),
])
def test_worker_request_rules(lab_worker: int, path: str, body: Any, status: int) -> None:
    got, text = call(url(lab_worker, path), body)
    assert got == status, text
    assert ("detail" in json.loads(text)) == (status != 200)


@pytest.fixture(scope="module")
def lab_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A healthy worker for tests that only ask."""
    made = Lab(tmp_path_factory.mktemp("worker"))
    yield made.worker("--max-model-len", "64")
    made.close()


def test_worker_streams_exactly_what_was_asked_for(lab_worker: int) -> None:
    body = {"prompt": "one two three", "max_tokens": 20, "ignore_eos": True, "stream": True}
    frames = events(call(url(lab_worker, "/v1/completions"), body)[1])
    reasons = [frame["choices"][0]["finish_reason"] for frame in frames if frame["choices"]]
    assert reasons[-2:] == ["max_tokens", "stop"] and set(reasons[:-2]) <= {None}
    assert len("".join(frame["choices"][0]["text"] for frame in frames if frame["choices"]).split()) == 20
    assert frames[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 20, "total_tokens": 23}


def test_worker_answers_sums(lab_worker: int) -> None:
    shots = "Question: What is 1 + 1?\nAnswer: #### 2\n\nQuestion: What is 19 + 23?\nAnswer:"
    reply = json.loads(call(url(lab_worker, "/v1/completions"), {"prompt": shots, "max_tokens": 16})[1])
    assert reply["choices"][0]["text"].endswith("#### 42")
    assert reply["choices"][0]["finish_reason"] == "eos"
    chat = {"messages": [{"role": "user", "content": "Question: Tom has 3 pears and buys 4. How many?"}],
            "max_tokens": 16}
    reply = json.loads(call(url(lab_worker, "/v1/chat/completions"), chat)[1])
    assert reply["choices"][0]["message"]["content"].endswith("#### 7")
    assert reply["kv_transfer_params"] is None


def test_http2_preface_is_refused_at_once(lab_worker: int) -> None:
    with socket.create_connection(("127.0.0.1", lab_worker), 5) as sent:
        sent.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        answer = sent.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.endswith(b"Invalid HTTP request received.")


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 0)])
def test_worker_ends_by_signal(lab: Lab, number: signal.Signals, code: int) -> None:
    lab.worker()
    lab.started[-1].send_signal(number)
    assert lab.started[-1].wait(10) == code


# -- prefill and decode ----------------------------------------------------------


def exchange(pair: tuple[int, int], prompt: str = "one two", decode_prompt: str | None = None,
             change: Callable[[dict[str, Any]], None] = lambda params: None) -> tuple[int, dict[str, Any]]:
    """What the router does, made by hand; returns the decode's answer and the transfer's parameters."""
    first = {"prompt": prompt, "max_tokens": 1, "stream": False,
             "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}
    params = json.loads(call(url(pair[0], "/v1/completions"), first)[1])["kv_transfer_params"]
    params.update(remote_tp_size=1, remote_dp_size=1, remote_dp_rank=params["dp_rank"])
    change(params)
    second = {"prompt": decode_prompt or prompt, "max_tokens": 4, "kv_transfer_params": params}
    return call(url(pair[1], "/v1/completions"), second)[0], params


def test_transfer_is_used_once_and_must_match(lab: Lab) -> None:
    pair = lab.pair()
    status, used = exchange(pair)
    assert status == 200
    wrong: list[Callable[[dict[str, Any]], None]] = [
        lambda params: params.update(used),
        lambda params: params.update(transfer_id=99),
        lambda params: params.update(remote_engine_id="other"),
        lambda params: params.update(remote_tp_size=8),
        lambda params: params.update(remote_handshake_port=1),
        lambda params: params.pop("remote_dp_rank"),
    ]
    assert [exchange(pair, change=change)[0] for change in wrong] == [500] * len(wrong)
    assert exchange(pair, decode_prompt="another")[0] == 500
    assert counter(pair[1], "standin_transfer_mismatches") == len(wrong) + 1
    assert counter(pair[0], "standin_transfers_used") == 1


def test_prefill_and_decode_over_different_transports_fail(lab: Lab) -> None:
    assert exchange(lab.pair(prefill="tcp", decode="rdma"))[0] == 500


def test_transport_line_in_the_log(lab: Lab) -> None:
    config = '{"kv_role":"kv_consumer","kv_connector":"mooncake","protocol":"%s"}'
    lab.worker("--kv-transfer-config", config % "tcp")
    assert "MC_FORCE_TCP is set, using TCP transport only" in lab.log()
    lab.worker("--kv-transfer-config", config % "tcp", fault="me:transport=rdma")
    assert "installTransport, type=rdma" in lab.log()
    lab.worker("--kv-transfer-config", config % "rdma", MC_FORCE_TCP="true")
    assert "installTransport, type=rdma" not in lab.log()


def test_router_serves_prefill_and_decode(lab: Lab) -> None:
    pair = lab.pair()
    port = lab.pd_router(pair=pair)
    rows = json.loads(call(url(port, "/workers"))[1])
    assert rows["stats"] == {"prefill_count": 1, "decode_count": 1, "regular_count": 0}
    assert {(row["url"], row["model_id"], row["is_healthy"]) for row in rows["workers"]} == {
        (url(pair[0]), NAME, True), (url(pair[1]), NAME, True)}
    plain = {"model": NAME, "prompt": "What is 20 + 22?", "max_tokens": 16}
    assert json.loads(call(url(port, "/v1/completions"), plain)[1])["choices"][0]["text"].endswith("#### 42")
    frames = events(call(url(port, "/v1/completions"), plain | {"stream": True, "ignore_eos": True})[1])
    assert frames[-1]["usage"]["completion_tokens"] == 16
    chat = {"model": NAME, "messages": [{"role": "user", "content": "What is 1 + 2?"}], "max_tokens": 16}
    assert "#### 3" in call(url(port, "/v1/chat/completions"), chat)[1]
    assert counter(pair[0], "standin_transfers_used") == counter(pair[1], "standin_requests") == 3


def test_router_dp_aware_lists_ranks(lab: Lab) -> None:
    master, = free_ports(1)
    worker = lab.worker("-tp", "2", "--enable-dp-attention", ATOM_DP_MASTER_PORT=str(master))
    port = lab.router("--worker-urls", url(worker), "--dp-aware")
    rows = json.loads(call(url(port, "/workers"))[1])
    assert sorted(row["url"] for row in rows["workers"]) == [url(worker) + "@0", url(worker) + "@1"]
    assert call(url(port, "/v1/completions"), {"model": NAME, "prompt": "a", "max_tokens": 2})[0] == 200


@pytest.mark.parametrize("path, body, status, code", [
    ("/v1/completions", {"model": "other", "prompt": "a"}, 503, "model_not_found"),
    ("/v1/completions", {"prompt": "a"}, 422, None),
    ("/v1/completions", {"model": NAME, "prompt": [1, 2]}, 422, None),
    ("/v1/completions", b"{", 400, None),
    ("/v1/chat/completions", {"model": NAME}, 400, "json_parse_error"),
    ("/v1/completions", {"model": NAME, "prompt": "a", "stop": "x"}, 422, "prefill_error"),
    ("/nothing", None, 404, None),
])
def test_router_errors(pd_port: int, path: str, body: Any, status: int, code: str | None) -> None:
    got, text = call(url(pd_port, path), body)
    assert got == status, text
    assert code is None or json.loads(text)["error"]["code"] == code


@pytest.fixture(scope="module")
def pd_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    made = Lab(tmp_path_factory.mktemp("pd"))
    yield made.pd_router(pair=made.pair())
    made.close()


@pytest.mark.parametrize("flags, code", [
    (["--bogus"], 2), (["--port", "1", "--port", "2"], 2), (["--port", "70000"], 2), (["--policy", "best"], 2),
    (["--prefill=http://a:1"], 2), (["--prefill"], 2), (["--max-concurrent-requests", "-1"], 2), (["stray"], 2),
    (["--port", "0"], 1), (["--worker-urls", "node:1"], 1), (["--policy", "power_of_two"], 1),
    (["--prefill", "http://a:1", "0", "--pd-disaggregation"], 1),
])
def test_router_refuses_a_wrong_command_line(lab: Lab, flags: list[str], code: int) -> None:
    assert lab.start([*ROUTER, *flags]).wait(10) == code


def test_router_with_its_metrics_port_taken_panics(lab: Lab) -> None:
    with socket.socket() as held:
        held.bind(("0.0.0.0", 0))
        held.listen()
        process = lab.start([*ROUTER, "--port", "1", "--prometheus-port", str(held.getsockname()[1])])
        assert process.wait(10) == 101


def test_router_needs_a_producer(lab: Lab) -> None:
    agg = lab.worker()
    flags = ["--pd-disaggregation", "--prefill", url(agg), "--decode", url(agg + 1), "--worker-startup-timeout-secs", "1"]
    lab.router(*flags, ready=False)
    assert lab.started[-1].wait(15) == 1
    assert "kv_producer" in lab.log()


def test_router_signals(lab: Lab) -> None:
    lab.router("--worker-urls", url(lab.worker()))
    lab.started[-1].terminate()
    assert lab.started[-1].wait(10) == 0
    lab.router("--worker-urls", url(free_ports(1)[0]), ready=False)
    time.sleep(0.4)
    lab.started[-1].terminate()
    assert lab.started[-1].wait(10) == -signal.SIGTERM


# -- clients -----------------------------------------------------------------------

RANDOM = ["--dataset-name", "random", "--random-input-len", "40", "--random-output-len", "20",
          "--random-range-ratio", "0.8", "--ignore-eos", "--save-result", "--model", NAME]
LATENCIES = {f"{kind}_{metric}_ms" for metric in ("ttft", "tpot", "itl", "e2el") for kind in ("mean", "median", "std")}


def load(lab: Lab, client: list[str], port: int, *flags: str, fault: str = "", **env: str) -> dict[str, Any]:
    argv = [*client, "--base-url", url(port), *RANDOM, "--percentile-metrics", "ttft,tpot,itl,e2el",
            "--num-prompts", "32", "--max-concurrency", "8", "--result-filename", "result.json", *flags]
    code = lab.start(argv, fault, **env).wait(30)
    path = lab.folder / "result.json"
    return {"exit": code} | (json.loads(path.read_text()) if path.exists() else {})


def test_atom_client_measures_real_load(lab: Lab) -> None:
    pair = lab.pair()
    result = load(lab, BENCH, lab.pd_router(pair=pair), "--metadata", "isl=40", "--num_warmups", "4")
    assert result["exit"] == 0, lab.log()
    assert result["completed"] == result["num_prompts"] == 32
    assert 32 * 16 <= result["total_output_tokens"] <= 32 * 20
    assert 32 * 32 <= result["total_input_tokens"] <= 32 * 40
    assert LATENCIES | {f"p99_{m}_ms" for m in ("ttft", "tpot", "itl", "e2el")} <= set(result)
    assert {"date", "backend", "model_id", "request_goodput:", "concurrency", "accept_length", "isl"} <= set(result)
    assert result["request_rate"] == "inf" and result["mean_ttft_ms"] > 0 and result["accept_length"] is None
    assert counter(pair[1], "standin_requests") == 32 + 4


def test_inferencex_client_has_its_own_keys(lab: Lab) -> None:
    flags = ["--backend", "openai", "--request-rate", "inf", "--num-warmups", "2", "--dsv4", "--trust-remote-code"]
    result = load(lab, INFERENCEX, lab.worker(), *flags)
    assert result["exit"] == 0, lab.log()
    assert LATENCIES | {"p90_ttft_ms", "p99_ttft_ms", "p99.9_ttft_ms"} <= set(result)
    assert {"benchmark_start_time_unix", "input_lens", "output_lens"} <= set(result)
    assert len(result["output_lens"]) == 32


def test_clients_differ_when_requests_fail(lab: Lab) -> None:
    fault = "me:fail_ratio=0.5,fail_status=400,fail_after=1"
    assert load(lab, BENCH, lab.worker(fault=fault))["exit"] == 0
    assert load(lab, INFERENCEX, lab.worker(fault=fault))["exit"] == 1


@pytest.mark.parametrize("fault, code", [("me:exit=9", 9), ("m*:nothing", 0), ("other:exit=9;me:exit=137", -9)])
def test_client_faults(lab: Lab, lab_worker: int, fault: str, code: int) -> None:
    assert load(lab, BENCH, lab_worker, fault=fault) == {"exit": code}


def test_client_retries_are_extra_requests(lab: Lab) -> None:
    port = lab.worker()
    result = load(lab, BENCH, port, "--num-warmups", "0", fault="me:retries=5")
    assert result["completed"] == 32
    assert counter(port, "standin_requests") == 37


def test_client_refuses_what_the_real_one_refuses(lab: Lab, lab_worker: int) -> None:
    assert load(lab, BENCH, lab_worker, "--random_input_len", "9")["exit"] == 2
    assert load(lab, BENCH, lab_worker, "--dataset-name", "sharegpt")["exit"] == 1
    assert load(lab, BENCH, lab_worker, "--tokenizer", "/no/such")["exit"] == 1
    assert load(lab, BENCH, lab_worker, http_proxy="http://127.0.0.1:9")["exit"] == 1


# -- faults ------------------------------------------------------------------------


@pytest.mark.parametrize("fault, code", [
    ("me:exit_loading=0", 0), ("me:exit_loading=1", 1), ("me:exit_loading=137", -9),
    ("me:die_after_ready=0.2", 1), ("me:die_after_ready=0.2,die_code=0", 0),
])
def test_worker_that_ends_by_itself(lab: Lab, fault: str, code: int) -> None:
    lab.worker(fault=fault, ready=False)
    assert lab.started[-1].wait(15) == code


def test_worker_that_dies_at_a_request(lab: Lab) -> None:
    port = lab.worker(fault="me:die_at_request=2")
    assert call(url(port, "/v1/completions"), {"prompt": "a", "max_tokens": 1})[0] == 200
    with pytest.raises(OSError):
        call(url(port, "/v1/completions"), {"prompt": "a", "max_tokens": 1})
    assert lab.started[-1].wait(5) == 1


def test_worker_that_hangs_is_still_healthy(lab: Lab) -> None:
    port = lab.worker(fault="me:hang_completions")
    with pytest.raises(OSError):
        call(url(port, "/v1/completions"), {"prompt": "a"}, timeout=0.4)
    assert call(url(port, "/health"))[0] == 200


def test_one_slow_health_answer(lab: Lab) -> None:
    port = lab.worker(fault="me:slow_health=0.6,slow_health_at=2")
    times = []
    for _ in range(2):
        start = time.monotonic()
        call(url(port, "/health"))
        times.append(time.monotonic() - start)
    assert times[0] >= 0.5 > times[1]


def test_stream_faults(lab: Lab) -> None:
    body = {"prompt": "a", "max_tokens": 50, "stream": True}
    frames = events(call(url(lab.worker(fault="me:empty"), "/v1/completions"), body)[1])
    assert frames[-1]["usage"]["completion_tokens"] == 0
    with pytest.raises(OSError):
        call(url(lab.worker(fault="me:stall_stream=5"), "/v1/completions"), body, timeout=0.6)


@pytest.mark.parametrize("fault, answers", [
    ("me:answer_wrong=1", ["#### 4", "#### 4"]), ("me:answer_wrong=0.5", ["#### 3", "#### 4"]), ("me:answer_empty=1", ["", ""]),
])
def test_wrong_and_empty_answers(lab: Lab, fault: str, answers: list[str]) -> None:
    port = lab.worker(fault=fault)
    for wanted in answers:
        reply = json.loads(call(url(port, "/v1/completions"), {"prompt": "What is 1 + 2?", "max_tokens": 16})[1])
        assert reply["choices"][0]["text"].endswith(wanted) and bool(reply["choices"][0]["text"]) == bool(wanted)


def test_names_params_markers_and_terms(lab: Lab) -> None:
    port = lab.worker(fault="me:model_name=else,log_loading=HIP out of memory,ignore_term")
    assert '"id":"else"' in call(url(port, "/v1/models"))[1]
    assert "HIP out of memory" in lab.log()
    lab.started[-1].terminate()
    time.sleep(0.2)
    assert call(url(port, "/health"))[0] == 200
    pair = lab.pair(fault="kv_producer:kv_null")
    body = {"model": NAME, "prompt": "a", "max_tokens": 2}
    status, text = call(url(lab.pd_router("--disable-retries", pair=pair), "/v1/completions"), body)
    assert (status, json.loads(text)["error"]["code"]) == (500, "enrich_decode_kv_failed")


def test_router_faults(lab: Lab) -> None:
    first, second = lab.worker(), lab.worker()
    port = lab.router("--worker-urls", url(first), url(second), fault="me:list_minus_one")
    assert json.loads(call(url(port, "/workers"))[1])["total"] == 1
    lab.router("--worker-urls", url(first), fault="me:die_after_ready=0.1,die_code=3")
    assert lab.started[-1].wait(10) == 3
    lab.router("--worker-urls", url(first), fault="me:exit_loading=4", ready=False)
    assert lab.started[-1].wait(10) == 4


def test_a_misspelt_fault_is_refused(lab: Lab) -> None:
    assert lab.start([*WORKER], "me:die_soon=1").wait(10) == 2


# -- the small ones -------------------------------------------------------------------


def smi(*flags: str, **env: str) -> dict[str, Any]:
    done = subprocess.run(["rocm-smi", *flags, "--json"], env=BASE_ENV | env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_rocm_smi(tmp_path: Path) -> None:
    cards = smi("--showmeminfo", "vram", STANDIN_GPUS="2", STANDIN_GPU_USED_GIB="0.5,9")
    assert [int(card["VRAM Total Used Memory (B)"]) for card in cards.values()] == [2**29, 9 * 2**30]
    (tmp_path / "used").write_text("12")
    cards = smi("--showmeminfo", "vram", STANDIN_GPU_FILE=str(tmp_path / "used"))
    assert len(cards) == 8 and cards["card7"]["VRAM Total Used Memory (B)"] == str(12 * 2**30)
    assert "Device Name" in smi("--showid")["card0"]
    assert subprocess.run(["rocm-smi"], env=BASE_ENV | {"STANDIN_ROCM_SMI": "fail"}, capture_output=True).returncode == 2


def test_recorder_keeps_every_byte(tmp_path: Path) -> None:
    (tmp_path / "atomesh").symlink_to(STANDINS / "recorder")
    env = {"PATH": os.environ["PATH"], "RECORD_DIR": str(tmp_path), "ODD": "a,b\n\"c\" $d"}
    for words in (["launch", "a b", "", "x\ny", "*"], []):
        subprocess.run([tmp_path / "atomesh", *words], env=env, check=True)
    assert (tmp_path / "atomesh.1.argv").read_bytes() == b"launch\0a b\0\0x\ny\0*\0"
    assert (tmp_path / "atomesh.2.argv").read_bytes() == b""
    assert b'ODD=a,b\n"c" $d\0' in (tmp_path / "atomesh.1.env").read_bytes()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the docker stand-in makes namespaces: needs root")


def docker(state: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([f"{STANDINS}/bin/docker", *words], env=BASE_ENV | {"DOCKER_STANDIN_STATE": str(state)} | env,
                          capture_output=True, text=True, check=False, timeout=20)


@needs_root
def test_docker_runs_in_a_root_of_its_own(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "f").write_text("hello\n")
    before = sorted(os.listdir("/dev"))
    done = docker(tmp_path, "run", "--rm", "--network", "host", "--user", "1234:1235", "-e", "X=a,b", "-v",
                  f"{data}:/srtgen:ro", "img:1", "bash", "-c",
                  f'cat /srtgen/f; id -u; echo "$X"; ls {tmp_path} || echo hidden; echo x >/srtgen/f; exit 7')
    assert done.returncode == 7
    assert done.stdout == "hello\n1234\na,b\nhidden\n"
    assert (data / "f").read_text() == "hello\n"
    assert sorted(os.listdir("/dev")) == before
    calls = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert calls[0]["argv"][:2] == ["run", "--rm"]


@needs_root
@pytest.mark.parametrize("words", [
    ["--bogus"], ["-v", "/no/such:/x"], ["-v", "named:/x"], ["--mount", "type=volume,src=/tmp,dst=/x"],
    ["--device", "/dev/no-such"], ["--ulimit", "nofile"], ["--user", "me"],
])
def test_docker_refuses(tmp_path: Path, words: list[str]) -> None:
    assert docker(tmp_path, "run", "--rm", *words, "img", "true").returncode == 125


@needs_root
def test_docker_image_must_be_there(tmp_path: Path) -> None:
    assert docker(tmp_path, "image", "inspect", "rocm/atom:1", DOCKER_STANDIN_IMAGES="rocm/*").returncode == 0
    assert docker(tmp_path, "image", "inspect", "other:1", DOCKER_STANDIN_IMAGES="rocm/*").returncode == 1
    assert docker(tmp_path, "run", "other:1", "true", DOCKER_STANDIN_IMAGES="rocm/*").returncode == 125


@needs_root
def test_docker_container_outlives_its_client_until_removed(tmp_path: Path) -> None:
    env = BASE_ENV | {"DOCKER_STANDIN_STATE": str(tmp_path)}
    argv = [f"{STANDINS}/bin/docker", "run", "--rm", "--name", "one", "--label", "srtgen.job=7", "img", "bash", "-c",
            "trap 'exit 5' TERM; while :; do sleep 0.05; done"]
    client = subprocess.Popen(argv, env=env)
    listed = ["ps", "--filter", "label=srtgen.job=7", "--format", "{{.Names}}"]
    wait_until(lambda: "true" in docker(tmp_path, "inspect", "-f", "{{.State.Running}}", "one").stdout)
    client.kill()
    client.wait()
    time.sleep(0.2)
    assert docker(tmp_path, *listed).stdout == "one\n"
    assert docker(tmp_path, "run", "--name", "one", "img", "true").returncode == 125
    assert docker(tmp_path, "rm", "-f", "one").returncode == 0
    assert docker(tmp_path, *listed).stdout == ""
    assert docker(tmp_path, "rm", "-f", "one").returncode == 1
    client = subprocess.Popen(argv, env=env)
    wait_until(lambda: "true" in docker(tmp_path, "inspect", "-f", "{{.State.Running}}", "one").stdout)
    time.sleep(0.3)
    client.terminate()
    assert client.wait(10) == 5


def wait_until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not check():
        assert time.monotonic() < end
        time.sleep(0.05)


PODMAN_ROOTS = ("--root", "/tmp/standin-podman/test/storage", "--runroot", "/tmp/standin-podman/test/run")


def program(name: str, state: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    prefix = {"podman": "CONTAINERS"}.get(name, name.upper())
    return subprocess.run([f"{STANDINS}/bin/{name}", *words], env=BASE_ENV | {f"{prefix}_STANDIN_STATE": str(state)} | env,
                          capture_output=True, text=True, check=False, timeout=20)


@needs_root
@pytest.mark.parametrize(("roots", "words", "said"), [
    ((), ["ps"], "--root and --runroot must be given"), (PODMAN_ROOTS[:2], ["ps"], "--root and --runroot must be given"),
    ((*PODMAN_ROOTS[:3], "/tmp/standin-podman/test/other"), ["ps"], "database run root"),
    (PODMAN_ROOTS, ["run", "img:1", "true"], "short-name resolution"), (PODMAN_ROOTS, ["run", "--bogus", "docker.io/a/b", "true"], "--bogus"),
    (PODMAN_ROOTS, ["run", "--userns", "keep-id", "docker.io/a/b", "true"], "keep-id is only supported in rootless mode"),
    (PODMAN_ROOTS, ["run", "--group-add", "keep-groups", "--group-add", "1", "docker.io/a/b", "true"], "not allowed with any other"),
    (PODMAN_ROOTS, ["run", "-v", "/no/such:/x", "docker.io/a/b", "true"], "does not exist")])
def test_podman_refuses(roots: tuple[str, ...], words: list[str], said: str, tmp_path: Path) -> None:
    assert program("podman", tmp_path, *PODMAN_ROOTS, "ps").returncode == 0
    done = program("podman", tmp_path, *roots, *words)
    assert done.returncode == 125 and said in done.stderr


@needs_root
def test_apptainer_runs_in_a_root_of_its_own(tmp_path: Path) -> None:
    """Against apptainer 1.3.6: the same command line gave the same lines."""
    (tmp_path / "work").mkdir()
    (tmp_path / "f").write_text("hello\n")
    before = sorted(os.listdir("/dev"))
    text = 'cat /srtgen/f; printf "[%s]" "$ODD" "${LEAK:-none}" "$PWD" "$TERM"; echo x >/tmp/t; ls /tmp; exit 7'
    odd = 'a,b=c\n"d" $HOME `id` \\e'
    done = program("apptainer", tmp_path / "state", "exec", "--contain", "--cleanenv", "--no-eval", "--no-home", "--pid", "--pwd", "/",
                   "--workdir", f"{tmp_path}/work", "--bind", f"{tmp_path}:/srtgen:ro", "--writable-tmpfs", "docker://a/b:1",
                   "bash", "-c", text, APPTAINERENV_ODD=odd, LEAK="leaks", TERM="dumb")
    assert (done.returncode, done.stdout) == (7, f"hello\n[{odd}][none][/][dumb]t\n"), done.stderr
    assert (tmp_path / "work" / "tmp" / "t").exists()
    assert sorted(os.listdir("/dev")) == before
    evaluated = program("apptainer", tmp_path / "state", "exec", "docker://a/b:1", "sh", "-c", "echo $X", APPTAINERENV_X="$((1 + 1))")
    assert evaluated.stdout == "2\n"


@needs_root
@pytest.mark.parametrize(("words", "code", "said"), [
    (["exec", "--bogus", "docker://a/b", "true"], 1, "--bogus"), (["exec", "/no/such.sif", "true"], 255, "no such file"),
    (["exec", "a/b:1", "true"], 255, "no such file"), (["exec", "/etc/passwd", "true"], 255, "image format not recognized"),
    (["exec", "--bind", "/no/such:/x", "docker://a/b", "true"], 255, "doesn't exist"),
    (["exec", "--mount", "type=bind,source=/no/such,destination=/x", "docker://a/b", "true"], 255, "doesn't exist"),
    (["exec", "--mount", "type=tmpfs,destination=/x", "docker://a/b", "true"], 255, "invalid mount specification"),
    (["exec", "--bind", "/tmp:/x:readonly", "docker://a/b", "true"], 255, "not a valid mount option"),
    (["exec", "--contain", "--workdir", "/no/such", "docker://a/b", "true"], 255, "unable to specify workdir"),
    (["build", "/etc/passwd", "docker://a/b"], 255, "already exists"), (["run", "docker://a/b"], 255, "unknown command")])
def test_apptainer_refuses(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    done = program("apptainer", tmp_path, *words)
    assert done.returncode == code and said in done.stderr


@pytest.mark.parametrize(("words", "env", "said"), [
    (["import", "-o", "{}/x.sqsh", "docker://a/b:1"], {}, ""), (["import", "-o", "{}/x.sqsh", "docker://a/b:1"], {"ENROOT_TEMP_PATH": ""}, "ENROOT_TEMP_PATH"),
    (["import", "-o", "/etc/passwd", "docker://a/b:1"], {}, "File already exists"), (["import", "--bogus", "x", "docker://a/b"], {}, "Invalid argument"),
    (["import", "-o", "{}/x.sqsh", "docker://a/b:1"], {"ENROOT_STANDIN_IMAGES": "other"}, "404 Not Found")])
def test_enroot(words: list[str], env: dict[str, str], said: str, tmp_path: Path) -> None:
    own = {"ENROOT_TEMP_PATH": str(tmp_path), "ENROOT_RUNTIME_PATH": f"{tmp_path}/run", **env}
    done = program("enroot", tmp_path / "state", *(word.format(tmp_path) for word in words), **own)
    assert (done.returncode != 0) == bool(said) and said in done.stderr
    assert (tmp_path / "x.sqsh").exists() == (not said)
