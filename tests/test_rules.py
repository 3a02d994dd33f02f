"""The checks: every code has an explanation whose examples are right about it, and says what it should."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from examples import ROOT, codes, errors, findings, laid_over, of_part
from srtgen import catalogue, document

CODES = catalogue.codes()
SHOWN = [code for code in CODES if catalogue.entry(code).wrong]
# Codes that no file can show by itself; the tests named here do.
ELSEWHERE = {"file-size": "test_document", "encoding": "test_document", "override": "test_overrides", "layout1-unread": "layout 1"}


def literals() -> set[str]:
    """Every code that stands in the source."""
    found: set[str] = set()
    for path in (ROOT / "gen" / "srtgen").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'code="([a-z0-9-]+)"', text))
        if path.parent.name == "rules":
            found |= set(re.findall(r'"([a-z0-9]+(?:-[a-z0-9]+)+)", (?:report|at_key)', text))
            found |= set(re.findall(r'message, "([a-z0-9]+(?:-[a-z0-9]+)+)"\)', text))
    return found


def test_every_code_is_explained() -> None:
    assert literals() - set(CODES) == set()
    assert len(CODES) > 70


@pytest.mark.parametrize("code", CODES)
def test_explanation_matches_its_schema(code: str) -> None:
    schema = json.loads((ROOT / "schema" / "check.schema.json").read_text())
    data = document.load(code, (ROOT / "schema" / "checks" / f"{code}.yaml").read_bytes()).data
    jsonschema.validate(data, schema, cls=jsonschema.Draft202012Validator)
    assert bool(data["wrong"]) == (code not in ELSEWHERE)


@pytest.mark.parametrize("code", SHOWN)
def test_wrong_example_brings_the_code_up(code: str) -> None:
    entry = catalogue.entry(code)
    found = [p for p in of_part(entry.kind, entry.wrong) if p.code == code]
    assert found, of_part(entry.kind, entry.wrong)
    assert {p.severity for p in found} <= set(re.findall(r"\w+", entry.severity))
    assert all(p.line == 1 or entry.kind == "text" for p in found)


@pytest.mark.parametrize("code", SHOWN)
def test_right_example_does_not(code: str) -> None:
    entry = catalogue.entry(code)
    found = of_part(entry.kind, entry.right)
    assert code not in codes(found)
    assert errors(found) == []


def test_the_base_has_nothing_to_say_about() -> None:
    assert findings(laid_over("recipe", "{}")) == ()
