"""The schemas: valid themselves, every property described, strict, and unable to let a line break through."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from recipes import errors, pd, recipe
from shipped import BUNDLES, CLUSTERS, RECIPES, ROOT, from_text
from srtgen import document
from srtgen.schemas import schema

SCHEMAS = ["recipe-2", "cluster"]


def nodes(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        yield path, node
        for key, child in node.items():
            yield from nodes(child, f"{path}/{key}")
    elif isinstance(node, list):
        for number, child in enumerate(node):
            yield from nodes(child, f"{path}/{number}")


def properties(name: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for path, node in nodes(schema(name)):
        for holder in ("properties", "patternProperties"):
            if isinstance(node.get(holder), dict) and not path.endswith("/properties"):
                found += [(f"{path}/{key}", child) for key, child in node[holder].items() if isinstance(child, dict)]
    return found


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_is_valid(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_property_has_a_description(name: str) -> None:
    assert len(properties(name)) > 20
    assert [path for path, node in properties(name) if not str(node.get("description", "")).strip()] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_no_mapping_takes_unknown_keys(name: str) -> None:
    loose = [
        path
        for path, node in nodes(schema(name))
        if isinstance(node.get("properties"), dict)
        and node.get("additionalProperties") is not False
        and not path.endswith(("/properties", "/overrides/items"))  # an override holds any part of a recipe
    ]
    assert loose == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_case_017_no_pattern_lets_a_final_line_break_through(name: str) -> None:
    patterns = {node["pattern"] for _, node in nodes(schema(name)) if isinstance(node.get("pattern"), str)}
    assert patterns
    for pattern in patterns:
        assert pattern.startswith("^") and pattern.endswith("$(?!\\n)"), pattern
        for text in ("a", "1", "/a", "/a:/b", "08:00:00", "x1"):
            if re.search(pattern, text):
                assert not re.search(pattern, text + "\n"), pattern


@pytest.mark.parametrize("path", [*RECIPES.values(), *CLUSTERS.values()], ids=lambda p: p.stem)
def test_shipped_files_also_pass_a_stock_validator(path: Any) -> None:
    """What an editor shows is what srtgen judges."""
    name = "cluster" if path.parent.name == "clusters" else "recipe-2"
    data = document.load(path.name, path.read_bytes()).data
    assert [e.message for e in Draft202012Validator(json.loads((ROOT / f"schema/{name}.schema.json").read_text())).iter_errors(data)] == []


NEAREST = {
    "sbatch_directive": "did you mean sbatch_directives?",
    "Model": "did you mean model?",
    "bench-mark": "did you mean benchmark?",
    "time_limit": "its place is slurm.time_limit",
    "gpus_per_node": "its place is resources.gpus_per_node",
    "prefill_nodes": "in layout 2 this is roles.prefill.nodes",
    "zzzzz": "known here: ",
}


@pytest.mark.parametrize("key", NEAREST)
def test_case_020_an_unknown_key_is_an_error_with_the_nearest_one(key: str) -> None:
    assert any(m.startswith(f"{key}: unknown key; ") and NEAREST[key] in m for m in errors(recipe(**{key: "x"})))


# What srt-slurm's layout 2 has and srtgen refuses; each by its own name.
REFUSED = ["backend", "dynamo", "infra", "services", "profiling", "observability", "output", "reporting", "setup_script", "host_setup"]


@pytest.mark.parametrize("key", REFUSED)
def test_known_keys_that_are_not_acted_on_are_refused_by_name(key: str) -> None:
    (message,) = errors(recipe(**{key: {}}))
    assert message.startswith(f"{key}: ") and "unknown" not in message and "not supported" in message or "layout 1" in message


@pytest.mark.parametrize("value", [False, {"enabled": False}])
def test_telemetry_that_is_off_is_fine(value: Any) -> None:
    from_text(recipe(telemetry=value))


@pytest.mark.parametrize("value", ["8.0", "1e1", "017", "0x8", "0o10", "8_0", '"8"', "true", "null", "[8]"])
def test_case_003_whole_numbers_are_written_as_such(value: str) -> None:
    text = recipe(resources=None).rstrip() + f"\nresources: {{gpus_per_node: {value}}}\n"
    assert any(m.startswith("resources.gpus_per_node") for m in errors(text))


def texts_of_the_schema() -> list[tuple[str, dict[str, Any]]]:
    """Every text of the recipe that a user may choose freely, by its path in the schema."""
    root = schema("recipe-2")
    found: list[tuple[str, dict[str, Any]]] = []

    def visit(node: dict[str, Any], path: str) -> None:
        if "$ref" in node:
            node = root["$defs"][node["$ref"].rsplit("/", 1)[1]]
        if node.get("type") == "string" or (isinstance(node.get("type"), list) and "string" in node["type"]):
            found.append((path, node))
        for key, child in node.get("properties", {}).items():
            if "x-refused" not in child and key not in ("agg",):
                visit(child, f"{path}.{key}" if path else key)
        for child in node.get("anyOf", []):
            visit(child, path)
        if isinstance(node.get("items"), dict):
            visit(node["items"], f"{path}[0]")
        if isinstance(node.get("additionalProperties"), dict):
            visit(node["additionalProperties"], f"{path}.X" if path.endswith(("env", "environment")) else f"{path}.x")

    visit(root, "")
    return found


HOSTILE = ("a b; touch {mark} #", "$(touch {mark})", "`touch {mark}`", "x\ntouch {mark}\n", "'; touch {mark}; '", '"; touch {mark}; "')


@pytest.mark.parametrize("path", sorted({path for path, _ in texts_of_the_schema()}))
def test_case_014_hostile_text_in_any_field_runs_nothing(path: str, tmp_path: Any) -> None:
    """The fields are found by walking the schema; each is refused, or arrives as text in scripts that bash reads."""
    import subprocess

    from role_rig import Rig
    from shipped import put
    from srtgen.errors import RecipeError

    mark = tmp_path / "pwned"
    accepted = 0
    for number, pattern in enumerate(HOSTILE):
        text = pattern.format(mark=mark)
        for bench in ({"type": "sa-bench", "isl": 8, "osl": 8, "concurrencies": [1]}, {"type": "custom", "argv": ["true"]}):
            keys: dict[str, Any] = {"roles": pd(), "benchmark": dict(bench), "engine": {"type": "atom"}}
            place(keys, path, text)
            try:
                bundle = from_text(recipe(**keys))
            except RecipeError:
                continue
            accepted += 1
            rig = Rig(tmp_path / f"{number}{bench['type']}", put(bundle, tmp_path / f"{number}{bench['type']}" / "bundle"))
            for name in (n for n in bundle.files if n.endswith((".sh", ".sbatch")) and n != "bench_command.sh"):
                assert subprocess.run(["bash", "-n", str(rig.bundle / name)]).returncode == 0
            # Everything of run.sbatch up to its hand-over, and every role.
            script = (rig.bundle / "run.sbatch").read_text().replace('source "${BUNDLE}/lib/srtgen.sh"\nmain', "")
            subprocess.run(["bash", "-c", script], env=rig.environment("x"), capture_output=True, cwd=tmp_path)
            for role in ("prefill", "decode", "atomesh"):
                rig.run(f"{role}_0", f"roles/{role}.sh", "0")
            break
    assert not mark.exists()
    assert not (tmp_path / "pwned").exists(), accepted


def place(keys: dict[str, Any], path: str, text: str) -> None:
    """Put the text at the path, with parents as needed."""
    node: Any = keys
    parts = [p for p in re.split(r"\.|(\[0\])", path) if p]
    for part, following in zip(parts, [*parts[1:], ""]):
        last = following == ""
        value: Any = text if last else ([] if following == "[0]" else {})
        if part == "[0]":
            node.append(value)
            node = node[0]
        else:
            if last or not isinstance(node.get(part), (dict, list)):
                node[part] = value if last or not isinstance(node.get(part), (dict, list)) else node[part]
            node = node[part]


def test_every_bundle_has_a_resolved_recipe_that_is_valid_again() -> None:
    from shipped import made

    for name in BUNDLES:
        data = json.loads(made(name).files["manifest.json"].content)["recipe"]
        found = [f"{list(e.absolute_path)}: {e.message}" for e in Draft202012Validator(schema("recipe-2")).iter_errors(data)]
        assert found == [], name
