"""Problems as text for people, for programs (JSON) and for GitHub's annotations."""

from __future__ import annotations

import json
from typing import Any, Iterable, Mapping

from srtgen.errors import Problem, visible

SCHEMA = "srtgen/check/1"
_COLOURS = {"error": "31", "warning": "33", "note": "36"}
_WIDTH = 160  # of a shown line; a longer one is cut around the caret
_WIDE = ("W", "F")


def ordered(problems: Iterable[Problem]) -> list[Problem]:
    """By file, line and column, nothing twice."""
    return sorted(set(problems))


def lines(content: bytes) -> list[str]:
    """A file's lines as YAML counts them: only line feeds end one."""
    return [line.removesuffix("\r") for line in content.decode("utf-8-sig", "replace").split("\n")]


def text(problem: Problem, of: list[str] | None = None, colour: bool = False) -> str:
    """A problem on one line with its code; with `of`, the file's lines, also the line that it is about and a caret."""
    said = problem.text() + (f" [{problem.code}]" if problem.code else "")
    if colour:
        word = f" {problem.severity}:"
        said = said.replace(word, f" \033[{_COLOURS[problem.severity]};1m{problem.severity}\033[0m:", 1)
    return "\n".join([said, *(_snippet(problem, of) if of else ())])


def _snippet(problem: Problem, of: list[str]) -> list[str]:
    """The line with its number, and a caret under the column; () where the file has no such line."""
    if not 1 <= problem.line <= len(of):
        return []
    line = of[problem.line - 1].replace("\t", " ")
    column = min(max(problem.column, 1), len(line) + 1)
    first = max(0, column - _WIDTH // 2) if len(line) > _WIDTH else 0
    before, rest = visible(line[first : column - 1]), visible(line[column - 1 : first + _WIDTH])
    margin = f"{problem.line:>5} | "
    return [f"{margin}{before}{rest}".rstrip(), " " * (len(margin) - 2) + "| " + " " * _cells(before) + "^"]


def _cells(shown: str) -> int:
    """Columns that a terminal gives the text."""
    if shown.isascii():
        return len(shown)
    import unicodedata

    return sum(1 + (unicodedata.east_asian_width(char) in _WIDE) for char in shown if not unicodedata.combining(char))


def document(problems: Iterable[Problem], files: Iterable[str]) -> str:
    """One JSON object: the files that were checked, and every finding."""
    findings = [_finding(problem) for problem in ordered(problems)]
    return json.dumps({"schema": SCHEMA, "files": list(files), "findings": findings}, ensure_ascii=False, indent=1)


def _finding(problem: Problem) -> Mapping[str, Any]:
    shown = problem._asdict()
    reason = shown.pop("reason")
    return {**shown, **({"silenced": reason} if reason else {})}


def annotation(problem: Problem) -> str:
    """A workflow command of GitHub Actions: https://docs.github.com/actions/reference/workflow-commands."""
    level = "notice" if problem.reason else {"note": "notice"}.get(problem.severity, problem.severity)
    place = f"file={_property(problem.file)},line={problem.line},col={problem.column}"
    title = f",title={_property(problem.code)}" if problem.code else ""
    message = f"{problem.path}: {problem.message}" if problem.path else problem.message
    silenced = f" (silenced: {problem.reason})" if problem.reason else ""
    return f"::{level} {place}{title}::{_data(visible(message + silenced))}"


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(visible(value)).replace(":", "%3A").replace(",", "%2C")


def summary(problems: Iterable[Problem]) -> str:
    """`2 errors, 1 warning, 3 notes`; silenced findings are counted apart."""
    counts: dict[str, int] = {}
    for problem in set(problems):
        kind = "silenced" if problem.reason else problem.severity
        counts[kind] = counts.get(kind, 0) + 1
    words = [f"{counts[k]} {k}{'s' * (counts[k] != 1)}" for k in ("error", "warning", "note") if k in counts]
    if "silenced" in counts:
        words.append(f"{counts['silenced']} silenced")
    return ", ".join(words) or "nothing found"
