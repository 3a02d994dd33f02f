"""Which worker runs where: nodes, GPUs, masks and sizes."""

from __future__ import annotations

from typing import Any

import pytest

from recipes import errors, manifest, pd, processes, recipe
from shipped import from_text


def places(roles: dict[str, Any], gpus_per_node: int = 8) -> dict[str, tuple[int, list[int]]]:
    bundle = from_text(recipe(roles=roles, resources={"gpus_per_node": gpus_per_node}))
    return {s: (p["node"], p["gpus"]) for s, p in processes(bundle).items() if s not in ("atomesh_0", "bench")}


ALL = list(range(8))
PLACES = {
    "1p1d": (pd(), {"prefill_0": (0, ALL), "decode_0": (1, ALL)}),
    "2p1d": (pd({"nodes": 2, "workers": 2}), {"prefill_0": (0, ALL), "prefill_1": (1, ALL), "decode_0": (2, ALL)}),
    "two_on_a_node": (
        pd({"workers": 2}),
        {"prefill_0": (0, [0, 1, 2, 3]), "prefill_1": (0, [4, 5, 6, 7]), "decode_0": (1, ALL)},
    ),
    "spread": (
        pd({"nodes": 2, "workers": 3, "gpus": 2}),
        {"prefill_0": (0, [0, 1]), "prefill_1": (0, [2, 3]), "prefill_2": (1, [0, 1]), "decode_0": (2, ALL)},
    ),
    "colocated": (
        pd({"gpus": 4}, {"nodes": "colocate", "gpus": 4}),
        {"prefill_0": (0, [0, 1, 2, 3]), "decode_0": (0, [4, 5, 6, 7])},
    ),
    "colocated_on_two_nodes": (
        pd({"nodes": 2, "workers": 2, "gpus": 4}, {"nodes": "colocate", "workers": 2, "gpus": 4}),
        {"prefill_0": (0, [0, 1, 2, 3]), "prefill_1": (1, [0, 1, 2, 3]),
         "decode_0": (0, [4, 5, 6, 7]), "decode_1": (1, [4, 5, 6, 7])},
    ),
    "eight_of_one": ({"agg": {"nodes": 1, "workers": 8}}, {f"agg_{n}": (0, [n]) for n in range(8)}),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_places(name: str) -> None:
    roles, wanted = PLACES[name]
    assert places(roles) == wanted


WRONG = {
    "spans": ({"agg": {"nodes": 2, "workers": 1}}, "never spans nodes"),
    "too_large": ({"agg": {"nodes": 1, "workers": 1, "gpus": 9}}, "never spans nodes"),
    "uneven": ({"agg": {"nodes": 1, "workers": 3}}, "do not divide evenly"),
    "too_many": ({"agg": {"nodes": 1, "workers": 9, "gpus": 1}}, "need 2 nodes"),
    "idle_nodes": ({"agg": {"nodes": 2, "workers": 1, "gpus": 8}}, "1 of 2 nodes would have no worker; write 1"),
    "idle_nodes_without_gpus": ({"agg": {"nodes": 4, "workers": 2, "gpus": 4}}, "2 of 4 nodes would have no worker"),
    "no_room": (pd({"gpus": 6}, {"nodes": "colocate", "gpus": 4}), "do not fit behind prefill"),
    "prefill_colocated": (pd({"nodes": "colocate", "gpus": 4}), "only decode can be colocated"),
    "alone": ({"prefill": {"nodes": 1, "workers": 1}}, "missing key decode"),
    "mixed": ({**pd(), "agg": {"nodes": 1, "workers": 1}}, "agg excludes prefill and decode"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    roles, words = WRONG[name]
    assert any(words in message for message in errors(recipe(roles=roles)))


@pytest.mark.parametrize(
    ("gpus", "args", "tp"),
    [
        (8, {}, "8"), (4, {}, "4"), (8, {"data-parallel-size": 2}, "4"), (8, {"pipeline-parallel-size": 2}, "4"),
        (8, {"enable-dp-attention": True, "max-num-seqs": 8}, "8"),
        (8, {"prefill-context-parallel-size": 2}, "4"), (8, {"decode-context-parallel-size": 2}, "8"), (1, {}, "1"),
        (8, {"data_parallel_size": 8}, "1"),
    ],
)  # fmt: skip
def test_tp_follows_from_gpus_and_the_other_sizes(gpus: int, args: dict[str, Any], tp: str) -> None:
    role = {"nodes": 1, "workers": 1, "gpus": gpus, "args": {"enforce-eager": True, **args}}
    engine = {"type": "atom", "version": "2026-08-22"}
    argv = processes(from_text(recipe(roles={"agg": role}, engine=engine)))["agg_0"]["argv"]
    assert argv[argv.index("-tp") + 1] == tp


@pytest.mark.parametrize("args", [{"data-parallel-size": 3}, {"pipeline-parallel-size": 5}, {"data-parallel-size": 16}])
def test_sizes_that_do_not_divide(args: dict[str, int]) -> None:
    found = errors(recipe(roles={"agg": {"nodes": 1, "workers": 1, "args": args}}))
    assert any("not divisible" in message for message in found)


def test_a_mask_only_where_a_worker_owns_part_of_a_node() -> None:
    whole = processes(from_text(recipe(roles=pd())))
    part = processes(from_text(recipe(roles=pd({"gpus": 2}, {"gpus": 8}))))
    assert "HIP_VISIBLE_DEVICES" not in {**whole["prefill_0"]["env"], **whole["decode_0"]["env"]}
    assert part["prefill_0"]["env"]["HIP_VISIBLE_DEVICES"] == "0,1"
    assert "HIP_VISIBLE_DEVICES" not in part["decode_0"]["env"]
    assert "ROCR_VISIBLE_DEVICES" not in {**part["prefill_0"]["env"], **part["decode_0"]["env"]}


def test_the_profile_may_choose_the_mask() -> None:
    roles = pd({"gpus": 2}, {"gpus": 2})
    text = recipe(roles=roles, engine={"type": "atom", "mooncake_protocol": "tcp"})
    env = processes(from_text(text, "visible_devices_env: ROCR_VISIBLE_DEVICES"))["prefill_0"]["env"]
    assert env["ROCR_VISIBLE_DEVICES"] == "0,1" and "HIP_VISIBLE_DEVICES" not in env


@pytest.mark.parametrize(
    ("engine", "allowed"),
    [
        ("atom", False), ({"type": "atom", "mooncake_protocol": "rdma"}, False), ({"type": "atom", "ib_device": "mlx5_0"}, True),
        ({"type": "atom", "mooncake_protocol": "tcp"}, True),
    ],
)  # fmt: skip
def test_rocr_with_rdma_needs_a_device(engine: Any, allowed: bool) -> None:
    text = recipe(roles=pd({"gpus": 4}, {"gpus": 4}), engine=engine)
    cluster = "visible_devices_env: ROCR_VISIBLE_DEVICES"
    if allowed:
        from_text(text, cluster)
    else:
        assert any("HIP_VISIBLE_DEVICES" in message for message in errors(text, cluster))


def test_idle_gpus_are_a_note() -> None:
    bundle = from_text(recipe(roles=pd({"gpus": 2}, {"gpus": 8})))
    (note,) = [f for f in manifest(bundle)["findings"] if f["code"] == "idle-gpus"]
    assert (note["severity"], note["message"]) == ("note", "6 GPUs on 1 of 2 nodes stay idle")


@pytest.mark.parametrize(("node", "wanted"), [("head", 0), ("first_decode", 2)])
def test_the_router_is_on_node_0_unless_the_recipe_says_otherwise(node: str, wanted: int) -> None:
    text = recipe(roles=pd({"nodes": 2, "workers": 2}), frontend={"placement": {"node": node}})
    assert processes(from_text(text))["atomesh_0"]["node"] == wanted


def test_gpus_per_node_from_recipe_then_profile() -> None:
    text = recipe(resources=None, roles=pd())
    assert manifest(from_text(text, "gpus_per_node: 4"))["recipe"]["resources"]["gpus_per_node"] == 4
    assert manifest(from_text(recipe(), "gpus_per_node: 4"))["recipe"]["resources"]["gpus_per_node"] == 8
    assert any("gpus_per_node" in message for message in errors(text))


NAMES = {
    "hub": ("hf:org/model", None, "org/model", "org/model"),
    "folder": ("/models/some name", None, "/model", "/model"),
    "folder_on_the_host": ("/models/m", "container_runtime: {type: none}", "/models/m", "/models/m"),
    "alias": ("dsv4", "model_paths: {dsv4: /models/dsv4}", "/model", "/model"),
    "alias_of_the_hub": ("dsv4", 'model_paths: {dsv4: "hf:org/model"}', "org/model", "org/model"),
}


@pytest.mark.parametrize("name", NAMES)
def test_one_served_name(name: str) -> None:
    path, cluster, argument, served = NAMES[name]
    if path.startswith("/models/some"):
        cluster = "container_runtime: {type: docker}"
    bundle = from_text(recipe(model={"path": path, "container": "image:1"}), cluster)
    argv = processes(bundle)["agg_0"]["argv"]
    assert argv[argv.index("--model") + 1] == argument
    assert manifest(bundle)["served_model"] == served


@pytest.mark.parametrize("key", ["served-model-name", "served_model_name"])
def test_a_served_name_of_the_roles_is_used_everywhere(key: str) -> None:
    role = {"args": {key: "my/alias v1"}}
    bench = {"type": "sa-bench", "isl": 8, "osl": 8, "concurrencies": [1]}
    bundle = from_text(recipe(roles=pd(role, role), benchmark=bench))
    assert manifest(bundle)["served_model"] == "my/alias v1"
    client = processes(bundle)["bench"]["argv"]
    assert client[client.index("--model") + 1] == "my/alias v1"
    assert client[client.index("--tokenizer") + 1] == "org/model"
    assert "readonly PLAN_SERVED_MODEL='my/alias v1'" in bundle.files["run.sbatch"].content.decode()
