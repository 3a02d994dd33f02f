"""Argument parsers built from the flag tables in tests/standins/data, with argparse as the real programs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Callable

DATA = Path(__file__).resolve().parents[2] / "data"
TYPES: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str, "json": json.loads}


def table(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))["flags"]
    return rows


def underscored(spelling: str) -> str:
    return "--" + spelling[2:].replace("-", "_")


def add_flag(parser: argparse.ArgumentParser, flag: dict[str, Any], aliases: bool) -> None:
    """Declares one row; negatives come from argparse's own on/off pair."""
    spellings = [name for name in flag["flags"] if name not in flag.get("negative_flags", ())]
    if aliases and not flag.get("group"):
        spellings += [other for other in map(underscored, spellings) if other not in spellings]
    common: dict[str, Any] = {"dest": flag["dest"], "default": flag["default"]}
    kind = flag["kind"]
    if kind == "switch":
        parser.add_argument(*spellings, action="store_true", dest=flag["dest"])
    elif kind == "boolean_optional":
        parser.add_argument(*spellings, action=argparse.BooleanOptionalAction, **common)
    elif kind == "list":
        parser.add_argument(*spellings, nargs="+", type=TYPES[flag["type"]], **common)
    else:
        if kind == "optional_value":
            common.update(nargs="?", const=flag["const"])
        parser.add_argument(*spellings, type=TYPES[flag["type"]], choices=flag["choices"],
                            required=flag.get("required", False), **common)


def parser_of(*tables: str, prog: str, aliases: bool = False) -> argparse.ArgumentParser:
    """The parser of a program; with aliases every long flag answers to --a_b too."""
    parser = argparse.ArgumentParser(prog=prog, add_help=True)
    for name in tables:
        for flag in table(name):
            add_flag(parser, flag, aliases)
    return parser
