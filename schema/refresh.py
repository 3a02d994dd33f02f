#!/usr/bin/env python3
"""Rewrite a flag table from a contract file: `python schema/refresh.py CONTRACT.json`.

A contract lists what a command line accepts at one commit. Spellings, dates, kinds, types, choices, defaults and key
names come from it; notes, earlier values, limits and payload details are written by hand in the table and carried over.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ATOM = HERE / "engines" / "atom.json"
ATOMESH = HERE / "routers" / "atomesh.json"
LINE_WIDTH = 110
TABLE_SCHEMA = "srtgen/flag-table/1"
ATOM_COMMAND = ["python3", "-m", "atom.entrypoints.openai_server"]
BY_HAND = ("limits", "requires", "payload", "history", "note")
# Contract events after which earlier readers of the table need the value that was in force before.
DATED_EVENTS = {"kind", "default", "choices"}
TYPES = {"string": "str", "enum": "str", "path": "str", "bool": None}
FORMATS = {"list-of-int literal": "int-list", "json object": "json-object"}

Json = dict[str, Any]


class ContractError(Exception):
    """The contract and what is written by hand in the table do not fit together."""


def target(contract: Json) -> Path:
    """Return the table that a contract describes."""
    if not isinstance(contract, dict):
        raise ContractError("not a JSON object")
    if contract.get("entrypoint") == ATOM_COMMAND[-1]:
        return ATOM
    if contract.get("command") == ["atomesh", "launch"]:
        return ATOMESH
    raise ContractError("neither an ATOM server contract nor an AToMesh launch contract")


def build(contract: Json, table: Json) -> Json:
    """Return the new table; `table` is the present one, or `{}`, and gives the parts written by hand."""
    atom = target(contract) == ATOM
    source = contract["source"]
    kept = {flag["key"]: flag for flag in table.get("flags", [])}
    dates = spelling_dates(contract)
    payloads = contract.get("json_payloads", {})
    flags = [flag_entry(flag, dates, kept, payloads) for flag in contract["flags"]]
    check_history(flags, contract)
    return {
        "schema": TABLE_SCHEMA,
        "name": "atom" if atom else "atomesh",
        "command": ATOM_COMMAND if atom else contract["command"],
        "source": {"repo": source["repo"], "commit": source["commit"]},
        "first_date": min(dates.values(), default=None),
        "last_date": source["date"][:10],
        "repeated_flag": "last wins" if atom else "error",
        "flags": flags,
    }


def spelling_dates(contract: Json) -> dict[str, str]:
    """Map each spelling to its first date; `<=` marks spellings older than the history, so they get its first day."""
    rows = contract.get("history", {}).get("spellings", [])
    if removed := [row["flag"] for row in rows if row["valid_to"]]:
        raise ContractError(f"removed spellings are not representable yet: {' '.join(removed)}")
    return {row["flag"]: row["valid_from"].removeprefix("<=") for row in rows}


def flag_entry(flag: Json, dates: dict[str, str], kept: dict[str, Json], payloads: Json) -> Json:
    """Return one flag of the table."""
    spellings = sorted(flag["flags"], key=lambda text: dates.get(text, ""))
    key = flag.get("dest") or long_name(flag["flags"])
    negatives = flag.get("negative_flags", [])
    declared = flag.get("declared_flags", flag["flags"])
    declared_negatives = {f"--no-{text[2:]}" for text in declared}
    entry: Json = {
        "key": key,
        "kind": flag["kind"],
        "type": TYPES.get(flag["type"], flag["type"]),
        "spellings": {text: dates.get(text) for text in spellings if text not in negatives},
        "negatives": {text: dates.get(text) for text in spellings if text in negatives},
        "declared": [text for text in spellings if text in declared or text in declared_negatives],
        "choices": flag["choices"],
        "default": flag["default"],
        "const": flag.get("const"),
        "format": FORMATS.get(flag.get("payload", "")),
        "parsed_by": flag.get("json_parsed_by", "").partition(",")[0],
        "range": flag.get("range"),
        "group": flag.get("group"),
    }
    entry |= {name: kept.get(key, {}).get(name) for name in BY_HAND}
    if key in payloads:
        entry["payload"] = payload_entry(payloads[key], entry["payload"] or {})
    required = {"key", "kind", "type", "spellings", "declared", "default"}
    return {name: value for name, value in entry.items() if name in required or value not in (None, "", {})}


def long_name(spellings: list[str]) -> str:
    """Return the key of a flag whose contract has no name for it: the first long spelling, as an identifier."""
    return next(text for text in spellings if text.startswith("--"))[2:].replace("-", "_")


def payload_entry(payload: Json, kept: Json) -> Json:
    """Return what is known of a JSON flag's keys; contract facts win over what the table says by hand."""
    entry: Json = {"unknown_keys": payload["unknown_keys"]}
    if isinstance(payload.get("keys"), dict):
        old = kept.get("keys", {})
        entry["keys"] = {key: key_entry(text, old.get(key, {})) for key, text in payload["keys"].items()}
    if "formats" in payload:
        entry["formats"] = payload["formats"]
    return {**kept, **entry}


def key_entry(text: str, kept: Json) -> Json:
    """Return one key of a JSON flag: the contract's facts, then what only the table says."""
    facts = key_facts(text)
    return facts | {name: value for name, value in kept.items() if name not in facts}


def key_facts(text: str) -> Json:
    """Read type, default, choices and bound from a contract line such as `int 1000, >0` or `min|mean`."""
    if re.fullmatch(r"\w+(\|\w+)+", text):
        return {"type": ["str"], "choices": text.split("|")}
    match = re.match(r'(int|float|bool|str) (-?[\d.]+|true|false|"")(?=,|$)', text)
    if not match:
        return {}
    facts: Json = {"type": [match[1]], "default": json.loads(match[2])}
    if bound := re.search(r", >(=?)(\d+)$", text):
        facts["minimum"] = int(bound[2]) + (not bound[1])
    return facts


def check_history(flags: list[Json], contract: Json) -> None:
    """Demand one dated earlier value in the table for each change of kind, default or choices in the contract."""
    wanted = {
        (change["dest"], change["date"])
        for change in contract.get("history", {}).get("changes", [])
        if DATED_EVENTS & set(change["event"].split("+"))
    }
    have = {(flag["key"], change["before"]) for flag in flags for change in flag.get("history", [])}
    problems = [f"{key}: write what held before {date} into its history" for key, date in sorted(wanted - have)]
    problems += [f"{key}: no such change in the contract: {date}" for key, date in sorted(have - wanted)]
    if problems:
        raise ContractError("\n".join(problems))


def to_text(table: Json) -> str:
    """Return the table as it is committed: JSON in which whatever fits stands on one line."""
    return pretty(table, 0) + "\n"


def pretty(value: Any, indent: int) -> str:
    """Return JSON that breaks only the lists and objects that don't fit into a line."""
    flat = json.dumps(value, ensure_ascii=False)
    if indent + len(flat) <= LINE_WIDTH or not isinstance(value, (dict, list)) or not value:
        return flat
    pad = " " * (indent + 2)
    if isinstance(value, list):
        lines = [pad + pretty(item, indent + 2) for item in value]
    else:
        lines = [f"{pad}{json.dumps(key)}: {pretty(item, indent + 2)}" for key, item in value.items()]
    opening, closing = ("[", "]") if isinstance(value, list) else ("{", "}")
    return "\n".join([opening, ",\n".join(lines), " " * indent + closing])


def main(arguments: list[str]) -> int:
    """Rewrite the table of the contract file that is named."""
    if len(arguments) != 1:
        print("usage: python schema/refresh.py CONTRACT.json", file=sys.stderr)
        return 2
    try:
        contract = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        path = target(contract)
        old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        table = build(contract, old)
    except (OSError, ValueError, ContractError) as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 1
    path.write_text(to_text(table), encoding="utf-8")
    bare = [flag["key"] for flag in table["flags"] if not flag.get("note")]
    print(f"{path.name}: {len(table['flags'])} flags; without a note: {' '.join(bare) or 'none'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
