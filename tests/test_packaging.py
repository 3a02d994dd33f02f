"""Wheel, editable install and checkout all find templates and schemas, and an edited template takes effect at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from command_line import srtgen
from shipped import RECIPES, ROOT, SMOKE, TEMPLATES

RECIPE = str(RECIPES[SMOKE])


def pip(*words: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, words)], text=True, capture_output=True, timeout=180
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is needed to build."""
    copy = tmp_path_factory.mktemp("source") / "srtgen"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("gen", "templates", "schema"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def build(*words: str | Path) -> None:
    """pip without a build environment of its own where the back end is installed, with one otherwise."""
    try:
        import hatchling  # noqa: F401
    except ImportError:
        pip(*words)
    else:
        pip(words[0], "--no-build-isolation", *words[1:])


def run(site: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """srtgen from an installed folder, in an interpreter that knows no checkout."""
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if not p.endswith('/gen')]; "
        f"sys.path.insert(0, {str(site)!r}); sys.argv[0] = 'srtgen'; "
        "from srtgen.cli import main; import srtgen; print(srtgen.__file__); main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, RECIPE, "-o", str(out)], text=True, capture_output=True, cwd=out.parent,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, timeout=60,
    )  # fmt: skip


def test_wheel(source: Path, tmp_path: Path) -> None:
    build("wheel", "--no-deps", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("srtgen-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    for path in (p for p in TEMPLATES.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        assert f"srtgen/data/templates/{path.relative_to(TEMPLATES).as_posix()}" in held
    assert "srtgen/data/schema/recipe-2.schema.json" in held and "srtgen/data/schema/engines/atom.json" in held
    pip("install", "--no-deps", "--target", tmp_path / "site", wheel)
    done = run(tmp_path / "site", tmp_path / "job")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "site"))
    checkout = srtgen(RECIPE, "-o", tmp_path / "again")
    assert checkout.returncode == 0
    one, two = ({p.relative_to(tmp_path / n): p.read_bytes() for p in (tmp_path / n).rglob("*") if p.is_file()} for n in ("job", "again"))
    assert {str(k).partition("/")[2] for k in one} == {str(k).partition("/")[2] for k in two}
    assert sorted(one.values()) == sorted(two.values())


def test_editable_install_takes_an_edited_template_at_once(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    shutil.copytree(source, copy)
    build("install", "--no-deps", "--target", tmp_path / "site", "--editable", copy)
    (pth,) = (tmp_path / "site").glob("*.pth")
    assert run(Path(pth.read_text().strip()), tmp_path / "before").returncode == 0
    with (copy / "templates/roles/role.sh.j2").open("a") as stream:
        stream.write("# edited\n")
    assert run(Path(pth.read_text().strip()), tmp_path / "after").returncode == 0
    assert not (tmp_path / "before/roles/decode.sh").read_text().endswith("# edited\n")
    assert (tmp_path / "after/roles/decode.sh").read_text().endswith("# edited\n")


def test_python_m_in_a_checkout(tmp_path: Path) -> None:
    done = srtgen(RECIPE, "-o", tmp_path / "job", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "job/lib/srtgen.sh").exists()
