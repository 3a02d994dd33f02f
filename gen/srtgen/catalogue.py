"""The explanations of all codes: `schema/checks/<code>.yaml`."""

from functools import lru_cache
from typing import NamedTuple

from srtgen import document, resources

SEVERITIES = ("error", "warning", "note")
KINDS = ("recipe", "cluster", "text")


class Entry(NamedTuple):
    """What a code means. `wrong` and `right` are the parts of a recipe (or profile, by `kind`) that make the
    difference; of kind text they are whole files."""

    code: str
    says: str
    severity: str
    why: str
    evidence: str
    kind: str
    wrong: str
    right: str


@lru_cache(maxsize=None)
def codes() -> tuple[str, ...]:
    """Every code, sorted."""
    return tuple(sorted(path.stem for path in (resources.folder("schema") / "checks").glob("*.yaml")))


def entry(code: str) -> Entry:
    """The explanation of a code; KeyError if there is none."""
    if code not in codes():
        raise KeyError(code)
    file = f"checks/{code}.yaml"
    data = document.load(file, resources.text("schema", file).encode()).data
    return Entry(code=code, **{"kind": "recipe", **data})


def nearest(code: str) -> str | None:
    """The code that looks most like a mistyped one."""
    import difflib

    return next(iter(difflib.get_close_matches(code[:80], codes(), n=1, cutoff=0.5)), None)
