"""`srtgen explain` and the reference that is made of the same explanations."""

from __future__ import annotations

import pytest

from command_line import run_here
from examples import ROOT
from srtgen import catalogue, reference

Here = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("code", catalogue.codes())
def test_every_code(code: str, monkeypatch: Here, capsys: Capture) -> None:
    exit_code, said = run_here(["explain", code], monkeypatch, capsys)
    entry = catalogue.entry(code)
    assert (exit_code, said.err) == (0, "")
    assert said.out.startswith(f"{code} ({entry.severity}): {entry.says}\n")
    assert f"Evidence: {entry.evidence}\n" in said.out
    for example in filter(None, (entry.wrong, entry.right)):
        assert "".join(f"    {line}\n" for line in example.splitlines()) in said.out


def test_list(monkeypatch: Here, capsys: Capture) -> None:
    code, said = run_here(["explain"], monkeypatch, capsys)
    assert code == 0 and [line.split()[0] for line in said.out.splitlines()] == list(catalogue.codes())


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("dsv4-acuracy", "no code dsv4-acuracy; did you mean dsv4-accuracy?\n"),
        ("zzz", "no code zzz; srtgen explain lists them\n"),
        ("../../etc/passwd", "no code ../../etc/passwd; srtgen explain lists them\n"),
        ("a\x1b[31m", "no code a\\x1b[31m; srtgen explain lists them\n"),
    ],
)
def test_unknown(word: str, answer: str, monkeypatch: Here, capsys: Capture) -> None:
    code, said = run_here(["explain", word], monkeypatch, capsys)
    assert (code, said.out, said.err) == (2, "", answer)


def test_reference_is_fresh(monkeypatch: Here, capsys: Capture) -> None:
    stored = (ROOT / "schema" / "REFERENCE.md").read_text(encoding="utf-8")
    assert reference.text() == stored, "run: srtgen reference > schema/REFERENCE.md"
    code, said = run_here(["reference"], monkeypatch, capsys)
    assert (code, said.out) == (0, stored)


def test_reference_has_every_code_and_the_fields() -> None:
    text = reference.text()
    assert [code for code in catalogue.codes() if f"\n### {code}\n" not in text] == []
    for field in (
        "roles.decode.args",
        "engine.version",
        "silence[].code",
        "benchmark.concurrencies",
        "container_runtime.type",
    ):
        assert f"| `{field}` |" in text
    assert "x-refused" not in text and "extra_args" not in text
