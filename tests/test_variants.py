"""Files of variants: merging, zips, selectors, positions, and settings by concurrency."""

from __future__ import annotations

import pytest

from srtgen import concurrency, points
from srtgen.document import Document, load
from srtgen.errors import RecipeError

FILE = """\
base:
  name: x
  roles:
    decode: {args: {a: 0.90, b: 1, list: [1, 2]}}
  mounts: [one, two]
override_tbo:
  roles:
    decode:
      args: {a: 0.8, b: null, new: [3]}
override_named:
  name: own
zip_override_mem:
  roles:
    decode:
      args:
        a: [0.85, 0.95]
        b: 7
        list: [[5, 6]]
"""


def document(text: str = FILE) -> Document:
    return load("f.yaml", text.encode())


def chosen(selector: str, text: str = FILE, changes: tuple[tuple[str, str], ...] = ()) -> list[Document]:
    return [point.document for point in points.expand(document(text), changes, selector)[1]]


SELECTORS = {
    "": ["x-tbo", "own", "x-mem-0", "x-mem-1"],
    "base": ["x"],
    "override_tbo": ["x-tbo"],
    "override_*": ["x-tbo", "own"],
    "zip_override_mem": ["x-mem-0", "x-mem-1"],
    "zip_override_mem[1]": ["x-mem-1"],
}


@pytest.mark.parametrize(("selector", "names"), SELECTORS.items(), ids=list(SELECTORS))
def test_selectors(selector: str, names: list[str]) -> None:
    assert [doc.data["name"] for doc in chosen(selector)] == names


MANY = {"": True, "base": False, "override_tbo": False, "override_*": True, "zip_override_mem": True,
        "zip_override_mem[1]": False}


@pytest.mark.parametrize(("selector", "many"), MANY.items(), ids=list(MANY))
def test_one_or_many_follows_from_the_form(selector: str, many: bool) -> None:
    assert points.expand(document(), (), selector)[0] is many


MERGED = {
    "base": {"a": 0.9, "b": 1, "list": [1, 2]},
    "override_tbo": {"a": 0.8, "list": [1, 2], "new": [3]},
    "zip_override_mem[0]": {"a": 0.85, "b": 7, "list": [5, 6]},
    "zip_override_mem[1]": {"a": 0.95, "b": 7, "list": [5, 6]},
}


@pytest.mark.parametrize(("selector", "args"), MERGED.items(), ids=list(MERGED))
def test_merge(selector: str, args: dict[str, object]) -> None:
    (doc,) = chosen(selector)
    assert doc.data["roles"]["decode"]["args"] == args
    assert list(doc.data["roles"]["decode"]["args"]) == list(args)


def test_values_stand_where_they_are_written_and_keep_their_text() -> None:
    base, tbo, zipped = (chosen(s)[0] for s in ("base", "override_tbo", "zip_override_mem[1]"))
    path = ("roles", "decode", "args", "a")
    assert [doc.mark(path).line for doc in (base, tbo, zipped)] == [4, 9, 16]
    assert [doc.sources[path] for doc in (base, tbo, zipped)] == ["0.90", "0.8", "0.95"]
    assert zipped.key_mark(path).line == 16 and tbo.key_mark(("roles", "decode", "args", "list")).line == 4
    assert tbo.mark(("mounts", 1)).line == 5
    assert all(path in doc.plain for doc in (base, tbo, zipped))
    assert ("roles", "decode", "args", "b") not in tbo.sources


def test_set_applies_to_every_variant() -> None:
    found = chosen("", changes=(("set", "roles.decode.args.c=5"),))
    assert [doc.data["roles"]["decode"]["args"]["c"] for doc in found] == [5] * 4


WRONG = {
    "unknown": ("override_tb", FILE, "f.yaml:1:1: error: no variant override_tb; did you mean override_tbo?"),
    "index": ("zip_override_mem[2]", FILE, "no variant zip_override_mem[2]"),
    "no_variants": ("override_x", "name: x\n", "no variants in this file"),
    "no_base": ("", "override_a: {}\n", "missing key base"),
    "other_key": ("", "base: {}\noverride_a: {}\nroles: {}\n", "f.yaml:3:1: error: roles: a file of variants holds"),
    "lengths": ("", "base: {}\nzip_override_a:\n  b: [1, 2]\n  c: [1, 2, 3]\n", "f.yaml:4:6: error: zip_override_a.c: 3 values here, 2 on line 3"),
    "empty_list": ("", "base: {}\nzip_override_a: {b: []}\n", "an empty list zips nothing"),
    "null_of_nothing": ("", "base: {a: 1}\noverride_a:\n  b: null\n", "f.yaml:3:3: error: b: null removes a key of the base"),
    "text": ("", "base: {}\noverride_a: text\n", "expected a mapping"),
    "only_base": ("", "base: {}\n", "no variants beside base"),
}


@pytest.mark.parametrize(("selector", "text", "message"), WRONG.values(), ids=list(WRONG))
def test_wrong(selector: str, text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        chosen(selector, text)
    assert message in str(caught.value)


BY_CONCURRENCY = """\
name: x
roles: {decode: {args: {seqs: 8, tbo: false}}}
benchmark:
  concurrencies: [1, 4, 256, 512]
  overrides:
    - from_concurrency: 256
      roles: {decode: {args: {tbo: true}}}
"""


def test_one_recipe_for_each_configuration() -> None:
    low, high = (group.document.data for group in concurrency.expand(document(BY_CONCURRENCY)))
    assert (low["benchmark"], high["benchmark"]) == ({"concurrencies": [1, 4]}, {"concurrencies": [256, 512]})
    assert [d["roles"]["decode"]["args"]["tbo"] for d in (low, high)] == [False, True]
    assert [doc.data["name"] for doc in chosen("", BY_CONCURRENCY)] == ["x-c1-4", "x-c256-512"]


def test_concurrency_as_a_value() -> None:
    text = BY_CONCURRENCY.replace("{tbo: true}", '{seqs: "{concurrency}", text: "c{concurrency}"}')
    found = chosen("", text)
    args = [doc.data["roles"]["decode"]["args"] for doc in found]
    assert [a["seqs"] for a in args] == [8, 256, 512] and args[2]["text"] == "c512"
    path = ("roles", "decode", "args", "seqs")
    assert found[1].mark(path).line == 7 and found[1].sources[path] == "256"
    assert [doc.data["benchmark"]["concurrencies"] for doc in found] == [[1, 4], [256], [512]]


def test_text_of_concurrencies() -> None:
    assert [doc.data["name"] for doc in chosen("", BY_CONCURRENCY.replace("[1, 4, 256, 512]", "1x256"))] == ["x-c1", "x-c256"]


WRONG_OVERRIDES = {
    "no_bounds": ("- roles: {}", "expected a mapping with from_concurrency or to_concurrency"),
    "bound_text": ("- {from_concurrency: a, roles: {}}", "expected a whole number above 0"),
    "nothing": ("- from_concurrency: 1", "changes nothing"),
    "name": ("- {from_concurrency: 1, name: y}", "name is the same for all points"),
    "points": ("- {from_concurrency: 1, benchmark: {concurrencies: [1]}}", "concurrencies cannot stand in an override"),
    "mapping": ("a: 1", "expected a list of mappings"),
}


@pytest.mark.parametrize(("item", "message"), WRONG_OVERRIDES.values(), ids=list(WRONG_OVERRIDES))
def test_wrong_overrides(item: str, message: str) -> None:
    text = f"name: x\nbenchmark:\n  concurrencies: [1]\n  overrides:\n    {item}\n"
    with pytest.raises(RecipeError) as caught:
        chosen("", text)
    assert message in str(caught.value) and "f.yaml:" in str(caught.value)
