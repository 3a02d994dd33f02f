"""Wrong recipes: each file of tests/invalid/ is refused with exactly the words of its file in golden/invalid/.

`x.cluster.yaml` beside `x.yaml` is given with --cluster.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import run_here, srtgen
from golden_file import InvalidFile, left_over
from shipped import ROOT

FOLDER = Path("tests/invalid")
CASES = {
    f"{path.stem}.txt": path.name for path in sorted((ROOT / FOLDER).glob("*.yaml")) if not path.stem.endswith(".cluster")
}


def words(recipe: str, out: Path) -> list[str]:
    """The arguments that generate from a file of the folder."""
    cluster = FOLDER / f"{Path(recipe).stem}.cluster.yaml"
    given = ["--cluster", str(cluster)] if (ROOT / cluster).exists() else []
    return [str(FOLDER / recipe), "-o", str(out), *given]


@pytest.mark.parametrize("name", CASES)
def test_file(
    name: str,
    golden_invalid: SnapshotAssertion,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    out = tmp_path / "job"
    code, said = run_here(words(CASES[name], out), monkeypatch, capsys)
    assert said.err == golden_invalid
    assert (code, said.out, out.exists()) == (1, "", False)
    *problems, count = said.err.splitlines()
    place = re.compile(r"tests/invalid/\S+\.yaml:\d+:\d+: (error|warning|note): .")
    assert all(place.match(line) for line in problems), said.err
    errors = sum(": error: " in line for line in problems)
    assert count == f"{errors} error{'s' * (errors != 1)}; nothing written"


def test_nothing_is_left_over(request: pytest.FixtureRequest) -> None:
    assert left_over(InvalidFile, set(CASES), request.config.option.update_snapshots) == []


def test_a_process_of_its_own_says_the_same(tmp_path: Path) -> None:
    done = srtgen(*words("several.yaml", tmp_path / "job"), cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (ROOT / "golden/invalid/several.txt").read_text()
