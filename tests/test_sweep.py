"""`sweep:`: typed placeholders, combinations, names, positions, and what is refused."""

from __future__ import annotations

import pytest

from srtgen import points
from srtgen.document import Document, load
from srtgen.errors import RecipeError

BASE = 'name: x\nv: "{a}"\n'


def expand(text: str) -> list[Document]:
    return [point.document for point in points.expand(load("f.yaml", text.encode()), (), "")[1]]


VALUES = {
    "number": ("0.85", 0.85, "0.85"),
    "number_keeps_spelling": ("0.90", 0.9, "0.90"),
    "integer": ("8", 8, "8"),
    "quoted_number_is_text": ('"0.85"', "0.85", "0.85"),
    "boolean": ("true", True, "true"),
    "list": ("[1, 2]", [1, 2], None),
    "mapping": ("{x: 1}", {"x": 1}, None),
}


@pytest.mark.parametrize(("written", "value", "source"), VALUES.values(), ids=list(VALUES))
def test_whole_placeholder_takes_type_and_spelling(written: str, value: object, source: str | None) -> None:
    (doc,) = expand(f"sweep:\n  a: [{written}]\n{BASE}")
    assert doc.data == {"name": "x", "v": value} and type(doc.data["v"]) is type(value)
    assert doc.sources.get(("v",)) == source


TEXTS = {
    "inside": ("m-{a}", "m-0.90"),
    "twice": ("{a}{a}", "0.900.90"),
    "escaped": ("{{a}}-{a}", "{a}-0.90"),
    "shell_variable": ("${a} {a}", "${a} 0.90"),
    "json": ('{"k":{"a":{a}}}', '{"k":{"a":0.90}}'),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=list(TEXTS))
def test_inside_a_text(text: str, expected: str) -> None:
    (doc,) = expand(f"sweep: {{a: [0.90]}}\nname: x\nv: '{text}'\n")
    assert doc.data["v"] == expected


def test_every_combination_the_last_changing_fastest() -> None:
    found = expand('sweep: {a: [1, 2], b: [x, y]}\nname: n\nv: ["{a}", "{b}"]\n')
    assert [doc.data["v"] for doc in found] == [[1, "x"], [1, "y"], [2, "x"], [2, "y"]]
    assert [doc.data["name"] for doc in found] == ["n-a1-bx", "n-a1-by", "n-a2-bx", "n-a2-by"]


NAMES = {
    "in_the_name": ('"n{a}"', "[1, 2]", ["n1", "n2"]),
    "single_value": ("n", "[1]", ["n"]),
    "odd_characters": ("n", '["a/b", "c d"]', ["n-aa_b", "n-ac_d"]),
    "mappings": ("n", "[{k: 1}, {k: 2}]", ["n-a0", "n-a1"]),
}


@pytest.mark.parametrize(("name", "values", "expected"), NAMES.values(), ids=list(NAMES))
def test_names(name: str, values: str, expected: list[str]) -> None:
    assert [d.data["name"] for d in expand(f'sweep: {{a: {values}}}\nname: {name}\nv: "{{a}}"\n')] == expected


def test_positions_are_those_of_the_recipe() -> None:
    (doc,) = expand(f"sweep:\n  a: [{{k: 1}}]\n{BASE}")
    assert doc.mark(("v",)).line == 4 and doc.key_mark(("v",)).line == 4
    assert doc.mark(("v", "k")).line == 2


WRONG = {
    "unresolved": ('sweep: {a: [1]}\nname: x\nv: "{a}{b}"\n', "f.yaml:3:4: error: v: {b} is no parameter of sweep (a)"),
    "unresolved_in_name": ('sweep: {a: [1]}\nname: "x-{b}"\nv: "{a}"\n', "f.yaml:2:7: error: name: {b} is no parameter"),
    "unused": ("sweep: {a: [1], c: [2]}\nname: x\nv: '{a}'\n", "f.yaml:1:17: error: sweep.c: never used"),
    "unquoted": ("sweep: {a: [1]}\nname: x\nv: {a}\nw: '{a}'\n", 'f.yaml:3:4: error: v: {a} without quotes is a mapping; write "{a}"'),
    "key": ("sweep: {a: [1]}\nname: x\n'k{a}': '{a}'\n", "a placeholder cannot be part of a key"),
    "no_list": ("sweep: {a: 1}\nname: x\n", "sweep.a: expected a list of values"),
    "empty_list": ("sweep: {a: []}\nname: x\n", "sweep.a: expected a list of values"),
    "no_mapping": ("sweep: [1]\nname: x\n", "expected a mapping from parameters"),
    "list_in_text": ("sweep: {a: [[1]]}\nname: x\nv: 'x{a}'\n", "no single value"),
    "too_many": (f"sweep: {{a: {list(range(400))}, b: {list(range(400))}}}\nname: x\nv: '{{a}}{{b}}'\n", "160000 combinations"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=list(WRONG))
def test_wrong(text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        expand(text)
    assert message in str(caught.value)
