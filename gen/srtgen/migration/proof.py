"""The proof that a recipe and its migration give the same jobs: both are generated and compared."""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from typing import Iterator, Sequence

from srtgen import compare, generate
from srtgen.errors import Problem, RecipeError
from srtgen.generate import Bundle, Source
from srtgen.manifest import JOB_SCRIPT, NAME

_FACTS = ("name", "recipe", "served_model", "nodes", "processes")
_PLAN_ID = re.compile(rb"PLAN_ID=\S+")
# Files that hold the recipe itself, or positions in it.
_OF_THE_TEXT = frozenset({NAME, "recipe.yaml", "README.md"})


def prove(old: Source, new: Source, cluster: Source | None, selectors: Sequence[str]) -> None:
    """RecipeError if the plans of any recipe that a selector names differ."""
    for selector in selectors:
        before = _bundles(old, cluster, selector)
        after = _bundles(new, cluster, selector)
        for one, two in zip_longest(before, _expressed(after, old)):
            if found := differences(one, two):
                raise RecipeError(failure(old, words) for words in found)


def _bundles(of: Source, cluster: Source | None, selector: str) -> Iterator[Bundle]:
    family = generate.family(of, cluster, (), selector)
    for point in family.points:
        yield generate.make(family, point)


def _expressed(bundles: Iterator[Bundle], old: Source) -> Iterator[Bundle]:
    """The bundles; where there is none, its problems as those of the migration."""
    try:
        yield from bundles
    except RecipeError as error:
        raise RecipeError(
            failure(old, f"{p.path}: {p.message}" if p.path else p.message) for p in error.problems if p.severity == "error"
        ) from None


def failure(old: Source, words: str) -> Problem:
    """What keeps a recipe from being migrated, as a problem of its file."""
    return Problem(old.shown, 1, 1, "", f"cannot be written in layout 2 with the same plan: {words}")


def differences(old: Bundle | None, new: Bundle | None) -> list[str]:
    """What two bundles do differently, in words; none if they give the same plan."""
    if old is None or new is None:
        return ["another number of recipes"]
    one, two = (json.loads(bundle.files[NAME].content) for bundle in (old, new))
    scripts = [bundle.files[JOB_SCRIPT].content.decode() for bundle in (old, new)]
    found = compare.manifests(one, two) + compare.job_scripts(scripts[0], scripts[1])
    said = [f"{change.subject}: {change.aspect}: {change.text()}" for change in found]
    said += [f"the manifest's {key}" for key in _FACTS if one[key] != two[key]]
    for path in sorted({*old.files, *new.files} - _OF_THE_TEXT):
        files = [bundle.files.get(path) for bundle in (old, new)]
        contents = [file and (_PLAN_ID.sub(b"", file.content), file.executable) for file in files]
        if contents[0] != contents[1]:
            said.append(f"the file {path}")
    return said
