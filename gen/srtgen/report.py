"""Collects what the checks find, so that all problems come out at once."""

from __future__ import annotations

from typing import Iterable

from srtgen.document import Document
from srtgen.errors import Path, Problem, RecipeError


class Report:
    """Problems found so far, errors apart from findings (warnings and notes)."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, problems: Iterable[Problem]) -> None:
        self.problems.extend(problems)

    def error(self, document: Document, path: Path, message: str, at_key: bool = False, code: str = "") -> None:
        self.problems.append(document.problem(path, message, at_key=at_key, code=code))

    def warning(self, document: Document, path: Path, message: str, code: str = "") -> None:
        self.problems.append(document.problem(path, message, at_key=True, severity="warning", code=code))

    def note(self, document: Document, path: Path, message: str, code: str = "") -> None:
        self.problems.append(document.problem(path, message, at_key=True, severity="note", code=code))

    def put(
        self, severity: str, document: Document, path: Path, message: str, code: str, at_key: bool = True
    ) -> None:
        """A problem of a severity that the check decides on."""
        self.problems.append(document.problem(path, message, at_key=at_key, severity=severity, code=code))

    def stop_on_errors(self) -> None:
        """Raises RecipeError with every problem so far if one of them is an error."""
        if any(p.severity == "error" for p in self.problems):
            raise RecipeError(self.problems)

    def findings(self) -> tuple[Problem, ...]:
        """Warnings and notes, sorted, nothing twice."""
        return tuple(sorted({p for p in self.problems if p.severity != "error"}))
