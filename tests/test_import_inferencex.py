"""The import of InferenceX's configurations: argv as its launchers give it, and the recipes that we ship."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from srtgen import document, generate
from srtgen.cli import command
from srtgen.document import Document
from srtgen.errors import RecipeError
from srtgen.generate import Source
from srtgen.inferencex import importer, master
from srtgen.inferencex.choices import Choices
from srtgen.inferencex.disagg import structured
from srtgen.inferencex.draft import Item, variables, words
from srtgen.inferencex.text import scalar

TESTS = Path(__file__).resolve().parent
OURS = TESTS / "inferencex"
SHIPPED = TESTS.parent / "recipes" / "atom"
REAL = TESTS.parents[1] / "shared" / "data" / "inferencex"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="InferenceX's files are not here")


def load(path: Path) -> Document:
    return document.load(path.name, path.read_bytes())


def imported(
    key: str, choices: Choices = Choices(), folder: Path = OURS, file: str = "master.yaml"
) -> dict[str, str]:
    models = "models.yaml" if folder == OURS else "models_atom.yaml"
    return importer.recipes(load(folder / models), load(folder / file), key, choices)


def processes(recipe: str) -> dict[str, dict[str, Any]]:
    made = generate.bundle(Source("r.yaml", "r.yaml", recipe.encode()), None, [])
    listed = json.loads(made.files["manifest.json"].content)["processes"]
    return {p["step"]: p for p in listed}


def options(argv: list[str]) -> dict[str, str | bool]:
    """Flags with their values, whatever their order."""
    found: dict[str, str | bool] = {}
    for word, after in zip(argv, [*argv[1:], "--"]):
        if word.startswith("-") and word != "-m":
            found[word] = True if after.startswith("--") or after == "-tp" else after
    return found


GRAPHS = "[" + ",".join(map(str, [1, 2, 4, *range(8, 257, 8)])) + "]"
COMMON = {
    "--model": "deepseek-ai/DeepSeek-V4-Pro", "--host": "0.0.0.0", "--server-port": "6100", "-tp": "8",
    "--trust-remote-code": True, "--kv_cache_dtype": "fp8", "--block-size": "16", "--gpu-memory-utilization": "0.85",
    "--max-model-len": "9472", "--no-enable_prefix_caching": True,
}  # fmt: skip
OVERLAP = {"--enable-dp-attention": True, "--enable-tbo": True}
ACCURACY = {"ATOM_MOE_GU_ITLV": "1", "AITER_BF16_FP8_MOE_BOUND": "0"}


def transfer(role: str, node: int) -> str:
    start = f'{{"kv_role":"{role}","kv_connector":"mooncake","proxy_ip":"${{NODE_{node}_ADDR}}"'
    return start + ',"handshake_port":5400}'


@pytest.mark.parametrize(
    ("recipe", "parallel", "decode_node", "sequences"),
    [
        ("dsv4-pro-fp4-mi355x-1p1d-tp8-8k1k", {}, 1, "128"),
        ("dsv4-pro-fp4-mi355x-2p1d-dpa-tp8-8k1k", OVERLAP, 2, "2048"),
    ],
)
def test_deepseek_v4_gets_the_launchers_argv(recipe: str, parallel: dict, decode_node: int, sequences: str) -> None:
    """InferenceX 2026-08-22, server_atom.sh run dry; its ports and paths are ours here."""
    found = processes(imported("dsv4-fp4-mi355x-atom-disagg")[f"{recipe}.yaml"])
    for node in range(decode_node):
        step = found[f"prefill_{node}"]
        assert options(step["argv"]) == COMMON | parallel | {
            "--max-num-seqs": "256", "--kv-transfer-config": transfer("kv_producer", node),
        }  # fmt: skip
    decode = found["decode_0"]
    assert options(decode["argv"]) == COMMON | parallel | {
        "--max-num-seqs": sequences, "--cudagraph-capture-sizes": GRAPHS,
        "--kv-transfer-config": transfer("kv_consumer", decode_node),
    }  # fmt: skip
    extra = {"GPU_MAX_HW_QUEUES": "5", "ATOM_CPU_AFFINITY": "1"} if parallel else {}
    assert (ACCURACY | extra).items() <= decode["env"].items()
    assert ("GPU_MAX_HW_QUEUES" in decode["env"]) == bool(parallel)
    router = found["atomesh_0"]["argv"]
    assert router.count("--prefill") == decode_node and router.count("--decode") == 1
    expected = {"--policy": "random", "--log-level": "info", "--disable-health-check": True}
    assert expected.items() <= options(router).items()


def test_minimax_quantizes_otherwise_under_dp_attention() -> None:
    made = imported("minimaxm3-fp8-mi355x-atom-disagg")
    plain = processes(made["minimaxm3-fp8-mi355x-1p1d-tp4-8k1k.yaml"])["decode_0"]
    wide = processes(made["minimaxm3-fp8-mi355x-2p1d-dpa-tp4-8k1k.yaml"])
    assert '"*block_sparse_moe"]' in str(options(plain["argv"])["--online_quant_config"])
    under_dpa = str(options(wide["decode_0"]["argv"])["--online_quant_config"])
    assert '"*.gate.*","*.block_sparse_moe.experts*"]' in under_dpa
    assert options(wide["prefill_1"]["argv"])["--enable-tbo"] == "prefill"
    assert "--enable-tbo" not in wide["decode_0"]["argv"]
    assert options(plain["argv"])["--max-model-len"] == "32768"
    assert plain["gpus"] == [0, 1, 2, 3] and plain["node"] == 1


def test_packing_puts_two_workers_on_a_node() -> None:
    made = imported("minimaxm3-fp4-mi355x-atom-disagg", Choices(pack=True))
    pair = processes(made["minimaxm3-fp4-mi355x-1p1d-tp4-shared-node-8k1k.yaml"])
    assert [(pair[s]["node"], pair[s]["gpus"][0]) for s in ("prefill_0", "decode_0")] == [(0, 0), (0, 4)]
    three = processes(made["minimaxm3-fp4-mi355x-2p1d-dpa-tp4-shared-node-8k1k.yaml"])
    places = [(three[s]["node"], three[s]["gpus"][0]) for s in ("prefill_0", "prefill_1", "decode_0")]
    assert places == [(0, 0), (0, 4), (1, 0)]


def test_packing_leaves_full_nodes_alone() -> None:
    for key in ("dsv4-fp4-mi355x-atom-disagg", "kimik2.5-fp4-mi355x-atom-disagg"):
        assert imported(key, Choices(pack=True)) == imported(key)


def test_sizes_of_both_sides_are_named() -> None:
    (recipe,) = imported("kimik2.5-fp4-mi355x-atom-disagg").values()
    found = processes(recipe)
    assert [len(found[s]["gpus"]) for s in ("prefill_0", "decode_0", "decode_1")] == [4, 8, 8]
    assert "name: kimik2.5-fp4-mi355x-1p2d-tp4-tp8-8k1k" in recipe


def test_speculation_reaches_both_sides_and_the_client() -> None:
    (recipe,) = imported("dsv4-fp4-mi355x-atom-disagg-mtp").values()
    found = processes(recipe)
    for step in ("prefill_0", "decode_0"):
        assert {"--method": "mtp", "--num-speculative-tokens": "3"}.items() <= options(found[step]["argv"]).items()
    assert "--dsv4" in found["bench"]["argv"]


def test_flags_that_change_within_a_sweep_split_it() -> None:
    made = imported("dsv4-fp4-mi355x-atom")
    low = made["dsv4-pro-fp4-mi355x-agg-dpa-tp4-8k1k.yaml"]
    high = made["dsv4-pro-fp4-mi355x-agg-dpa-tbo-tp4-8k1k.yaml"]
    assert "concurrencies: [16, 32]\n" in low and "concurrencies: [64, 128]\n" in high
    assert "--enable-tbo" not in processes(low)["agg_0"]["argv"]
    worker = processes(high)["agg_0"]
    assert worker["env"]["GPU_MAX_HW_QUEUES"] == "5" and options(worker["argv"])["--max-num-seqs"] == "128"


def test_old_images_get_no_flag_that_they_lack_and_a_router_that_exists() -> None:
    (recipe,) = imported("dsr1-fp4-mi355x-atom").values()
    found = processes(recipe)
    assert not [word for word in found["agg_0"]["argv"] if "prefix_caching" in word]
    assert found["atomesh_0"]["image"] == "rocm/atom-dev:nightly_202606101403" != found["agg_0"]["image"]


def test_release_without_a_date_gets_one() -> None:
    (recipe,) = imported("qwen3.5-fp8-mi355x-atom-mtp").values()
    assert '  version: "2026-05-12"\n' in recipe and "  use_chat_template: true\n" in recipe


REFUSED = {
    "glm5.2-fp4-mi355x-atom-agentic-mtp": "agentic-coding is not supported: its load is a trace replay with aiperf",
    "dsr1-fp8-mi355x-sglang": "framework: sglang is not supported; known: atom, atom-disagg",
    "glm5-fp8-mi355x-atom": "its script upgrades transformers inside the container before it starts the server",
    "tiny-fp8-mi300x-atom": "the flags of this key's launch script are not known; give them with --arg KEY=VALUE",
    "no-such-key": "no key no-such-key; keys with atom: dsv4-fp4-mi355x-atom-disagg, ",
}


@pytest.mark.parametrize("key", REFUSED)
def test_key_without_recipe_is_refused_with_the_reason(key: str) -> None:
    with pytest.raises(RecipeError) as caught:
        imported(key)
    assert REFUSED[key] in str(caught.value) and str(caught.value).startswith("master.yaml:")


PAIR = """\
k-mi355x-atom-disagg:
  image: rocm/atom-dev:nightly_202606101403
  model: org/M
  model-prefix: m
  precision: fp8
  framework: atom-disagg
  scenarios:
    fixed-seq-len:
    - isl: 1024
      osl: 1024
      search-space:
      - conc-list: [4]
        prefill: {num-worker: 1, tp: 4}
        decode: {num-worker: 1, tp: 4}
"""
BROKEN = [
    ("num-worker: 1, tp: 4}\n        decode", "num-worker: 1, tp: 4, cp: 2}\n        decode",
     "k-mi355x-atom-disagg.scenarios.fixed-seq-len[0].search-space[0].prefill.cp: the import has no meaning"),
    ("decode: {num-worker: 1, tp: 4}", "decode: {num-worker: 1, tp: 4, additional-settings: [DECODE_NODES=2]}",
     "2 nodes for 1 workers: an ATOM worker never spans nodes"),
    ("decode: {num-worker: 1, tp: 4}", "decode: {num-worker: 1, tp: 4, additional-settings: [FAST=1]}",
     "the import has no meaning for FAST=1"),
    ("- conc-list: [4]", "- spec-decoding: mtp\n        conc-list: [4]", "no DECODE_MTP_SIZE says how many tokens"),
    ("[4]", "[4, x]", "expected a list of whole numbers above 0"),
    ("conc-list: [4]", "conc-start: 8\n        conc-end: 4", "8 is above conc-end, 4"),
    ("tp: 4}\n        decode", "tp: four}\n        decode", "prefill.tp: expected a whole number above 0"),
    ("  model: org/M\n", "", "missing key model"),
    ("isl: 1024", "isl: 1024\n      extra: 1", "extra: the import has no meaning for this key"),
    ("model: org/M", "model: org/Other", "models.yaml has no entry Other, which would hold the flags of org/Other"),
    ("precision: fp8", "precision: fp8\n  router: {name: dynamo}",
     "the router dynamo is not supported; known: atomesh"),
]  # fmt: skip
MODELS = "M: {kv_cache_flags: --kv_cache_dtype fp8}\n"


def from_text(text: str, models: str = MODELS) -> dict[str, str]:
    files = document.load("models.yaml", models.encode()), document.load("master.yaml", text.encode())
    return importer.recipes(*files, "k-mi355x-atom-disagg", Choices())


@pytest.mark.parametrize(("old", "new", "said"), BROKEN)
def test_what_would_be_lost_is_refused(old: str, new: str, said: str) -> None:
    assert PAIR.count(old) == 1 and from_text(PAIR)
    with pytest.raises(RecipeError) as caught:
        from_text(PAIR.replace(old, new))
    assert said in str(caught.value)


def test_models_with_unknown_or_broken_settings_are_refused() -> None:
    for entry, said in (
        ("M: {warp: 9}\n", "M.warp: the import has no meaning for this key"),
        ("M: {env: A}\n", "M.env: A is no NAME=VALUE"),
        ("M: {kv_cache_flags: fp8}\n", "M.kv_cache_flags: fp8 belongs to no flag"),
    ):
        with pytest.raises(RecipeError) as caught:
            from_text(PAIR, entry)
        assert said in str(caught.value)


def test_recipes_that_would_have_one_name_are_told_apart() -> None:
    row = PAIR[PAIR.index("      - conc-list") :]
    names = list(from_text(PAIR + row.replace("[4]", "[8, 16]")))
    assert names == ["m-fp8-mi355x-1p1d-tp4-1k1k-c4-4.yaml", "m-fp8-mi355x-1p1d-tp4-1k1k-c8-16.yaml"]


def test_recipe_that_cannot_generate_is_not_written() -> None:
    with pytest.raises(RecipeError) as caught:
        from_text(PAIR, "M: {kv_cache_flags: --port 1}\n")
    assert "port is set by srtgen" in str(caught.value)


@pytest.mark.parametrize(("start", "end", "values"), [(4, 4, (4,)), (1, 8, (1, 2, 4, 8)), (3, 10, (3, 6, 10))])
def test_ranges_double_and_hold_their_end(start: int, end: int, values: tuple[int, ...]) -> None:
    text = PAIR.replace("conc-list: [4]", f"conc-start: {start}\n        conc-end: {end}")
    entry = master.read(document.load("m.yaml", text.encode()), "k-mi355x-atom-disagg")
    assert entry.rows[0].concurrencies == values


@pytest.mark.parametrize(
    ("text", "quoted", "shown"),
    [
        ("fp8", True, "fp8"), ("1", True, '"1"'), ("1", False, "1"), ("0.85", False, "0.85"), ("true", False, '"true"'),
        ("", True, '""'), ("*x", True, '"*x"'), ("2026-05-12", True, '"2026-05-12"'), ("a: b", True, '"a: b"'),
        ("~", True, '"~"'), ("0x10", False, '"0x10"'), ("Org/M-1.5_x", True, "Org/M-1.5_x"), ("a #b", True, '"a #b"'),
    ],
)  # fmt: skip
def test_text_reads_back_as_itself(text: str, quoted: bool, shown: str) -> None:
    assert scalar(text, quoted) == shown
    assert document.load("x", f"a: {shown}\n".encode()).sources["a",] == text


def test_flags_and_variables_are_taken_apart() -> None:
    assert words("--a b --c --d=e") == (Item("a", "b"), Item("c", True), Item("d", "e"))
    assert variables("A=1 B=x=y") == (Item("A", "1"), Item("B", "x=y"))


def test_json_stays_text_where_its_spelling_would_change() -> None:
    assert structured('{"a":[1,"b"]}') == {"a": [1, "b"]}
    assert structured('{"a": 1}') == '{"a": 1}'
    assert structured("not json") == "not json"


# The command line.


def run(*words: str) -> Result:
    files = ["--models", str(OURS / "models.yaml"), "--master", str(OURS / "master.yaml")]
    return CliRunner().invoke(command, ["import-inferencex", *files, *words])


def test_command_writes_what_it_can_and_says_what_not(tmp_path: Path) -> None:
    result = run("dsr1-fp4-mi355x-atom", "dsr1-fp8-mi355x-sglang", "-o", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "dsr1-fp8-mi355x-sglang: no recipe" in result.output
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["dsr1-fp4-mi355x-agg-tp8-8k1k.yaml"]


def test_command_keeps_edited_recipes(tmp_path: Path) -> None:
    words = ["dsr1-fp4-mi355x-atom", "-o", str(tmp_path)]
    assert run(*words).exit_code == 0 and run(*words).exit_code == 0
    (recipe,) = tmp_path.iterdir()
    recipe.write_text("mine\n")
    result = run(*words)
    assert result.exit_code == 1 and "has other content; --force writes over it" in result.output
    assert recipe.read_text() == "mine\n"
    assert run(*words, "--force").exit_code == 0 and recipe.read_text() != "mine\n"


def test_options_say_what_the_files_do_not(tmp_path: Path) -> None:
    given = ["--arg", "kv_cache_dtype=fp8", "--arg", "trust-remote-code", "--env", "A=1", "--time-limit", "01:30:00"]
    assert run("tiny-fp8-mi300x-atom", "-o", str(tmp_path), *given).exit_code == 0
    (recipe,) = tmp_path.iterdir()
    worker = processes(recipe.read_text())["agg_0"]
    assert recipe.name == "tiny-fp8-mi300x-agg-tp1-1000-100.yaml"
    assert {"--kv_cache_dtype": "fp8", "--trust-remote-code": True}.items() <= options(worker["argv"]).items()
    assert worker["env"]["A"] == "1"
    result = run("glm5-fp8-mi355x-atom", "-o", str(tmp_path), "--image", "me/atom:nightly_202607231538")
    assert result.exit_code == 0


def test_bad_option_is_a_usage_error(tmp_path: Path) -> None:
    assert run("dsr1-fp4-mi355x-atom", "-o", str(tmp_path), "--env", "A").exit_code == 2


# The recipes that we ship.


def test_shipped_recipes_of_our_files_are_the_imports() -> None:
    for key in ("dsv4-fp4-mi355x-atom-disagg", "minimaxm3-fp8-mi355x-atom-disagg", "minimaxm3-fp4-mi355x-atom-disagg"):
        for name, text in imported(key, Choices(pack=True)).items():
            assert (SHIPPED / name).read_text(encoding="utf-8") == text, name


def keys(file: str) -> list[str]:
    return [key for key in load(REAL / file).data if "atom" in key] if REAL.is_dir() else []


FILES = ("amd-master.yaml", "amd-master-deprecated.yaml")
PAIRS_SHIPPED = tuple(f"{model}-mi355x-atom-disagg" for model in ("minimaxm3-fp4", "minimaxm3-fp8", "kimik2.5-fp4"))


@needs_real
@pytest.mark.parametrize(("file", "key"), [(file, key) for file in FILES for key in keys(file)])
def test_every_real_key_gives_recipes_or_a_reason(file: str, key: str) -> None:
    try:
        made = imported(key, Choices(pack=True), REAL, file)
    except RecipeError as error:
        assert "agentic" in key or key.startswith("glm5"), error
        return
    rows = master.read(load(REAL / file), key).rows
    assert len(made) >= len(rows)
    assert "agentic" not in key
    if file == FILES[0] or key in PAIRS_SHIPPED:
        for name, text in made.items():
            assert (SHIPPED / name).read_text(encoding="utf-8") == text, name


@pytest.mark.parametrize("recipe", sorted(path.name for path in SHIPPED.glob("*.yaml")))
def test_shipped_recipe_generates_cleanly_without_a_profile(recipe: str) -> None:
    content = (SHIPPED / recipe).read_bytes()
    made = generate.bundle(Source(recipe, recipe, content), None, [])
    assert not [f.text() for f in made.findings if f.severity == "warning" and not f.reason]
    assert made.plan.recipe.name == recipe.removesuffix(".yaml")
    assert made.plan.recipe.time_limit and made.plan.recipe.gpus_per_node
    assert made.plan.recipe.model.path.startswith("hf:")
