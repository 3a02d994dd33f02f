"""Compiled templates: kept beside their sources, never in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shipped import ROOT

RECIPE = ROOT / "recipes" / "atom" / "qwen3-0.6b-agg-2w.yaml"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("gen", "templates", "schema"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def generate(checkout: Path, out: str, **env: str) -> dict[str, bytes]:
    names = {"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout / "gen"), **env}
    argv = [sys.executable, "-m", "srtgen", str(RECIPE), "-o", str(checkout / out)]
    done = subprocess.run(argv, env=names, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {str(path.relative_to(checkout / out)): path.read_bytes() for path in (checkout / out).rglob("*") if path.is_file()}


def stored(checkout: Path) -> list[str]:
    return sorted(path.name for path in (checkout / "templates" / "__pycache__").glob("*"))


def test_the_second_run_finds_what_the_first_stored(checkout: Path) -> None:
    first = generate(checkout, "one")
    names = stored(checkout)
    assert names and not [path for path in first if "__pycache__" in path]
    assert generate(checkout, "two") == first and stored(checkout) == names


def test_an_edit_of_a_template_takes_effect_at_once(checkout: Path) -> None:
    generate(checkout, "one")
    template = checkout / "templates" / "bench.sh.j2"
    template.write_text(template.read_text() + "# one more line\n")
    assert generate(checkout, "two")["bench.sh"].endswith(b"# one more line\n")


@pytest.mark.parametrize("damage", ["cut", "garbage", "in the way"])
def test_a_store_that_is_of_no_use_is_gone_without(damage: str, checkout: Path) -> None:
    first = generate(checkout, "one")
    folder = checkout / "templates" / "__pycache__"
    for path in folder.glob("*"):
        path.write_bytes(path.read_bytes()[:20] if damage == "cut" else b"\0")
    if damage == "in the way":
        shutil.rmtree(folder)
        folder.write_text("")
    assert generate(checkout, "two") == first


def test_nothing_is_stored_where_python_must_not(checkout: Path) -> None:
    generate(checkout, "one", PYTHONDONTWRITEBYTECODE="1")
    assert stored(checkout) == []
