"""`srtgen verify`: a bundle against its manifest, by the job's own rule."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run_here
from shipped import ROOT

from srtgen import folders, generate
from srtgen.bundle import write
from srtgen.console import read

RECIPE = ROOT / "recipes" / "atom" / "qwen3-0.6b-agg-2w.yaml"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("verify") / "job"
    write(out, generate.bundle(read(RECIPE), None, ()).files, False)
    return out


@pytest.fixture
def bundle(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "job"))


def verify(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code, printed = run_here(["verify", str(folder)], monkeypatch, capsys)
    return code, printed.err


def test_as_generated(bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (bundle / "results" / "1").mkdir(parents=True)
    assert verify(bundle, monkeypatch, capsys)[0] == 0


def change_manifest(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"--max-num-seqs", "8"', '"--max-num-seqs", "9"'))


def other_generation(folder: Path) -> None:
    script = folder / "run.sbatch"
    script.write_text(script.read_text().replace("readonly PLAN_ID=", "readonly PLAN_ID=0"))


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "edited": (lambda b: (b / "roles" / "agg.sh").write_text("x"), "roles/agg.sh was edited"),
    "removed": (lambda b: (b / "lib" / "log.sh").unlink(), "lib/log.sh was removed"),
    "mode": (lambda b: (b / "submit.sh").chmod(0o644), "submit.sh is not executable"),
    "manifest": (change_manifest, "manifest.json was edited"),
    "other_generation": (other_generation, "run.sbatch belongs to another generation"),
    "broken_off": (lambda b: (b / ".srtgen-writing").touch(), ".srtgen-writing is there"),
    "no_manifest": (lambda b: (b / "manifest.json").unlink(), "holds no bundle"),
    "manifest_text": (lambda b: (b / "manifest.json").write_text("{"), "cannot be read"),
}


@pytest.mark.parametrize(("spoil", "message"), SPOILED.values(), ids=list(SPOILED))
def test_says_what_is_wrong(
    bundle: Path, spoil: Callable[[Path], object], message: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(bundle)
    code, said = verify(bundle, monkeypatch, capsys)
    assert code == 1 and message in said


def test_same_rule_as_the_job(bundle: Path) -> None:
    """What the bundle's own library calls modified is what verify calls edited or removed."""
    (bundle / "bench.sh").write_text("x")
    (bundle / "lib" / "log.sh").unlink()
    code = "import json, node_files, sys; print(json.dumps(node_files.modified_files(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", code, str(bundle)], cwd=bundle / "lib", env={"PYTHONPATH": str(bundle / "lib")},
                          capture_output=True, text=True, check=True)
    said = [p.split()[0] for p in folders.verify(bundle) if "since generation" in p]
    assert said == json.loads(done.stdout) == ["bench.sh", "lib/log.sh"]
