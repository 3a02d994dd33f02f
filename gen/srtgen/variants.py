"""Files of variants: `base`, `override_<name>` merged over it, `zip_override_<name>` as one variant an index.

Merging is deep for mappings; a list or scalar replaces; null removes the key. In a zip override each list holds one
value a variant; a list of one value, or a single value, holds for all; a list that is meant stands in a list.
"""

import difflib
import re
from fnmatch import fnmatchcase
from typing import Any, Iterable, NamedTuple

from srtgen.document import Document
from srtgen.errors import Path, Problem, RecipeError
from srtgen.parts import Assembly, below, value_at

BASE = "base"
OVERRIDE, ZIP = "override_", "zip_override_"
SELECTOR = re.compile(r"(base|(?:zip_)?override_[A-Za-z0-9_.*?-]+)(?:\[([0-9]{1,6})\])?\Z")


class Variant(NamedTuple):
    """One variant: the selector that names it alone, the suffix of its name, and the merged recipe."""

    selector: str
    suffix: str
    document: Document


def is_variants(data: Any) -> bool:
    """Whether a file's content is a base with variants and not a recipe."""
    return isinstance(data, dict) and (BASE in data or any(is_override(key) for key in data))


def is_override(key: str) -> bool:
    return key.startswith((OVERRIDE, ZIP))


def choose(document: Document, selector: str) -> list[Variant]:
    """The variants that `selector` names; "": every override and not the base. RecipeError with all problems."""
    _check(document)
    available = _available(document)
    wanted = [key for key in available if _matches(key, selector)]
    if not wanted:
        names = [name for name, _, _ in available]
        near = difflib.get_close_matches(selector, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
        raise RecipeError([document.problem((), f"no variant {selector}; {hint}" if selector else "no variants beside base")])
    base = below(document, (BASE,))
    return [_variant(document, base, *key) for key in wanted]


def alone(selector: str) -> bool:
    """Whether the selector names one variant by its form, whatever the file holds."""
    match = SELECTOR.match(selector)
    if not match or set("*?") & set(selector):
        return False
    return not selector.startswith(ZIP) or match[2] is not None


def _matches(key: tuple[str, str, int | None], selector: str) -> bool:
    name, origin, _ = key
    if not selector:
        return origin != BASE
    return fnmatchcase(name, selector.replace("[", "[[]")) or fnmatchcase(origin, selector.replace("[", "[[]"))


def _check(document: Document) -> None:
    problems = []
    if BASE not in document.data:
        problems.append(document.problem((), "overrides without a base: missing key base", at_key=True))
    for key, value in document.data.items():
        if key != BASE and not is_override(key):
            message = "a file of variants holds base, override_<name> and zip_override_<name>; move this into base"
            problems.append(document.problem((key,), message, at_key=True))
        elif not isinstance(value, dict):
            problems.append(document.problem((key,), "expected a mapping", at_key=True))
        elif key in (OVERRIDE, ZIP):
            problems.append(document.problem((key,), f"a name is missing behind {key}", at_key=True))
    if problems:
        raise RecipeError(problems)


def _available(document: Document) -> list[tuple[str, str, int | None]]:
    """(selector, key, index in a zip) of every variant, in the file's order."""
    found: list[tuple[str, str, int | None]] = []
    for key in document.data:
        if key.startswith(ZIP):
            found.extend((f"{key}[{index}]", key, index) for index in range(_length(document, key)))
        else:
            found.append((key, key, None))
    return found


def _length(document: Document, key: str) -> int:
    """How many variants a zip override holds: its lists are equally long, or hold one value."""
    longest, first = 1, ()
    problems = []
    for path, items in _lists(document.data[key], (key,)):
        if not items:
            problems.append(document.problem(path, "an empty list zips nothing"))
        elif len(items) > 1 and longest == 1:
            longest, first = len(items), path
        elif len(items) not in (1, longest):
            message = f"{len(items)} values here, {longest} on line {document.mark(first).line}; lists of a zip are equally long"
            problems.append(document.problem(path, message))
    if problems:
        raise RecipeError(problems)
    return longest


def _lists(value: Any, path: Path) -> Iterable[tuple[Path, list[Any]]]:
    if isinstance(value, list):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _lists(item, (*path, key))


def _variant(document: Document, base: Document, selector: str, key: str, index: int | None) -> Variant:
    if key == BASE:
        return Variant(selector, "", base)
    override = below(document, (key,))
    if index is not None:
        override = _picked(override, index)
    name = key.removeprefix(ZIP).removeprefix(OVERRIDE)
    suffix = f"-{name}" if index is None else f"-{name}-{index}"
    return Variant(selector, "" if "name" in override.data else suffix, merged(base, override))


def _picked(override: Document, index: int) -> Document:
    """The override with each list replaced by its value for one variant."""
    part = Assembly(override)
    for path, items in list(_lists(override.data, ())):
        part.put(path, override, (*path, index if len(items) > 1 else 0))
    return part.document()


def merged(base: Document, override: Document, origin: Path = ()) -> Document:
    """`override`, or its part at `origin`, merged over `base`. RecipeError where null finds nothing to remove."""
    result = Assembly(base)
    problems: list[Problem] = []
    _merge(result, (), override, origin, problems)
    if problems:
        raise RecipeError(problems)
    return result.document()


def _merge(result: Assembly, path: Path, override: Document, origin: Path, problems: list[Problem]) -> None:
    target = value_at(result.data, path)
    for key, value in value_at(override.data, origin).items():
        here, there = (*path, key), (*origin, key)
        if value is None and key not in target:
            problems.append(override.problem(there, "null removes a key of the base, which has none of this name", at_key=True))
        elif value is None:
            result.drop(here)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(result, here, override, there, problems)
        else:
            result.put(here, override, there)
