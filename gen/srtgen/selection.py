"""RECIPE arguments: a file, or `file:selector` for a variant in it; and the recipes that they stand for."""

from pathlib import Path
from typing import Iterator, NamedTuple, Sequence

from srtgen.console import read
from srtgen.errors import RecipeError
from srtgen.generate import Bundle, Family, Source, family, make
from srtgen.points import Changes


class Chosen(NamedTuple):
    file: Path
    selector: str


def split(argument: str) -> Chosen:
    """The file and the selector of an argument; a file of the whole name wins."""
    name, colon, selector = argument.rpartition(":")
    if colon and name and selector.startswith(("base", "override_", "zip_override_")) and not Path(argument).exists():
        return Chosen(Path(name), selector)
    return Chosen(Path(argument), "")


def families(recipes: Sequence[str], cluster: Path | None, changes: Changes) -> list[Family]:
    """The recipes of every argument, not yet made. RecipeError with the problems of all arguments."""
    site = read(cluster) if cluster else None
    found, problems = [], []
    for argument in recipes:
        try:
            found.append(_family(split(argument), site, changes))
        except RecipeError as error:
            problems.extend(error.problems)
    if problems:
        raise RecipeError(problems)
    return found


def _family(chosen: Chosen, site: Source | None, changes: Changes) -> Family:
    return family(read(chosen.file), site, changes, chosen.selector)


def bundles(recipes: Sequence[str], cluster: Path | None, changes: Changes) -> Iterator[Bundle]:
    """Every bundle of the arguments, in order. RecipeError at the first that is wrong."""
    for of in families(recipes, cluster, changes):
        for point in of.points:
            yield make(of, point)
