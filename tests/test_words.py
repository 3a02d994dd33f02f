"""Shell words: the only maker of shell text, and the gate that lets nothing else through."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtgen import render, words
from srtgen.words import Param, Shell, Var, word

SHELL_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


def printed(text: str) -> bytes:
    """What bash makes of a script text, words NUL-separated."""
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, check=True, env={"A": "a  *"})
    return done.stdout


@settings(max_examples=60, deadline=None)
@given(st.lists(SHELL_TEXT, min_size=1, max_size=8))
def test_quoted_words_arrive(values: list[str]) -> None:
    text = " ".join(words.shquote(value) for value in values)
    assert printed(text) == b"".join(value.encode() + b"\0" for value in values)


@settings(max_examples=30, deadline=None)
@given(SHELL_TEXT, SHELL_TEXT)
def test_words_with_variables_arrive(before: str, after: str) -> None:
    value = words.shquote(word(before, Var("A"), after))
    assert printed(value) == f"{before}a  *{after}".encode() + b"\0"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(SHELL_TEXT, max_size=3), max_size=4))
def test_arrays_hold_what_they_were_given(lines: list[list[str]]) -> None:
    body = words.shargv([[word(value) for value in line] for line in lines])
    script = f'a=(\n{body}\n)\nprintf "%s\\0" "${{#a[@]}}" "${{a[@]}}"'
    done = subprocess.run(["bash", "-euc", script], capture_output=True, check=True)
    flat = [value for line in lines for value in line]
    assert done.stdout == b"".join(text.encode() + b"\0" for text in [str(len(flat)), *(flat or [])])


def test_an_empty_array_is_empty() -> None:
    text = words.sharrays([("EMPTY", []), ("ONE", [word("")])], "readonly")
    assert text == "readonly EMPTY=()\nreadonly ONE=(\n  ''\n)"


@pytest.mark.parametrize("value", ["a", "a-b_c.d/e:f", "0.85", "http://x:1", "--flag=1", "%j", "a@b", "a+b"])
def test_harmless_words_stay_bare(value: str) -> None:
    assert words.shquote(value) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "''"), (" ", "' '"), ("it's", "'it'\\''s'"), ("~", "'~'"), ("a=~", "'a=~'"), ("#", "'#'"), ("{a,b}", "'{a,b}'"),
        ("*", "'*'"), ("!", "'!'"), ("é", "'é'"), ("a\nb", "'a\nb'"), ("-", "-"), ("=", "="),
        (word(Var("A")), '"${A}"'), (word(Var("A", required=True)), '"${A:?}"'), (word(), "''"), (8, "8"),
    ],
)  # fmt: skip
def test_spelling(value: object, text: str) -> None:
    assert words.shquote(value) == text


@pytest.mark.parametrize("value", [True, None, 1.5, ["a"], b"a", {"a": 1}])
def test_what_is_no_word_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        words.shquote(value)


def test_nul_is_refused() -> None:
    with pytest.raises(ValueError):
        words.shquote("a\0b")


@pytest.mark.parametrize("name", ["1a", "a-b", "", "a b", "a\n", "é", "A=B"])
def test_names_of_variables_are_checked(name: str) -> None:
    with pytest.raises(ValueError):
        words.shenv([(name, "x")])


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "$(x)", "`x`", "a'b", 'a"b', "a\\b", "a;b", "a>b", "é", "x\n", True, None])
def test_plain_text_is_harmless_or_refused(value: object) -> None:
    """case 017: quotes protect nothing in a comment or an #SBATCH line."""
    with pytest.raises(ValueError):
        words.plain(value)


def test_params_are_bound_or_shown() -> None:
    value = word("x", Param("port", "6100"), Param("ip", Var("NODE_0_ADDR")))
    assert words.text(value) == "x6100${NODE_0_ADDR}"
    assert words.bind(value, frozenset()) == ("x6100", Var("NODE_0_ADDR"))
    assert words.shquote(words.bind(value, frozenset({"port"}))) == 'x"${port}""${NODE_0_ADDR}"'
    assert words.params(value) == {"port": "6100", "ip": Var("NODE_0_ADDR")}


@pytest.mark.parametrize("value", ["a", "", 1, None, ["a"], word("a")])
def test_case_014_the_gate_lets_only_shell_text_through(value: object) -> None:
    with pytest.raises(render.UnquotedValue):
        render.only_shell(value)


def test_case_014_the_mark_of_quoted_text_is_a_type_of_its_own() -> None:
    assert not isinstance("text", Shell)
    assert render.only_shell(words.shquote("a b")) == "'a b'"
    # Text made from shell text is text again.
    assert type(words.shquote("a") + " $(x)") is str


def test_a_template_cannot_print_a_bare_value() -> None:
    template = render._environment().from_string("{{ value }}")
    with pytest.raises(render.UnquotedValue):
        template.render(value="a")
    with pytest.raises(render.UnquotedValue, match="Undefined"):
        template.render()


MARKDOWN = ("a|b", "`x`", "<b>", "[x](y)", "*x*", "a\nb", "# x", "&amp;", "~~x~~", "$x$")


@pytest.mark.parametrize("value", MARKDOWN)
def test_markdown_text_is_one_line_without_markup(value: str) -> None:
    import re

    text = words.md(value)
    assert "\n" not in text
    assert not re.search(r"(?<!\\)[`*\[\]<>|~#$]", text)
