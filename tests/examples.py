"""The examples of schema/checks/ as whole recipes: what an example says, laid over tests/rules/base.yaml."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from srtgen import document, generate
from srtgen.errors import Problem, RecipeError
from srtgen.generate import Source

ROOT = Path(__file__).resolve().parents[1]
BASES = {
    "recipe": ROOT / "tests" / "rules" / "base.yaml",
    "cluster": ROOT / "recipes" / "clusters" / "none.yaml",
}


@cache
def _base(kind: str) -> Any:
    return document.load(kind, BASES[kind].read_bytes()).data


def laid_over(kind: str, part: str) -> dict[str, Any]:
    """The base with a part of a recipe or profile laid over it; null takes a key away."""
    return _merged(_base(kind), document.load("example", part.encode()).data)


def _merged(base: Any, part: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(part, dict):
        return part
    merged = {key: _merged(base.get(key), value) for key, value in part.items() if value is not None}
    return {key: merged.get(key, value) for key, value in base.items() if part.get(key, 0) is not None} | merged


def findings(recipe: dict[str, Any] | str, cluster: str | None = None, strict: bool = False) -> tuple[Problem, ...]:
    """Everything that is said about a recipe, given as data (JSON is YAML) or as text."""
    content = (recipe if isinstance(recipe, str) else json.dumps(recipe)).encode()
    site = Source("cluster.yaml", "cluster.yaml", cluster.encode()) if cluster is not None else None
    found: list[Problem] = []
    try:
        of = generate.family(Source("recipe.yaml", "recipe.yaml", content), site)._replace(strict=strict)
        for point in of.points:
            found.extend(generate.check(of, point).findings)
    except RecipeError as error:
        found.extend(error.problems)
    return tuple(dict.fromkeys(found))


def of_profile(profile: dict[str, Any]) -> tuple[Problem, ...]:
    """Everything that is said about a profile."""
    try:
        return generate.check_profile(Source("cluster.yaml", "cluster.yaml", json.dumps(profile).encode()))
    except RecipeError as error:
        return error.problems


def of_text(text: str) -> tuple[Problem, ...]:
    """What the loader says about a whole file."""
    try:
        document.load("file.yaml", text.encode())
    except RecipeError as error:
        return error.problems
    return ()


def of_part(kind: str, part: str) -> tuple[Problem, ...]:
    """What is said about an example of schema/checks/."""
    if kind == "text":
        return of_text(part)
    whole = laid_over(kind, part)
    return of_profile(whole) if kind == "cluster" else findings(whole)


def codes(problems: tuple[Problem, ...]) -> set[str]:
    return {problem.code for problem in problems}


def errors(problems: tuple[Problem, ...]) -> list[str]:
    return [problem.text() for problem in problems if problem.severity == "error"]
