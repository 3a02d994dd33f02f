"""Reading input files and printing problems, as every command does it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Iterable, NoReturn

import click

from srtgen.document import MAX_BYTES
from srtgen.errors import Problem, RecipeError
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
    """Each problem on a line of its own."""
    for problem in problems:
        click.echo(problem.text(), err=True)


def fail(error: RecipeError, consequence: str) -> NoReturn:
    """Print every problem and end with the code for a wrong input."""
    say(error.problems)
    count = sum(p.severity == "error" for p in error.problems)
    click.echo(f"{count} {'error' if count == 1 else 'errors'}; {consequence}", err=True)
    sys.exit(EXIT_INPUT)
