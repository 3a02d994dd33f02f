"""lib/addresses.sh: one address per node (from whole reports: test_lib_preflight.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.running import act, judge, shown

A, B = "10.0.0.0/24", "192.168.1.0/24"
CHOICES = [
    ({"n0": [f"eth0 10.0.0.1 {A}"], "n1": [f"eth0 10.0.0.2 {A}"]}, "10.0.0.1 10.0.0.2"),
    # each node's best where no network is shared
    ({"n0": [f"eth0 10.0.0.1 {A}"], "n1": [f"eth0 192.168.1.2 {B}"]}, "10.0.0.1 192.168.1.2"),
    # the first node's order decides between two shared ones
    ({"n0": [f"b 192.168.1.1 {B}", f"a 10.0.0.1 {A}"], "n1": [f"a 10.0.0.2 {A}", f"b 192.168.1.2 {B}"]}, "192.168.1.1 192.168.1.2"),
    ({"n0": [f"b 192.168.1.1 {B}", f"a 10.0.0.1 {A}"], "n1": [f"a 10.0.0.2 {A}"]}, "10.0.0.1 10.0.0.2"),
    # two addresses in the shared network: the better
    ({"n0": [f"a 10.0.0.1 {A}"], "n1": ["x 172.20.0.1 172.20.0.0/16", f"a 10.0.0.9 {A}", f"b 10.0.0.2 {A}"]}, "10.0.0.1 10.0.0.9"),
    # 10.0.0.0/2 is no part of 10.0.0.0/24
    ({"n0": ["a 10.0.0.1 10.0.0.0/2", f"b 192.168.1.1 {B}"], "n1": [f"a 10.0.0.2 {A}", f"b 192.168.1.2 {B}"]}, "192.168.1.1 192.168.1.2"),
]


def found(candidates: dict[str, list[str]]) -> str:
    """Shell text that fills the table of candidates."""
    lines = [f"candidates[{host}]+='{line}'$'\\n'\n" for host, each in candidates.items() for line in each]
    return "node_hosts=(" + " ".join(candidates) + ")\n" + "".join(lines)


@pytest.mark.parametrize(("candidates", "chosen"), CHOICES)
def test_the_address_of_each_node(candidates: dict[str, list[str]], chosen: str, tmp_path: Path) -> None:
    done = act(tmp_path, found(candidates) + 'choose_addresses; show "${node_addresses[*]}"', "preflight")
    assert shown(done) == [chosen]
    assert f" node 0: n0 {chosen.split()[0]}\n" in done.stdout


def test_addresses_reach_every_process_and_the_result(tmp_path: Path) -> None:
    candidates = {f"node-{n}": [f"eth0 10.0.0.{n} {A}"] for n in (3, 1, 2)}
    rc, result = judge(tmp_path, found(candidates) + "choose_addresses\nenv >out", "preflight")
    env = dict(line.split("=", 1) for line in (tmp_path / "out").read_text().splitlines() if "=" in line)
    assert rc == 0
    assert {name: env.get(name) for name in ("NODE_0_ADDR", "NODE_1_ADDR", "NODE_2_ADDR", "NO_PROXY")} == {
        "NODE_0_ADDR": "10.0.0.3", "NODE_1_ADDR": "10.0.0.1", "NODE_2_ADDR": "10.0.0.2", "NO_PROXY": "localhost,127.0.0.1,10.0.0.3,10.0.0.1,10.0.0.2"}
    assert env["no_proxy"] == env["NO_PROXY"]
    assert result["nodes"] == [{"index": 0, "host": "node-3", "address": "10.0.0.3"}, {"index": 1, "host": "node-1", "address": "10.0.0.1"},
                               {"index": 2, "host": "node-2", "address": "10.0.0.2"}]


@pytest.mark.parametrize(("lines", "plan", "reason"), [
    ({"n0": [], "n1": [f"a 10.0.0.1 {A}"]}, "", "nodes: no usable IPv4 address on n0"),
    ({"n0": [f"a 10.0.0.1 {A}"], "n1": []}, "PLAN_INTERFACE=ib0", "nodes: no usable IPv4 address on n1 (interface ib0)")])
def test_a_node_without_an_address_ends_the_job(lines: dict[str, list[str]], plan: str, reason: str, tmp_path: Path) -> None:
    rc, result = judge(tmp_path, found(lines) + "choose_addresses", "preflight", plan=plan)
    assert (rc, result["reason"]) == (10, reason)


def test_the_table_of_the_nodes(tmp_path: Path) -> None:
    act(tmp_path, "node_addresses=(10.0.0.1 10.0.0.2)\nwrite_nodes_tsv", "preflight")
    assert (tmp_path / "nodes.tsv").read_text() == "index\thost\taddress\n0\tn0\t10.0.0.1\n1\tn1\t10.0.0.2\n"


def test_a_table_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "job_folder=/nowhere\nwrite_nodes_tsv\njob_folder=${PWD}", "preflight")
    assert (rc, result["warnings"]) == (0, ["cannot write nodes.tsv"])
