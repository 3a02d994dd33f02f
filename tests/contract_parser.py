"""Parsers made from our flag tables that judge an argv as ATOM (of a date) and AToMesh would.

Only declared spellings count, so that an argv that passes needs none of the aliases of newer ATOM versions.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from srtgen.flags import Flag, FlagTable, load

SCHEMA = Path(__file__).resolve().parents[1] / "schema"
JSON_TYPES = {"str": str, "int": int, "float": (int, float), "bool": bool, "object": dict, "list": list}
URL_FLAGS = ("worker_urls", "decode")
URL = re.compile(r"(https?|grpc)://[^/]+.*")


@cache
def atom_table() -> FlagTable:
    """The committed ATOM table."""
    return load(SCHEMA / "engines" / "atom.json")


@cache
def atomesh_table() -> FlagTable:
    """The committed AToMesh table."""
    return load(SCHEMA / "routers" / "atomesh.json")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parse_atom(argv_after_module: list[str], date: str | None) -> dict[str, Any]:
    """Return key -> value of the flags given; ValueError if ATOM of that date (None: newest known) would refuse."""
    parser = _Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for flag in atom_table().flags:
        spellings = [text for text in flag.valid_on(date) if text in flag.declared]
        if spellings:
            parser.add_argument(*spellings, dest=flag.key, **_argparse_options(flag, date))
    values = vars(parser.parse_args(argv_after_module))
    for key, value in values.items():
        _check_limits(_flag(atom_table(), key), value)
    return values


def _argparse_options(flag: Flag, date: str | None) -> dict[str, Any]:
    kind = flag.kind_on(date)
    if kind == "switch":
        return {"action": "store_true"}
    if kind == "boolean_optional":
        return {"action": argparse.BooleanOptionalAction}
    options: dict[str, Any] = {"type": _converter(flag), "choices": flag.choices_on(date)}
    if kind == "optional_value":
        options |= {"nargs": "?", "const": flag.const_on(date)}
    return options


def _converter(flag: Flag) -> Any:
    if flag.format == "json-object":
        return lambda text: _json_object(flag, text)
    if flag.format == "int-list":
        return _int_list
    return {"int": int, "float": float}.get(flag.type or "", str)


def _int_list(text: str) -> list[int]:
    try:
        values = ast.literal_eval(text) if text else []
    except SyntaxError as error:
        raise ValueError(str(error)) from error
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise ValueError(f"not a list of integers: {text}")
    return values


def _json_object(flag: Flag, text: str) -> dict[str, Any]:
    value = json.loads(text, parse_constant=_no_constant)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"not a JSON object: {text}")
    if flag.payload and "connectors" in flag.payload:
        _check_connector(flag.payload, value)
    elif flag.payload:
        _check_keys(flag.payload, value)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"not strict JSON: {name}")


def _check_connector(payload: Any, value: dict[str, Any]) -> None:
    name = value.get(payload["select"], "moriio")
    if name not in payload["connectors"]:
        raise argparse.ArgumentTypeError(f"unknown connector: {name}")
    _check_keys(payload["connectors"][name], value)
    for nested in value.get("connectors", []) if name == "multi" else []:
        _check_connector(payload, nested)


def _check_keys(spec: Any, value: dict[str, Any]) -> None:
    known = spec.get("keys")
    if known is None:
        return
    for key, item in value.items():
        if key in known:
            _check_item(key, known[key], item)
        elif spec["unknown_keys"].startswith("error"):
            raise argparse.ArgumentTypeError(f"unknown key: {key}")


def _check_item(key: str, spec: Any, item: Any) -> None:
    fits = [JSON_TYPES[name] for name in spec["type"] if isinstance(item, bool) is (name == "bool")]
    if not any(isinstance(item, kind) for kind in fits):
        raise argparse.ArgumentTypeError(f"{key}: not of type {' or '.join(spec['type'])}: {item!r}")
    if "choices" in spec and item not in spec["choices"]:
        raise argparse.ArgumentTypeError(f"{key}: not one of {', '.join(spec['choices'])}: {item}")
    if ("minimum" in spec and item < spec["minimum"]) or ("maximum" in spec and item > spec["maximum"]):
        raise argparse.ArgumentTypeError(f"{key}: out of range: {item}")


def _check_limits(flag: Flag, value: Any) -> None:
    low, high = flag.limits or (None, None)
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"{flag.key}: out of range: {value}")


def _flag(table: FlagTable, key: str) -> Flag:
    return next(flag for flag in table.flags if flag.key == key)


def parse_atomesh(argv: list[str]) -> dict[str, Any]:
    """Return key -> value of the flags given; ValueError if the router would not start. Takes the whole command.

    `prefill` becomes a list of (URL, bootstrap port or None).
    """
    words = list(argv)
    if words and Path(words[0]).name == "atomesh":
        words.pop(0)
    if words and words[0] in ("launch", "start"):
        words.pop(0)
    if {"-V", "--version", "--version-verbose"} & set(words):
        raise ValueError("prints the version and ends")
    prefill, words = _take_prefill(words)
    values = _clap(words)
    if prefill:
        values["prefill"] = prefill
    _check_start(values)
    return values


def _take_prefill(words: list[str]) -> tuple[list[tuple[str, int | None]], list[str]]:
    """Do what the router does before clap: take `--prefill URL [port|none]` out of argv."""
    taken: list[tuple[str, int | None]] = []
    rest: list[str] = []
    at = 0
    while at < len(words):
        if words[at] != "--prefill" or at + 1 == len(words):
            rest.append(words[at])
            at += 1
            continue
        url, port, at = words[at + 1], None, at + 2
        if at < len(words) and words[at].lower() == "none":
            at += 1
        elif at < len(words) and re.fullmatch(r"\+?\d+", words[at], re.ASCII) and int(words[at]) < 65536:
            port, at = int(words[at]), at + 1
        taken.append((url, port))
    return taken, rest


def _clap(words: list[str]) -> dict[str, Any]:
    """Apply clap 4's rules: no repeats, no value that starts with a dash unless joined by `=`, no stray word."""
    values: dict[str, Any] = {}
    at = 0
    while at < len(words):
        name, joined, attached = words[at].partition("=")
        flag = atomesh_table().find(name)
        if flag is None or flag.kind == "custom" or flag.key == "help":
            raise ValueError(f"unexpected argument: {words[at]}")
        at += 1
        given = [attached] if joined else []
        while not joined and at < len(words) and _takes_more(flag, given) and not _looks_like_flag(words[at]):
            given.append(words[at])
            at += 1
        _store(values, flag, given, bool(joined))
    return values


def _takes_more(flag: Flag, given: list[str]) -> bool:
    return flag.kind == "multi" or (flag.kind in ("value", "append") and not given)


def _looks_like_flag(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _store(values: dict[str, Any], flag: Flag, given: list[str], joined: bool) -> None:
    if flag.kind in ("multi", "append"):
        if flag.kind == "append" and not given:
            raise ValueError(f"{flag.key}: a value is required")
        values.setdefault(flag.key, []).extend(_clap_value(flag, text) for text in given)
        return
    if flag.key in values:
        raise ValueError(f"{flag.key}: cannot be used multiple times")
    if flag.kind == "switch" and joined:
        raise ValueError(f"{flag.key}: takes no value")
    if flag.kind == "value" and not given:
        raise ValueError(f"{flag.key}: a value is required")
    values[flag.key] = True if flag.kind == "switch" else _clap_value(flag, given[0])


def _clap_value(flag: Flag, text: str) -> Any:
    if flag.choices and text not in flag.choices:
        raise ValueError(f"{flag.key}: not one of {', '.join(flag.choices)}: {text}")
    if flag.type == "int":
        low, high = flag.range or (-(2**63), 2**63 - 1)
        if not re.fullmatch(r"[+-]?\d+", text, re.ASCII) or not low <= int(text) <= high:
            raise ValueError(f"{flag.key}: not an integer in {low}..{high}: {text}")
        return int(text)
    if flag.type == "float":
        if "_" in text or text != text.strip():
            raise ValueError(f"{flag.key}: not a number: {text}")
        return float(text)
    return text


def _check_start(values: dict[str, Any]) -> None:
    """Apply the router's own checks that need one flag only (exit 1 after clap) and clap's `requires`."""
    for key, value in values.items():
        flag = _flag(atomesh_table(), key)
        _check_limits(flag, value)
        if missing := [name for name in flag.requires if name not in values]:
            raise ValueError(f"{key}: needs {', '.join(missing)}")
    urls = [url for key in URL_FLAGS for url in values.get(key, [])]
    for url, port in values.get("prefill", []):
        urls.append(url)
        if port == 0:
            raise ValueError("prefill: bootstrap port 0")
    if wrong := [url for url in urls if not URL.fullmatch(url)]:
        raise ValueError(f"not a worker URL: {wrong[0]}")
