"""`srtgen schema`: JSON Schemas of recipes, profiles, and of the flags as of a date."""

from __future__ import annotations

import json
from typing import Any

import click

from srtgen import schemas
from srtgen.argschema import args_schema, with_flags
from srtgen.engines import atom
from srtgen.routers import atomesh

_EXTRA = {
    atom.EXTRA_CONNECTORS: {
        "description": "Further KV connectors beside srtgen's own, each a complete configuration.",
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "required": ["kv_connector"], "properties": {"kv_connector": {"type": "string"}}},
    }
}
_DAY = click.DateTime(formats=["%Y-%m-%d"])


@click.command("schema")
@click.argument("what", type=click.Choice(["recipe", "cluster", "atom", "atomesh"]), default="recipe")
@click.option("--date", type=_DAY, help="Day of the engine's version, such as 2026-06-10; left out: the newest known.")
@click.option("--flags", is_flag=True, help="recipe: with the flags of engine and router, for completion in an editor.")
def command(what: str, date: Any, flags: bool) -> None:
    """Print the JSON Schema of a recipe (default), a cluster profile, or of the args for atom or atomesh."""
    day = date.date().isoformat() if date else None
    made = _schema(what, day, flags or (what == "recipe" and day is not None))
    click.echo(json.dumps(made, indent=1, ensure_ascii=False))


def _schema(what: str, day: str | None, flags: bool) -> dict[str, Any]:
    if what == "atom":
        return args_schema(atom.table(), day, atom.MANAGED, _EXTRA, hyphens_only=False)
    if what == "atomesh":
        return args_schema(atomesh.table(), day, atomesh.MANAGED, {}, hyphens_only=True)
    if what == "cluster":
        return schemas.schema("cluster")
    recipe = schemas.schema("recipe-2")
    return with_flags(recipe, _schema("atom", day, False), _schema("atomesh", day, False)) if flags else recipe
