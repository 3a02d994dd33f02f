"""The flow: load, check, plan, render. Pure: bytes in, files out."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence

from srtgen import checks, document, overrides, plan, profile, recipe, render, schemas
from srtgen.errors import Problem
from srtgen.manifest import File, Input
from srtgen.plan import Plan
from srtgen.profile import Profile
from srtgen.report import Report

LAYOUTS = (2,)


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
    doc = _recipe(source, changes, report)
    if doc is None or site is None:
        report.stop_on_errors()
    assert doc is not None and site is not None
    checks.texts(doc, report)
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
    checks.texts(doc, report)
    return profile.read(doc), schemas.ignored_keys(doc, "cluster")


def _load(source: Source, report: Report) -> document.Document | None:
    try:
        return document.load(source.shown, source.content)
    except document.RecipeError as error:
        report.add(error.problems)
        return None


def _recipe(source: Source, changes: Sequence[tuple[str, str]], report: Report) -> document.Document | None:
    doc = _load(source, report)
    if doc is None:
        return None
    try:
        doc = overrides.apply(doc, changes)  # type: ignore[arg-type]
    except document.RecipeError as error:
        report.add(error.problems)
        return None
    if isinstance(doc.data, dict) and not _known_layout(doc, report):
        return None
    verdict = schemas.judge(doc, "recipe-2")
    report.add(verdict.problems)
    return doc if verdict.readable else None


def _known_layout(doc: document.Document, report: Report) -> bool:
    known = ", ".join(map(str, LAYOUTS))
    if "schema" not in doc.data:
        message = f"no key schema: this is a recipe of layout 1, which is not supported yet; known layouts: {known}"
        report.error(doc, (), message)
        return False
    layout = doc.data["schema"]
    if isinstance(layout, bool) or layout not in LAYOUTS:
        shown = doc.sources.get(("schema",), "this")
        report.error(doc, ("schema",), f"{shown} is not a known layout; known layouts: {known}")
        return False
    return True
