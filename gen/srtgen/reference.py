"""The reference of fields and codes, made from the schemas and the explanations of the checks."""

from __future__ import annotations

from typing import Any, Iterator

from srtgen import catalogue, schemas

_HEAD = """# Reference

Made by `srtgen reference`; do not edit. Sources: `schema/*.schema.json`, `schema/checks/*.yaml`.

An editor with the YAML language server completes recipes whose first line names the schema:
`# yaml-language-server: $schema=../../schema/recipe-2.schema.json` (a path relative to the recipe, or the file that
`srtgen schema recipe --flags > recipe.schema.json` makes, which knows the engine's flags too).
"""

_CODES = """Errors end the generation. Warnings and notes stand in the bundle's README and manifest; a recipe silences one
with `silence: [{code: ..., reason: ...}]`, and `--strict` makes errors of the warnings that are not silenced.
"""


def text() -> str:
    """The whole reference as Markdown."""
    parts = [
        _HEAD,
        "## Recipe (layout 2)\n",
        *_fields(schemas.schema("recipe-2")),
        "\n## Cluster profile\n",
        *_fields(schemas.schema("cluster")),
        "\n## Codes\n",
        _CODES,
        "| code | severity | what |\n| --- | --- | --- |",
        *(
            f"| [{code}](#{code}) | {(e := catalogue.entry(code)).severity} | {_cell(e.says)} |"
            for code in catalogue.codes()
        ),
        *(_code(catalogue.entry(code)) for code in catalogue.codes()),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    """A table of every key that is acted on, by its path."""
    yield "| key | type | what |\n| --- | --- | --- |"
    for path, node in _walk(schema, schema, ""):
        yield f"| `{path}` | {_cell(_type(node))} | {_cell(node.get('description', ''))} |"


def _walk(root: dict[str, Any], node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    node = _resolved(root, node)
    for name, child in node.get("properties", {}).items():
        whole = {**_resolved(root, child), **child}
        if "x-refused" in child or child.get("x-ignored"):
            continue
        below = f"{path}.{name}" if path else name
        yield below, whole
        yield from _walk(root, child, below)
        for inner in (*whole.get("anyOf", ()), whole.get("items", {})):
            yield from _walk(root, inner, below + ("[]" if inner is whole.get("items") else ""))


def _resolved(root: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    return root["$defs"][node["$ref"].rsplit("/", 1)[1]] if "$ref" in node else node


def _type(node: dict[str, Any]) -> str:
    if "enum" in node:
        return " or ".join(f"`{'false' if value is False else value}`" for value in node["enum"])
    if "const" in node:
        return f"`{node['const']}`"
    if "x-expects" in node:
        return str(node["x-expects"])
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(_type(one) for one in node["anyOf"]))
    kind = node.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else kind


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _code(entry: catalogue.Entry) -> str:
    parts = [
        f"\n### {entry.code}\n",
        f"{entry.severity}: {entry.says}. {entry.why.strip()}\n",
        f"Evidence: {entry.evidence}\n",
    ]
    for title, example in (("Wrong", entry.wrong), ("Right", entry.right)):
        if example:
            parts.append(f"{title}:\n\n```yaml\n{example.rstrip()}\n```\n")
    return "\n".join(parts).rstrip("\n")
