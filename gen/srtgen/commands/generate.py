"""`srtgen generate`, the default: a recipe becomes a bundle."""

from __future__ import annotations

import os
from pathlib import Path

import click

from srtgen import bundle
from srtgen.console import EXIT_INPUT, fail, read, say
from srtgen.errors import Problem, RecipeError, visible
from srtgen.generate import Bundle
from srtgen.generate import bundle as generate
from srtgen.options import OrderedCommand, changes, cluster_option, override_options


@click.command("generate", cls=OrderedCommand)
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder of the bundle.")
@cluster_option
@override_options
@click.option("--force", is_flag=True, help="Write over edited files, or into a folder that holds no bundle.")
@click.pass_context
def command(context: click.Context, recipe: Path, output: Path, cluster: Path | None, force: bool) -> None:
    """Turn RECIPE into a self-contained folder of shell scripts; sbatch OUTPUT/run.sbatch runs it."""
    try:
        made = generate(read(recipe), read(cluster) if cluster else None, changes(context))
        _check_output(made, output)
    except RecipeError as error:
        fail(error, "nothing written")
    say(made.findings)
    try:
        bundle.write(output, made.files, force)
    except bundle.Refused as refused:
        click.echo(visible(f"srtgen: {refused}"), err=True)
        context.exit(EXIT_INPUT)
    except OSError as error:
        click.echo(visible(f"srtgen: cannot write {output}: {error.strerror}"), err=True)
        context.exit(EXIT_INPUT)
    click.echo(visible(f"{output}: {len(made.files)} files; next: sbatch {output}/run.sbatch"), err=True)


def _check_output(made: Bundle, output: Path) -> None:
    """The bundle's own folder is mounted into the containers: its path must suit the runtime."""
    place = os.path.abspath(output)
    if made.plan.runtime.contained and (problem := made.plan.runtime.path_problem(place)):
        raise RecipeError([Problem(str(output), 1, 1, "", f"{problem}: choose another output folder")])
