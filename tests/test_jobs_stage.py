"""What is brought onto the nodes before the load: its step, its failures, and that nothing of it stays."""

from __future__ import annotations

import os
import signal

import pytest
from jobs_rig import PAIR, Live, Outcome, Scenario
from jobs_runner import check, on
from test_jobs_signals import revive

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("jobs")]


def staged(command: str, limit: int = 60) -> dict[str, object]:
    """A bundle whose one staging step runs a shell command on every worker's node."""
    def edit(live: Live) -> None:
        path = live.bundle / "lib" / "stage.sh"
        path.write_text(path.read_text().replace("\nstage_all() {\n", f"""
stage_all() {{
  worker_hosts
  stage_step probe {limit} "${{REPLY}}" bash -c '{command}'
""", 1).replace("STAGE_PROGRESS_S=30", "STAGE_PROGRESS_S=2"))

    return {"prepare": edit, "own_bundle": True, "recipe": PAIR, "nodes": 2}


STUBBORN = 'trap "" TERM; echo copying; if [[ "${SLURM_PROCID}" == 1 ]]; then echo "no room for 3 GiB"; exit 4; fi; sleep 300 & wait; wait; sleep 300'
STEP = [
    Scenario("stage-step", **staged('echo "on ${SLURMD_NODENAME}"; sleep 5')),
    Scenario("stage-step-fails", 10, "probe on {node1}: no room for 3 GiB", "preflight", "probe", **staged(STUBBORN)),
    Scenario("stage-step-late", 10, "probe: not done after 4 s: {node}: copying; {node1}: copying", "preflight", "probe",
             **staged("echo copying; sleep 300", 4)),
    Scenario("stage-step-killed", 10, 'probe on {node}: Killed after "copying"', "preflight", "probe",
             **staged('echo copying; [[ "${SLURM_PROCID}" == 1 ]] || { sleep 1; kill -KILL "$$"; }; sleep 300')),
    Scenario("stage-step-no-command", 10, " exec: nosuchcommand: not found", "preflight", "probe", **staged("exec nosuchcommand")),
]


def kill_srun(live: Live) -> None:
    live.logged("probe", "copying")
    for pid in live.pids(live.nodes[0], "--job-name=probe"):
        os.kill(pid, signal.SIGKILL)


def crash(live: Live) -> None:
    live.logged("probe", "copying")
    live.cluster.node("crash", live.nodes[1])
    revive(live, live.nodes[1], "start")


def cancel(live: Live) -> None:
    live.logged("probe", "copying")
    live.scancel(*(["--signal=USR1", "--batch"] if "limit" in live.scenario.name else []))


STEP += [
    Scenario("stage-step-srun-killed", 10, "probe: srun ended with exit code 137 (signal 9)", "preflight", "probe", act=kill_srun,
             **staged("echo copying; sleep 300")),
    Scenario("stage-step-cancelled", 143, "cancelled in phase preflight", "preflight", state="CANCELLED", act=cancel,
             **staged("echo copying; sleep 300")),
    Scenario("stage-step-limit", 124, "the time limit is near, in phase preflight", "preflight", act=cancel,
             **staged("echo copying; sleep 300")),
]
LOST = Scenario("stage-step-node-dies", 11, "node {node1} died", "preflight", state="NODE_FAIL", act=crash, waits=True, seconds=120,
                **staged("echo copying; sleep 300", 200))


@on(LOST)
def test_a_node_is_lost(outcome: Outcome) -> None:
    """srun itself ends with 0 then."""
    if outcome.state == "FAILED":  # the job noticed before Slurm did
        outcome.state = "NODE_FAIL"
    check(outcome)


@on(*STEP)
def test_step(outcome: Outcome) -> None:
    check(outcome)


@on(STEP[0])
def test_a_step_shows_its_progress(outcome: Outcome) -> None:
    first, second = outcome.live.nodes
    assert f" s, {first}: on {first}; {second}: on {second}\n" in outcome.output
    assert "probe: done after " in outcome.output
    assert outcome.log("probe").splitlines()[:2] == [f"srtgen: task 0 is on {first}", f"srtgen: task 1 is on {second}"]
