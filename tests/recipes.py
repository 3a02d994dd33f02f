"""Small recipes as text, for tests that vary one thing."""

from __future__ import annotations

import json
from typing import Any

import yaml

from shipped import from_text
from srtgen.errors import RecipeError
from srtgen.generate import Bundle


def recipe(**keys: Any) -> str:
    """A recipe of one aggregate worker, with these top-level keys; None leaves one out."""
    data = {
        "schema": 2,
        "name": "small",
        "model": {"path": "hf:org/model", "container": "image:1"},
        "resources": {"gpus_per_node": 8},
        "engine": "atom",
        "roles": {"agg": {"nodes": 1, "workers": 1}},
        "benchmark": {"type": "manual"},
        **keys,
    }
    kept = {key: value for key, value in data.items() if value is not None}
    return yaml.safe_dump(kept, allow_unicode=True, sort_keys=False, width=10_000)


def pd(prefill: dict[str, Any] | None = None, decode: dict[str, Any] | None = None) -> dict[str, Any]:
    """Roles of one prefill and one decode worker on a node each, changed as given."""
    one = {"nodes": 1, "workers": 1}
    return {"prefill": one | (prefill or {}), "decode": one | (decode or {})}


def manifest(bundle: Bundle) -> dict[str, Any]:
    return json.loads(bundle.files["manifest.json"].content)


def processes(bundle: Bundle) -> dict[str, dict[str, Any]]:
    """The manifest's processes by step; of the client's only the first point."""
    return {p["step"]: p for p in reversed(manifest(bundle)["processes"])}


def errors(text: str, cluster: str | None = None) -> list[str]:
    """The errors of a recipe that must be refused, as `path: message`."""
    try:
        from_text(text, cluster)
    except RecipeError as error:
        return [f"{p.path}: {p.message}" for p in error.problems if p.severity == "error"]
    raise AssertionError("the recipe was accepted")
