"""The command line: files in, messages and exit codes out."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from srtgen import __version__, bundle
from srtgen.document import MAX_BYTES
from srtgen.errors import Problem, RecipeError, visible
from srtgen.generate import Bundle, Source
from srtgen.generate import bundle as generate

EXIT_INPUT, EXIT_BUG, EXIT_INTERRUPTED = 1, 3, 130


def _collect(verb: str) -> Any:
    """A callback that keeps --set and --unset in the order of the command line."""

    def callback(context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> None:
        context.meta.setdefault("srtgen.values", {})[verb] = list(values)

    return callback


def _ordered(argv: list[str], values: dict[str, list[str]]) -> list[tuple[str, str]]:
    """The overrides as given: click groups options by name, their order is in the words of the command line."""
    queues = {verb: list(given) for verb, given in values.items()}
    ordered: list[tuple[str, str]] = []
    for argument in argv:
        for verb, queue in queues.items():
            if queue and (argument == f"--{verb}" or argument.startswith(f"--{verb}=")):
                ordered.append((verb, queue.pop(0)))
    return ordered


class _Command(click.Command):
    """Keeps the words of the command line, for the order of --set and --unset."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["srtgen.argv"] = list(args)
        return super().parse_args(ctx, args)


@click.command(cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder of the bundle.")
@click.option("--cluster", type=click.Path(path_type=Path), help="Cluster profile: what belongs to the site.")
@click.option("--set", "set_", multiple=True, metavar="PATH=VALUE", callback=_collect("set"), expose_value=False,
              help="Set a key of the recipe before it is checked; the value is read as YAML.")
@click.option("--unset", multiple=True, metavar="PATH", callback=_collect("unset"), expose_value=False,
              help="Remove a key of the recipe before it is checked.")
@click.option("--force", is_flag=True, help="Write over edited files, or into a folder that holds no bundle.")
@click.version_option(__version__, prog_name="srtgen")
@click.pass_context
def command(context: click.Context, recipe: Path, output: Path, cluster: Path | None, force: bool) -> None:
    """Turn RECIPE into a self-contained folder of shell scripts; sbatch OUTPUT/run.sbatch runs it."""
    changes = _ordered(context.meta["srtgen.argv"], context.meta.get("srtgen.values", {}))
    try:
        made = generate(_read(recipe), _read(cluster) if cluster else None, changes)
        _check_output(made, output)
    except RecipeError as error:
        _print(error.problems)
        count = sum(p.severity == "error" for p in error.problems)
        click.echo(f"{count} {'error' if count == 1 else 'errors'}; nothing written", err=True)
        context.exit(EXIT_INPUT)
    _print(made.findings)
    try:
        bundle.write(output, made.files, force)
    except bundle.Refused as refused:
        click.echo(visible(f"srtgen: {refused}"), err=True)
        context.exit(EXIT_INPUT)
    except OSError as error:
        click.echo(visible(f"srtgen: cannot write {output}: {error.strerror}"), err=True)
        context.exit(EXIT_INPUT)
    click.echo(visible(f"{output}: {len(made.files)} files; next: sbatch {output}/run.sbatch"), err=True)


def _read(path: Path) -> Source:
    """The file's bytes, at most a little more than a recipe may have. RecipeError where it cannot be read."""
    try:
        # A pipe or terminal is read as well (process substitution); a folder or a missing file is the user's to mend.
        with open(path, "rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or "cannot be read"
        raise RecipeError([Problem(str(path), 1, 1, "", f"cannot be read: {reason[0].lower()}{reason[1:]}")]) from None
    return Source(str(path), path.name, content)


def _check_output(made: Bundle, output: Path) -> None:
    """The bundle's own folder is mounted into the containers: its path must suit the runtime."""
    place = os.path.abspath(output)
    if made.plan.runtime.contained and (problem := made.plan.runtime.path_problem(place)):
        raise RecipeError([Problem(str(output), 1, 1, "", f"{problem}: choose another output folder")])


def _print(problems: tuple[Problem, ...]) -> None:
    for problem in problems:
        click.echo(problem.text(), err=True)


def main() -> None:
    """Run the command; anything unforeseen is our bug and says so."""
    try:
        code = command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except Exception:
        traceback.print_exc()
        click.echo(f"srtgen {__version__}: this is a bug of srtgen, not of the recipe; please report it", err=True)
        code = EXIT_BUG
    sys.exit(code or 0)
