#!/usr/bin/env python3
"""What checking costs: N recipes in one process against one generation, in CPU seconds of whole processes.

`python tests/benchmarks/check.py [N]` prints the measured times and ends with 1 if N recipes cost more than one
generation + N x a quarter of one. The least of several runs counts, since other work only ever adds time.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes" / "atom" / "dsv4-pro-fp4-mi355x-2p1d-dpa-tp8-8k1k.yaml"
RUNS = 5


def cpu_seconds(*words: str | Path) -> float:
    """The least CPU time of `srtgen WORDS`, with byte code on disk as in an installation."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "gen"), "PYTHONPYCACHEPREFIX": cache}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        return min(_once([sys.executable, "-m", "srtgen", *map(str, words)], env) for _ in range(RUNS))


def _once(command: list[str], env: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with tempfile.TemporaryDirectory() as folder:
        copies = Path(folder) / "recipes"
        copies.mkdir()
        for number in range(count):
            (copies / f"{number}.yaml").write_bytes(RECIPE.read_bytes())
        generation = cpu_seconds(RECIPE, "-o", Path(folder) / "job", "--force")
        checking = cpu_seconds("check", copies)
    allowed = generation + count * generation / 4
    each = (checking - generation) / count
    print(f"one generation: {generation:.3f} s")
    print(
        f"check of {count} recipes: {checking:.3f} s, allowed {allowed:.3f} s; {each / generation:.1%} of a generation each"
    )
    return 0 if checking <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())
