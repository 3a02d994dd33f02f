"""Reading input files and printing problems, as every command does it."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterable, Iterator, NoReturn

import click

from srtgen import show
from srtgen.bundle import Refused
from srtgen.document import MAX_BYTES
from srtgen.errors import Problem, RecipeError, visible
from srtgen.generate import Source

EXIT_INPUT, EXIT_USAGE, EXIT_BUG, EXIT_INTERRUPTED = 1, 2, 3, 130


def read(path: Path) -> Source:
    """The file's bytes, at most a little more than a recipe may have. RecipeError where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or "no reason given"
        message = f"cannot be read: {reason[0].lower()}{reason[1:]}"
        raise RecipeError([Problem(str(path), 1, 1, "", message)]) from None
    return Source(str(path), path.name, content)


def say(problems: Iterable[Problem]) -> None:
    """Each problem on a line of its own; on a terminal with the line that it is about."""
    terminal = sys.stderr.isatty()
    for problem in show.ordered(problems):
        lines = _lines(problem.file) if terminal else None
        click.echo(show.text(problem, lines, colours("stderr")), err=True, color=True)


def colours(stream: str) -> bool:
    """Whether output to stdout or stderr may have colours: on a terminal, unless NO_COLOR (no-color.org) is set."""
    return getattr(sys, stream).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _lines(file: str) -> list[str] | None:
    """The lines of an input file, for showing; None for an option, or what can no longer be read."""
    try:
        if not os.path.isfile(file):  # a pipe has been read already and would not end
            return None
        with open(file, "rb") as stream:
            return show.lines(stream.read(MAX_BYTES))
    except (OSError, ValueError):
        return None


def fail(error: RecipeError, consequence: str) -> NoReturn:
    """Print every problem and end with the code for a wrong input."""
    say(error.problems)
    count = sum(p.severity == "error" for p in error.problems)
    click.echo(f"{count} {'error' if count == 1 else 'errors'}; {consequence}", err=True)
    sys.exit(EXIT_INPUT)


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """Around what writes `output`: a refusal or a failing disk ends the command in words."""
    try:
        yield
    except Refused as refused:
        click.echo(visible(f"srtgen: {refused}"), err=True)
        sys.exit(EXIT_INPUT)
    except OSError as error:
        click.echo(visible(f"srtgen: cannot write {output}: {error.strerror}"), err=True)
        sys.exit(EXIT_INPUT)
