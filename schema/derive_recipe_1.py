#!/usr/bin/env python3
"""Rewrite what recipe-1.schema.json shares with recipe-2.schema.json: `python schema/derive_recipe_1.py`.

Layout 1 differs from layout 2 in a few blocks, which are edited in recipe-1.schema.json itself. Everything else has to
be the same in both files and is copied from recipe-2.schema.json by this script.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECIPE_1 = HERE / "recipe-1.schema.json"
RECIPE_2 = HERE / "recipe-2.schema.json"
# Keys of layout 2 that layout 1 spells or places otherwise, and what stays as it is in recipe-1.schema.json.
ONLY_IN_2 = frozenset({"schema", "engine", "roles"})
OWN = frozenset({"resources", "backend", "container_mounts", "dynamo", "infra"})
OWN_IN_BLOCK = {
    "frontend": frozenset({"orchestrator_placement", "dedicated_node"}),
    "benchmark": frozenset({"client_placement", "client_dedicated_node", "colocate_with_frontend"}),
}
PLACEMENT = "placement"
Json = dict[str, Any]


def derive(one: Json, two: Json) -> Json:
    """`one` with every shared part taken from `two`, in the order of `two`."""
    own = one["properties"]
    properties: Json = {}
    for key, block in two["properties"].items():
        if key in OWN:
            properties[key] = own[key]
        elif key in OWN_IN_BLOCK:
            properties[key] = _block(own[key]["properties"], block, OWN_IN_BLOCK[key])
        elif key not in ONLY_IN_2:
            properties[key] = block
    shared = {key: value for key, value in two["$defs"].items() if key != "role"}
    return {**one, "$defs": shared, "properties": properties, "patternProperties": two["patternProperties"]}


def _block(own: Json, block: Json, keys: frozenset[str]) -> Json:
    theirs = {key: value for key, value in block["properties"].items() if key != PLACEMENT}
    return {**block, "properties": {key: own[key] if key in keys else value for key, value in theirs.items()}}


def main() -> None:
    one, two = (json.loads(path.read_text(encoding="utf-8")) for path in (RECIPE_1, RECIPE_2))
    text = json.dumps(derive(one, two), indent=1, ensure_ascii=False) + "\n"
    RECIPE_1.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
