"""Cancelled, out of time, or without a node: in each phase the job says so and leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from jobs_rig import PAIR, Live, Outcome, Scenario
from jobs_runner import check, on

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("faults")]

# What keeps a job in each phase for as long as it takes.
KEPT: dict[str, dict[str, Any]] = {
    "preflight": {"sets": ("gpu_drain_timeout_s=300",), "env": {"STANDIN_GPU_USED_GIB": "60"}},
    "load": {"fault": "decode_0:hang_loading", "sets": ("health_check.max_attempts=300",)},
    "router": {"fault": "atomesh_0:hang_loading"},
    "canary": {"fault": "decode_0:hang_completions"},
    "bench": {"fault": "bench:hang"},
}
WHO: dict[str, tuple[str, ...]] = {"cancel": (), "cancel-batch": ("--batch", "--signal=TERM")}


def in_phase(phase: str, live: Live) -> None:
    live.phase(phase)
    if phase == "load":
        live.logged("prefill_0", "Loading")
    time.sleep(1.5)


def cancelled(phase: str, who: str) -> Scenario:
    def act(live: Live) -> None:
        in_phase(phase, live)
        live.scancel(*WHO[who])

    # After scancel Slurm kills what is left after KillWait, 5 s here; its state is CANCELLED only then.
    return Scenario(f"{who}-{phase}", 143, f"cancelled in phase {phase}", phase, waits=True, act=act,
                    state="FAILED" if who == "cancel-batch" else "CANCELLED", **KEPT[phase])


def out_of_time(phase: str) -> Scenario:
    """Slurm looks every 30 s, and then is within the lead of the signal (270 s of 45 minutes)."""
    def act(live: Live) -> None:
        in_phase(phase, live)
        live.cluster.run(["scontrol", "update", f"jobid={live.job}", "TimeLimit=3"])

    return Scenario(f"time-limit-{phase}", 124, f"the time limit is near, in phase {phase}", phase, waits=True,
                    act=act, seconds=120, **KEPT[phase])


CANCELLED = [cancelled(phase, who) for who in WHO for phase in KEPT]
OUT_OF_TIME = [out_of_time(phase) for phase in KEPT]


def during_teardown(*options: str, times: int = 1) -> Callable[[Live], None]:
    def act(live: Live) -> None:
        live.phase("teardown")
        for _ in range(times):
            time.sleep(0.5)
            live.scancel(*options)
    return act


STUBBORN: dict[str, Any] = {"fault": "*_0:ignore_term", "env": {"SRTGEN_GRACE_S": "6"}}
# What had already passed stays passed: the signal came when nothing was left to lose.
TEARDOWN = [
    Scenario("term-twice-teardown", act=during_teardown("--batch", "--signal=TERM", times=2), waits=True,
             **STUBBORN),
    Scenario("cancel-teardown", state="CANCELLED", act=during_teardown(), waits=True, **STUBBORN),
]


def term_twice(live: Live) -> None:
    in_phase("load", live)
    live.scancel("--batch", "--signal=TERM")
    time.sleep(0.3)
    live.scancel("--batch", "--signal=TERM")


def cancel_twice(live: Live) -> None:
    in_phase("bench", live)
    live.scancel()
    time.sleep(0.3)
    live.scancel()


TWICE = [
    Scenario("term-twice", 143, "cancelled in phase load", "load", waits=True, act=term_twice, fault="decode_0:hang_loading"),
    Scenario("cancel-twice", 143, "cancelled in phase bench", "bench", waits=True, act=cancel_twice, state="CANCELLED",
             fault="bench:hang"),
    Scenario("cancel-stubborn", 143, "cancelled in phase load", "load", waits=True, state="CANCELLED", seconds=40,
             act=CANCELLED[1].act, fault="*_0:ignore_term;decode_0:hang_loading"),
    Scenario("real-time-limit", 124, "the time limit is reached, in phase load", "load", state="TIMEOUT", waits=True,
             args=("--time=1", "--signal=B:URG@0"), seconds=120, fault="decode_0:hang_loading", sets=("health_check.max_attempts=300",)),
]


@on(*CANCELLED, *OUT_OF_TIME, *TEARDOWN, *TWICE)
def test_signal(outcome: Outcome) -> None:
    check(outcome)


@on(*(row for row in CANCELLED if "load" in row.name), *(row for row in OUT_OF_TIME if "bench" in row.name))
def test_results_are_kept(outcome: Outcome) -> None:
    folder = outcome.live.results
    assert "Loading" in outcome.log("prefill_0")
    assert (folder / "job.log").read_text().rstrip().endswith(f"results: {folder}")
    assert outcome.result["nodes"]


# -- nodes ------------------------------------------------------------------


def revive(live: Live, node: str, *actions: str) -> None:
    """The node comes back, before the scenario's nodes are looked at and given to another one."""
    live.cluster.wait(live.job, 120)
    for action in actions:
        live.cluster.node(action, node)
    end = time.monotonic() + 90
    while live.cluster.run(["sinfo", "-h", "-n", node, "-o", "%T"]).stdout.strip() != "idle":
        assert time.monotonic() < end, f"{node} does not come back"
        time.sleep(0.5)


def node_fault(phase: str, action: str, index: int) -> Callable[[Live], None]:
    def act(live: Live) -> None:
        in_phase(phase, live)
        if index == 0:
            live.notes["last"] = live.result()
        live.cluster.node(action, live.nodes[index])
        revive(live, live.nodes[index], "join" if action == "cut" else "start")
    return act


BUSY: dict[str, Any] = {"fault": "decode_0:tpot_s=1", "recipe": PAIR, "nodes": 2, "waits": True, "seconds": 120.0}
LOST = [
    Scenario("node-crash-bench", 11, "{node1}", "bench", state="NODE_FAIL", act=node_fault("bench", "crash", 1),
             keeps=("decode_0",), **BUSY),
    Scenario("node-cut-bench", 11, "{node1}", "bench", state="NODE_FAIL", act=node_fault("bench", "cut", 1),
             keeps=("decode_0",), **BUSY),
    Scenario("node-crash-load", 11, "node {node1} died", "load", state="NODE_FAIL", recipe=PAIR, nodes=2, waits=True,
             fault="decode_0:hang_loading", act=node_fault("load", "crash", 1), seconds=120,
             keeps=("decode_0",)),
]
GONE = [
    Scenario("batch-node-crash", 0, state="NODE_FAIL", act=node_fault("bench", "crash", 0), **BUSY),
]


@on(*LOST)
def test_a_node_is_lost(outcome: Outcome) -> None:
    if outcome.state == "FAILED":  # the job noticed before Slurm did
        assert outcome.exit_code == 11
        outcome.state = "NODE_FAIL"
    else:  # Slurm 24 gives such a job a code of its own; the job's is in result.json, where check looks too
        outcome.exit_code = 11
    check(outcome)


@on(*GONE)
def test_the_batch_node_is_lost(outcome: Outcome) -> None:
    """Nobody is left to write a verdict: Slurm says it, and result.json keeps the phase it was in."""
    assert outcome.state == "NODE_FAIL"
    assert (outcome.result["phase"], outcome.result["verdict"]) == ("bench", "running")
    assert outcome.result == outcome.live.notes["last"]
    assert outcome.left == {}
