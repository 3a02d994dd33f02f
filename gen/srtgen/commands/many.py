"""`srtgen RECIPE… -o jobs/`: many bundles at once. The part of `generate` that a single recipe does not pay for."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Sequence

import click

from srtgen import folders, jobs_index, many
from srtgen.console import EXIT_INPUT, fail, say, writing
from srtgen.errors import RecipeError, visible
from srtgen.generate import Bundle, Family


def run(
    context: click.Context, families: Sequence[Family], output: Path, force: bool, check: bool,
    check_output: Callable[[Bundle], None],
) -> None:
    """Write the bundles of all families into `output`, or only compare them with it."""
    try:
        made = many.collect(families, check_output)
    except RecipeError as error:
        fail(error, "nothing written")
    say(made.findings)
    if check:
        _check(context, made, output)
        return
    with writing(output):
        left = many.write(output, made, force)
    for name in left:
        click.echo(visible(f"{output}: {name} is no longer in the index; its folder is left as it is"), err=True)
    click.echo(visible(f"{output}: {len(made.entries)} bundles; next: {output}/{jobs_index.SUBMIT}"), err=True)


def _check(context: click.Context, made: many.Collected, output: Path) -> None:
    differs = show_differences(output, folders.differences(output, jobs_index.files(made.entries)))
    for entry, files in zip(made.entries, made.spool):
        differs += show_differences(output / entry.name, folders.differences(output / entry.name, files))
    if differs:
        context.exit(EXIT_INPUT)
    click.echo(visible(f"{output}: {len(made.entries)} bundles as generated"), err=True)


WORDS = {
    "missing": "is missing",
    "edited": "differs from what is generated",
    "stale": "is not generated any more",
    "mode": "has another executable bit than generated",
}


def show_differences(folder: Path, found: Sequence[folders.Difference]) -> int:
    """Print each difference; returns how many there are."""
    for one in found:
        click.echo(visible(f"{folder / one.path}: {WORDS[one.what]}"), err=True)
    return len(found)
