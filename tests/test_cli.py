"""The command line: exit codes, what is printed where, and files of every wrong kind."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from command_line import run_here, srtgen
from shipped import RECIPES, ROOT, SMOKE

RECIPE = str(RECIPES[SMOKE])


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    return lambda *words: run_here([str(word) for word in words], monkeypatch, capsys)


def test_success_says_what_is_next(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, said = run(RECIPE, "-o", tmp_path / "job")
    assert (code, said.out) == (0, "")
    assert said.err.splitlines()[-1] == f"{tmp_path}/job: {count(tmp_path / 'job')} files; next: sbatch {tmp_path}/job/run.sbatch"


def count(folder: Path) -> int:
    return sum(p.is_file() for p in folder.rglob("*"))


def test_generate_is_the_default_command(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert run("generate", RECIPE, "-o", tmp_path / "a")[0] == 0
    assert run("-o", tmp_path / "b", RECIPE)[0] == 0


@pytest.mark.parametrize("words", [[], [RECIPE], [RECIPE, "-o"], ["--no-such-option"], [RECIPE, "-o", "x", "--force=yes"], [RECIPE, "-o", "x", "--set"]])
def test_wrong_usage_is_2(run, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    code, said = run(*words)
    if words == []:
        assert code in (0, 2)
    else:
        assert code == 2
    assert "Traceback" not in said.err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["generate", "--help"], ["--version"]])
def test_help(run, words: list[str]) -> None:  # type: ignore[no-untyped-def]
    code, said = run(*words)
    assert code == 0 and "srtgen" in said.out


def test_warnings_do_not_block(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, said = run(RECIPE, "-o", tmp_path / "job")
    assert code == 0 and re.search(r"\.yaml:\d+:\d+: note: ", said.err)


def test_refused_folders_are_1_and_untouched(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "notes").write_text("mine")
    code, said = run(RECIPE, "-o", tmp_path)
    assert code == 1 and "--force" in said.err and count(tmp_path) == 1
    assert run(RECIPE, "-o", tmp_path, "--force")[0] == 0
    (tmp_path / "bench.sh").write_text("edited")
    code, said = run(RECIPE, "-o", tmp_path)
    assert code == 1 and "bench.sh" in said.err and (tmp_path / "bench.sh").read_text() == "edited"


def test_an_output_path_that_the_runtime_cannot_mount(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, said = run(RECIPE, "-o", tmp_path / "a b")
    assert code == 1 and "blank" in said.err and not (tmp_path / "a b").exists()


def test_a_read_only_place(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, said = run(RECIPE, "-o", "/proc/srtgen")
    assert code == 1 and "Traceback" not in said.err


KINDS: dict[str, bytes] = {
    "empty": b"",
    "blank": b"\n  \n",
    "binary": bytes(range(256)) * 16,
    "elf": b"\x7fELF\x02\x01\x01" + b"\0" * 64,
    "invalid_utf8": b"schema: 2\nname: \xff\xfe\n",
    "latin1": "schema: 2\nname: é\n".encode("latin-1"),
    "utf16": "schema: 2\n".encode("utf-16"),
    "nul": b"schema: 2\0\n",
    "scalar": b"hello",
    "list": b"- 1\n- 2\n",
    "deep": b"[" * 5000,
    "json": b'{"schema": 2}',
    "gzip": b"\x1f\x8b\x08\0\0\0\0\0",
    "lone_cr": b"schema: 2\rname: x\r",
}


@pytest.mark.parametrize("option", ["recipe", "cluster"])
@pytest.mark.parametrize("kind", KINDS)
def test_files_of_the_wrong_kind(run, kind: str, option: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "in.yaml"
    file.write_bytes(KINDS[kind])
    words = [file] if option == "recipe" else [RECIPE, "--cluster", file]
    code, said = run(*words, "-o", tmp_path / "job")
    assert code == 1, said.err
    assert re.search(rf"^{re.escape(str(file))}:\d+:\d+: (error|note|warning): ", said.err, re.MULTILINE)
    assert "Traceback" not in said.err and not (tmp_path / "job").exists()


def test_a_folder_a_missing_file_and_an_unreadable_one(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for path in (tmp_path, tmp_path / "nothing.yaml", tmp_path / ("x" * 300)):
        code, said = run(path, "-o", tmp_path / "job")
        assert code == 1 and ": error: " in said.err and "Traceback" not in said.err
    code, said = run(RECIPE, "--cluster", tmp_path, "-o", tmp_path / "job")
    assert code == 1 and not (tmp_path / "job").exists()


def test_100_megabytes_are_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    with file.open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    done = srtgen(file, "-o", tmp_path / "job", timeout=30)
    assert done.returncode == 1 and "larger than" in done.stderr


@pytest.mark.parametrize("change", ["crlf", "bom", "both", "no_final_newline"])
def test_case_023_line_ends_and_marks_are_fine(run, change: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    content = RECIPES[SMOKE].read_bytes()
    if change in ("crlf", "both"):
        content = content.replace(b"\n", b"\r\n")
    if change in ("bom", "both"):
        content = b"\xef\xbb\xbf" + content
    if change == "no_final_newline":
        content = content.rstrip(b"\n")
    file = tmp_path / "in.yaml"
    file.write_bytes(content)
    code, said = run(file, "-o", tmp_path / "job")
    assert code == 0, said.err
    for path in (tmp_path / "job").rglob("*"):
        if path.is_file() and path.name != "recipe.yaml":
            assert b"\r" not in path.read_bytes() or path.suffix == ".py", path
    assert (tmp_path / "job/recipe.yaml").read_bytes() == content


def test_a_name_cannot_leave_the_folder_or_the_terminal(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for name in ("../../x", "/etc/x", "a/b", "..", "\\u001b[31mred", "\\u202e"):
        file = tmp_path / "in.yaml"
        file.write_text(RECIPES[SMOKE].read_text().replace(f"name: {SMOKE}", f'name: "{name}"'))
        code, said = run(file, "-o", tmp_path / "job")
        assert code == 1 and "\x1b" not in said.err and "\u202e" not in said.err


def test_overrides_are_recorded_and_the_recipe_stays(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import json

    code, said = run(RECIPE, "-o", tmp_path / "job", "--set", "ports.router=9000", "--unset", "precision", "--unset", "model.precision")
    assert code == 1 and "--unset precision:1:1: error: precision: no such key" in said.err
    code, said = run(RECIPE, "-o", tmp_path / "job", "--set", "ports.router=9000", "--unset", "model.precision")
    assert code == 0, said.err
    made = json.loads((tmp_path / "job/manifest.json").read_text())
    assert made["overrides"] == ["set ports.router=9000", "unset model.precision"]
    assert made["recipe"]["ports"]["router"] == 9000 and "precision" not in made["recipe"]["model"]
    assert (tmp_path / "job/recipe.yaml").read_bytes() == RECIPES[SMOKE].read_bytes()


def test_python_m_and_a_foreign_folder(tmp_path: Path) -> None:
    done = srtgen(os.path.relpath(RECIPE, tmp_path), "-o", "job", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "job/run.sbatch").exists()
    assert done.stderr.splitlines()[-1].endswith("next: sbatch job/run.sbatch")


def test_a_bug_of_ours_is_3(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from srtgen import planning

    def broken(*_args: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(planning, "make", broken)
    code, said = run(RECIPE, "-o", tmp_path / "job")
    assert code == 3 and "bug of srtgen" in said.err and not (tmp_path / "job").exists()


def test_the_tests_run_this_checkout() -> None:
    import srtgen as package

    assert Path(package.__file__).is_relative_to(ROOT)
