#!/usr/bin/env python3
"""Mutation fuzzing for a given time: `python tests/fuzz_long.py --seconds 600 [--seed N] [--kind KIND] [--keep FOLDER]`.

Recipes, profiles, --set, manifests and output folders are broken at random. Whatever comes out must be a bundle, or a
refusal in words: no other exception, no hang, no memory without bound, nothing written outside of the output folder.
Prints the number of inputs by kind and each finding with the file that reproduces it; ends with 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Callable, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "gen"), str(ROOT / "tests")]

import mutations  # noqa: E402
from srtgen import bundle, generate, show  # noqa: E402
from srtgen.errors import Problem, RecipeError  # noqa: E402
from srtgen.generate import Source  # noqa: E402
from srtgen.manifest import NAME, File  # noqa: E402

LONGEST_S = 20
MOST_MEMORY = 2 * 1024**3
MOST_POINTS = 20  # of a sweep; each is a recipe of its own


class Hang(Exception):
    """One input took longer than LONGEST_S."""


class Case(NamedTuple):
    """One input: what is needed to run it again."""

    kind: str
    recipe: bytes
    cluster: bytes | None = None
    changes: tuple[tuple[str, str], ...] = ()


class Fuzzer:
    """Draws cases and runs them in a folder of its own."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.corpus = mutations.corpus(ROOT)
        self.good = generate.bundle(_source(self.corpus.recipes[0]), None, []).files
        self.counts: Counter[str] = Counter()
        self.kinds: dict[str, Callable[[], Case]] = {
            "recipe": self.recipe,
            "profile": self.profile,
            "set": self.set,
            "manifest": self.manifest,
            "folder": self.folders,
        }

    def draw(self, kind: str | None) -> Callable[[], Case]:
        weights = {"recipe": 5, "profile": 2, "set": 3, "manifest": 1, "folder": 1}
        chosen = kind or self.random.choices(list(weights), list(weights.values()))[0]
        return self.kinds[chosen]

    def recipe(self) -> Case:
        case = Case("recipe", mutations.text(self.random, self.corpus.recipes, self.corpus))
        self.counts["recipe"] += 1
        _run(case)
        return case

    def profile(self) -> Case:
        case = Case("profile", self.corpus.recipes[0], mutations.text(self.random, self.corpus.profiles, self.corpus))
        self.counts["profile"] += 1
        _run(case)
        return case

    def set(self) -> Case:
        changes = tuple(mutations.change(self.random, self.corpus) for _ in range(self.random.randint(1, 3)))
        case = Case("set", self.random.choice(self.corpus.recipes), None, changes)
        self.counts["set"] += 1
        _run(case)
        return case

    def manifest(self) -> Case:
        out = self._out()
        bundle.write(out, self.good, force=True)
        content = mutations.json_text(self.random, (out / NAME).read_bytes())
        (out / self.random.choice([NAME, bundle.MARKER])).write_bytes(content)
        self.counts["manifest"] += 1
        self._write(out)
        return Case("manifest", content)

    def folders(self) -> Case:
        out = self._out()
        if self.random.random() < 0.6:
            bundle.write(out, self.good, force=True)
        done = mutations.clutter(self.random, out, self.folder / "outside", list(self.good))
        self.counts["folder"] += 1
        self._write(out)
        return Case("folder", "\n".join(done).encode())

    def _out(self) -> Path:
        """A fresh output folder, beside one that nothing may touch."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "outside").mkdir(parents=True)
        (self.folder / "outside" / "file").write_text("untouched")
        (self.folder / "job" / "results").mkdir(parents=True)
        (self.folder / "job" / "results" / "kept").write_text("untouched")
        if self.random.random() < 0.5:
            shutil.rmtree(self.folder / "job")
        return self.folder / "job"

    def _write(self, out: Path) -> None:
        before = _tree(self.folder / "outside")
        kept = out / "results" / "kept"
        had = kept.is_file() and kept.read_text() == "untouched"
        try:
            bundle.write(out, self.good, force=self.random.random() < 0.5)
        except bundle.Refused as refused:
            assert str(refused)
        except OSError:
            pass
        else:
            _complete(out, self.good)
        assert _tree(self.folder / "outside") == before, "something was written outside of the output folder"
        assert not had or kept.read_text() == "untouched", "results/ was touched"


def _source(content: bytes) -> Source:
    return Source("recipe.yaml", "recipe.yaml", content)


def _run(case: Case) -> None:
    """From bytes to a bundle, or to problems that can be shown in every form."""
    cluster = Source("cluster.yaml", "cluster.yaml", case.cluster) if case.cluster is not None else None
    try:
        if cluster:
            _shown(generate.check_profile(cluster), case)
        of = generate.family(_source(case.recipe), cluster, case.changes)
        for number, point in enumerate(of.points):
            _named(generate.make(of, point))
            if number == MOST_POINTS:
                break
    except RecipeError as error:
        assert any(problem.severity == "error" for problem in error.problems)
        _shown(error.problems, case)


def _named(made: generate.Bundle) -> None:
    """No name leads out of the folder, and what is printed is printable."""
    for path in made.files:
        assert not path.startswith("/") and ".." not in Path(path).parts and path.isprintable(), path
    assert "/" not in made.plan.recipe.name
    json.loads(made.files[NAME].content)
    _shown(made.findings, Case("", made.files["recipe.yaml"].content))


def _shown(problems: tuple[Problem, ...], case: Case) -> None:
    lines = show.lines(case.recipe)
    for problem in problems:
        assert problem.message and problem.line >= 1 and problem.column >= 1, problem
        said = show.text(problem, lines)
        assert all(line.isprintable() for line in said.split("\n")), said
        assert len(said) < 20_000, len(said)
        assert "\n" not in show.annotation(problem)
    json.loads(show.document(problems, ["recipe.yaml"]))


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink()}


def _complete(out: Path, files: Any) -> None:
    given: dict[str, File] = dict(files)
    for path, file in given.items():
        assert (out / path).read_bytes() == file.content, f"{path} is not what was generated"
    assert not (out / bundle.MARKER).exists()


def _alarm(_signal: int, _frame: FrameType | None) -> None:
    raise Hang(f"longer than {LONGEST_S} s")


def _report(error: BaseException, seed: int, keep: Path, fuzzer: Fuzzer) -> str:
    """The finding's last frames; its kind and seed draw it again."""
    keep.mkdir(parents=True, exist_ok=True)
    text = "".join(traceback.format_exception(error))
    (keep / f"{seed}.txt").write_text(text)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"seed {seed}: {type(error).__name__} {error} at {Path(last.filename).name}:{last.lineno}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None, help="run this one input only")
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--kind", choices=["recipe", "profile", "set", "manifest", "folder"])
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "srtgen-fuzz")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    signal.signal(signal.SIGALRM, _alarm)
    folder = Path(tempfile.mkdtemp(prefix="srtgen-fuzz-"))
    fuzzer = Fuzzer(0, folder / "work")
    findings: dict[str, str] = {}
    end = time.monotonic() + given.seconds
    seed = given.start if given.seed is None else given.seed
    while time.monotonic() < end:
        fuzzer.random.seed(seed)
        signal.alarm(LONGEST_S)
        try:
            fuzzer.draw(given.kind)()
        except Exception as error:
            said = _report(error, seed, given.keep, fuzzer)
            findings.setdefault(said.partition(": ")[2].rpartition(" at ")[2] + type(error).__name__, said)
        signal.alarm(0)
        if given.seed is not None:
            break
        seed += 1
    shutil.rmtree(folder, ignore_errors=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{sum(fuzzer.counts.values())} inputs ({dict(fuzzer.counts)}), {len(findings)} findings, {memory} MiB at most"
    )
    print("\n".join(findings.values()))
    return 1 if findings else 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
