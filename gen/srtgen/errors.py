"""Problems of the user's input: where they are, what is wrong, and how they are printed."""

from typing import NamedTuple

import json
import re
from collections.abc import Iterable

Path = tuple[str | int, ...]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_PATH_LENGTH = 200  # of a printed path: a key may be as long as a file


class Problem(NamedTuple):
    """One finding; line and column count from 1, `path` comes from `dotted`, `severity` is error, warning or note.

    `reason` is why the recipe silences it, "" where it does not.
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    severity: str = "error"
    code: str = ""
    reason: str = ""

    def text(self) -> str:
        """The printed form, always one line: `file:line:column: severity: path: message`."""
        where = f"{self.file}:{self.line}:{self.column}"
        path = self.path if len(self.path) <= _PATH_LENGTH else self.path[:_PATH_LENGTH] + "..."
        said = f"{self.message} (silenced: {self.reason})" if self.reason else self.message
        parts = (where, self.severity, path, said)
        return visible(": ".join(part for part in parts if part))


class RecipeError(Exception):
    """The input is wrong and its author can mend it; holds every problem found, sorted and without repeats."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(sorted(set(problems)))
        super().__init__("\n".join(problem.text() for problem in self.problems))


def dotted(path: Path) -> str:
    """A path as users write it: `roles.prefill[2]."a.b"`; the root is the empty text."""
    words: list[str] = []
    for segment in path:
        if isinstance(segment, int):
            words.append(f"[{segment}]")
        else:
            words.append(("." if words else "") + quoted_key(segment))
    return "".join(words)


def quoted_key(key: str) -> str:
    """A mapping key as a path segment: bare where it is a plain word, else in double quotes."""
    return key if _BARE_KEY.match(key) else json.dumps(key, ensure_ascii=False)


def visible(text: str) -> str:
    """The text with characters escaped that a terminal would act on or hide: controls, line breaks, bidi marks."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
