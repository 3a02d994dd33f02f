"""`--set` and `--unset`: paths, values by the file's own YAML rules, positions, and what they refuse."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtgen.document import Document, Mark, load
from srtgen.errors import RecipeError
from srtgen.overrides import apply

RECIPE = """\
name: x
resources: &r {nodes: 2, gpus_per_node: 8}
roles:
  decode:
    args: {a.b: 1, mode: off}
    env:
mounts: [one, two, {host: /a}]
copy: *r
"""


def base() -> Document:
    return load("f.yaml", RECIPE.encode())


SETS = {
    "replaces": (["resources.nodes=4"], ("resources", "nodes"), 4),
    "new_key": (["resources.partition=gpu"], ("resources", "partition"), "gpu"),
    "missing_parents": (["a.b.c=1"], ("a",), {"b": {"c": 1}}),
    "parent_without_value": (["roles.decode.env.A=1"], ("roles", "decode", "env"), {"A": 1}),
    "quoted_segment": (['roles.decode.args."a.b"=2'], ("roles", "decode", "args"), {"a.b": 2, "mode": "off"}),
    "equals_in_quotes": (['env."a=b"=c=d'], ("env",), {"a=b": "c=d"}),
    "escape_in_quotes": ([r'env."q\"\u0041"=1'], ("env",), {'q"A': 1}),
    "hyphen": (["args.max-model-len=1"], ("args",), {"max-model-len": 1}),
    "item": (["mounts[1]=three"], ("mounts",), ["one", "three", {"host": "/a"}]),
    "below_an_item": (["mounts[2].host=/b"], ("mounts", 2), {"host": "/b"}),
    "number_as_key": (["env.8000=1"], ("env",), {"8000": 1}),
    "last_one_wins": (["name=a", "name=b"], ("name",), "b"),
    "on_top_of_another": (["a={}", "a.b=1"], ("a",), {"b": 1}),
    "whole_mapping": (["resources={nodes: 1}"], ("resources",), {"nodes": 1}),
    "case_001_time": (["time=12:00:00"], ("time",), "12:00:00"),
    "case_004_number": (["rate=1e-3"], ("rate",), 0.001),
    "case_007_word": (["mode=on"], ("mode",), "on"),
    "case_021_quoted_false": (['flag="false"'], ("flag",), "false"),
    "case_021_false": (["flag=false"], ("flag",), False),
    "nothing": (["name="], ("name",), None),
    "empty_text": (["name=''"], ("name",), ""),
    "list": (["concurrency=[1, 2]"], ("concurrency",), [1, 2]),
}


@pytest.mark.parametrize(("texts", "path", "expected"), SETS.values(), ids=SETS)
def test_set(texts: list[str], path: tuple[str | int, ...], expected: object) -> None:
    value = apply(base(), [("set", text) for text in texts]).data
    for segment in path:
        value = value[segment]
    assert value == expected and type(value) is type(expected)


def test_set_keeps_the_place_and_new_keys_go_last() -> None:
    data = apply(base(), [("set", "name=y"), ("set", "zz=1")]).data
    assert list(data) == ["name", "resources", "roles", "mounts", "copy", "zz"]


def test_original_and_aliases_stay() -> None:
    original = base()
    changed = apply(original, [("set", "resources.nodes=9"), ("unset", "mounts[2].host")])
    assert original == base()
    assert changed.data["copy"] == {"nodes": 2, "gpus_per_node": 8}


def test_positions_name_the_option() -> None:
    changed = apply(base(), [("set", "a.b={c: [1]}")])
    label = "--set a.b={c: [1]}"
    assert changed.mark(("a",)) == changed.key_mark(("a",)) == changed.keys[("a",)] == Mark(1, 1, label)
    assert changed.mark(("a", "b", "c", 0)) == Mark(1, 10, label)
    assert changed.key_mark(("a", "b", "c")) == Mark(1, 6, label)
    assert changed.problem(("a", "b"), "m").text() == f"{label}:1:5: error: a.b: m"
    assert changed.mark(("name",)) == Mark(1, 7)


def test_sources_and_styles_follow() -> None:
    changed = apply(base(), [("set", "name=0.90"), ("set", "resources='1'"), ("set", "env=")])
    assert changed.sources[("name",)] == "0.90" and ("name",) in changed.plain
    assert changed.sources[("resources",)] == "1" and ("resources",) not in changed.plain
    assert ("resources", "nodes") not in changed.sources
    assert changed.sources[("env",)] == ""


UNSETS = {
    "key": ("resources.nodes", ("resources",), {"gpus_per_node": 8}),
    "mapping": ("roles.decode", ("roles",), {}),
    "item": ("mounts[0]", ("mounts",), ["two", {"host": "/a"}]),
    "quoted": ('roles.decode.args."a.b"', ("roles", "decode", "args"), {"mode": "off"}),
    "key_without_value": ("roles.decode.env", ("roles", "decode"), {"args": {"a.b": 1, "mode": "off"}}),
}


@pytest.mark.parametrize(("text", "path", "expected"), UNSETS.values(), ids=UNSETS)
def test_unset(text: str, path: tuple[str | int, ...], expected: object) -> None:
    value = apply(base(), [("unset", text)]).data
    for segment in path:
        value = value[segment]
    assert value == expected


def test_unset_moves_the_positions_of_later_items() -> None:
    original = base()
    changed = apply(original, [("unset", "mounts[0]")])
    assert changed.mark(("mounts", 1, "host")) == original.mark(("mounts", 2, "host"))
    assert changed.mark(("mounts", 0)) == original.mark(("mounts", 1))
    assert ("mounts", 2) not in changed.values and ("mounts", 2, "host") not in changed.sources


REFUSED = {
    "no_equals": ("set", "name", "--set name:1:1: error: name: --set takes path=value"),
    "no_path": ("set", "=1", "--set =1:1:1: error: a path starts with a key"),
    "empty": ("unset", "", "--unset :1:1: error: a path starts with a key"),
    "index_first": ("set", "[0]=1", "--set [0]=1:1:1: error: a path starts with a key"),
    "empty_segment": ("set", "a..b=1", '--set a..b=1:1:1: error: column 2: expected a path like a.b[0]."c.d"'),
    "trailing_dot": ("set", "a.=1", '--set a.=1:1:1: error: column 2: expected a path like a.b[0]."c.d"'),
    "blank": ("set", "a =1", '--set a =1:1:1: error: column 2: expected a path like a.b[0]."c.d"'),
    "open_quote": ("set", 'a."b=1', '--set a."b=1:1:1: error: column 2: expected a path like a.b[0]."c.d"'),
    "negative_index": (
        "set",
        "mounts[-1]=1",
        '--set mounts[-1]=1:1:1: error: column 7: expected a path like a.b[0]."c.d"',
    ),
    "glued_words": ("set", 'a"b"=1', '--set a"b"=1:1:1: error: column 2: expected a path like a.b[0]."c.d"'),
    "bad_escape": ("set", r'"\q"=1', '--set "\\q"=1:1:1: error: column 1: an unknown escape, or not UTF-8 text'),
    "key_not_utf8": ("set", "\udcff=1", "--set \\udcff=1:1:1: error: column 1: an unknown escape, or not UTF-8 text"),
    "below_a_scalar": ("set", "name.x=1", "--set name.x=1:1:1: error: name: is a single value and has no key x"),
    "key_of_a_list": (
        "set",
        "mounts.0=1",
        "--set mounts.0=1:1:1: error: mounts: is a list and has no key 0; write an item as [0]",
    ),
    "index_of_a_mapping": ("set", "roles[0]=1", "--set roles[0]=1:1:1: error: roles: is a mapping, [0] needs a list"),
    "index_out_of_range": (
        "set",
        "mounts[3]=1",
        "--set mounts[3]=1:1:1: error: mounts[3]: no item [3]; the list has 3 items, counted from 0",
    ),
    "list_is_not_created": ("set", "new[0]=1", "--set new[0]=1:1:1: error: new: no list here"),
    "unset_missing": (
        "unset",
        "resources.gpus_per_nod",
        "--unset resources.gpus_per_nod:1:1: error: resources.gpus_per_nod: no such key; did you mean gpus_per_node?",
    ),
    "unset_missing_parent": (
        "unset",
        "rolls.decode",
        "--unset rolls.decode:1:1: error: rolls: no such key; did you mean roles?",
    ),
    "unset_below_nothing": (
        "unset",
        "roles.decode.env.A",
        "--unset roles.decode.env.A:1:1: error: roles.decode.env: is empty and has no key A",
    ),
    "unset_with_value": ("unset", "name=x", "--unset name=x:1:1: error: name: --unset takes a path without ="),
    "bad_value": (
        "set",
        "a.b=[1",
        "--set a.b=[1:2:1: error: a.b: not valid YAML: "
        "the list that opens on line 1 lacks a comma or its closing bracket",
    ),
    "position_in_value": (
        "set",
        "a.b={c: .nan}",
        "--set a.b={c: .nan}:1:9: error: a.b.c: .nan is not a finite number; quote it if text is meant",
    ),
    "comment": ("set", "tag=#1", "--set tag=#1:1:1: error: tag: the value is a comment; quote it"),
    "not_utf8": (
        "set",
        "tag=\udcff",
        "--set tag=\\udcff:1:5: error: tag: byte 0xff at offset 0 is not UTF-8 text",
    ),
    "depth": (
        "set",
        "a." * 64 + "b=1",
        f"--set {'a.' * 35}a...:1:1: error: a: nested deeper than 64 levels",
    ),
}


@pytest.mark.parametrize(("action", "text", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(action: str, text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        apply(base(), [(action, text)])  # type: ignore[list-item]
    assert [problem.text() for problem in caught.value.problems] == [message]


def test_all_problems_at_once() -> None:
    with pytest.raises(RecipeError) as caught:
        apply(base(), [("set", "name.x=1"), ("set", "name=y"), ("unset", "nope"), ("set", "a=*x")])
    assert [problem.file for problem in caught.value.problems] == ["--set a=*x", "--set name.x=1", "--unset nope"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*'ab.="[]\\0 \n:{}-', "mounts", "roles", "[2]", "\udcff"]), max_size=8).map("".join))
def test_any_text_is_applied_or_refused_in_words(text: str) -> None:
    for action in ("set", "unset"):
        try:
            changed = apply(base(), [(action, text)])  # type: ignore[list-item]
        except RecipeError as error:
            assert error.problems
        else:
            assert set(changed.sources) == set(scalars(changed.data, ()))


def scalars(data: object, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    if isinstance(data, dict):
        return [found for key, value in data.items() for found in scalars(value, (*path, key))]
    if isinstance(data, list):
        return [found for number, value in enumerate(data) for found in scalars(value, (*path, number))]
    return [path]
