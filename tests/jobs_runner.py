"""Runs the scenarios of a group side by side on one shared cluster, so that their waiting time overlaps.

A group is an xdist group: `pytest -n 2 --dist loadgroup` gives each group a process and a cluster of its own. The
jobs start when the group's first test asks; each test then waits for its own.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest
from jobs_rig import Live, Outcome, Scenario, run
from slurm_cluster import SlurmCluster, require_slurm

NODES = 10
CAPACITY = 6  # of the processor: a job that mostly waits takes 1, another one 2
OUTCOME_S = 900.0


class Runner:
    """One cluster, the scenarios that run on it, and their outcomes."""

    def __init__(self, folder: Path, scenarios: Sequence[Scenario], settings: Mapping[str, str]) -> None:
        self.cluster = SlurmCluster(NODES, settings=settings).start()
        self.folder = folder
        self.free = list(self.cluster.nodes)
        self.busy = 0
        self.stopped = False
        self.changed = threading.Condition()
        self.futures: dict[str, Future[Outcome]] = {}
        unique = {scenario.name: scenario for scenario in scenarios}
        # The long waits first: they overlap with everything else.
        self.order = sorted(unique.values(), key=lambda scenario: not scenario.waits)
        for scenario in self.order:
            self.futures[scenario.name] = Future()
        threading.Thread(target=self.dispatch, daemon=True).start()

    def outcome(self, scenario: Scenario) -> Outcome:
        return self.futures[scenario.name].result(OUTCOME_S)

    def dispatch(self) -> None:
        """Starts each scenario as soon as there are nodes for it, in order."""
        for scenario in self.order:
            nodes = self.take(scenario)
            if self.stopped:
                return
            threading.Thread(target=self.job, args=(scenario, nodes), daemon=True).start()

    def take(self, scenario: Scenario) -> list[str]:
        """Nodes for a scenario; waits for them, and for a place among the busy jobs."""
        weight = weight_of(scenario)
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or (
                len(self.free) >= scenario.nodes and self.busy + weight <= CAPACITY))
            self.busy += weight
            nodes, self.free = self.free[:scenario.nodes], self.free[scenario.nodes:]
            return nodes

    def job(self, scenario: Scenario, nodes: list[str]) -> None:
        live = Live(scenario, self.cluster, nodes, self.folder / scenario.name)
        try:
            self.futures[scenario.name].set_result(run(live, self.folder / "bundles"))
        except BaseException as error:  # the test that waits for it must see it
            self.futures[scenario.name].set_exception(error)
        with self.changed:
            self.busy -= weight_of(scenario)
            self.free = sorted(self.free + nodes)
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        self.cluster.stop()


def weight_of(scenario: Scenario) -> int:
    return 1 if scenario.waits else 2


_runners: dict[str, Runner] = {}
# A site's WaitTime ends a step 2 s after its first task, unless the step says otherwise.
SETTINGS: dict[str, dict[str, str]] = {"jobs": {"SLURM_LOCAL_CONF": "WaitTime=2"}}


def group_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return str(marker.kwargs.get("name") or marker.args[0]) if marker else ""


def runner_for(request: pytest.FixtureRequest) -> Runner:
    """The runner of a test's group, started with all scenarios that the selected tests of the group need."""
    require_slurm()
    group = group_of(request.node)
    if "PYTEST_XDIST_WORKER" in os.environ and not request.node.nodeid.endswith(f"@{group}"):
        # Right, but slow: each process starts a cluster and all of the group's jobs.
        warnings.warn("xdist does not keep groups together: it needs --dist loadgroup, and xdist 3.8 a pytest before 9.2",
                      stacklevel=1)
    if group not in _runners:
        wanted = []
        for item in request.session.items:
            callspec = getattr(item, "callspec", None)
            if callspec and group_of(item) == group and isinstance(callspec.params.get("scenario"), Scenario):
                wanted.append(callspec.params["scenario"])
        factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        folder = factory.mktemp(group)
        (folder / "bundles").mkdir()
        _runners[group] = Runner(folder, wanted, SETTINGS.get(group, {}))
        request.config.add_cleanup(_runners[group].close)
    return _runners[group]


@pytest.fixture
def outcome(request: pytest.FixtureRequest, scenario: Scenario) -> Outcome:
    """The end of the scenario that the test is parametrized with."""
    return runner_for(request).outcome(scenario)


def on(*scenarios: Scenario) -> pytest.MarkDecorator:
    """Parametrizes a test with scenarios."""
    return pytest.mark.parametrize("scenario", scenarios, ids=str)


def check(outcome: Outcome) -> None:
    """What every scenario's row promises: code, state, reason, phase, culprit, time, and nothing left."""
    scenario, result = outcome.live.scenario, outcome.result
    shown = outcome.output[-1500:]
    assert (outcome.state, outcome.exit_code) == (scenario.slurm_state, scenario.code), shown
    assert result["schema"] == "srtgen/result/1"
    assert result["phase"] == "done"
    assert (result["verdict"], result["exit_code"]) == ("failed" if scenario.code else "passed", scenario.code), shown
    names = {"node": outcome.live.nodes[0], "node1": outcome.live.nodes[-1]}
    assert scenario.reason.format(**names) in result["reason"], shown
    if scenario.phase:
        assert result["phases"][-3]["name"] == scenario.phase, result["phases"]
    if scenario.step:
        assert result["failed"] is not None, shown
        assert result["failed"]["step"] == scenario.step
        assert Path(result["failed"]["log"]).name == f"{scenario.step}.log"
    assert outcome.seconds <= scenario.seconds, shown
    assert outcome.left == {}, shown
    assert set(outcome.files) <= set(scenario.keeps), shown
    assert f"verdict: {result['verdict']} ({scenario.code})" in outcome.output
