"""From `args` to argv: spelling, values and refusals, one row a rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shipped import from_text
from srtgen.errors import RecipeError

HEAD = 'schema: 2\nname: x\nmodel: {path: "hf:org/model", container: "image:1"}\nresources: {gpus_per_node: 8}\nengine: atom\n'
AGG = HEAD + "roles:\n  agg:\n    nodes: 1\n    workers: 1\n    args:\n      PLACE\nbenchmark: {type: manual}\n"
FRONT = HEAD + "roles: {agg: {nodes: 1, workers: 1}}\nfrontend:\n  args:\n    PLACE\nbenchmark: {type: manual}\n"
CLIENT = HEAD + "roles: {agg: {nodes: 1, workers: 1}}\nbenchmark:\n  type: sa-bench\n  isl: 8\n  osl: 8\n  concurrencies: [1]\n  client_args:\n    PLACE\n"


def argv(text: str, place: str, step: str) -> list[str]:
    indent = text.split("PLACE")[0].rpartition("\n")[2]
    bundle = from_text(text.replace("PLACE", place.replace("\n", "\n" + indent)))
    processes: list[dict[str, Any]] = json.loads(bundle.files["manifest.json"].content)["processes"]
    return next(p["argv"] for p in processes if p["step"] == step)


def worker(place: str) -> list[str]:
    """The words behind those that srtgen writes itself."""
    found = argv(AGG, place, "agg_0")
    assert found[:11] == [
        "python3", "-m", "atom.entrypoints.openai_server", "--model", "org/model", "--host", "0.0.0.0",
        "--server-port", "6100", "-tp", "8",
    ]  # fmt: skip
    return found[11:]


def refused(text: str, place: str) -> str:
    with pytest.raises(RecipeError) as caught:
        argv(text, place, "agg_0")
    return "\n".join(problem.message for problem in caught.value.problems if problem.severity == "error")


WORDS = {
    "bare": ("trust-remote-code: true", ["--trust-remote-code"]),
    "negative": ("enable_prefix_caching: false", ["--no-enable_prefix_caching"]),
    "negative_written": ("no-enable_prefix_caching: true", ["--no-enable_prefix_caching"]),
    "positive": ("enable_prefix_caching: true", ["--enable_prefix_caching"]),
    "underscores": ("kv_cache_dtype: fp8", ["--kv_cache_dtype", "fp8"]),
    "hyphens": ("block-size: 16", ["--block-size", "16"]),
    "source_text": ("gpu-memory-utilization: 0.90", ["--gpu-memory-utilization", "0.90"]),
    "exponent": ("gpu-memory-utilization: 9e-1", ["--gpu-memory-utilization", "9e-1"]),
    "optional_bare": ("enable-tbo: true", ["--enable-tbo"]),
    "optional_value": ("enable-tbo: all", ["--enable-tbo", "all"]),
    "empty_word": ('x-text: ""', ["--x-text", ""]),
    "list": ("cudagraph-capture-sizes: [1, 2, 4]", ["--cudagraph-capture-sizes", "[1,2,4]"]),
    "list_as_text": ('cudagraph-capture-sizes: "[1, 2]"', ["--cudagraph-capture-sizes", "[1, 2]"]),
    "mapping": (
        'online_quant_config: {z: 1, a: [true, null, "é\\n"], f: 0.90}',
        ["--online_quant_config", '{"z":1,"a":[true,null,"é\\n"],"f":0.90}'],
    ),
    "json_text_is_kept": ("hf-overrides: '{ \"n\": 4 }'", ["--hf-overrides", '{ "n": 4 }']),
    "dash": ("x-text: -x", ["--x-text=-x"]),
    "dash_number": ("x-text: -1", ["--x-text", "-1"]),
    "dash_decimal": ("x-text: -1.5", ["--x-text", "-1.5"]),
    "dash_exponent": ("x-text: -1e5", ["--x-text=-1e5"]),
    "order": ("max-num-seqs: 8\nblock-size: 16\nkv_cache_dtype: fp8",
              ["--max-num-seqs", "8", "--block-size", "16", "--kv_cache_dtype", "fp8"]),
    "merge_comes_first": ("<<: {max-num-seqs: 8, block-size: 16}\nkv_cache_dtype: fp8\nblock-size: 32",
                          ["--max-num-seqs", "8", "--block-size", "32", "--kv_cache_dtype", "fp8"]),
    "words_on_and_off": ("x-text: off", ["--x-text", "off"]),
    "other_numbers": ("x-text: 0x10", ["--x-text", "0x10"]),
    "one_connector": ("extra-kv-connectors: [{kv_connector: lmcache_offload, port: 1}]",
                      ["--kv-transfer-config", '{"kv_connector":"lmcache_offload","port":1}']),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_worker_words(name: str) -> None:
    place, words = WORDS[name]
    if name == "one_connector":
        assert argv(AGG, place, "agg_0")[11:] == words
    else:
        assert worker(place) == words


ROUTER = {
    "underscores_become_hyphens": ("log_level: info", ["--log-level", "info"]),
    "bare": ("disable-health-check: true", ["--disable-health-check"]),
    "dash": ('api-key: "-x"', ["--api-key=-x"]),
    "dash_number": ('api-key: "-1"', ["--api-key=-1"]),
    "repeats": ("request-id-headers: [a, b]", ["--request-id-headers", "a", "--request-id-headers", "b"]),
    "moved_metrics_port": ("prometheus-port: 29001", ["--prometheus-port", "29001"]),
    "metrics_port": ("prometheus-port: 29100", ["--prometheus-port", "29100"]),
}


@pytest.mark.parametrize("name", ROUTER)
def test_router_words(name: str) -> None:
    place, words = ROUTER[name]
    found = argv(FRONT, place, "atomesh_0")
    fixed = ["atomesh", "launch", "--worker-urls", "http://${NODE_0_ADDR}:6100", "--host", "0.0.0.0", "--port", "8000", "--backend", "atom"]
    assert found == [*fixed, *words]


@pytest.mark.parametrize(("place", "words"), [("dsv4: true", ["--dsv4"]), ("seed: -1", ["--seed", "-1"]), ("tokenizer: org/x", ["--tokenizer", "org/x"])])
def test_client_words(place: str, words: list[str]) -> None:
    found = argv(CLIENT, place, "bench")
    assert found[-len(words) :] == words
    assert found[:5] == ["python3", "-m", "atom.benchmarks.benchmark_serving", "--model", "org/model"]


SPELLINGS = ("model", "host", "server-port", "server_port", "port", "tp", "tensor-parallel-size", "tensor_parallel_size",
             "kv-transfer-config", "kv_transfer_config", "tensor-parallel", "tensor_p", "ten", "kv-tr", "server", "mode")  # fmt: skip


@pytest.mark.parametrize("key", SPELLINGS)
def test_managed_flags_are_refused_in_any_spelling(key: str) -> None:
    assert "is set by srtgen and cannot be given" in refused(AGG, f"{key}: 1")


@pytest.mark.parametrize("key", ("host", "port", "prefill", "decode", "worker-urls", "worker_urls", "pd-disaggregation", "pd_disaggregation", "backend"))
def test_managed_flags_of_the_router_are_refused(key: str) -> None:
    assert "is set by srtgen and cannot be given" in refused(FRONT, f"{key}: x")


REFUSED = {
    "null": ("block-size:", "no value"),
    "empty_list": ("kv_cache_dtype: []", "empty"),
    "empty_mapping": ("hf-overrides: {}", "empty"),
    "false_without_negative": ("trust-remote-code: false", "no negative form"),
    "false_on_a_value": ("block-size: false", "needs a value"),
    "list_on_a_value": ("block-size: [1]", "takes no list"),
    "mapping_on_a_value": ("block-size: {a: 1}", "takes no mapping"),
    "list_on_an_unknown": ("unknown-thing: [1]", "takes no list"),
    "both_forms": ("enable_prefix_caching: true\nno-enable_prefix_caching: true", "the same flag as"),
    "two_spellings": ("block-size: 1\nblock_size: 2", "the same flag as"),
    "dashes": ("--block-size: 1", "without leading dashes: block-size"),
    "equals": ("'block-size=1': true", "cannot be the name of a flag"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    place, words = REFUSED[name]
    assert words in refused(AGG, place)


def test_an_unknown_flag_is_a_warning_with_the_nearest_one() -> None:
    bundle = from_text(AGG.replace("PLACE", "kv_cache_dtypes: fp8"))
    warning = next(f for f in bundle.findings if f.path.endswith("kv_cache_dtypes"))
    assert warning.severity == "warning" and "kv_cache_dtype" in warning.message
    assert "--kv_cache_dtypes fp8" in bundle.files["roles/agg.sh"].content.decode()


def test_several_connectors_of_prefill_and_decode() -> None:
    text = HEAD + (
        "roles:\n  prefill: {nodes: 1, workers: 1, args: {extra-kv-connectors: [{kv_connector: lmcache_offload, a: 1}]}}\n"
        "  decode: {nodes: 1, workers: 1}\nbenchmark: {type: manual}\n"
    )
    found = argv(text, "", "prefill_0")
    value = found[found.index("--kv-transfer-config") + 1]
    assert value == (
        '{"kv_connector":"multi","connectors":[{"kv_role":"kv_producer","kv_connector":"mooncake",'
        '"proxy_ip":"${NODE_0_ADDR}","handshake_port":5400},{"kv_connector":"lmcache_offload","a":1}]}'
    )
    assert json.loads(value)["connectors"][0]["handshake_port"] == 5400


@pytest.mark.parametrize(
    ("engine", "tail"),
    [
        ("atom", ""),
        ("{type: atom, mooncake_protocol: rdma}", ',"protocol":"rdma"'),
        ("{type: atom, mooncake_protocol: tcp}", ',"protocol":"tcp"'),
        ('{type: atom, ib_device: "mlx5_0,mlx5_1"}', ',"ib_device":"mlx5_0,mlx5_1"'),
        ("{type: atom, mooncake_protocol: rdma, ib_device: rdma0}", ',"protocol":"rdma","ib_device":"rdma0"'),
    ],
)
def test_transport_in_the_kv_config(engine: str, tail: str) -> None:
    text = HEAD.replace("engine: atom", f"engine: {engine}") + "roles: {prefill: {nodes: 1, workers: 1}, decode: {nodes: 1, workers: 1}}\nbenchmark: {type: manual}\n"
    found = argv(text, "", "decode_0")
    assert found[found.index("--kv-transfer-config") + 1] == (
        f'{{"kv_role":"kv_consumer","kv_connector":"mooncake","proxy_ip":"${{NODE_1_ADDR}}","handshake_port":5400{tail}}}'
    )
