"""`sweep:` — every combination of its parameters, put where `{name}` stands in a value.

A value that is nothing but a placeholder takes the parameter with its type and spelling (0.85 stays a number);
inside a text it takes the parameter's text. `{{name}}` stands for the text `{name}`; `${NAME}` is left alone.
"""

import itertools
import math
import re
from typing import Any, Iterator, Mapping, NamedTuple

from srtgen.document import Document
from srtgen.errors import Path, Problem, RecipeError
from srtgen.parts import Assembly, paths, value_at

KEY = "sweep"
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_PLACEHOLDER = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_-]*)\}\}|(?<!\$)\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9._]+")
_SCALARS = (str, int, float, bool)
MAX_POINTS = 100_000


class Combination(NamedTuple):
    """One point: its parameters as (name, text), the suffix that tells it apart, and the recipe without `sweep`."""

    parameters: tuple[tuple[str, str], ...]
    suffix: str
    document: Document


def expand(document: Document) -> Iterator[Combination]:
    """Every combination, the last parameter changing fastest. RecipeError with all problems, before the first one."""
    problems = list(_check(document))
    if problems:
        raise RecipeError(problems)
    table: dict[str, list[Any]] = document.data[KEY]
    plain = _without_sweep(document)
    places = [path for path, source in plain.sources.items() if _PLACEHOLDER.search(source)]
    if problems := [*_unresolved(plain, places, table), *_unused(document, plain, places)]:
        raise RecipeError(problems)
    name = plain.data.get("name")
    named = {match[2] for match in _PLACEHOLDER.finditer(name)} if isinstance(name, str) else set()
    for indices in itertools.product(*(range(len(values)) for values in table.values())):
        chosen = dict(zip(table, indices))
        yield _combination(document, plain, places, chosen, named)


def _check(document: Document) -> Iterator[Problem]:
    table = document.data[KEY]
    if not isinstance(table, dict) or not table:
        yield document.problem((KEY,), "expected a mapping from parameters to lists of values")
        return
    for name, values in table.items():
        if not _PARAMETER.match(name):
            yield document.problem((KEY, name), "a parameter's name is letters, digits, _ and -", at_key=True)
        if not isinstance(values, list) or not values:
            yield document.problem((KEY, name), "expected a list of values", at_key=True)
    counts = [len(v) for v in table.values() if isinstance(v, list)]
    if math.prod(counts) > MAX_POINTS:
        yield document.problem((KEY,), f"{math.prod(counts)} combinations; at most {MAX_POINTS} are generated")


def _without_sweep(document: Document) -> Document:
    part = Assembly(document)
    part.drop((KEY,))
    return part.document()


def _unresolved(plain: Document, places: list[Path], table: Mapping[str, Any]) -> Iterator[Problem]:
    """Placeholders that no parameter fills, or that were written without quotes."""
    known = ", ".join(table)
    for path in places:
        for match in _PLACEHOLDER.finditer(plain.sources[path]):
            if match[2] and match[2] not in table:
                hint = f"write {{{match[0]}}} if the text is meant"
                yield plain.problem(path, f"{match[0]} is no parameter of sweep ({known}); {hint}")
    for path in paths(plain.data):
        if not path or not isinstance(path[-1], str):
            continue
        if _PLACEHOLDER.search(path[-1]):
            yield plain.problem(path, "a placeholder cannot be part of a key", at_key=True)
        parent = value_at(plain.data, path[:-1])
        if path[-1] in table and len(parent) == 1 and parent[path[-1]] is None:
            yield plain.problem(path[:-1], f'{{{path[-1]}}} without quotes is a mapping; write "{{{path[-1]}}}"')


def _unused(document: Document, plain: Document, places: list[Path]) -> Iterator[Problem]:
    used = {match[2] for path in places for match in _PLACEHOLDER.finditer(plain.sources[path])}
    for name in document.data[KEY]:
        if name not in used:
            yield document.problem((KEY, name), f"never used: no value holds {{{name}}}", at_key=True)


def _combination(
    document: Document, plain: Document, places: list[Path], chosen: Mapping[str, int], named: set[str]
) -> Combination:
    point = Assembly(plain)
    problems: list[Problem] = []
    for path in places:
        try:
            fill(point, path, plain.sources[path], {name: (document, (KEY, name, n)) for name, n in chosen.items()})
        except ValueError as error:
            problems.append(plain.problem(path, str(error)))
    if problems:
        raise RecipeError(problems)
    shown = {name: _text(document, (KEY, name, n), n) for name, n in chosen.items()}
    suffix = "".join(
        f"-{name}{_NOT_IN_NAME.sub('_', shown[name])}"
        for name in chosen
        if name not in named and len(document.data[KEY][name]) > 1
    )
    return Combination(tuple(shown.items()), suffix, point.document())


def _text(document: Document, path: Path, index: int) -> str:
    """How a parameter is shown: its own text, or its number in the list where it has none."""
    return document.sources.get(path, str(index))


def fill(point: Assembly, path: Path, text: str, values: Mapping[str, tuple[Document, Path]]) -> None:
    """Fill the placeholders of `text`, the scalar at `path`. ValueError where a list would have to become text."""
    whole = _PLACEHOLDER.fullmatch(text)
    if whole and whole[2] in values:
        document, origin = values[whole[2]]
        point.put(path, document, origin, stay=True)
        return

    def filled(match: re.Match[str]) -> str:
        if match[1]:
            return f"{{{match[1]}}}"
        if match[2] not in values:
            return match[0]
        document, origin = values[match[2]]
        if not isinstance(value_at(document.data, origin), _SCALARS):
            raise ValueError(f"{match[0]} is no single value and cannot be part of a text")
        return document.sources[origin]

    point.scalar(path, _PLACEHOLDER.sub(filled, text))


def holds_placeholder(text: str, name: str) -> bool:
    return any(match[2] == name for match in _PLACEHOLDER.finditer(text))


