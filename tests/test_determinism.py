"""Equal input, equal bytes: whatever folder, locale, time zone, umask or hash seed."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import GEN
from shipped import BUNDLES, RECIPES, SMOKE, made

NAMES = ("dsv4-pro-fp4-mi355x-2p1d-dpa-tp8-8k1k", f"{SMOKE}@mi355x-pyxis")
PLACES = {
    "plain": ({}, 0o022),
    "c_locale": ({"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, 0o022),
    "other_zone": ({"TZ": "Pacific/Kiritimati", "LC_ALL": "tr_TR.UTF-8"}, 0o077),
    "seed_0": ({"PYTHONHASHSEED": "0", "COLUMNS": "40", "NO_COLOR": "1"}, 0o000),
    "seed_1": ({"PYTHONHASHSEED": "1", "HOME": "/nonexistent", "USER": "someone", "SLURM_JOB_ID": "7"}, 0o177),
}


def generated(name: str, folder: Path, env: dict[str, str], umask: int) -> dict[str, tuple[str, bool]]:
    """Hash and executable bit of each file of a bundle made in `folder` by a process of its own."""
    recipe, cluster = BUNDLES[name]
    folder.mkdir()
    os.chmod(folder, 0o755)
    given = ["--cluster", shutil.copy(cluster, folder / "profile.yaml")] if cluster else []
    copy = shutil.copy(recipe, folder / "in.yaml")
    done = subprocess.run(
        [sys.executable, "-m", "srtgen", str(copy), "-o", "job", *map(str, given)],
        cwd=folder, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(GEN), **env}, umask=umask,
        text=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = folder / "job"
    return {
        p.relative_to(out).as_posix(): (hashlib.sha256(p.read_bytes()).hexdigest(), bool(p.stat().st_mode & stat.S_IXUSR))
        for p in out.rglob("*")
        if p.is_file()
    }


@pytest.mark.parametrize("name", NAMES)
def test_equal_bytes_everywhere(name: str, tmp_path: Path) -> None:
    found = {place: generated(name, tmp_path / place, *PLACES[place]) for place in PLACES}
    assert all(one == found["plain"] for one in found.values())
    assert {path for path, (_, executable) in found["plain"].items() if executable} >= {"run.sbatch", "submit.sh", "bench.sh", "wait.sh"}


def test_the_input_s_name_is_all_that_a_bundle_keeps_of_where_it_was() -> None:
    for name in RECIPES:
        one = made(name).files
        text = b"".join(file.content for file in one.values())
        assert str(RECIPES[name].parent).encode() not in text


def test_two_runs_in_one_process_are_equal() -> None:
    from shipped import source
    from srtgen.generate import bundle

    for name in list(BUNDLES)[:3]:
        recipe, cluster = BUNDLES[name]
        again = bundle(source(recipe), source(cluster) if cluster else None, [])
        assert again.files == made(name).files
