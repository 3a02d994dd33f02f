"""The flow: load, check, plan, render. Pure: bytes in, files out."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence

from srtgen import checks, document, overrides, plan, profile, recipe, render, schemas
from srtgen.errors import Problem
from srtgen.manifest import File, Input
from srtgen.plan import Plan
from srtgen.profile import Profile
from srtgen.report import Report

LAYOUTS = (1, 2)


class Source(NamedTuple):
    """An input file: the name that messages show, the name the bundle records, and its bytes."""

    shown: str
    base: str
    content: bytes


class Bundle(NamedTuple):
    plan: Plan
    files: Mapping[str, File]
    findings: tuple[Problem, ...]


def bundle(source: Source, cluster: Source | None, changes: Sequence[tuple[str, str]]) -> Bundle:
    """The bundle of a recipe. `changes` are ("set", "path=value") and ("unset", "path") in order.

    Raises RecipeError with every problem of recipe and profile.
    """
    report = Report()
    site, ignored = _profile(cluster, report)
    doc = _recipe(source, changes, site.gpus_per_node if site else None, report)
    if doc is None or site is None:
        report.stop_on_errors()
    assert doc is not None and site is not None
    checks.profile(site, ignored, report)
    made = plan.make(recipe.read(doc), site, report)
    findings = report.findings()
    said = tuple(f"{verb} {text}" for verb, text in changes)
    files = render.files(
        made,
        Input(source.base, source.content),
        Input(cluster.base, cluster.content) if cluster else None,
        said,
        tuple(_recorded(f, source, cluster) for f in findings),
        tuple(ignored),
    )
    return Bundle(made, files, findings)


def _recorded(finding: Problem, source: Source, cluster: Source | None) -> Problem:
    """The finding under the name that the bundle gives its file, which is the same wherever the inputs lay."""
    names = {source.shown: "recipe.yaml"} | ({cluster.shown: "cluster.yaml"} if cluster else {})
    return Problem(
        names.get(finding.file, finding.file),
        finding.line,
        finding.column,
        finding.path,
        finding.message,
        finding.severity,
        finding.code,
    )


def _profile(cluster: Source | None, report: Report) -> tuple[Profile | None, list[str]]:
    if cluster is None:
        return Profile(), []
    doc = _load(cluster, report)
    if doc is None:
        return None, []
    verdict = schemas.judge(doc, "cluster")
    report.add(verdict.problems)
    if not verdict.readable:
        return None, []
    return profile.read(doc), schemas.ignored_keys(doc, "cluster")


def _load(source: Source, report: Report) -> document.Document | None:
    try:
        return document.load(source.shown, source.content)
    except document.RecipeError as error:
        report.add(error.problems)
        return None


def _recipe(
    source: Source, changes: Sequence[tuple[str, str]], gpus_per_node: int | None, report: Report
) -> document.Document | None:
    """The recipe in layout 2, whichever it is written in; None if it cannot be read."""
    doc = _load(source, report)
    if doc is None:
        return None
    try:
        doc = overrides.apply(doc, changes)  # type: ignore[arg-type]
    except document.RecipeError as error:
        report.add(error.problems)
        return None
    layout = _layout(doc, report)
    if layout is None:
        return None
    verdict = schemas.judge(doc, f"recipe-{layout}")
    report.add(verdict.problems)
    if not verdict.readable:
        return None
    if layout == 1:
        from srtgen import layout1  # recipes of layout 2 do not pay for it

        return layout1.convert(doc, gpus_per_node, report)
    return doc


def _layout(doc: document.Document, report: Report) -> int | None:
    """The layout that the recipe is written in; layout 1 is the one without a key for it."""
    known = ", ".join(map(str, LAYOUTS[1:]))
    if not isinstance(doc.data, dict):
        return LAYOUTS[-1]
    if "schema" not in doc.data:
        if layout_2 := [key for key in ("roles", "engine") if key in doc.data]:
            message = f"missing key schema; with {' and '.join(layout_2)} this is layout 2: write schema: 2"
            report.error(doc, (), message)
            return None
        return 1
    layout = doc.data["schema"]
    if isinstance(layout, bool) or layout not in LAYOUTS:
        shown = doc.sources.get(("schema",), "this")
        message = f"{shown} is not a known layout; known layouts: {known} (recipes of layout 1 have no key schema)"
        report.error(doc, ("schema",), message)
        return None
    if layout == 1:
        report.error(doc, ("schema",), "recipes of layout 1 have no key schema; remove it", at_key=True)
        return None
    return int(layout)
