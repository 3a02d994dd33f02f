"""`benchmark.overrides`: settings that hold from or up to some concurrency, one bundle a server configuration.

Each item has `from_concurrency` and/or `to_concurrency` (both included) and, beside them, keys of the recipe that are
merged over it for those points; later items win. `"{concurrency}"` in an item is the point's own concurrency.
"""

from typing import Any, Iterator, NamedTuple

from srtgen import sweep
from srtgen.document import Document, Mark
from srtgen.errors import Path, Problem, RecipeError
from srtgen.parts import Assembly, below
from srtgen.recipe import concurrencies
from srtgen.variants import merged

PATH: Path = ("benchmark", "overrides")
_POINTS: Path = ("benchmark", "concurrencies")
_BOUNDS = ("from_concurrency", "to_concurrency")
_PARAMETER = "concurrency"
_FIXED = ("schema", "name", "sweep")


class Group(NamedTuple):
    """Points that one server configuration measures."""

    concurrencies: tuple[int, ...]
    suffix: str
    document: Document


def has_overrides(data: Any) -> bool:
    benchmark = data.get("benchmark") if isinstance(data, dict) else None
    return isinstance(benchmark, dict) and "overrides" in benchmark


def expand(document: Document) -> Iterator[Group]:
    """One recipe for each distinct configuration, in the order of its first point. RecipeError with all problems."""
    points = _points(document)
    problems = list(_check(document))
    if problems:
        raise RecipeError(problems)
    plain = Assembly(document)
    plain.drop(PATH)
    bare = plain.document()
    groups: dict[str, tuple[Document, list[int]]] = {}
    for concurrency in points:
        made = _at(document, bare, concurrency)
        groups.setdefault(_key(made), (made, []))[1].append(concurrency)
    for made, own in groups.values():
        yield Group(tuple(own), _suffix(own), _measuring(made, own))


def _points(document: Document) -> tuple[int, ...]:
    given = document.data["benchmark"].get("concurrencies")
    try:
        points = concurrencies(given)
    except ValueError:
        points = ()
    if not points or not all(type(c) is int and c > 0 for c in points):
        message = "overrides need concurrencies: a list of whole numbers"
        raise RecipeError([document.problem(_POINTS, message, at_key=True)])
    return points


def _check(document: Document) -> Iterator[Problem]:
    items = document.data["benchmark"]["overrides"]
    if not isinstance(items, list) or not items:
        yield document.problem(PATH, "expected a list of mappings, each with from_concurrency or to_concurrency")
        return
    for number, item in enumerate(items):
        path = (*PATH, number)
        if not isinstance(item, dict) or not set(_BOUNDS) & set(item):
            yield document.problem(path, "expected a mapping with from_concurrency or to_concurrency")
            continue
        for key in _BOUNDS:
            if key in item and (type(item[key]) is not int or item[key] < 1):
                yield document.problem((*path, key), "expected a whole number above 0")
        yield from _forbidden(document, path, item)


def _forbidden(document: Document, path: Path, item: dict[str, Any]) -> Iterator[Problem]:
    for key in _FIXED:
        if key in item:
            yield document.problem((*path, key), f"{key} is the same for all points", at_key=True)
    inner = item.get("benchmark")
    for key in ("concurrencies", "overrides"):
        if isinstance(inner, dict) and key in inner:
            yield document.problem((*path, "benchmark", key), f"{key} cannot stand in an override", at_key=True)
    if not set(item) - set(_BOUNDS):
        yield document.problem(path, "changes nothing: no key beside the bounds")


def _at(document: Document, bare: Document, concurrency: int) -> Document:
    """The recipe as it holds for one point."""
    made = bare
    for number, item in enumerate(document.data["benchmark"]["overrides"]):
        low, high = item.get(_BOUNDS[0], 1), item.get(_BOUNDS[1], concurrency)
        if low <= concurrency <= high:
            made = merged(made, _filled(document, number, concurrency))
    return made


def _filled(document: Document, number: int, concurrency: int) -> Document:
    """An item without its bounds, `{concurrency}` filled in."""
    item = below(document, (*PATH, number))
    part = Assembly(item)
    for key in set(_BOUNDS) & set(item.data):
        part.drop((key,))
    value = Document("", concurrency, {(): Mark(1, 1)}, {}, {(): str(concurrency)}, frozenset({()}))
    for path, source in item.sources.items():
        if sweep.holds_placeholder(source, _PARAMETER):
            sweep.fill(part, path, source, {_PARAMETER: (value, ())})
    return part.document()


def _key(document: Document) -> str:
    """What tells two configurations apart."""
    return repr(document.data)


def _suffix(points: list[int]) -> str:
    return f"-c{points[0]}" if len(points) == 1 else f"-c{min(points)}-{max(points)}"


def _measuring(document: Document, points: list[int]) -> Document:
    """The recipe with these points only, which stand where all of them stood."""
    mark = document.mark(_POINTS)
    values = Document(
        document.file,
        list(points),
        {(): mark, **{(n,): mark for n in range(len(points))}},
        {(): document.key_mark(_POINTS)},
        {(n,): str(point) for n, point in enumerate(points)},
        frozenset((n,) for n in range(len(points))),
    )
    part = Assembly(document)
    part.put(_POINTS, values, ())
    return part.document()
