"""`srtgen verify`: is a folder still the bundle that its manifest describes? Needs no recipe."""

from __future__ import annotations

from pathlib import Path

import click

from srtgen.console import EXIT_INPUT
from srtgen.errors import visible
from srtgen.folders import Unreadable, bundles_of, manifest_of, verify


@click.command("verify")
@click.argument("folder", type=click.Path(path_type=Path))
@click.pass_context
def command(context: click.Context, folder: Path) -> None:
    """Compare FOLDER with its own manifest, by the rule that a job applies to its bundle when it starts.

    A folder of many bundles is verified with all bundles of its index.
    """
    try:
        count = len(manifest_of(folder)["files"])
        problems = [f"{place}: {problem}" for place in (folder, *bundles_of(folder)) for problem in verify(place)]
    except Unreadable as error:
        click.echo(visible(f"srtgen: {error}"), err=True)
        context.exit(EXIT_INPUT)
    for problem in problems:
        click.echo(visible(problem), err=True)
    if problems:
        context.exit(EXIT_INPUT)
    click.echo(visible(f"{folder}: {count} files as generated"), err=True)
