"""The loader: YAML 1.2 values, positions, merges, limits, and every kind of file that must be refused in words."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from srtgen import document
from srtgen.document import yaml12
from srtgen.document import Document, Mark, load
from srtgen.errors import Problem, RecipeError, dotted

ROOT = Path(__file__).resolve().parent.parent
LOADERS = [pytest.param(yaml.SafeLoader, id="pure")]
if hasattr(yaml, "CSafeLoader"):
    LOADERS.append(pytest.param(yaml.CSafeLoader, id="libyaml"))


def read(text: str | bytes, loader: type | None = None) -> Document:
    return load("f.yaml", text.encode() if isinstance(text, str) else text, loader)


def refused(text: str | bytes, loader: type | None = None) -> list[str]:
    """Each problem as `line:col: path: message`; the text must be refused."""
    with pytest.raises(RecipeError) as caught:
        read(text, loader)
    return [problem.text().removeprefix("f.yaml:").replace(" error:", "", 1) for problem in caught.value.problems]


SCALARS = {
    "case_001_hours": ("12:00:00", "12:00:00"),
    "case_001_unpadded": ("8:00:00", "8:00:00"),
    "case_001_short": ("4:00", "4:00"),
    "case_001_fraction": ("1:30.5", "1:30.5"),
    "case_001_padded": ("08:00:00", "08:00:00"),
    "case_001_days": ("1-12:00:00", "1-12:00:00"),
    "case_003_whole_float": ("8000.0", 8000.0),
    "case_003_integer": ("8000", 8000),
    "case_004_bare_exponent": ("1e-3", 0.001),
    "case_004_plain_exponent": ("1e3", 1000.0),
    "case_004_dotted": ("1.0e3", 1000.0),
    "case_004_signed": ("1.0e+3", 1000.0),
    "case_004_capital": ("5E-1", 0.5),
    "case_006_zero_kept_in_source": ("0.10", 0.1),
    "case_006_tag": ("v0.10", "v0.10"),
    "case_006_three_parts": ("1.10.0", "1.10.0"),
    "case_006_quoted": ('"0.10"', "0.10"),
    "case_007_on": ("on", "on"),
    "case_007_off": ("off", "off"),
    "case_007_yes": ("Yes", "Yes"),
    "case_007_no": ("NO", "NO"),
    "case_007_y": ("y", "y"),
    "case_007_mixed": ("tRUE", "tRUE"),
    "case_007_true": ("TRUE", True),
    "case_007_false": ("False", False),
    "null_word": ("Null", None),
    "null_tilde": ("~", None),
    "null_empty": ("", None),
    "null_quoted": ("'null'", "null"),
    "negative": ("-1.5", -1.5),
    "no_leading_zero": (".5", 0.5),
    "trailing_dot": ("5.", 5.0),
    "zero": ("0", 0),
    "octal_1_1": ("017", "017"),
    "octal_1_2": ("0o17", "0o17"),
    "hexadecimal": ("0x10", "0x10"),
    "plus": ("+5", "+5"),
    "plus_float": ("+1.5", "+1.5"),
    "zero_padded_float": ("08.5", "08.5"),
    "underscore": ("1_000", "1_000"),
    "binary": ("0b11", "0b11"),
    "date": ("2026-09-01", "2026-09-01"),
    "port_pair": ("3:8000", "3:8000"),
    "dash_word": ("-x", "-x"),
    "dot_word": (".hidden", ".hidden"),
    "equals": ("=", "="),
    "comment": ("foo #bar", "foo"),
    "infinity_quoted": ("'.inf'", ".inf"),
    "full_width_digits": ("４", "４"),
    "long_integer": ("9" * 308, int("9" * 308)),
    "tagged_text": ("!!str 017", "017"),
    "tagged_float": ("!!float 5", 5.0),
    "tagged_integer": ('!!int "5"', 5),
    "tagged_null": ("!!null", None),
    "escapes": (r'"\e\u263A\\"', "\x1b☺\\"),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("source", "expected"), SCALARS.values(), ids=SCALARS)
def test_scalar(source: str, expected: object, loader: type) -> None:
    value = read(f"a: {source}\n", loader).data["a"]
    assert value == expected and type(value) is type(expected)


@pytest.mark.parametrize("text", ["017", "0o17", "0x10", "0b11", "+5", "-017", "1_000", "+1.5", "08.5", "00", "+.5"])
def test_odd_numbers_are_recognised(text: str) -> None:
    assert yaml12.odd_number(text) and yaml12.scalar(text) == text


@pytest.mark.parametrize("text", ["5", "-5", "0.5", ".5", "1e3", "x", "12:00:00", "0xg", "", "-", "_1", "v1"])
def test_other_text_is_no_odd_number(text: str) -> None:
    assert not yaml12.odd_number(text)


NOT_VALUES = {
    "case_004_overflow_of_a_hash": ("61e9540", "1:4: a: 61e9540 is too large for a number; quote it if text is meant"),
    "overflow": ("1.5e+400", "1:4: a: 1.5e+400 is too large for a number; quote it if text is meant"),
    "underflow": ("-1e-999", "1:4: a: -1e-999 is too small for a number; quote it if text is meant"),
    "infinity": (".inf", "1:4: a: .inf is not a finite number; quote it if text is meant"),
    "minus_infinity": ("-.INF", "1:4: a: -.INF is not a finite number; quote it if text is meant"),
    "nan": (".NaN", "1:4: a: .NaN is not a finite number; quote it if text is meant"),
    "5000_digits": ("9" * 5000, "1:4: a: a number of 5000 digits is too long; quote it if text is meant"),
    "local_tag": ("!x y", "1:4: a: the tag !x is not supported; quote a text that starts with !"),
    "bare_tag": ("! y", "1:4: a: the tag ! is not supported; quote a text that starts with !"),
    "python_tag": (
        "!!python/name:os.system",
        "1:4: a: the tag !!python/name:os.system is not supported; quote a text that starts with !",
    ),
    "binary_tag": ("!!binary aGk=", "1:4: a: the tag !!binary is not supported; quote a text that starts with !"),
    "set_tag": ("!!set {x}", "1:4: a: the tag !!set is not supported; quote a text that starts with !"),
    "date_tag": (
        "!!timestamp 2026-01-01",
        "1:4: a: the tag !!timestamp is not supported; quote a text that starts with !",
    ),
    "wrong_tag": ("!!int x", "1:4: a: 'x' is not what its tag !!int says"),
    "wrong_collection_tag": ("!!seq {x: 1}", "1:4: a: the tag !!seq is not supported; quote a text that starts with !"),
    "nul": (r'"x\0"', "1:4: a: a text cannot hold NUL or half a surrogate pair"),
    "unknown_alias": ("*x", "1:4: a: no anchor &x before this alias"),
    "recursive": ("&x [1, *x]", "1:11: a[1]: the alias *x stands inside its own anchor"),
    "recursive_mapping": ("&x {b: {c: *x}}", "1:15: a.b.c: the alias *x stands inside its own anchor"),
    "template": ("{{x}}", "1:5: a: a mapping cannot be a key; quote a text that holds {{ }}"),
    "merge_scalar": (
        "{<<: 3}",
        '1:5: a."<<": << takes a mapping or a list of mappings; quote it if the text << is meant',
    ),
    "merge_list": (
        "{<<: [{b: 1}, 2]}",
        '1:5: a."<<": << takes a mapping or a list of mappings; quote it if the text << is meant',
    ),
    "merge_nothing": (
        "{<<: }",
        '1:5: a."<<": << takes a mapping or a list of mappings; quote it if the text << is meant',
    ),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("source", "message"), NOT_VALUES.values(), ids=NOT_VALUES)
def test_refused_value(source: str, message: str, loader: type) -> None:
    assert refused(f"a: {source}\n", loader) == [message]


SYNTAX = {
    "at": ("a: @x", '1:4: not valid YAML: text cannot start with "@"; quote it'),
    "backtick": ("a: `x`", '1:4: not valid YAML: text cannot start with "`"; quote it'),
    "percent": ("a: %x", '1:4: not valid YAML: text cannot start with "%"; quote it'),
    "colon": (
        "a: b: c",
        '1:5: not valid YAML: a ":" cannot stand here; check the indentation, or quote a text that holds ": "',
    ),
    "tab": ("a:\n\tb: 1", "2:1: not valid YAML: a tab cannot indent; use blanks"),
    "tab_after_text": ("a:\n  b: 1\n\tc: 2", "3:1: not valid YAML: a tab cannot indent; use blanks"),
    "open_quote": ('x: 1\na: "b', "3:1: not valid YAML: the quoted text that opens on line 2 is not closed"),
    "open_list": (
        "a: [1, 2",
        "2:1: not valid YAML: the list that opens on line 1 lacks a comma or its closing bracket",
    ),
    "open_mapping": (
        "a: {b: 1",
        "2:1: not valid YAML: the mapping that opens on line 1 lacks a comma or its closing bracket",
    ),
    "after_quote": (
        "a: 'x' y",
        "1:8: not valid YAML: does not belong to the block that starts on line 1; "
        "check indentation, quotes and brackets",
    ),
    "empty_item": (
        "x: [a, , b]",
        "1:8: not valid YAML: a value is missing here; quote a text that starts with a bracket, a brace or a comma",
    ),
    "dash": ("a: - b", '1:4: not valid YAML: a list item cannot start here; quote a text that starts with "- "'),
    "question": ("a: ? b", '1:4: not valid YAML: text cannot start with "? "; quote it'),
    "block_text": ("a: |x\n b", "1:5: not valid YAML: after | or > the text starts on the next line"),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("text", "message"), SYNTAX.values(), ids=SYNTAX)
def test_syntax_error(text: str, message: str, loader: type) -> None:
    assert refused(text, loader) == [message]


@pytest.mark.parametrize("loader", LOADERS)
def test_template_syntax_error_hints_at_quotes(loader: type) -> None:
    assert refused("a: {{ x }}/y\n", loader)[-1].endswith("; quote a text that holds {{ }}")


FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "1:1: the file is empty"),
    "comments": (b"# a\n\n# b\n", "1:1: the file is empty"),
    "only_a_bom": (b"\xef\xbb\xbf", "1:1: the file is empty"),
    "document_mark": (b"---\n", "1:1: the file is empty"),
    "documents": (b"a: 1\n---\nb: 2\n", "2:1: a second document starts here; one file holds one document"),
    "version": (b"# x\n%YAML 1.1\n---\na: 1\n", "2:1: only the directive %YAML 1.2 is supported"),
    "not_utf8": (b"a: 1\nb: x\xff\n", "2:5: byte 0xff at offset 9 is not UTF-8 text"),
    "cut_utf8": ("a: ä".encode()[:-1], "1:4: byte 0xc3 at offset 3 is not UTF-8 text"),
    "utf16": ("a: 1".encode("utf-16"), "1:1: the file is UTF-16 text; save it as UTF-8"),
    "utf16_no_mark": ("a: 1".encode("utf-16-le"), "1:2: the character U+0000 cannot stand in a text file of YAML"),
    "nul": (b"a: 1\nb: \0", "2:4: the character U+0000 cannot stand in a text file of YAML"),
    "escape": (b"a: \x1b[2J", "1:4: the character U+001B cannot stand in a text file of YAML"),
    "bom_inside": ("a: \ufeff".encode(), "1:4: the character U+FEFF cannot stand in a text file of YAML"),
    "line_separator": ("a: x\u2028y".encode(), "1:5: the character U+2028 cannot stand in a text file of YAML"),
    "case_023_lone_cr": (b"a: x\rb: y\n", "1:5: a carriage return without a line feed"),
    "size": (b"#" * (document.MAX_BYTES + 1), "1:1: the file is larger than 4 MiB"),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("content", "message"), FILES.values(), ids=FILES)
def test_refused_file(content: bytes, message: str, loader: type) -> None:
    if loader is yaml.SafeLoader and len(content) > 100_000 and len(content) <= document.MAX_BYTES:
        pytest.skip("slow without libyaml")
    assert refused(content, loader) == [message]


BAD_KEYS = {
    "8000": '1:1: 8000: the key 8000 is read as a number; quote it: "8000"',
    "1.5": '1:1: "1.5": the key 1.5 is read as a number; quote it: "1.5"',
    "null": '1:1: null: the key null is read as null; quote it: "null"',
    "true": '1:1: true: the key true is read as a boolean; quote it: "true"',
    "[a]": "1:1: a list cannot be a key; quote it if text is meant",
    "{a: b}": "1:1: a mapping cannot be a key; quote it if text is meant",
    "?\n": '1:2: "": an empty key; write "" if that is meant',
    ".inf": "1:1: .inf is not a finite number; quote it if text is meant",
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("key", "message"), BAD_KEYS.items(), ids=BAD_KEYS)
def test_key_that_is_not_text(key: str, message: str, loader: type) -> None:
    assert refused(f"{key}: 1\n", loader) == [message]


def test_case_007_words_are_text_as_keys_too() -> None:
    assert read("on: 1\nyes: 2\n'8000': 3\n2026-01-01: 4\n").data == {"on": 1, "yes": 2, "8000": 3, "2026-01-01": 4}


DUPLICATES = {
    "case_018_block": (
        "args:\n  max-model-len: 1024\n  max-model-len: 262144\n",
        ["3:3: args.max-model-len: duplicate key, first used on line 2"],
    ),
    "case_018_second_block": (
        "roles: {a: 1}\nx: 1\nroles:\n  b: 2\n",
        ["3:1: roles: duplicate key, first used on line 1"],
    ),
    "case_018_flow": ("a: [{b: 1, c: 2, b: 3}]\n", ["1:18: a[0].b: duplicate key, first used on line 1"]),
    "case_018_quotes_and_three": (
        "a: 1\n'a': 2\n\"a\": 3\n",
        ["2:1: a: duplicate key, first used on line 1", "3:1: a: duplicate key, first used on line 1"],
    ),
    "two_merges": (
        "x: &x {a: 1}\ny:\n  <<: *x\n  <<: *x\n",
        ['4:3: y."<<": duplicate key, first used on line 3; merge several with <<: [*a, *b]'],
    ),
    "anchor": ("a: &x 1\nb: &x 2\n", ["2:4: b: duplicate anchor &x, first used on line 1"]),
    "all_problems_at_once": (
        "a: .nan\na: 2\n7: !x 1\nb: *q\n",
        [
            "1:4: a: .nan is not a finite number; quote it if text is meant",
            "2:1: a: duplicate key, first used on line 1",
            '3:1: 7: the key 7 is read as a number; quote it: "7"',
            "3:4: 7: the tag !x is not supported; quote a text that starts with !",
            "4:4: b: no anchor &q before this alias",
        ],
    ),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("text", "messages"), DUPLICATES.values(), ids=DUPLICATES)
def test_duplicates(text: str, messages: list[str], loader: type) -> None:
    assert refused(text, loader) == messages


MERGES = {
    "own_key_overrides_in_place": (
        "x: &x {p: 1, q: 2}\ny: {z: 0, q: 9, <<: *x}\n",
        [("p", 1), ("q", 9), ("z", 0)],
    ),
    "list_in_order_first_wins": (
        "x: [&x {p: 1, q: 2}, &y {q: 3, r: 4}]\ny: {<<: [*x, *y], s: 5}\n",
        [("p", 1), ("q", 2), ("r", 4), ("s", 5)],
    ),
    "merge_of_a_merge": (
        "x: &x {p: 1, q: 2}\nw: &w {q: 3, r: 4, <<: *x}\ny: {<<: *w, p: 0}\n",
        [("p", 0), ("q", 3), ("r", 4)],
    ),
    "literal": ("y: {<<: {p: 1}, q: 2}\n", [("p", 1), ("q", 2)]),
    "quoted_is_text": ("y: {'<<': 1}\n", [("<<", 1)]),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("text", "items"), MERGES.values(), ids=MERGES)
def test_merge(text: str, items: list[tuple[str, object]], loader: type) -> None:
    assert list(read(text, loader).data["y"].items()) == items


def test_aliases_are_copies() -> None:
    data = read("x: &x {a: [1]}\ny: *x\n").data
    data["x"]["a"].append(2)
    assert data["y"] == {"a": [1]}


WINDOWS = b"a: |\r\n  one\r\n  two\r\nb: 'x\r\n  y'\r\nc: 1\r\n"


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(WINDOWS, id="case_023_crlf"),
        pytest.param(b"\xef\xbb\xbf" + WINDOWS, id="case_023_bom"),
        pytest.param(b"a: |\r\n  one\r\n  two\nb: 'x\n  y'\nc: 1\n", id="case_023_crlf_in_block_only"),
        pytest.param(WINDOWS.replace(b"\r", b"")[:-1], id="case_023_no_final_newline"),
    ],
)
def test_line_ends(content: bytes, loader: type) -> None:
    loaded = read(content, loader)
    assert loaded.data == {"a": "one\ntwo\n", "b": "x y", "c": 1}
    assert loaded.mark(("c",)) == Mark(6, 4)


def test_case_023_block_text_at_the_end_without_newline() -> None:
    assert read(b"a: |\r\n  x\r\n  y").data == {"a": "x\ny\n"}


PLACES = read(
    """\
base: &base
  rate: 0.90
roles:
  decode:
    <<: *base
    args: {a.b: '1', list: [x, {y: 2}]}
    empty:
  prefill: *base
"""
)


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ((), (1, 1), (1, 1)),
        (("base", "rate"), (2, 9), (2, 3)),
        (("roles", "decode", "rate"), (2, 9), (2, 3)),
        (("roles", "decode", "args", "a.b"), (6, 17), (6, 12)),
        (("roles", "decode", "args", "list", 1, "y"), (6, 36), (6, 33)),
        (("roles", "decode", "args", "list", 0), (6, 29), (6, 29)),
        (("roles", "decode", "empty"), (7, 5), (7, 5)),
        (("roles", "prefill"), (1, 7), (8, 3)),
        (("roles", "prefill", "rate"), (2, 9), (2, 3)),
        (("roles", "decode", "args", "missing", 3), (6, 11), (6, 5)),
        (("missing",), (1, 1), (1, 1)),
    ],
)
def test_positions(path: tuple[str | int, ...], value: tuple[int, int], key: tuple[int, int]) -> None:
    assert PLACES.mark(path) == Mark(*value)
    assert PLACES.key_mark(path) == Mark(*key)


def test_an_alias_as_key_stands_where_it_is_used() -> None:
    loaded = read("a: &k name\nb:\n  *k : 1\n")
    assert loaded.data["b"] == {"name": 1} and loaded.key_mark(("b", "name")) == Mark(3, 3)


def test_sources_and_styles() -> None:
    rate = ("roles", "prefill", "rate")
    assert PLACES.sources[rate] == "0.90" and rate in PLACES.plain
    quoted = ("roles", "decode", "args", "a.b")
    assert PLACES.sources[quoted] == "1" and quoted not in PLACES.plain
    assert PLACES.sources[("roles", "decode", "empty")] == ""


def test_problem_of_a_document() -> None:
    path = ("roles", "decode", "args", "a.b")
    assert PLACES.problem(path, "m").text() == 'f.yaml:6:17: error: roles.decode.args."a.b": m'
    assert PLACES.problem(path, "m", at_key=True, severity="warning").text().startswith("f.yaml:6:12: warning: ")


def test_problems_are_sorted_and_printed_on_one_line() -> None:
    late, early = Problem("f\x1b", 2, 1, "", "a\nb\u202e"), Problem("f\x1b", 1, 9, "x", "c")
    error = RecipeError([late, early, late])
    assert error.problems == (early, late)
    assert str(error) == "f\\x1b:1:9: error: x: c\nf\\x1b:2:1: error: a\\nb\\u202e"


def test_a_printed_path_has_a_bound() -> None:
    assert len(refused(f"{'k' * 900}: 1\n{'k' * 900}: 2\n")[0]) < 300


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("a", 2, "b-c_d"), "a[2].b-c_d"),
        (("a", "b.c", 'q"'), 'a."b.c"."q\\""'),
        (("", "x y"), '""."x y"'),
        ((0, "a"), "[0].a"),
    ],
)
def test_dotted(path: tuple[str | int, ...], text: str) -> None:
    assert dotted(path) == text


def bomb(width: int, levels: int) -> str:
    lines = ["a0: &a0 {}"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]")
    return "\n".join(lines)


LIMITS = {
    "alias_bomb": (bomb(9, 20), "a6: aliases expand this to more than 100000 values"),
    "alias_tower": (bomb(1, 200), "a64: aliases nest this deeper than 64 levels"),
    "merge_bomb": (
        "a0: &a0 {k: 1}\n" + "".join(f"a{i}: &a{i} {{<<: *a{i - 1}, k{i}: 1}}\n" for i in range(1, 5000)),
        "more than 100000 keys and values",
    ),
    "merge_list_bomb": (
        f"a: &a {{{', '.join(f'k{i}: 1' for i in range(1000))}}}\nb: {{<<: [{', '.join(['*a'] * 1000)}]}}\n",
        "more than 100000 keys and values",
    ),
    "flow_nesting": ("[" * 10_000, "nested"),
    "block_nesting": ("- " * 10_000, "nested deeper than 64 levels"),
    "mapping_nesting": ("{a: " * 10_000, "nested"),
    "many_problems": ("- .nan\n" * 50_000, "[0]: .nan is not a finite number; quote it if text is meant"),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("text", "message"), LIMITS.values(), ids=LIMITS)
def test_limits_are_errors_soon(text: str, message: str, loader: type) -> None:
    start = time.process_time()
    messages = refused(text, loader)
    assert message in messages[0] and len(messages) <= 101
    assert time.process_time() - start < (3 if loader is not yaml.SafeLoader else 30)


@pytest.mark.parametrize("text", [bomb(9, 20), bomb(1, 200), "a: {b: [[.nan]]}\n"])
def test_one_cause_is_one_problem(text: str) -> None:
    assert len(refused(text)) == 1


def test_large_but_honest_file() -> None:
    text = "".join(f"k{number}: {{a: 1, b: [x, 2.5]}}\n" for number in range(3400))
    start = time.process_time()
    assert len(read(text).data) == 3400
    assert time.process_time() - start < 6


def test_depth_that_is_allowed() -> None:
    assert read("[" * document.MAX_DEPTH + "]" * document.MAX_DEPTH).data


def outcome(content: bytes, loader: type) -> tuple[Document | None, int]:
    try:
        return load("f", content, loader), 0
    except RecipeError as error:
        assert all(problem.line >= 1 and problem.column >= 1 for problem in error.problems)
        assert "\n" not in error.problems[0].text()
        return None, len(error.problems)


YAML_PIECES = [
    *("a: ", "b: ", "- ", "? ", ": ", "\n", "\n  ", "\n    ", " ", "\t", "[", "]", "{", "}", ", ", "#", "<<: "),
    *("*x", "&x ", "!!str ", "!t ", "'", '"', "|\n", ">-\n", "\\", "~", "1", "1e3", "017", ".nan", "on", "true"),
    *(" #c\n", "---\n", "...\n", "%YAML 1.2\n", "{{", "é", "\r\n", "@", "`", "\\u0041", "\ufeff", "=", "😀", "word"),
]
YAML_LIKE = st.lists(st.sampled_from(YAML_PIECES), max_size=25).map("".join)


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_any_bytes_load_or_are_refused_in_words(content: bytes) -> None:
    loaded, problems = outcome(content, yaml.SafeLoader)
    assert (loaded is None) == (problems > 0)
    outcome(content, document_loader())


@settings(max_examples=600, deadline=None)
@given(YAML_LIKE)
def test_what_both_parsers_accept_means_the_same(text: str) -> None:
    pure, _ = outcome(text.encode(), yaml.SafeLoader)
    fast, _ = outcome(text.encode(), document_loader())
    if pure and fast:
        assert pure == fast
    for loaded in filter(None, (pure, fast)):
        assert_plain(loaded.data)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "recipes").rglob("*.yaml")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_shipped_files_are_the_same_in_both_parsers(path: Path) -> None:
    content = path.read_bytes()
    assert load("f", content, yaml.SafeLoader) == load("f", content, document_loader())


def document_loader() -> type:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def assert_plain(data: object) -> None:
    if isinstance(data, dict):
        assert all(isinstance(key, str) for key in data)
        for value in data.values():
            assert_plain(value)
    elif isinstance(data, list):
        for item in data:
            assert_plain(item)
    else:
        assert data is None or type(data) in (str, int, bool) or (type(data) is float and math.isfinite(data))
