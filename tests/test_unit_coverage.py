"""Every function that a bundle carries has a unit test that uses it by name."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from shipped import ROOT, TEMPLATES

UNIT_TESTS = ("test_lib_*.py", "test_bench_*.py", "test_eval_*.py", "test_operate.py")
LIBRARIES = frozenset(path.stem for path in (TEMPLATES / "lib").iterdir())
# Before a command: nothing, the end of another one, or a word that a command follows.
BEFORE = r"(?:^|[;&|({!\n`]|\b(?:if|elif|while|until|then|else|do)\s)[ \t]*"


class Uses(NamedTuple):
    """What a test module holds: its texts (docstrings left out), `module.name` pairs, and names of programs."""

    texts: tuple[str, ...]
    names: frozenset[tuple[str, str]]
    programs: frozenset[str]


def functions(path: Path) -> list[str]:
    """The functions of a shell file, or those of a Python module that are in no class or function."""
    text = path.read_text()
    if path.suffix == ".py":
        return [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return re.findall(r"^(\w+)\(\) \{", text, re.MULTILINE)


# Every file of templates/ that has functions.
FILES = tuple(sorted(str(path.relative_to(TEMPLATES)) for path in TEMPLATES.rglob("*")
                     if path.suffix in (".sh", ".py") and functions(path)))


def uses(text: str) -> Uses:
    """What the text of a test module uses."""
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = tuple(node.value for node in ast.walk(tree)
                    if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings)
    modules = {alias.asname or alias.name: alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names = {(modules[node.value.id], node.attr) for node in ast.walk(tree)
             if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules}
    names |= {(node.module or "", alias.name) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    programs = frozenset(name for string in strings for name in re.findall(r"(\w+\.py)\b", string))
    return Uses(strings, frozenset(names), programs)


def runs(texts: tuple[str, ...], function: str) -> bool:
    """True if one of the texts has the function as a command; the name of a library alone is none."""
    command = re.compile(rf"{BEFORE}{function}(?![\w(=:./-])")
    return any(command.search(text) for text in texts if function in text and text not in LIBRARIES)


def unused(path: Path, tests: Uses) -> list[str]:
    """The functions of a file that the tests do not use. A program's `main` is used by starting the program."""
    if path.suffix == ".sh":
        return [name for name in functions(path) if not runs(tests.texts, name)]
    return [name for name in functions(path) if (path.stem, name) not in tests.names and not (name == "main" and path.name in tests.programs)]


@cache
def unit_tests() -> Uses:
    """What all unit tests use together."""
    every = [uses(path.read_text()) for pattern in UNIT_TESTS for path in sorted((ROOT / "tests").glob(pattern))]
    return Uses(tuple(text for one in every for text in one.texts), frozenset().union(*(one.names for one in every)),
                frozenset().union(*(one.programs for one in every)))


@pytest.mark.parametrize("name", FILES)
def test_every_function_has_a_unit_test(name: str) -> None:
    assert functions(TEMPLATES / name), "no function was found"
    assert unused(TEMPLATES / name, unit_tests()) == []


USED = ["clock_cs", "x; clock_cs", "if clock_cs; then", "a && clock_cs", "(clock_cs)", "! clock_cs 1", "for n in 1; do clock_cs; done", "{ clock_cs; }",
        "a\n  clock_cs", "x=$(clock_cs)"]
NOT_USED = ["clock_cs() { :; }", "my_clock_cs", "clock_cs_2", "show clock_cs", "clock_cs=1", "# clock_cs", "clock_cs.sh", "clock_cs: x", "log", ""]


@pytest.mark.parametrize("text", USED)
def test_a_command_is_found(text: str) -> None:
    assert runs((text,), "clock_cs")


@pytest.mark.parametrize("text", NOT_USED)
def test_what_is_no_command_is_passed_over(text: str) -> None:
    assert not runs((text,), "clock_cs") and not runs((text,), "log")


def test_uses_of_a_module(tmp_path: Path) -> None:
    test = uses('"""helper in a docstring."""\nimport point as p\nfrom report import table\nrun("canary.py", "x")\np.parse(1)\ndef test() -> None:\n    "parse"\n')
    for name, text, left in (("point.py", "def parse(): ...\ndef _other(): ...\nclass A:\n    def method(self): ...\n", ["_other"]),
                             ("report.py", "def table(): ...\ndef main(): ...\n", ["main"]), ("canary.py", "def main(): ...\n", []),
                             ("a.sh", "helper() {\n}\nx() {\n}\n", ["helper"])):
        (tmp_path / name).write_text(text)
        assert unused(tmp_path / name, test) == left
