"""Layout 1: the same plans as layout 2, messages in the author's words, and the recipes that people have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from srtgen import document, generate, layout1, schemas
from srtgen.errors import RecipeError
from srtgen.generate import Bundle, Source
from srtgen.report import Report

TESTS = Path(__file__).resolve().parent
PAIRS = sorted(path.name.removesuffix(".1.yaml") for path in (TESTS / "layout1").glob("*.1.yaml"))
REAL = TESTS.parents[1] / "shared" / "data"
PROFILE = Source("site.yaml", "site.yaml", b"cluster: site\ngpus_per_node: 8\ndefault_time_limit: '02:00:00'\n")
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="the recipes of srt-slurm's users are not here")


def made(content: bytes, cluster: Source | None = PROFILE) -> Bundle:
    return generate.bundle(Source("recipe.yaml", "recipe.yaml", content), cluster, [])


def of_pair(name: str, layout: int) -> Bundle:
    return made((TESTS / "layout1" / f"{name}.{layout}.yaml").read_bytes())


def manifest(bundle: Bundle) -> dict[str, Any]:
    return json.loads(bundle.files["manifest.json"].content)


def without_id(script: bytes) -> bytes:
    return re.sub(rb"PLAN_ID=\S+", b"PLAN_ID=", script)


@pytest.mark.parametrize("name", PAIRS)
def test_both_layouts_give_the_same_plan(name: str) -> None:
    old, new = of_pair(name, 1), of_pair(name, 2)
    one, two = manifest(old), manifest(new)
    for key in ("name", "recipe", "served_model", "nodes", "processes"):
        assert one[key] == two[key], key
    assert old.plan.directives == new.plan.directives
    assert old.plan.listeners == new.plan.listeners
    assert old.plan.mounts == new.plan.mounts


@pytest.mark.parametrize("name", PAIRS)
def test_both_layouts_give_the_same_scripts(name: str) -> None:
    old, new = of_pair(name, 1).files, of_pair(name, 2).files
    assert old.keys() == new.keys()
    for path in old.keys() - {"manifest.json", "recipe.yaml", "README.md"}:
        assert without_id(old[path].content) == without_id(new[path].content), path


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_is_found_in_both_layouts(name: str) -> None:
    def codes(bundle: Bundle) -> list[str]:
        return sorted(f.code for f in bundle.findings if f.code != "layout1-unread")

    assert codes(of_pair(name, 1)) == codes(of_pair(name, 2))


@pytest.mark.parametrize("name", PAIRS)
def test_every_value_keeps_its_place_and_path(name: str) -> None:
    """A problem anywhere in the converted recipe is shown at a path of the file, on the line that has its value."""
    file = TESTS / "layout1" / f"{name}.1.yaml"
    old = document.load("recipe.yaml", file.read_bytes())
    new = layout1.convert(old, 8, Report())
    assert new is not None
    for path in new.sources:
        there = new.speech.path(path)
        assert new.mark(path) == old.mark(there), path
        assert new.sources[path] == old.sources[there] or (old.sources[there], new.sources[path]) == ("0", "colocate")


BASE = (TESTS / "layout1" / "pd-dpa-custom.1.yaml").read_text(encoding="utf-8")
AGG = (TESTS / "layout1" / "agg-floor.1.yaml").read_text(encoding="utf-8")
# What is replaced by what in the recipe, and the line that has to come out.
WRONG = {
    "flag set by us": (
        BASE, "      block-size: 16\n", "      tp: 8\n",
        "recipe.yaml:53:7: error: backend.atom_config.prefill.tp: tp is set by srtgen and cannot be given "
        "(it can stand for --tensor-parallel-size)",
    ),
    "other engine": (
        BASE, "  type: atom\n", "  type: vllm\n",
        "recipe.yaml:44:9: error: backend.type: the engine vllm is not supported yet; known: atom",
    ),
    "engine left out": (
        BASE, "  type: atom\n", "",
        "recipe.yaml:43:1: error: backend: missing key type, which means sglang in layout 1; known engines: atom",
    ),
    "other router": (
        BASE, "  type: atomesh\n", "  type: infera\n",
        "recipe.yaml:31:9: error: frontend.type: the router infera is not supported yet; known: atomesh",
    ),
    "router left out": (
        BASE, "  type: atomesh\n", "",
        "recipe.yaml:30:1: error: frontend: missing key type, which means dynamo in layout 1; known routers: atomesh",
    ),
    "other engine's flags": (
        BASE, "  atom_config:\n", "  sglang_config: {}\n  atom_config:\n",
        "recipe.yaml:50:3: error: backend.sglang_config: sglang_config belongs to another engine; the only engine yet "
        "is atom, with atom_config",
    ),
    "events": (
        BASE, "  connector: mooncake\n", "  enable_kv_events: true\n",
        "recipe.yaml:45:3: error: backend.enable_kv_events: enable_kv_events is not supported yet",
    ),
    "unknown key": (
        BASE, "  gpus_per_decode: 8\n", "  gpus_per_decod: 8\n",
        "recipe.yaml:28:3: error: resources.gpus_per_decod: unknown key; did you mean gpus_per_decode?",
    ),
    "misplaced key": (
        BASE, "  prefill_nodes: 2\n", "",
        "recipe.yaml:20:1: error: resources: missing key prefill_nodes",
    ),
    "one role alone": (
        BASE, "  decode_nodes: 1\n  decode_workers: 1\n", "",
        "recipe.yaml:20:1: error: resources: missing keys decode_nodes, decode_workers",
    ),
    "both kinds": (
        BASE, "  decode_nodes: 1\n", "  decode_nodes: 1\n  agg_nodes: 1\n  agg_workers: 1\n",
        "recipe.yaml:27:3: error: resources.agg_workers: aggregate workers exclude prefill and decode",
    ),
    "worker over nodes": (
        BASE, "  gpus_per_prefill: 8\n", "  gpus_per_prefill: 16\n",
        "recipe.yaml:27:21: error: resources.gpus_per_prefill: 16 is more than a node has (8); a worker "
        "never spans nodes",
    ),
    "idle node": (
        BASE, "  prefill_workers: 2\n", "  prefill_workers: 1\n",
        "recipe.yaml:23:18: error: resources.prefill_nodes: 1 of 2 nodes would have no worker; write 1",
    ),
    "no room for workers": (
        AGG, "  agg_workers: 3\n", "  agg_workers: 9\n",
        "recipe.yaml:9:16: error: resources.agg_workers: 8 GPUs do not divide evenly among 9 workers within nodes; "
        "write gpus_per_prefill, gpus_per_decode or gpus_per_agg",
    ),
    "one name, two values": (
        BASE, "  PYTHONUNBUFFERED: \"1\"\n", "  ATOM_MOE_GU_ITLV: \"0\"\n",
        "recipe.yaml:47:23: error: backend.prefill_environment.ATOM_MOE_GU_ITLV: ATOM_MOE_GU_ITLV has another value at "
        "environment.ATOM_MOE_GU_ITLV (line 41); write it once",
    ),
    "protocol without transfer": (
        AGG, "  type: atom\n", "  type: atom\n  mooncake_protocol: tcp\n",
        "recipe.yaml:19:22: error: backend.mooncake_protocol: never read: aggregate workers transfer no KV cache",
    ),
    "mount of ours": (
        AGG, "  /scratch: /scratch\n", "  /scratch: /logs\n",
        "recipe.yaml:14:13: error: container_mounts.\"/scratch\": /logs is taken by the job itself",
    ),
    "directive of ours": (
        BASE, '  mem: "0"\n  exclusive', '  nodes: "3"\n  exclusive',
        "recipe.yaml:66:3: error: sbatch_directives.nodes: nodes cannot be given: it follows from resources.*_nodes",
    ),
    "heterogeneous job": (
        BASE, "  gpus_per_node: 8\n", "  gpus_per_node: 8\n  het_jobs: true\n",
        "recipe.yaml:23:3: error: resources.het_jobs: heterogeneous jobs (resources.het_jobs) are not supported yet",
    ),
    "wrong type": (
        BASE, "  prefill_nodes: 2\n", "  prefill_nodes: two\n",
        "recipe.yaml:23:18: error: resources.prefill_nodes: expected a whole number; got two",
    ),
    "layout 2 without its key": (
        BASE, "backend:\n", "engine: atom\nbackend:\n",
        "recipe.yaml:2:1: error: missing key schema; with engine this is layout 2: write schema: 2",
    ),
    "layout 1 with a key": (
        BASE, "name: pd-dpa-custom\n", "name: pd-dpa-custom\nschema: 1\n",
        "recipe.yaml:3:1: error: schema: recipes of layout 1 have no key schema; remove it",
    ),
}  # fmt: skip


def findings(content: str, cluster: Source | None = PROFILE) -> list[str]:
    """Everything said of a recipe, without the codes behind it."""
    try:
        problems = made(content.encode(), cluster).findings
    except RecipeError as error:
        problems = error.problems
    return [re.sub(r" \[[a-z0-9-]+\]$", "", problem.text()) for problem in problems]


@pytest.mark.parametrize("case", WRONG)
def test_messages_speak_of_the_file_as_written(case: str) -> None:
    recipe, old, new, expected = WRONG[case]
    assert recipe.count(old) >= 1
    assert expected in findings(recipe.replace(old, new, 1))


def test_no_message_names_a_path_of_layout_2() -> None:
    for recipe, old, new, _ in WRONG.values():
        for line in findings(recipe.replace(old, new, 1)):
            if "this is layout 2" not in line:
                assert not re.search(r"\broles\.|\bengine\.[a-z]", line), line


def test_gpus_of_a_node_are_never_assumed() -> None:
    text = BASE.replace("  gpus_per_node: 8\n", "")
    said = "resources: missing key gpus_per_node, which no cluster profile gives either; srt-slurm's 4 is not assumed"
    assert f"recipe.yaml:20:1: error: {said}" in findings(text, None)
    assert not [line for line in findings(text) if ": error: " in line]


def test_fields_that_nobody_reads_are_said() -> None:
    text = AGG.replace("    aggregated:\n", "    decode: {max-num-seqs: 4}\n    aggregated:\n")
    said = "backend.atom_config.decode: never read: the recipe has no decode workers"
    assert f"recipe.yaml:23:5: warning: {said}" in findings(text)
    assert "recipe.yaml:83:3: note: benchmark.isl: never read by type custom" in findings(BASE)


def test_overrides_name_paths_of_the_layout() -> None:
    changes = [("set", "backend.atom_config.decode.max-num-seqs=64"), ("set", "resources.decode_workers=x")]
    with pytest.raises(RecipeError) as caught:
        generate.bundle(Source("recipe.yaml", "recipe.yaml", BASE.encode()), None, changes)
    assert "--set resources.decode_workers=x:1:" in str(caught.value)
    bundle = generate.bundle(Source("recipe.yaml", "recipe.yaml", BASE.encode()), None, changes[:1])
    (decode,) = [p for p in manifest(bundle)["processes"] if p["step"] == "decode_0"]
    assert decode["argv"][decode["argv"].index("--max-num-seqs") + 1] == "64"


def test_custom_command_reaches_the_bundle_untouched() -> None:
    command = of_pair("pd-dpa-custom", 1).files["bench_command.sh"].content.decode()
    assert 'for level in ${CONC_LIST}; do\n  echo "{level} of ${SLURM_JOB_ID}' in command


def described(node: Any) -> list[str]:
    """Properties of a schema that have no description."""
    missing: list[str] = []
    if isinstance(node, dict):
        for name, child in (node.get("properties") or {}).items():
            if not child.get("description"):
                missing.append(name)
        for child in node.values():
            missing.extend(described(child))
    elif isinstance(node, list):
        for child in node:
            missing.extend(described(child))
    return missing


def test_every_key_is_described() -> None:
    assert described(schemas.schema("recipe-1")) == []


def test_the_schemas_agree_in_what_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTS.parent / "schema"))
    import derive_recipe_1

    one, two = schemas.schema("recipe-1"), schemas.schema("recipe-2")
    assert derive_recipe_1.derive(one, two) == one, "run python schema/derive_recipe_1.py"


@needs_real
@pytest.mark.parametrize("cluster", [None, "mi355x-amds", "mi300x-amds"])
@pytest.mark.parametrize("recipe", ["atomesh-disagg", "dsv4-2p1d-layout1"])
def test_real_recipes_generate_unchanged(recipe: str, cluster: str | None) -> None:
    content = (REAL / "recipes" / f"{recipe}.yaml").read_bytes()
    site = cluster and Source("c.yaml", "c.yaml", (REAL / "clusters" / f"{cluster}.yaml").read_bytes())
    bundle = made(content, site or None)
    assert bundle.files["recipe.yaml"].content == content


@needs_real
def test_real_recipe_of_layout_1_says_what_its_author_meant() -> None:
    bundle = made((REAL / "recipes" / "dsv4-2p1d-layout1.yaml").read_bytes(), None)
    processes = {p["step"]: p for p in manifest(bundle)["processes"]}
    assert [processes[s]["node"] for s in ("prefill_0", "prefill_1", "decode_0")] == [0, 1, 2]
    assert processes["atomesh_0"]["ports"]["metrics"] == 29100
    assert processes["decode_0"]["env"]["ATOM_CPU_AFFINITY"] == "1"
    assert bundle.plan.srun_options == ("--container-writable", "--container-remap-root", "--mem=0")
    texts = [directive.text for directive in bundle.plan.directives]
    assert {"--exclusive", "--mem=0", "--cpus-per-task=128", "--time=08:00:00", "--nodes=3"} <= set(texts)


@needs_real
@pytest.mark.parametrize("recipe", ["infera-dsv4-1p1d", "infera-qwen3-agg-2w"])
def test_infera_is_refused_by_name(recipe: str) -> None:
    with pytest.raises(RecipeError) as caught:
        made((REAL / "recipes" / f"{recipe}.yaml").read_bytes(), None)
    assert "frontend.type: the router infera is not supported yet; known: atomesh" in str(caught.value)
