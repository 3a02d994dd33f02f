"""From one recipe file to the recipes in it: variants, then `--set`, then sweep, then settings by concurrency."""

from typing import Any, Iterator, NamedTuple, Sequence

from srtgen import overrides
from srtgen.document import Document
from srtgen.errors import RecipeError

Changes = Sequence[tuple[str, str]]


class Point(NamedTuple):
    """One recipe to generate, and what was done to the file's text to get it, in words."""

    document: Document
    said: tuple[str, ...]


def expand(document: Document, changes: Changes, selector: str) -> tuple[bool, Iterator[Point]]:
    """Whether these are several recipes by their form, and all of them in order. RecipeError, also while iterating."""
    said = tuple(f"{verb} {text}" for verb, text in changes)
    if not _is_variants(document.data):
        if selector:
            message = f"no variants in this file, so {selector} cannot be chosen"
            raise RecipeError([document.problem((), message)])
        changed = overrides.apply(document, changes)  # type: ignore[arg-type]
        many = _is_sweep(changed.data) or _has_overrides(changed.data)
        return many, _combine(changed, "", said)
    return _variants(document, changes, selector, said)


def _is_variants(data: Any) -> bool:
    return isinstance(data, dict) and ("base" in data or any(k.startswith(("override_", "zip_override_")) for k in data))


def _is_sweep(data: Any) -> bool:
    return isinstance(data, dict) and "sweep" in data


def _has_overrides(data: Any) -> bool:
    benchmark = data.get("benchmark") if isinstance(data, dict) else None
    return isinstance(benchmark, dict) and "overrides" in benchmark


def _variants(
    document: Document, changes: Changes, selector: str, said: tuple[str, ...]
) -> tuple[bool, Iterator[Point]]:
    from srtgen import variants  # only files of variants pay for it

    chosen = variants.choose(document, selector)
    many = not variants.alone(selector)
    many = many or any(_is_sweep(v.document.data) or _has_overrides(v.document.data) for v in chosen)
    changed = ((v, overrides.apply(v.document, changes)) for v in chosen)  # type: ignore[arg-type]
    points = (
        point for v, made in changed for point in _combine(made, v.suffix, (f"variant {v.selector}", *said))
    )
    return many, points


def _combine(document: Document, suffix: str, said: tuple[str, ...]) -> Iterator[Point]:
    if not _is_sweep(document.data):
        yield from _by_concurrency(document, suffix, said)
        return
    from srtgen import sweep

    for one in sweep.expand(document):
        words = tuple(f"sweep {name}={text}" for name, text in one.parameters)
        yield from _by_concurrency(one.document, suffix + one.suffix, (*said, *words))


def _by_concurrency(document: Document, suffix: str, said: tuple[str, ...]) -> Iterator[Point]:
    if not _has_overrides(document.data):
        yield Point(_named(document, suffix), said)
        return
    from srtgen import concurrency

    for group in concurrency.expand(document):
        words = f"concurrencies {' '.join(map(str, group.concurrencies))}"
        yield Point(_named(group.document, suffix + group.suffix), (*said, words))


def _named(document: Document, suffix: str) -> Document:
    """The recipe with the suffix behind its name."""
    name = document.data.get("name") if suffix else None
    if not isinstance(name, str):
        return document
    full = name + suffix
    return document._replace(data={**document.data, "name": full}, sources={**document.sources, ("name",): full})
