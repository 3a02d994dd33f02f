"""Jobs that must pass: every topology, every runtime, tokens from decode through the router, nothing left behind."""

from __future__ import annotations

import csv
import json
import re

import pytest
from jobs_rig import AGGREGATE, DSV4, PAIR, SHARED, Outcome, Scenario
from jobs_runner import check, on
from slurm_cluster import STANDINS

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("jobs")]

CLIENT = f"benchmark.client_path={STANDINS}/inferencex/utils/bench_serving/benchmark_serving.py"
SWEEP = ("benchmark.concurrencies=[1,3]",)
NODES = {PAIR: 2, DSV4: 3, SHARED: 1, AGGREGATE: 1}
SHORT = {PAIR: "1p1d", DSV4: "2p1d-dpa", SHARED: "shared-node", AGGREGATE: "aggregate"}


def green(recipe: str, profile: str) -> Scenario:
    """The DSv4 recipe keeps its RDMA, which this machine has not: an operator would skip these two checks."""
    name = f"green-{SHORT[recipe]}-{profile}"
    if recipe != DSV4:
        return Scenario(name, recipe=recipe, profile=profile, nodes=NODES[recipe], sets=SWEEP)
    return Scenario(name, recipe=recipe, profile=profile, nodes=3, sets=(*SWEEP, CLIENT),
                    env={"SRTGEN_SKIP_CHECKS": "rdma limits"})


GREEN = [green(recipe, profile) for recipe in (PAIR, DSV4, SHARED, AGGREGATE) for profile in ("none", "pyxis", "docker")]
GREEN += [green(PAIR, profile) for profile in ("podman", "apptainer")]


@on(*GREEN)
def test_green(outcome: Outcome) -> None:
    check(outcome)
    result = outcome.result
    assert result["reason"] == "passed"
    assert result["failed"] is None
    assert result["bench"] == {"points": 2, "valid": 2}
    assert result["bundle_modified"] == []
    assert result["checks_skipped"] == outcome.live.scenario.env.get("SRTGEN_SKIP_CHECKS", "").split()
    names = [row["name"] for row in result["phases"]]
    assert names == "start preflight load router canary bench teardown done".split()
    assert [row["host"] for row in result["nodes"]] == outcome.live.nodes
    assert [row["address"] for row in result["nodes"]] == [outcome.live.cluster.address(n) for n in outcome.live.nodes]


@on(*GREEN)
def test_the_client_saw_tokens_from_decode_through_the_router(outcome: Outcome) -> None:
    folder = outcome.live.results / "bench"
    rows = list(csv.DictReader((folder / "summary.csv").open()))
    assert [row["concurrency"] for row in rows] == ["1", "3"]
    asked = 0
    for row in rows:
        raw = json.loads((folder / row["raw"]).read_text())
        assert raw["completed"] == int(row["num_prompts"]) and raw["total_output_tokens"] > raw["completed"]
        asked += raw["completed"]
    manifest = json.loads((outcome.live.results / "manifest.json").read_text())
    servers = [process["step"] for process in manifest["processes"] if process["role"] in ("prefill", "decode", "agg")]
    finals = [name for name in servers if not name.startswith("prefill")]
    served = {name: len(re.findall(r'"POST /v1/completions HTTP/1.1" 200', outcome.log(name))) for name in servers}
    assert sum(served[name] for name in finals) >= asked, served
    assert all(served.values()), served
    # The router's address is the only one that the client was told.
    assert f'{outcome.result["nodes"][0]["address"]}:8000' in (folder / "summary.json").read_text()


@on(*GREEN)
def test_logs_and_results_are_complete(outcome: Outcome) -> None:
    folder = outcome.live.results
    manifest = json.loads((folder / "manifest.json").read_text())
    steps = {process["step"] for process in manifest["processes"]} | {"bench", "preflight"}
    assert {path.stem for path in (folder / "logs").iterdir()} == steps
    assert all(path.stat().st_size > 0 for path in (folder / "logs").iterdir())
    assert manifest == json.loads((outcome.live.bundle / "manifest.json").read_text())
    lines = (folder / "nodes.tsv").read_text().splitlines()
    assert lines[0].split("\t") == ["index", "host", "address"]
    assert [line.split("\t")[1] for line in lines[1:]] == outcome.live.nodes
    assert (folder / "job.log").read_text() in outcome.output
    assert sorted(path.name for path in folder.iterdir()) == \
        ["bench", "eval", "identity.json", "job.log", "logs", "manifest.json", "nodes.tsv", "report.md", "result.json"]
    identity = json.loads((folder / "identity.json").read_text())["nodes"]
    assert sorted(identity) == sorted(outcome.live.nodes)
    assert {node["gpu_model"] for node in identity.values()} == {"AMD Instinct MI355X"}
    assert "passed" in (folder / "report.md").read_text()
