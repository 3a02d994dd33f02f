"""The value of a flag as its program's parser and its later checks would see it."""

from __future__ import annotations

import json
from typing import Any

from srtgen.flags import Flag
from srtgen.recipe import Setting
from srtgen.report import Report
from srtgen.rules import payloads
from srtgen.rules.facts import Program

_LONGEST_NUMBER = 40  # characters; no flag takes a longer one


def check(program: Program, flag: Flag, setting: Setting, doubtful: str, report: Report) -> None:
    """flag-value, and payload-key in JSON. `doubtful` is the severity of what another version may accept."""
    date = program.version.date
    kind, value = flag.kind_on(date), setting.value
    if value is None or isinstance(value, bool):
        return
    if kind in ("switch", "boolean_optional"):
        if flag.kind != kind:  # else it was refused when the command line was made
            message = f"takes no value before {flag.change_dates[-1]}, {program.version.words}; write true"
            report.put(doubtful, setting.document, setting.path, message, "flag-value", at_key=False)
        return
    if flag.format == "json-object" or flag.kind == "json":
        _json(program, flag, setting, doubtful, report)
    elif flag.format == "int-list":
        _int_list(setting, report)
    elif isinstance(value, (str, int, float)):
        for severity, message in _scalar(program, flag, setting.source, doubtful):
            report.put(severity, setting.document, setting.path, message, "flag-value", at_key=False)
    elif isinstance(value, list) and flag.kind in ("multi", "append") and flag.type in ("int", "float"):
        for index, item in enumerate(value):
            if (
                isinstance(item, (str, int, float))
                and number(setting.document.sources[(*setting.path, index)], flag, program) is None
            ):
                message = f"expected {_kind(flag)}"
                report.put("error", setting.document, (*setting.path, index), message, "flag-value", at_key=False)


def _scalar(program: Program, flag: Flag, source: str, doubtful: str) -> list[tuple[str, str]]:
    date = program.version.date
    found: list[tuple[str, str]] = []
    kind = flag.type_on(date)
    if kind in ("int", "float"):
        value = number(source, flag, program)
        if value is None:
            return [("error", f"expected {_kind(flag)}; got {_short(source)}")]
        if flag.range and not flag.range[0] <= value <= flag.range[1]:
            return [("error", f"expected {_kind(flag)} from {flag.range[0]} to {flag.range[1]}")]
        if flag.limits and (message := _outside(value, flag.limits)):
            found.append((doubtful if program.table.first_date else "error", message))
    choices = flag.choices_on(date)
    if choices is not None and source not in choices:
        found.append(
            (
                doubtful,
                f"{_short(source)} is not one of {', '.join(choices)}{_later(flag, source)}{near(source, choices)}",
            )
        )
    return found


def near(text: str, choices: tuple[str, ...]) -> str:
    """The advice to a text that resembles one of the choices."""
    import difflib  # only wrong recipes pay for it

    found = difflib.get_close_matches(text[:80], choices, n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def _later(flag: Flag, source: str) -> str:
    """The date from which a choice is one, where the table has it."""
    if flag.choices is None or source not in flag.choices:
        return ""
    changes = [change["before"] for change in flag.history if source not in (change.get("choices") or (source,))]
    return f" before {changes[-1]}" if changes else ""


def number(source: str, flag: Flag, program: Program) -> float | None:
    """The number that the program's parser reads in a text; None for a refusal. argparse takes 1_000, clap does not."""
    if len(source) > _LONGEST_NUMBER or not source.isascii():
        return None
    if program.table.first_date is None and "_" in source:
        return None
    try:
        return int(source) if flag.type == "int" else float(source)
    except ValueError:
        return None


def _outside(value: float, limits: tuple[float | None, float | None]) -> str:
    least, greatest = limits
    if value != value or (least is not None and value < least):
        return f"{value} is below the least value, {least}"
    if greatest is not None and value > greatest:
        return f"{value} is above the greatest value, {greatest}"
    return ""


def _int_list(setting: Setting, report: Report) -> None:
    """ATOM 2026-08-22: a Python list literal, parsed after the command line; an empty text is the built-in list."""
    if isinstance(setting.value, (list, dict)) or setting.source == "":
        return
    try:
        items = json.loads(setting.source)
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list) or not all(type(item) is int for item in items):
        message = f"expected a list of whole numbers such as [1, 2, 4]; got {_short(setting.source)}"
        report.put("error", setting.document, setting.path, message, "flag-value", at_key=False)


def _json(program: Program, flag: Flag, setting: Setting, doubtful: str, report: Report) -> None:
    value: Any = setting.value
    if not isinstance(value, (dict, list)):
        try:
            value = json.loads(setting.source, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            message = f"not JSON: {_short(setting.source)}; write a mapping, or JSON in single quotes"
            report.put("error", setting.document, setting.path, message, "flag-value", at_key=False)
            return
    if not isinstance(value, dict):
        report.put("error", setting.document, setting.path, "expected a JSON object", "flag-value", at_key=False)
        return
    if flag.payload:
        payloads.check(program, flag.payload, setting, setting.path, value, doubtful, report)


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _kind(flag: Flag) -> str:
    return "a whole number" if flag.type == "int" else "a number"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
