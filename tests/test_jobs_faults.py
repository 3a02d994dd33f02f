"""Every fault of a component: the job ends in time, with the right code and reason, and leaves nothing behind."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from jobs_rig import AGGREGATE, PAIR, Live, Outcome, Scenario
from jobs_runner import check, on

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("faults")]

# A benchmark that lasts: 16 requests of 8 tokens, one after the other.
SLOW_TOKENS = "decode_0:tpot_s=0.25"
SOON = ("health_check.max_attempts=6",)


def in_phase_load(live: Live) -> None:
    live.phase("load")
    live.logged("atomesh_0", "waiting for the workers")


def take_router_port(live: Live) -> None:
    in_phase_load(live)
    live.occupy(live.nodes[0], 8000)


def take_metrics_port(live: Live) -> None:
    in_phase_load(live)
    live.occupy(live.nodes[0], 29000)


def leave_old_result(live: Live) -> None:
    """What an older job measured lies where this one's first point is to be written."""
    in_phase_load(live)
    point = live.manifest()["recipe"]["benchmark"]
    assert point["concurrencies"] == [2]
    (live.results / "bench" / "c2.json").write_text('{"completed": 16}')


def lower_descriptors(live: Live) -> None:
    """As on a node whose slurmd was started with a low limit: no process below it can raise its own."""
    live.cluster.restart_limited(live.nodes[0], 1000)
    live.undo.append(lambda: live.cluster.restart_limited(live.nodes[0], None))


def kill_step_daemon(live: Live) -> None:
    """kill -9 to the decode worker's slurmstepd while the client is at work."""
    live.phase("bench")
    worker = live.pids(live.nodes[1], "atom.entrypoints.openai_server")
    assert worker
    live.notes["killed"] = step_daemon_of(live, worker[0])
    live.cluster.node("exec", live.nodes[1], "kill", "-9", str(live.notes["killed"]))


def kill_step_daemon_and_task(live: Live) -> None:
    live.phase("bench")
    worker = live.pids(live.nodes[1], "atom.entrypoints.openai_server")
    daemon = step_daemon_of(live, worker[0])
    live.cluster.node("exec", live.nodes[1], "kill", "-9", str(daemon), *map(str, worker))


def kill_clients_step_daemon(live: Live) -> None:
    live.phase("bench")
    time.sleep(7)  # its heartbeat is first looked at after 5 s; what was never seen may only be late
    client = live.until("the client", lambda: live.pids(live.nodes[0], "atom.benchmarks.benchmark_serving"))
    live.cluster.node("exec", live.nodes[0], "kill", "-9", str(step_daemon_of(live, client[0])))


def step_daemon_of(live: Live, pid: int) -> int:
    """The slurmstepd that is an ancestor of a task."""
    while pid > 1:
        stat = Path(f"/proc/{pid}/stat").read_text()
        if "slurmstepd" in stat.split("(")[1].split(")")[0]:
            return pid
        pid = int(stat.rpartition(") ")[2].split()[1])
    raise AssertionError("the task has no slurmstepd above it")


LOADING = [
    Scenario(f"exits-{code}-loading", 11, f"decode_0 on {{node}} ended with exit code {code}", "load", "decode_0",
             fault=f"decode_0:exit_loading={code}") for code in (0, 1, 137)
] + [
    Scenario("hangs-loading", 12, "not ready after 6 s: prefill_0 on {node} (connection refused", "load", "prefill_0",
             sets=SOON, fault="prefill_0:hang_loading", waits=True),
    Scenario("fatal-marker", 11, "decode_0 on {node} logged: torch.OutOfMemoryError: HIP out of memory", "load", "decode_0",
             fault="decode_0:hang_loading,log_loading=torch.OutOfMemoryError: HIP out of memory", waits=True),
    Scenario("fatal-pattern", 11, "prefill_0 on {node} logged: RCCL watchdog gave up on rank 3", "load", "prefill_0",
             sets=("health_check.extra_fatal_log_patterns=['watchdog gave up on rank [0-9]+']",),
             fault="prefill_0:hang_loading,log_loading=RCCL watchdog gave up on rank 3", waits=True),
    Scenario("marker-switched-off", sets=("health_check.fatal_log_markers=[]",),
             fault="decode_0:log_loading=OutOfMemoryError in a test of the kernel"),
    Scenario("dies-after-ready", 11, "prefill_0 on {node} ended with exit code 1 in phase router", "router", "prefill_0",
             fault="prefill_0:die_after_ready=3;atomesh_0:load_s=9"),
]
ROUTER = [
    Scenario("router-port-taken", 13, "atomesh_0 on {node} ended with exit code 1", "router", "atomesh_0",
             fault="*:load_s=5", act=take_router_port),
    Scenario("metrics-port-taken", 13, "atomesh_0 on {node} ended with exit code 101", "router", "atomesh_0",
             fault="*:load_s=5", act=take_metrics_port),
    Scenario("router-exits", 13, "atomesh_0 on {node} ended with exit code 1 in phase router", "router", "atomesh_0",
             fault="atomesh_0:exit_loading=1"),
    Scenario("router-ends-with-0", 13, "atomesh_0 on {node} ended with exit code 0 in phase router", "router", "atomesh_0",
             fault="atomesh_0:exit_loading=0"),
    Scenario("router-dies-benchmarking", 13, "atomesh_0 on {node} ended with exit code 1 in phase bench", "bench", "atomesh_0",
             fault="atomesh_0:die_at_request=8"),
    Scenario("router-lists-one-less", 13, "it lists http://", "router", "atomesh_0", recipe=AGGREGATE,
             env={"SRTGEN_ROUTER_SETTLE_S": "3"}, fault="atomesh_0:list_minus_one"),
    Scenario("router-never-opens", 13, "is not as planned: ", "router", "atomesh_0",
             env={"SRTGEN_ROUTER_DEADLINE_S": "4"}, fault="atomesh_0:hang_loading", waits=True),
    Scenario("wrong-model-name", 13, "serves the model 'other/model', not 'Qwen/Qwen3-0.6B'", "router", "atomesh_0",
             env={"SRTGEN_ROUTER_SETTLE_S": "3"}, fault="*_0:model_name=other/model", recipe=PAIR, nodes=2),
    Scenario("two-model-names", 13, "serves the model 'Qwen/Qwen3-0.6B-prefill', not 'Qwen/Qwen3-0.6B'", "router", "atomesh_0",
             env={"SRTGEN_ROUTER_SETTLE_S": "3"}, fault="prefill_0:model_name=Qwen/Qwen3-0.6B-prefill"),
    Scenario("prefill-is-no-producer", 13, "atomesh_0 on {node} ended with exit code 1 in phase router", "router",
             "atomesh_0", fault="prefill_0:kv_role=null"),
]
CANARY = [
    Scenario("hangs-on-completions", 14, "canary: prefill_0 -> decode_0: the decode half (decode_0) or the KV transfer failed",
             "canary", "decode_0", env={"SRTGEN_CANARY_DEADLINE_S": "4"}, fault="decode_0:hang_completions", waits=True),
    Scenario("prefill-hangs-on-completions", 14, "canary: prefill_0 -> decode_0: the prefill half (prefill_0) failed",
             "canary", "prefill_0", env={"SRTGEN_CANARY_DEADLINE_S": "4"}, fault="prefill_0:hang_completions", waits=True),
    Scenario("null-kv-params", 14, "the prefill half (prefill_0) failed: its answer has no kv_transfer_params (None)",
             "canary", "prefill_0", fault="prefill_0:kv_null"),
    Scenario("empty-completions", 14, "the decode half (decode_0) or the KV transfer failed: the completion has no tokens",
             "canary", "decode_0", fault="decode_0:empty"),
    Scenario("router-hangs-on-completions", 14, "canary: the completion through the router failed", "canary", "",
             env={"SRTGEN_CANARY_DEADLINE_S": "4"}, fault="atomesh_0:hang_completions", waits=True),
    Scenario("tcp-asked-rdma-installed", 14, "transport: ", "router", "decode_0", fault="decode_0:transport=rdma"),
]
BENCH = [
    Scenario("decode-dies-benchmarking", 11, "decode_0 on {node} ended with exit code 137 (signal 9) in phase bench", "bench",
             "decode_0", fault="decode_0:die_at_request=8,die_code=137,tpot_s=0.05"),
    Scenario("prefill-dies-benchmarking", 11, "prefill_0 on {node} ended with exit code 1 in phase bench", "bench",
             "prefill_0", fault="prefill_0:die_at_request=8;" + SLOW_TOKENS),
    Scenario("decode-ends-with-0-benchmarking", 11, "decode_0 on {node} ended with exit code 0 in phase bench", "bench",
             "decode_0", fault="decode_0:die_at_request=8,die_code=0"),
    Scenario("client-fails", 20, "benchmark: ", "bench", "bench", fault="bench:exit=3"),
    Scenario("client-writes-nothing", 21, "the client wrote no result file", "bench", "bench", fault="bench:nothing"),
    Scenario("client-hangs", 20, "benchmark: ", "bench", "bench", sets=("benchmark.stall_timeout_s=3",), fault="bench:hang",
             waits=True),
    Scenario("requests-fail", 21, "benchmark: ", "bench", "bench",
             fault="atomesh_0:fail_ratio=0.3,fail_after=6,fail_status=400"),
    Scenario("zero-tokens", 21, "benchmark: point c2 (1 of 1): 0 output tokens", "bench", "bench", fault="decode_0:empty,empty_after=7"),
    Scenario("half-the-requests-fail", 21, "benchmark: point c2 (1 of 1): 10 of 20 requests failed", "bench", "bench",
             fault="atomesh_0:fail_ratio=0.5,fail_after=6,fail_status=400"),
    Scenario("hung-stream", 20, "benchmark: point c2 (1 of 1): not one request finished for ", "bench", "bench", waits=True,
             sets=("benchmark.stall_timeout_s=3",), fault="decode_0:stall_stream=3,stall_stream_after=10"),
    Scenario("retrying-router", 21, "requests were retried", "bench", "bench", 
             fault="decode_0:fail_ratio=0.3,fail_after=7,fail_status=500"),
    Scenario("old-result", 21, "c2.json exists before the point ran", "bench", "bench", fault="bench:nothing",
             act=leave_old_result),
    Scenario("few-descriptors", 10, "preflight: limits on {node}: at most 1000 open files, 4096 are needed", "preflight",
             prepare=lower_descriptors),
    Scenario("one-slow-health-answer", fault="decode_0:slow_health=8,slow_health_at=3,tpot_s=0.2", seconds=90, waits=True),
]
STEPD = [
    Scenario("slurmstepd-killed", 11, "decode_0", "bench", recipe=PAIR, nodes=2, fault="decode_0:tpot_s=1",
             act=kill_step_daemon, seconds=100, waits=True),
    Scenario("slurmstepd-and-task-killed", 11, "decode_0 on {node1} does not answer any more", "bench", "decode_0",
             recipe=PAIR, nodes=2, fault="decode_0:tpot_s=1", act=kill_step_daemon_and_task, seconds=100, waits=True),
    Scenario("clients-slurmstepd-killed", 11, "bench on {node} shows no sign of life for 5 s", "bench", "bench", recipe=PAIR, nodes=2,
             fault="decode_0:tpot_s=0.5", act=kill_clients_step_daemon, seconds=100, waits=True),
]
TEARDOWN = [
    Scenario("ignores-term", fault="*_0:ignore_term", env={"SRTGEN_GRACE_S": "3"}, seconds=90, waits=True),
]


@on(*LOADING, *ROUTER, *CANARY, *BENCH, *STEPD, *TEARDOWN)
def test_fault(outcome: Outcome) -> None:
    check(outcome)


@on(*LOADING[:3])
def test_the_end_of_the_culprits_log_is_shown(outcome: Outcome) -> None:
    """A code above 128 is a signal; what the worker said last stands in result.json and in the job's output."""
    failed = outcome.result["failed"]
    assert failed["exit_code"] == outcome.live.scenario.code or failed["exit_code"] in (0, 1, 137)
    assert failed["node"] == outcome.live.nodes[0]
    assert any("Loading Qwen/Qwen3-0.6B" in line for line in failed["tail"])
    assert re.search(r"  decode_0: .*Loading Qwen/Qwen3-0.6B", outcome.output)


@on(*LOADING[:3])
def test_an_early_end_is_noticed_at_once(outcome: Outcome) -> None:
    assert outcome.lasted("load") < 15  # its deadline is 60


@on(*(row for row in BENCH if "dies-benchmarking" in row.name))
def test_the_client_stops_with_the_system(outcome: Outcome) -> None:
    assert "benchmark passed" not in outcome.log("bench")
    assert outcome.lasted("teardown") < 15
