"""Cost of a further point of a sweep, in CPU time against a single generation, and memory over many points.

    python tests/benchmarks/sweep.py [--points 1000] [--recipe FILE] [--rounds 3]

Prints the share (of medians over the rounds) that one more point costs of `srtgen RECIPE -o FOLDER` as a whole process, and the peak memory of a tenth
of the points and of all of them. Ends with 1 when a point costs more than 10 %, or memory grows by more than 10 %.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes" / "atom" / "qwen3-0.6b-1p1d-tp1.yaml"
MOST_PER_POINT = 0.10
MOST_GROWTH = 0.10


def spend(*words: str | Path) -> tuple[float, int]:
    """CPU seconds and peak memory (KiB) of a process of its own."""
    child = os.spawnve(
        os.P_NOWAIT,
        sys.executable,
        [sys.executable, "-m", "srtgen", *map(str, words)],
        {**os.environ, "PYTHONPATH": str(ROOT / "gen")},
    )
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"srtgen {' '.join(map(str, words))} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def swept(recipe: Path, folder: Path, points: int) -> Path:
    """The recipe with a sweep of `points` values over the first role's max-num-seqs."""
    text = recipe.read_text(encoding="utf-8")
    changed = text.replace("max-num-seqs: 8", 'max-num-seqs: "{seqs}"', 1)
    if changed == text:
        raise SystemExit(f"{recipe} has no max-num-seqs: 8 to sweep over")
    file = folder / f"swept-{points}.yaml"
    values = ", ".join(str(8 + n) for n in range(points))
    file.write_text(f"sweep:\n  seqs: [{values}]\n{changed}", encoding="utf-8")
    return file


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name), Path(name) / "out"
        few = max(50, given.points // 10)
        spend(given.recipe, "-o", fresh(out))  # compiles, warms the disk cache
        singles, smalls = [], []
        for _ in range(given.rounds):
            singles.append(spend(given.recipe, "-o", fresh(out))[0])
            used, small_kib = spend(swept(given.recipe, folder, few), "-o", fresh(out))
            smalls.append(used)
        single = statistics.median(singles)
        share = (statistics.median(smalls) - single) / (few - 1) / single
        print(f"one generation: {single:.3f} s CPU; a further point: {share:.1%} of it ({few} points)")
        large, large_kib = spend(swept(given.recipe, folder, given.points), "-o", fresh(out))
        growth = large_kib / small_kib - 1
        print(f"{given.points} points: {large:.1f} s CPU, {(large - single) / (given.points - 1) / single:.1%} a point")
        print(f"peak memory: {small_kib / 1024:.1f} MiB for {few} points, {large_kib / 1024:.1f} MiB for {given.points} ({growth:+.1%})")
    return int(share > MOST_PER_POINT or growth > MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
