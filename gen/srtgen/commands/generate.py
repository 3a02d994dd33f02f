"""`srtgen generate`, the default: a recipe becomes a bundle."""

from __future__ import annotations

import os
from pathlib import Path

import click

from srtgen import bundle
from srtgen.console import EXIT_INPUT, fail, say, writing
from srtgen.errors import Problem, RecipeError, visible
from srtgen.generate import Bundle, make
from srtgen.options import OrderedCommand, changes, cluster_option, override_options
from srtgen.selection import families


@click.command("generate", cls=OrderedCommand)
@click.argument("recipe", nargs=-1, required=True)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder of the bundle, or of many.")
@cluster_option
@override_options
@click.option("--check", is_flag=True, help="Write nothing; end with 1 if the folder is not what would be generated.")
@click.option("--single-file", is_flag=True, help="Make a run.sbatch that carries the bundle, for nodes without a shared file system.")
@click.option("--strict", is_flag=True, help="Count a warning that is not silenced as an error.")
@click.option("--force", is_flag=True, help="Write over edited files, or into a folder that holds no bundle.")
@click.pass_context
def command(
    context: click.Context,
    recipe: tuple[str, ...],
    output: Path,
    cluster: Path | None,
    check: bool,
    single_file: bool,
    strict: bool,
    force: bool,
) -> None:
    """Turn RECIPE into a self-contained folder of shell scripts; sbatch OUTPUT/run.sbatch runs it.

    Several recipes, or one that holds several (variants, sweep, overrides by concurrency), become one bundle each below
    OUTPUT, with an index and a submit.sh. file:SELECTOR names a variant in a file.
    """
    try:
        found = [of._replace(strict=strict) for of in families(recipe, cluster, changes(context))]
        if len(found) > 1 or found[0].many:
            if single_file:
                raise click.UsageError("--single-file takes one recipe; choose a variant as file:NAME")
            from srtgen.commands import many  # a single recipe does not pay for it

            many.run(context, found, output, force, check, lambda made: _check_output(made, output / made.plan.recipe.name))
            return
        made = make(found[0], next(found[0].points))
        if single_file:
            from srtgen import single  # a bundle of many files does not pay for it

            made = single.wrap(made)
        _check_output(made, output)
    except RecipeError as error:
        fail(error, "nothing written")
    say(made.findings)
    if check:
        _check(context, made, output)
        return
    with writing(output):
        bundle.write(output, made.files, force)
    click.echo(visible(f"{output}: {len(made.files)} files; next: sbatch {output}/run.sbatch"), err=True)


def _check_output(made: Bundle, output: Path) -> None:
    """The bundle's own folder is mounted into the containers: its path must suit the runtime."""
    place = os.path.abspath(output)
    if made.plan.runtime.contained and (problem := made.plan.runtime.path_problem(place)):
        raise RecipeError([Problem(str(output), 1, 1, "", f"{problem}: choose another output folder")])


def _check(context: click.Context, made: Bundle, output: Path) -> None:
    from srtgen import folders
    from srtgen.commands.many import show_differences

    if show_differences(output, folders.differences(output, made.files)):
        context.exit(EXIT_INPUT)
    click.echo(visible(f"{output}: {len(made.files)} files as generated"), err=True)
