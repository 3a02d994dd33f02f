"""What the README shows works: its commands run in order in one folder, and its recipes generate."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from command_line import GEN
from test_results_command import results
from srtgen import generate
from srtgen.generate import Source

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Commands that this test leaves out, and why.
ELSEWHERE = {
    r"(sbatch|salloc|srun|squeue|scancel)\b": "needs a cluster",
    r"\S*/?(submit|wait|status|logs|stop)\.sh\b": "needs a cluster",
    r"(\S*/prefetch\.sh|rsync)\b": "needs the network",
    r"bash \S+/run\.sbatch": "needs an allocation",
    r"(python3 -m venv|(\S+/)?pip|pipx|uv|git|pre-commit)\b": "needs the network",
    r"\./tests/run\.sh|\S*tests/benchmarks/|python3? \S*benchmarks?/": "runs for minutes",
}
# Blocks of this first word show a script's text.
SCRIPTS = ("argv=(",)


class Command(NamedTuple):
    line: int
    words: str


def blocks(kind: str) -> list[tuple[int, str]]:
    """(line, text) of every fenced block of a language."""
    return [(README.count("\n", 0, m.start(2)) + 1, m[2]) for m in BLOCK.finditer(README) if m[1] == kind]


def commands() -> list[Command]:
    """The commands of the shell blocks: continued lines joined, comments and what runs elsewhere left out."""
    found = []
    for start, text in [*blocks("sh"), *blocks("bash"), *blocks("console")]:
        if text.lstrip().startswith(SCRIPTS):
            continue
        joined = text.replace("\\\n", "  ")
        for number, line in enumerate(joined.splitlines()):
            for part in re.sub(r"(^|\s)#.*", "", line).removeprefix("$ ").split(" && "):
                words = part.strip().replace(".venv/bin/srtgen", "srtgen")
                if words and not any(re.match(pattern, words) for pattern in ELSEWHERE):
                    found.append(Command(start + number, words))
    return found


def section(title: str) -> tuple[int, int]:
    """First and last line of a section."""
    match = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert match, title
    return README.count("\n", 0, match.start()) + 1, README.count("\n", 0, match.end()) + 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader stands: a checkout's recipes, and files of the programs that they come from."""
    place = tmp_path_factory.mktemp("readme")
    for name in ("recipes", "schema"):
        shutil.copytree(ROOT / name, place / name)
    shutil.copy(TESTS / "layout1" / "pd-dpa-custom.1.yaml", place / "old.yaml")
    (place / "old-recipes" / "deep").mkdir(parents=True)
    shutil.copy(TESTS / "layout1" / "pd-shared-node.1.yaml", place / "old-recipes")
    shutil.copy(TESTS / "layout1" / "agg-floor.1.yaml", place / "old-recipes" / "deep")
    shutil.copy(TESTS / "inferencex" / "models.yaml", place / "models_atom.yaml")
    shutil.copy(TESTS / "inferencex" / "master.yaml", place / "amd-master.yaml")
    results(place / "before")
    results(place / "after")
    (place / "bin").mkdir()
    (place / "bin" / "srtgen").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m srtgen "$@"\n')
    (place / "bin" / "srtgen").chmod(0o755)
    return place


def run(command: Command, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(GEN)}
    return subprocess.run(
        ["bash", "-c", command.words], cwd=folder, env=env, text=True, capture_output=True, stdin=subprocess.DEVNULL,
        timeout=120,
    )


def test_every_command_runs(folder: Path) -> None:
    ended = [(command, run(command, folder)) for command in commands()]
    failed = [f"README.md:{c.line}: {c.words}: exit {e.returncode}\n{e.stderr}" for c, e in ended if e.returncode]
    assert not failed, "\n".join(failed)
    assert len(ended) >= 7
    assert (folder / "job" / "run.sbatch").is_file()
    assert sorted(p.name for p in (folder / "new-recipes").rglob("*.yaml")) == ["agg-floor.1.yaml", "pd-shared-node.1.yaml"]
    assert (folder / "new.yaml").read_text().startswith("# Anchors and merges")


@pytest.mark.parametrize("title, verbs", [
    ("Coming from srt-slurm", ["srtgen old.yaml", "srtgen migrate", "srtgen diff"]),
    ("Coming from InferenceX", ["srtgen import-inferencex", "srtgen imported/"]),
])  # fmt: skip
def test_newcomers_find_commands_that_this_test_runs(title: str, verbs: list[str]) -> None:
    first, last = section(title)
    shown = [command.words for command in commands() if first <= command.line <= last]
    for verb in verbs:
        assert any(words.startswith(verb) for words in shown), verb


@pytest.mark.parametrize("line, text", blocks("yaml"), ids=lambda value: str(value) if isinstance(value, int) else "")
def test_every_recipe_generates(line: int, text: str) -> None:
    cluster = Source("c.yaml", "c.yaml", b"cluster: readme\ngpus_per_node: 8\ndefault_time_limit: '02:00:00'\n")
    if re.search(r"^repos:|^jobs:|^on:", text, re.MULTILINE):
        pytest.skip("a file of another program")
    if re.search(r"^cluster:", text, re.MULTILINE):
        generate.check_profile(Source("README.md", "c.yaml", text.encode()))
        return
    of = generate.family(Source("README.md", "r.yaml", text.encode()), cluster)
    for point in of.points:
        assert "run.sbatch" in generate.make(of, point).files
