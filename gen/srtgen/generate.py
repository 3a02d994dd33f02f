"""The flow: load, check, plan, render. Pure: bytes in, files out."""

from typing import Iterator, Mapping, NamedTuple, Sequence

from srtgen import checks, document, planning, points, profile, recipe, render, rules, schemas
from srtgen.errors import Problem, RecipeError
from srtgen.manifest import File, Input
from srtgen.plan import Plan
from srtgen.points import Point
from srtgen.profile import Profile
from srtgen.report import Report
from srtgen.rules import silence

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


class Family(NamedTuple):
    """What one recipe file and a profile hold: `many` recipes by the file's form, or one.

    `strict` makes errors of the warnings that a recipe does not silence.
    """

    source: Source
    cluster: Source | None
    profile: Profile | None
    ignored: tuple[str, ...]
    problems: tuple[Problem, ...]
    many: bool
    points: Iterator[Point]
    strict: bool = False


def family(
    source: Source, cluster: Source | None, changes: Sequence[tuple[str, str]] = (), selector: str = ""
) -> Family:
    """The recipes of a file. `changes` are ("set", "path=value") and ("unset", "path") in order, `selector` a variant.

    Raises RecipeError with every problem found so far, also while `points` are iterated.
    """
    report = Report()
    site, ignored = _profile(cluster, report)
    doc = _load(source, report)
    many, found = False, iter(())
    if doc is not None:
        try:
            many, found = points.expand(doc, changes, selector)
        except document.RecipeError as error:
            report.add(error.problems)
            doc = None
    if doc is None:
        report.stop_on_errors()
    return Family(source, cluster, site, tuple(ignored), tuple(report.problems), many, found)


class Checked(NamedTuple):
    """A plan that holds together, with its warnings and notes."""

    plan: Plan
    findings: tuple[Problem, ...]


def check(of: Family, point: Point) -> Checked:
    """The plan of one recipe. Raises RecipeError with every problem of recipe and profile."""
    report = Report()
    report.add(of.problems)
    doc = _recipe(point.document, of.profile.gpus_per_node if of.profile else None, report)
    if doc is None or of.profile is None:
        report.stop_on_errors()
    assert doc is not None and of.profile is not None
    checks.profile(of.profile, list(of.ignored), report)
    read = recipe.read(doc)
    rules.run(read, of.profile, report)
    made = planning.make(read, of.profile, report)
    return Checked(made, _settled(silence.apply(doc, report.findings()), of.strict))


def check_profile(cluster: Source, strict: bool = False) -> tuple[Problem, ...]:
    """The warnings and notes of a profile by itself. Raises RecipeError as `check` does."""
    report = Report()
    site, ignored = _profile(cluster, report)
    if site is not None:
        checks.profile(site, ignored, report)
    report.stop_on_errors()
    return _settled(report.findings(), strict)


def _settled(findings: tuple[Problem, ...], strict: bool) -> tuple[Problem, ...]:
    """The findings; RecipeError if `strict` makes one of them an error."""
    harder = silence.strict(findings) if strict else findings
    if any(f.severity == "error" for f in harder):
        raise RecipeError(harder)
    return findings


def make(of: Family, point: Point) -> Bundle:
    """The bundle of one recipe that `check` accepts."""
    made, findings = check(of, point)
    files = render.files(
        made,
        Input(of.source.base, of.source.content),
        Input(of.cluster.base, of.cluster.content) if of.cluster else None,
        point.said,
        tuple(_recorded(f, of.source, of.cluster) for f in findings),
        of.ignored,
    )
    return Bundle(made, files, findings)


def bundle(source: Source, cluster: Source | None, changes: Sequence[tuple[str, str]]) -> Bundle:
    """The bundle of a file that holds one recipe, or of the first of its recipes."""
    of = family(source, cluster, changes)
    return make(of, next(of.points))


def _recorded(finding: Problem, source: Source, cluster: Source | None) -> Problem:
    """The finding under the name that the bundle gives its file, which is the same wherever the inputs lay."""
    names = {source.shown: "recipe.yaml"} | ({cluster.shown: "cluster.yaml"} if cluster else {})
    return finding._replace(file=names.get(finding.file, finding.file))


def _profile(cluster: Source | None, report: Report) -> tuple[Profile | None, list[str]]:
    if cluster is None:
        return Profile(), []
    doc = _load(cluster, report)
    if doc is None:
        return None, []
    verdict = schemas.judge(doc, "cluster")
    report.add(p._replace(code="schema") for p in verdict.problems)
    if not verdict.readable:
        return None, []
    return profile.read(doc), schemas.ignored_keys(doc, "cluster")


def _load(source: Source, report: Report) -> document.Document | None:
    try:
        return document.load(source.shown, source.content)
    except document.RecipeError as error:
        report.add(error.problems)
        return None


def _recipe(doc: document.Document, gpus_per_node: int | None, report: Report) -> document.Document | None:
    """The recipe in layout 2, whichever it is written in; None if it cannot be read."""
    layout = _layout(doc, report)
    if layout is None:
        return None
    verdict = schemas.judge(doc, f"recipe-{layout}")
    report.add(p._replace(code="schema") for p in verdict.problems)
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
    if type(layout) is not int or layout not in LAYOUTS:
        shown = schemas.spelled(doc, layout, ("schema",))
        message = f"{shown} is not a known layout; known layouts: {known} (recipes of layout 1 have no key schema)"
        report.error(doc, ("schema",), message)
        return None
    if layout == 1:
        report.error(doc, ("schema",), "recipes of layout 1 have no key schema; remove it", at_key=True)
        return None
    return int(layout)
