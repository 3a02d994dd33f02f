"""Problems as text: the line and the caret stand where the file has them, whatever the line holds."""

from __future__ import annotations

import pytest

from srtgen import show
from srtgen.errors import Problem


def problem(line: int, column: int, severity: str = "error", code: str = "", reason: str = "") -> Problem:
    return Problem("f.yaml", line, column, "a.b", "is wrong", severity, code, reason)


@pytest.mark.parametrize(
    ("content", "line", "column", "shown", "under"),
    [
        ("a: 1\nbb: 2", 2, 5, "bb: 2", "2"),
        ("a: 1\r\nbb: 2\r\n", 2, 1, "bb: 2", "b"),
        ("\ufeffa: 1", 1, 4, "a: 1", "1"),
        ("é: 1", 1, 4, "é: 1", "1"),
        ("a:\tx", 1, 4, "a: x", "x"),
        ("a: \x1b[31m!", 1, 9, "a: \\x1b[31m!", "!"),
        ("a\u2028b: 1", 1, 6, "a\\u2028b: 1", "1"),
    ],
)
def test_caret(content: str, line: int, column: int, shown: str, under: str) -> None:
    _, source, caret = show.text(problem(line, column), show.lines(content.encode())).split("\n")
    assert source == f"{line:>5} | {shown}"
    assert source[caret.index("^")] == under


def test_caret_under_wide_characters() -> None:
    caret = show.text(problem(1, 4), ["漢字:x"]).split("\n")[2]
    assert caret.index("^") == len("    1 | ") + 5


def test_long_line_is_cut_around_the_caret() -> None:
    _, source, caret = show.text(problem(1, 5001), ["x" * 5000 + "!" + "y" * 5000]).split("\n")
    assert len(source) < 200 and source[caret.index("^")] == "!"


@pytest.mark.parametrize("line", [0, 3, 99])
def test_no_such_line(line: int) -> None:
    assert show.text(problem(line, 1), ["a", "b"]).count("\n") == 0


def test_code_reason_and_colour() -> None:
    said = show.text(problem(1, 1, "warning", "image-latest", "frozen"))
    assert said == "f.yaml:1:1: warning: a.b: is wrong (silenced: frozen) [image-latest]"
    assert "\033[33;1mwarning\033[0m:" in show.text(problem(1, 1, "warning"), colour=True)


def test_annotation_is_one_line_and_escaped() -> None:
    one = Problem("a,b:c.yaml", 2, 3, "x", "100% wrong\nand more", "note", "dead-flag")
    assert show.annotation(one) == "::notice file=a%2Cb%3Ac.yaml,line=2,col=3,title=dead-flag::x: 100%25 wrong\\nand more"


@pytest.mark.parametrize(
    ("problems", "text"),
    [
        ([], "nothing found"),
        ([problem(1, 1), problem(1, 1)], "1 error"),
        ([problem(1, 1), problem(2, 1), problem(1, 1, "note"), problem(1, 1, "warning", reason="x")], "2 errors, 1 note, 1 silenced"),
    ],
)
def test_summary(problems: list[Problem], text: str) -> None:
    assert show.summary(problems) == text
