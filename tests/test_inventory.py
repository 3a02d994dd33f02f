"""Configurations that ran: no error with their real images, and each flag's other spelling judged by the image's date."""

from __future__ import annotations

import json
from typing import Any, Iterator

import pytest

from examples import ROOT, codes, errors, findings
from inventory import IMAGES, Row, recipe, rows

ROWS = rows()
TABLE = json.loads((ROOT / "schema" / "engines" / "atom.json").read_text())
DATES: dict[str, str] = {s: d for f in TABLE["flags"] for s, d in {**f["spellings"], **f.get("negatives", {})}.items()}


def test_counts() -> None:
    assert (len(ROWS), len({r.config for r in ROWS}), len({r.image for r in ROWS})) == (82, 26, 12)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_row_has_no_error(row: Row) -> None:
    assert errors(findings(recipe(row))) == []


@pytest.mark.parametrize("row", [r for r in ROWS if IMAGES[r.image][1]], ids=lambda row: row.id)
def test_row_with_a_dated_image_has_no_doubt_about_its_flags(row: Row) -> None:
    said = codes(findings(recipe(row)))
    assert said & {"unknown-flag", "flag-too-new", "flag-value", "payload-key", "abbreviated-flag"} == set()
    assert "dead-env" not in said and "dsv4-accuracy" not in said


def twins() -> Iterator[tuple[Row, str, str]]:
    """Each flag of each image once, with its other spelling."""
    seen = set()
    for row in ROWS:
        for role in recipe(row)["roles"].values():
            for key in role["args"]:
                for other in (key.replace("-", "_"), key.replace("_", "-")):
                    if other != key and f"--{other}" in DATES and (row.image, key, other) not in seen:
                        seen.add((row.image, key, other))
                        yield row, key, other


TWINS = list(twins())


def test_twins_are_many() -> None:
    assert len(TWINS) > 100


@pytest.mark.parametrize(("row", "key", "other"), TWINS, ids=lambda value: getattr(value, "image", value))
def test_other_spelling_is_judged_by_date(row: Row, key: str, other: str) -> None:
    said = [
        p
        for p in findings(_respelled(recipe(row), key, other))
        if p.code == "flag-too-new" and p.path.endswith(f".{other}")
    ]
    since, day = DATES[f"--{other}"], IMAGES[row.image][1]
    expected = set()
    if since > TABLE["first_date"] and (day is None or day < since):
        expected = {"error" if day else "warning"}
    assert {p.severity for p in said} == expected, (since, day)
    for problem in said:
        assert f"not known to ATOM before {since}, " in problem.message
        assert day is None or f"the image is of {day}; write " in problem.message or "remove it" in problem.message


def _respelled(made: dict[str, Any], key: str, other: str) -> dict[str, Any]:
    for role in made["roles"].values():
        role["args"] = {other if k == key else k: v for k, v in role["args"].items()}
    return made
