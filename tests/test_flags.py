"""The flag tables, the module that reads them, and the parsers that tests build from them."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from contract_parser import atom_table, atomesh_table, parse_atom, parse_atomesh

from srtgen.flags import load

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = ROOT.parent / "shared" / "contracts"
TABLES = {"atom-cli.json": "engines/atom.json", "atomesh-cli.json": "routers/atomesh.json"}
ATOM = atom_table()
ATOMESH = atomesh_table()


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def refresh() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "schema" / "refresh.py")))


def contract_file(name: str) -> Path:
    if not (CONTRACTS / name).exists():
        pytest.skip("the contract files are not beside this checkout")
    return CONTRACTS / name


# --- the files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("contract", "table"), TABLES.items())
def test_table_is_what_refresh_makes_of_the_contract(refresh: SimpleNamespace, contract: str, table: str) -> None:
    path = ROOT / "schema" / table
    made = refresh.build(read(contract_file(contract)), read(path))
    assert path.read_text(encoding="utf-8") == refresh.to_text(made)


def test_contract_facts_do_not_depend_on_the_old_table(refresh: SimpleNamespace) -> None:
    contract = read(contract_file("atom-cli.json"))
    history = [{"key": flag["key"], "history": flag.get("history")} for flag in read(refresh.ATOM)["flags"]]
    bare = refresh.build(contract, {"flags": history})
    facts = {"kind", "type", "spellings", "negatives", "declared", "choices", "default", "const", "format", "parsed_by"}
    for made, stored in zip(bare["flags"], read(refresh.ATOM)["flags"], strict=True):
        assert {k: v for k, v in made.items() if k in facts} == {k: v for k, v in stored.items() if k in facts}


def test_refresh_wants_history_for_each_dated_change(refresh: SimpleNamespace) -> None:
    contract = read(contract_file("atom-cli.json"))
    with pytest.raises(refresh.ContractError, match="load_dummy: write what held before 2026-07-18 into its history"):
        refresh.build(contract, {})


@pytest.mark.parametrize("text", ["{}", "[]", "not JSON", '{"command": ["other"]}'])
def test_refresh_refuses_other_files_and_writes_nothing(tmp_path: Path, text: str) -> None:
    before = [(ROOT / "schema" / table).read_bytes() for table in TABLES.values()]
    (tmp_path / "contract.json").write_text(text, encoding="utf-8")
    command = [sys.executable, "-B", str(ROOT / "schema" / "refresh.py"), str(tmp_path / "contract.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert before == [(ROOT / "schema" / table).read_bytes() for table in TABLES.values()]


@pytest.mark.parametrize("table", TABLES.values())
def test_table_matches_its_schema(table: str) -> None:
    schema = read(ROOT / "schema" / "flag-table.schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(read(ROOT / "schema" / table), schema, cls=jsonschema.Draft202012Validator)


def properties(node: Any, where: str = "$") -> list[tuple[str, Any]]:
    if isinstance(node, list):
        return [found for item in node for found in properties(item, where)]
    if not isinstance(node, dict):
        return []
    own = [(f"{where}.{name}", spec) for name, spec in node.get("properties", {}).items()]
    return own + [found for name, item in node.items() for found in properties(item, f"{where}.{name}")]


def test_every_property_of_the_schema_is_described() -> None:
    schema = read(ROOT / "schema" / "flag-table.schema.json")
    found = properties(schema)
    assert len(found) > 40
    assert [where for where, spec in found if not spec.get("description")] == []


@pytest.mark.parametrize("table", [ATOM, ATOMESH], ids=lambda table: table.name)
def test_table_is_consistent(table: Any) -> None:
    spellings = [text for flag in table.flags for text in (*flag.spellings, *flag.negatives)]
    assert len(spellings) == len(set(spellings)) == len(table.by_spelling)
    for flag in table.flags:
        assert set(flag.declared) <= {*flag.spellings, *flag.negatives}
        assert list(flag.change_dates) == sorted(set(flag.change_dates))
        assert bool(flag.negatives) == (flag.kind == "boolean_optional")
        assert flag.choices is None or flag.default in (None, *flag.choices)
        assert flag.note


# --- dates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelling", "since"),
    [
        ("--kv_cache_dtype", "2026-04-28"),
        ("--kv-cache-dtype", "2026-07-16"),
        ("--enable_prefix_caching", "2026-04-28"),
        ("--no-enable_prefix_caching", "2026-05-13"),
        ("--enable-prefix-caching", "2026-07-23"),
        ("--no-enable-prefix-caching", "2026-07-23"),
        ("--online_quant_config", "2026-05-19"),
        ("--online-quant-config", "2026-07-23"),
        ("--max_num_seqs", "2026-07-23"),
        ("-dcp", "2026-07-23"),
        ("-pp", "2026-07-30"),
        ("--served_model_name", "2026-07-27"),
        ("--fake-eplb", "2026-08-21"),
    ],
)
def test_first_date_of_a_spelling(spelling: str, since: str) -> None:
    flag = ATOM.find(spelling)
    assert flag and flag.since(spelling) == since
    assert flag.is_negative(spelling) == spelling.startswith("--no-")


@pytest.mark.parametrize("spelling", ["--eplb_config", "--no_enable_prefix_caching", "--tp", "kv_cache_dtype", ""])
def test_not_a_spelling(spelling: str) -> None:
    assert ATOM.find(spelling) is None


@pytest.mark.parametrize(
    ("spelling", "date", "kind", "choices", "default", "const"),
    [
        ("--enable_prefix_caching", "2026-05-12", "switch", None, False, True),
        ("--enable_prefix_caching", "2026-05-13", "boolean_optional", None, True, None),
        ("--load_dummy", "2026-07-17", "switch", None, False, True),
        ("--load_dummy", "2026-07-18", "optional_value", ("empty", "zero", "xavier"), None, "empty"),
        ("--load_dummy", None, "optional_value", ("empty", "zero", "xavier"), None, "empty"),
        ("--method", "2026-05-09", "value", ("mtp",), None, None),
        ("--method", "2026-05-10", "value", ("mtp", "eagle3"), None, None),
        ("--method", "2026-07-20", "value", ("mtp", "eagle3", "dspark"), None, None),
        ("--index-cache-dtype", "2026-07-27", "value", ("bf16", "fp8"), None, None),
        ("--index-cache-dtype", "2026-07-28", "value", ("bf16", "fp8", "fp4"), None, None),
        ("--cudagraph-capture-sizes", "2026-05-09", "value", None, "[1,2,4,8,16,32,48,64,128,256]", None),
        ("--cudagraph-capture-sizes", "2026-05-10", "value", None, "[1,2,4,8,16,32,48,64,128,256,512]", None),
        ("--enable-tbo", "2026-04-28", "optional_value", ("prefill", "all"), None, "prefill"),
    ],
)
def test_what_holds_on_a_date(spelling: str, date: str, kind: str, choices: Any, default: Any, const: Any) -> None:
    flag = ATOM.find(spelling)
    assert flag
    on_date = (flag.kind_on(date), flag.choices_on(date), flag.default_on(date), flag.const_on(date))
    assert on_date == (kind, choices, default, const)


def test_range_of_dates() -> None:
    assert (ATOM.first_date, ATOM.last_date) == ("2026-04-28", "2026-08-22")
    assert (ATOMESH.first_date, ATOMESH.last_date) == (None, "2026-08-22")
    flag = ATOM.find("--kv-cache-dtype")
    assert flag and flag.first_date == "2026-04-28"
    assert flag.valid_on("2026-07-15") == ("--kv_cache_dtype",)
    assert flag.valid_on("2026-07-16") == flag.valid_on(None) == ("--kv_cache_dtype", "--kv-cache-dtype")


@pytest.mark.parametrize(
    ("date", "count"),
    [("2026-05-14", 31), ("2026-05-30", 34), ("2026-06-14", 35), ("2026-07-14", 38), ("2026-08-22", 58)],
)
def test_number_of_flags_on_the_days_the_real_parser_was_counted(date: str, count: int) -> None:
    assert sum(bool(flag.valid_on(date)) for flag in ATOM.flags) == count


# --- finding flags -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("--tensor-p", {"tensor_parallel_size"}),
        ("--tensor_p", {"tensor_parallel_size"}),
        ("--tensor-p=8", {"tensor_parallel_size"}),
        ("--tp", {"tensor_parallel_size"}),
        ("-tp", {"tensor_parallel_size"}),
        ("--mod", {"model"}),
        ("--server", {"server_port"}),
        ("--kv-t", {"kv_transfer_config"}),
        ("--kv", {"kv_cache_dtype", "kv_transfer_config"}),
        ("--port", {"port"}),
        ("--no-enable_p", {"enable_prefix_caching"}),
        ("--method", {"method"}),
        ("--", set()),
        ("-", set()),
        ("", set()),
        ("--=", set()),
        ("--tensor-parallel-sizes", set()),
    ],
)
def test_abbreviations(text: str, keys: set[str]) -> None:
    assert {flag.key for flag in ATOM.expand(text)} == keys


@pytest.mark.parametrize(
    ("text", "twin"),
    [
        ("--kv_cache_dtype", "--kv-cache-dtype"),
        ("--kv-cache-dtype", "--kv_cache_dtype"),
        ("--eplb_config", "--eplb-config"),
        ("--eplb-config", None),
        ("--no_enable_prefix_caching", "--no-enable_prefix_caching"),
        ("--port", None),
        ("-tp", None),
    ],
)
def test_twin(text: str, twin: str | None) -> None:
    assert ATOM.twin(text) == twin


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("--max-num-seq", "--max-num-seqs"),
        ("--gpu-mem-utilization", "--gpu-memory-utilization"),
        ("--kv_cache_dtyp", "--kv_cache_dtype"),
        ("--completely-other-thing", None),
        ("--" + "x" * 1_000_000, None),
    ],
    ids=lambda text: str(text)[:30],
)
def test_nearest(text: str, nearest: str | None) -> None:
    assert ATOM.nearest(text) == nearest


@pytest.mark.parametrize(
    ("key", "negative"),
    [
        ("enable_prefix_caching", "--no-enable_prefix_caching"),
        ("enable-prefix-caching", "--no-enable-prefix-caching"),
        ("enable_chunked_prefill", "--no-enable_chunked_prefill"),
        ("enforce-eager", None),
        ("no-enable_prefix_caching", None),
        ("enable_prefix-caching", None),
    ],
)
def test_negative_of_a_recipe_key(key: str, negative: str | None) -> None:
    assert ATOM.negative_for(key) == negative


def test_load_takes_text_and_path() -> None:
    path = ROOT / "schema" / "engines" / "atom.json"
    assert load(path) == load(path.read_text(encoding="utf-8")) == ATOM


# --- ATOM command lines ------------------------------------------------------------------------------------------

NIGHTLY = "2026-06-10"  # the image of the DeepSeek-V4-Pro recipes
HEAD = "2026-08-22"
GRAPHS = ",".join(str(size) for size in (1, 2, 4, *range(8, 257, 8)))
KV = '{"kv_role":"%s","kv_connector":"mooncake","proxy_ip":"10.0.0.1","handshake_port":6301}'
SHARED = "--trust-remote-code -tp 8 --kv_cache_dtype fp8 --block-size 16 --gpu-memory-utilization 0.85"
TAIL = "--max-model-len 9472 --no-enable_prefix_caching --kv-transfer-config"
QUANT = '{"global_quant_config":"ptpc_fp8","exclude_layer":["lm_head","*.mlp.gate","*expert*"]}'


def line(text: str, *more: str) -> list[str]:
    return ["--model", "deepseek-ai/DeepSeek-V4-Pro", *text.split(), *more]


@pytest.mark.parametrize(
    ("argv", "date", "expected"),
    [
        (
            line(f"--host 0.0.0.0 --server-port 8010 {SHARED} --max-num-seqs 256 {TAIL}", KV % "kv_producer"),
            NIGHTLY,
            {"server_port": 8010, "tensor_parallel_size": 8, "enable_prefix_caching": False, "max_model_len": 9472},
        ),
        (
            line(
                f"--host 0.0.0.0 --server-port 8020 {SHARED} --enable-dp-attention --enable-tbo --max-num-seqs 2048 "
                f"--cudagraph-capture-sizes [{GRAPHS}] {TAIL}",
                KV % "kv_consumer",
            ),
            NIGHTLY,
            {"max_num_seqs": 2048, "enable_tbo": "prefill", "cudagraph_capture_sizes": json.loads(f"[{GRAPHS}]")},
        ),
        (line("--kv_cache_dtype fp8 -tp 8 --method mtp --num-speculative-tokens 3"), NIGHTLY, {"method": "mtp"}),
        (line("--online_quant_config", QUANT), NIGHTLY, {"online_quant_config": json.loads(QUANT)}),
        (
            line("--dspark-config", '{"confidence_schedule":true,"ragged":true,"ragged_graph_sizes":"8"}'),
            HEAD,
            {"dspark_config": {"confidence_schedule": True, "ragged": True, "ragged_graph_sizes": "8"}},
        ),
        (
            line("--eplb-enable --eplb-config", '{"num_redundant_experts":64,"placement_policy":"biased"}'),
            HEAD,
            {"eplb_enable": True, "eplb_config": {"num_redundant_experts": 64, "placement_policy": "biased"}},
        ),
        (line("--max-num-batched-tokens 32768 -tp 2 -pcp 2"), HEAD, {"prefill_context_parallel_size": 2}),
        (line("--enable-tbo all --all2all-backend"), None, {"enable_tbo": "all", "all2all_backend": "high-throughput"}),
        (line("--load_dummy"), "2026-07-17", {"load_dummy": True}),
        (line("--load_dummy zero"), "2026-07-18", {"load_dummy": "zero"}),
        (line("-tp=8 --max-num-seqs 1_000 --max-num-seqs 64"), None, {"max_num_seqs": 64, "tensor_parallel_size": 8}),
        (
            line(
                "--kv-transfer-config",
                '{"kv_connector":"multi","connectors":[{"kv_connector":"mooncake","kv_role":"kv_producer",'
                '"handshake_port":6301},{"kv_connector":"lmcache_offload","kv_role":"offload"}]}',
            ),
            HEAD,
            {},
        ),
        (line("--default-chat-template-kwargs", '{"enable_thinking":false}', "--chat-template", ""), HEAD, {}),
    ],
)
def test_atom_takes(argv: list[str], date: str | None, expected: dict[str, Any]) -> None:
    values = parse_atom(argv, date)
    assert values["model"] == "deepseek-ai/DeepSeek-V4-Pro"
    assert {key: values[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("argv", "date"),
    [
        (["--kv-cache-dtype", "fp8"], NIGHTLY),
        (["--kv-cache-dtype", "fp8"], HEAD),  # an alias: not declared
        (["--no-enable_prefix_caching"], "2026-05-12"),
        (["--no-enable-prefix-caching"], NIGHTLY),
        (["--enable_prefix_caching=false"], NIGHTLY),
        (["--enable_prefix_caching", "false"], NIGHTLY),
        (["--load_dummy", "zero"], "2026-07-17"),
        (["--load_dummy", "ones"], "2026-07-18"),
        (["--method", "dspark"], "2026-07-19"),
        (["-pp", "2"], "2026-07-29"),
        (["--tensor-p", "8"], HEAD),
        (["--tp", "8"], HEAD),
        (["-tp8"], HEAD),
        (["-tp", "eight"], HEAD),
        (["-tp", "16"], HEAD),
        (["-tp"], HEAD),
        (["--max-num-seqs", "1e3"], HEAD),
        (["--kv_cache_dtype", "auto"], HEAD),
        (["--level", "7"], HEAD),
        (["word"], HEAD),
        (["--"], HEAD),
        (["--cudagraph-capture-sizes", "[1,2"], HEAD),
        (["--cudagraph-capture-sizes", "[1,'2']"], HEAD),
        (["--hf-overrides", "3"], HEAD),
        (["--hf-overrides", "{'a':1}"], HEAD),
        (["--hf-overrides", '{"a":NaN}'], HEAD),
        (["--dcp-config", '{"interleave":1}'], HEAD),
        (["--eplb-config", '{"load_window_size":0}'], HEAD),
        (["--eplb-config", '{"placement_policy":"other"}'], HEAD),
        (["--kv-transfer-config", '{"kv_connector":"mooncake","handshake_port":"6301"}'], HEAD),
        (["--kv-transfer-config", '{"kv_connector":"mooncake","handshake_port":true}'], HEAD),
        (["--kv-transfer-config", '{"kv_connector":"nixl"}'], HEAD),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_atom_refuses(argv: list[str], date: str) -> None:
    with pytest.raises(ValueError):
        parse_atom(argv, date)


# --- AToMesh command lines ---------------------------------------------------------------------------------------

PD = "--pd-disaggregation --prefill http://10.0.0.1:6100 --prefill http://10.0.0.2:6100 --decode http://10.0.0.3:6100"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"atomesh launch {PD} --host 0.0.0.0 --port 8000 --backend atom --policy random --log-level info "
            "--disable-health-check --disable-circuit-breaker --prometheus-port 29100",
            {
                "prefill": [("http://10.0.0.1:6100", None), ("http://10.0.0.2:6100", None)],
                "decode": ["http://10.0.0.3:6100"],
                "backend": "atom",
                "port": 8000,
                "disable_health_check": True,
            },
        ),
        (
            "/usr/local/bin/atomesh start --worker-urls http://a:1 http://b:1 --backend atom --worker-urls http://c:1",
            {"worker_urls": ["http://a:1", "http://b:1", "http://c:1"]},
        ),
        ("--prefill http://a 6301 --prefill http://b NONE", {"prefill": [("http://a", 6301), ("http://b", None)]}),
        ("--max-concurrent-requests=-1", {"max_concurrent_requests": -1}),
        ("--prometheus-duration-buckets 0.5 1e1 --json-log", {"prometheus_duration_buckets": [0.5, 10.0]}),
        ("--runtime atom", {"backend": "atom"}),
        ("--tls-cert-path /c --tls-key-path /k", {"tls_cert_path": "/c", "tls_key_path": "/k"}),
    ],
)
def test_atomesh_takes(text: str, expected: dict[str, Any]) -> None:
    values = parse_atomesh(text.split())
    assert {key: values[key] for key in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "--port 8000 --port 8001",
        "--backend atom --runtime atom",
        "--dp-aware --dp-aware",
        "--dp-aware=true",
        "--max-concurrent-requests -1",
        "--port 65536",
        "--port 0",
        "--port 8_000",
        "--port",
        "--queue-size -5",
        "--retry-jitter-factor abc",
        "--policy fastest",
        "--log_level info",
        "--unknown 1",
        "--decode http://a:1 8998",
        "--decode",
        "--decode a:1",
        "--prefill=http://a:1",
        "--prefill",
        "--prefill --decode http://a:1",
        "--prefill http://a:1 70000",
        "--prefill http://a:1 0",
        "--prefill http:// 1",
        "--worker-urls=http://a:1 http://b:1",
        "--worker-urls ftp://a",
        "--tls-cert-path /c",
        "--host 0.0.0.0 stray",
        "--log-dir --version",
        "--help",
        "--port 8000 launch",
    ],
)
def test_atomesh_refuses(text: str) -> None:
    with pytest.raises(ValueError):
        parse_atomesh(text.split())
