"""The port table: one number for each socket of a node, in every topology."""

from __future__ import annotations

import re
from typing import Any

import pytest

from recipes import errors, pd, processes, recipe
from shipped import BUNDLES, from_text, made

KEYS = ("router", "router_metrics", "worker_http", "handshake", "dp_master", "dp_base")
TOPOLOGIES = {
    "eight_aggregates": {"agg": {"nodes": 1, "workers": 8}},
    "two_prefills_of_four": pd({"workers": 2}),
    "all_on_one_node": pd({"gpus": 2, "workers": 2}, {"nodes": "colocate", "gpus": 2, "workers": 2}),
    "eight_on_one_node": pd({"gpus": 1, "workers": 4}, {"nodes": "colocate", "gpus": 1, "workers": 4}),
    "four_prefills_eight_decodes": pd({"nodes": 4, "workers": 4}, {"nodes": 4, "workers": 8}),
    "dp_attention": pd({"args": {"enable-dp-attention": True, "max-num-seqs": 64}}, {"args": {"enable-dp-attention": True, "max-num-seqs": 64}}),
}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_case_025_no_two_sockets_of_a_node_share_a_port(name: str) -> None:
    assert_disjoint(from_text(recipe(roles=TOPOLOGIES[name])))


@pytest.mark.parametrize("name", BUNDLES)
def test_shipped_recipes_share_no_port(name: str) -> None:
    assert_disjoint(made(name))


def assert_disjoint(bundle: Any) -> None:
    taken: dict[tuple[int, int], str] = {}
    for listener in bundle.plan.listeners:
        assert 1024 <= listener.first <= listener.last <= 32767
        for port in range(listener.first, listener.last + 1):
            owner = f"{listener.owner} {listener.key}"
            assert taken.setdefault((listener.node, port), owner) == owner
    found = processes(bundle)
    for step, process in found.items():
        if step == "bench":
            continue
        for port in process["ports"].values():
            assert taken[process["node"], port].startswith(f"{step} ")
    for one in (p for p in bundle.plan.workers):
        span = [p for (n, p), owner in taken.items() if n == one.node and owner == f"{one.step} handshake"]
        assert len(span) in (0, len(one.gpus))
    script = bundle.files["run.sbatch"].content.decode()
    table = script.partition("PLAN_LISTEN=(\n")[2].partition("\n)")[0].splitlines()
    assert len(table) == len(bundle.plan.listeners)


def test_rules_of_the_table() -> None:
    found = processes(from_text(recipe(roles=pd({"workers": 2, "gpus": 2}, {"nodes": "colocate", "gpus": 4}))))
    assert found["prefill_0"]["ports"] == {"http": 6100, "handshake": 5400, "dp_master": 29500, "dp_base": 29700}
    assert found["prefill_1"]["ports"] == {"http": 6132, "handshake": 5402, "dp_master": 29501, "dp_base": 29708}
    assert found["decode_0"]["ports"] == {"http": 6164, "handshake": 5404, "dp_master": 29502, "dp_base": 29716}
    assert found["atomesh_0"]["ports"] == {"http": 8000, "metrics": 29000}


def test_each_node_begins_anew() -> None:
    found = processes(from_text(recipe(roles=pd({"nodes": 2, "workers": 4}))))
    assert [found[f"prefill_{n}"]["ports"]["http"] for n in range(4)] == [6100, 6132, 6100, 6132]


@pytest.mark.parametrize(
    ("roles", "wanted"),
    [
        ({"agg": {"nodes": 1, "workers": 1}}, False),
        ({"agg": {"nodes": 1, "workers": 2}}, True),
        ({"agg": {"nodes": 1, "workers": 1, "args": {"data-parallel-size": 2, "max-num-seqs": 64}}}, True),
        ({"agg": {"nodes": 1, "workers": 1, "args": {"enable-dp-attention": True, "max-num-seqs": 64}}}, True),
        ({"agg": {"nodes": 2, "workers": 2}}, False),
    ],
)
def test_case_027_rank_ports_where_a_worker_has_ranks_or_shares_its_node(roles: dict[str, Any], wanted: bool) -> None:
    env = processes(from_text(recipe(roles=roles)))["agg_0"]["env"]
    assert ({"ATOM_DP_MASTER_PORT", "ATOM_DP_BASE_PORT"} <= set(env)) == wanted


def test_case_029_the_router_and_the_worker_know_the_same_ports() -> None:
    found = processes(from_text(recipe(roles=pd({"gpus": 4}, {"nodes": "colocate", "gpus": 4}))))
    router = " ".join(found["atomesh_0"]["argv"])
    for step in ("prefill_0", "decode_0"):
        argv = found[step]["argv"]
        assert f"http://${{NODE_0_ADDR}}:{argv[argv.index('--server-port') + 1]}" in router
        assert f'"handshake_port":{found[step]["ports"]["handshake"]}' in " ".join(argv)


@pytest.mark.parametrize("key", KEYS)
def test_every_base_can_be_moved(key: str) -> None:
    before = processes(from_text(recipe(roles=pd({"gpus": 4}, {"nodes": "colocate", "gpus": 4}))))
    after = processes(from_text(recipe(roles=pd({"gpus": 4}, {"nodes": "colocate", "gpus": 4}), ports={key: 20000})))
    step, port = ("atomesh_0", {"router": "http", "router_metrics": "metrics"}[key]) if key.startswith("router") else ("prefill_0", {"worker_http": "http"}.get(key, key))
    assert before[step]["ports"][port] != 20000
    assert after[step]["ports"][port] == 20000
    assert "20000" in " ".join([*after[step]["argv"], *after[step]["env"].values()])


def test_the_metrics_port_is_written_only_where_it_is_moved() -> None:
    def metrics(**keys: Any) -> list[str]:
        argv = processes(from_text(recipe(**keys)))["atomesh_0"]["argv"]
        return [word for before, word in zip(argv, argv[1:]) if before == "--prometheus-port"]

    assert metrics() == []
    assert metrics(ports={"router_metrics": 29000}) == []
    assert metrics(ports={"router_metrics": 29001}) == ["29001"]
    assert metrics(frontend={"args": {"prometheus-port": 29002}}) == ["29002"]
    assert metrics(frontend={"args": {"prometheus_port": 29002}}, ports={"router_metrics": 29002}) == ["29002"]
    bundle = from_text(recipe(frontend={"args": {"prometheus-port": 29002}}))
    assert re.search(r"PLAN_ROUTER_METRICS_PORT=29002\n", bundle.files["run.sbatch"].content.decode())


CLASHES = {
    "router_on_a_worker": ({"router": 6100}, "overlaps port 6100 of atomesh_0"),
    "handshake_on_http": ({"handshake": 6095}, "overlaps"),
    "dp_master_in_dp_base": ({"dp_master": 29705}, "overlaps"),
    "metrics_on_router": ({"router_metrics": 8000}, "overlaps"),
    "past_the_end": ({"handshake": 32765}, "ports end at 32767"),
}


@pytest.mark.parametrize("name", CLASHES)
def test_clashes(name: str) -> None:
    ports, words = CLASHES[name]
    found = errors(recipe(roles=pd({"workers": 2}), ports=ports))
    assert any(words in message for message in found), found


@pytest.mark.parametrize("port", [0, 80, 1023, 32768, 65536, -1])
def test_ports_out_of_range(port: int) -> None:
    assert errors(recipe(ports={"router": port}))
