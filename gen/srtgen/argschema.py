"""JSON Schemas of a recipe's `args`, made from the flag tables as of a date."""

from __future__ import annotations

from typing import Any, Mapping

from srtgen.flags import Flag, FlagTable

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "object": "object", "list": "array"}
_BOUNDS = ("minimum", "maximum")


def args_schema(
    table: FlagTable, date: str | None, managed: frozenset[str], own: Mapping[str, Any], hyphens_only: bool
) -> dict[str, Any]:
    """What the `args` of a recipe may hold for this program: one property a spelling that is valid on the date.

    Flags that srtgen sets itself are left out, `own` are its own keys beside them. `hyphens_only`: the
    recipe's underscores become hyphens.
    """
    of = f"on {date}" if date else f"up to {table.last_date}"
    covered = f"{table.first_date or 'no dates'} to {table.last_date}"
    return {
        "$schema": _DRAFT,
        "$id": f"urn:srtgen:{table.name}{f':{date}' if date else ''}",
        "title": f"Flags of {' '.join(table.command)} {of}, as keys of args",
        "description": f"Made from {table.name}'s flag table, which covers {covered}.",
        "type": "object",
        "additionalProperties": False,
        "properties": {**properties(table, date, managed), **own},
        **({"$comment": "A recipe may write underscores for the hyphens."} if hyphens_only else {}),
    }


def properties(table: FlagTable, date: str | None, managed: frozenset[str]) -> dict[str, Any]:
    """The properties of `args`, in the table's order."""
    found: dict[str, Any] = {}
    for flag in table.flags:
        if flag.key in managed or flag.group == "builtin":
            continue
        for spelling in (*flag.valid_on(date), *_negatives(flag, date)):
            if spelling.startswith("--"):
                found[spelling[2:]] = _property(flag, spelling, date, table.first_date or "")
    return found


def _negatives(flag: Flag, date: str | None) -> list[str]:
    return [text for text, since in flag.negatives.items() if not (date and since and since > date)]


def _property(flag: Flag, spelling: str, date: str | None, oldest: str) -> dict[str, Any]:
    since = flag.since(spelling) or ""
    about = " ".join(filter(None, (flag.note, f"Since {since}." if since > oldest else "")))
    described: dict[str, Any] = {"description": about}
    default = flag.default_on(date)
    if default is not None and not flag.is_negative(spelling) and flag.kind_on(date) != "switch":
        described["default"] = default
    return {**described, **_value(flag, spelling, date)}


def _value(flag: Flag, spelling: str, date: str | None) -> dict[str, Any]:
    kind = flag.kind_on(date)
    if flag.is_negative(spelling) or kind == "switch":
        return {"const": True}
    if kind == "boolean_optional":
        return {"type": "boolean"}
    one = _scalar(flag, date)
    if kind == "optional_value":
        return {"anyOf": [{"const": True}, one]}
    if kind in ("multi", "append"):
        return {"anyOf": [one, {"type": "array", "minItems": 1, "items": one}]}
    if flag.format == "int-list":
        return {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}]}
    if kind == "json" or flag.format == "json-object":
        return {"anyOf": [_object(flag), {"type": "string"}]}
    return one


def _scalar(flag: Flag, date: str | None) -> dict[str, Any]:
    choices = flag.choices_on(date)
    if choices is not None:
        return {"enum": list(choices)}
    limits = flag.limits or flag.range or (None, None)
    bounds = {name: limit for name, limit in zip(_BOUNDS, limits, strict=True) if limit is not None}
    kind = flag.type_on(date)
    return {"type": {"int": "integer", "float": "number"}.get(kind or "", ["string", "number"]), **bounds}


def _object(flag: Flag) -> dict[str, Any]:
    payload: Mapping[str, Any] = flag.payload or {}
    if payload.get("keys") is None:
        return {"type": "object"}
    known = {key: _key(spec) for key, spec in payload["keys"].items()}
    return {"type": "object", "additionalProperties": False, "properties": known}


def _key(spec: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [_TYPES[name] for name in spec["type"]]
    described = {"description": spec["note"]} if "note" in spec else {}
    choices = {"enum": spec["choices"]} if "choices" in spec else {}
    bounds = {name: spec[name] for name in _BOUNDS if name in spec}
    return {**described, "type": kinds[0] if len(kinds) == 1 else kinds, **choices, **bounds}


def with_flags(recipe: dict[str, Any], engine: dict[str, Any], router: dict[str, Any]) -> dict[str, Any]:
    """The recipe's schema with the flags in it, for completion in an editor; other keys of args stay possible."""
    role = dict(recipe["$defs"]["role"])
    role["properties"] = {**role["properties"], "args": _open(role["properties"]["args"], engine)}
    frontend = dict(recipe["properties"]["frontend"])
    frontend["properties"] = {**frontend["properties"], "args": _open(frontend["properties"]["args"], router)}
    return {
        **recipe,
        "$defs": {**recipe["$defs"], "role": role},
        "properties": {**recipe["properties"], "frontend": frontend},
    }


def _open(args: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    return {"description": args["description"], "type": "object", "properties": flags["properties"]}
