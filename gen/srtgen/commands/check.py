"""`srtgen check`: everything that can be said about recipes and profiles before a job is."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Iterator

import click

from srtgen import generate, schemas, show
from srtgen.bundle import MARKER
from srtgen.console import EXIT_INPUT, EXIT_USAGE, colours, read
from srtgen.errors import Problem, RecipeError, visible
from srtgen.generate import Source
from srtgen.manifest import NAME
from srtgen.options import OrderedCommand, changes, cluster_option, override_options
from srtgen.selection import split

_ENDS = (".yaml", ".yml")
_GLOB = frozenset("*?[")


@click.command("check", cls=OrderedCommand)
@click.argument("recipe", nargs=-1, required=True)
@cluster_option
@override_options
@click.option("--strict", is_flag=True, help="Count a warning that is not silenced as an error.")
@click.option("--format", "form", type=click.Choice(["text", "json", "github"]), default="text", show_default=True)
@click.pass_context
def command(context: click.Context, recipe: tuple[str, ...], cluster: Path | None, strict: bool, form: str) -> None:
    """Check recipes and cluster profiles: files, folders, patterns, or file:SELECTOR for a variant.

    Ends with 0 if there is no error, 1 if there is one, 2 if there is nothing to check.
    """
    chosen = [one for argument in recipe for one in _inputs(argument)]
    if not chosen:
        click.echo(f"no recipe or profile in {visible(' '.join(recipe))}", err=True)
        context.exit(EXIT_USAGE)
    sources: dict[str, bytes] = {}
    problems: set[Problem] = set()
    site = _read(cluster, sources, problems) if cluster else None
    if cluster is None or site is not None:
        for path, selector in dict.fromkeys(chosen):
            if source := _read(path, sources, problems):
                problems.update(_check(source, selector, site, changes(context), strict))
    _print(show.ordered(problems), sources, form)
    if any(problem.severity == "error" for problem in problems):
        context.exit(EXIT_INPUT)


def _inputs(argument: str) -> Iterator[tuple[Path, str]]:
    """The files that an argument stands for, each with the variant to choose."""
    path = Path(argument)
    if path.is_dir():
        yield from ((found, "") for found in _files(path))
    elif not path.exists() and _GLOB & set(argument):
        for name in sorted(glob.glob(argument, recursive=True)):
            yield from _inputs(name)
    else:
        yield split(argument)


def _files(folder: Path) -> Iterator[Path]:
    """The recipes and profiles below a folder; of a bundle its inputs only, of hidden folders nothing."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if NAME in names or MARKER in names:
            folders.clear()
            names = [name for name in names if name in ("recipe.yaml", "cluster.yaml")]
        for name in sorted(names):
            path = Path(place, name)
            if name.endswith(_ENDS) and path.is_file() and _is_ours(path):
                yield path


def _is_ours(path: Path) -> bool:
    """Whether a file of a folder looks like one of ours; what cannot be read does, so that it is reported."""
    try:
        source = read(path)
    except RecipeError:
        return True
    recipe, profile = _likeness(source.content)
    return recipe + profile > 0


def _likeness(content: bytes) -> tuple[int, int]:
    """How many of the keys at the left margin are a recipe's, and a profile's."""
    starts = (line.split(b":", 1)[0].strip(b"\"' ") for line in content.splitlines() if b":" in line[:200])
    keys = {start.decode("utf-8", "replace") for start in starts}
    recipe = keys & {*schemas.schema("recipe-2")["properties"], *schemas.schema("recipe-1")["properties"]}
    return len(recipe), len(keys & set(schemas.schema("cluster")["properties"]))


def _read(path: Path, sources: dict[str, bytes], problems: set[Problem]) -> Source | None:
    try:
        source = read(path)
    except RecipeError as error:
        problems.update(error.problems)
        return None
    sources[source.shown] = source.content
    return source


def _check(
    source: Source, selector: str, site: Source | None, given: list[tuple[str, str]], strict: bool
) -> Iterator[Problem]:
    """All that is found in one file: a profile, or the recipes in it."""
    recipe, profile = _likeness(source.content)
    try:
        if profile > recipe:
            yield from generate.check_profile(source, strict)
            return
        of = generate.family(source, site, given, selector)._replace(strict=strict)
        for point in of.points:
            try:
                yield from generate.check(of, point).findings
            except RecipeError as error:
                yield from error.problems
    except RecipeError as error:
        yield from error.problems


def _print(problems: list[Problem], sources: dict[str, bytes], form: str) -> None:
    if form == "json":
        click.echo(show.document(problems, sources))
    elif form == "github":
        for problem in problems:
            click.echo(show.annotation(problem))
    else:
        lines = {name: show.lines(content) for name, content in sources.items()}
        for problem in problems:
            click.echo(show.text(problem, lines.get(problem.file), colours("stdout")), color=True)
    files = f"{len(sources)} file{'s' * (len(sources) != 1)}"
    click.echo(f"{files}: {show.summary(problems)}", err=True)
