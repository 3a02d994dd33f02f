"""How fast generating is, as ratios that hold on any machine: `python tests/benchmarks/generation.py [PAIRS]`.

1. The whole process for the 2P1D recipe over the import of click, yaml, jinja2 and jsonschema in one Python: at most 1.3.
2. A recipe of 1,000 workers over the 2P1D one: at most 10, and at most 150 MiB.

Runs alternate, so that what else the machine does meets both; the ratio is that of the medians.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes/atom/dsv4-pro-fp4-mi355x-2p1d-dpa-tp8-8k1k.yaml"
FLOOR = "import click, yaml, jinja2, jsonschema"
# What the srtgen command does, with this checkout's code.
SRTGEN = f"import sys; sys.path.insert(0, {str(ROOT / 'gen')!r}); sys.argv[0] = 'srtgen'; from srtgen.cli import main; main()"


def large_recipe(folder: Path) -> Path:
    """The 2P1D recipe with 600 prefill and 400 decode workers, a node each."""
    text = RECIPE.read_text()
    text = text.replace("nodes: 2\n    workers: 2", "nodes: 600\n    workers: 600")
    text = text.replace("nodes: 1\n    workers: 1", "nodes: 400\n    workers: 400")
    path = folder / "large.yaml"
    path.write_text(text)
    return path


def measure(*words: str) -> tuple[float, float, float]:
    """Wall and CPU seconds and peak MiB of one Python process."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{words}: exit code {process.returncode}")
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def paired(pairs: int, *commands: tuple[str, ...]) -> list[tuple[float, float, float]]:
    """Medians of each command's wall and CPU seconds, and the highest peak, runs alternating, after one warm-up."""
    for command in commands:
        measure(*command)
    runs: list[list[tuple[float, float, float]]] = [[] for _ in commands]
    for _ in range(pairs):
        for found, command in zip(runs, commands):
            found.append(measure(*command))
    return [(statistics.median(r[0] for r in found), statistics.median(r[1] for r in found), max(r[2] for r in found)) for found in runs]


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        floor = ("-c", FLOOR)
        small = ("-c", SRTGEN, str(RECIPE), "-o", str(folder / "small"))
        large = ("-c", SRTGEN, str(large_recipe(folder)), "-o", str(folder / "large"))
        of_floor, of_small = paired(pairs, floor, small)
        of_small_again, of_large = paired(max(3, pairs // 3), small, large)
    print(f"{'':26}{'wall s':>8}{'cpu s':>8}{'MiB':>6}")
    for label, found in (("imports", of_floor), ("2P1D", of_small), ("1,000 workers", of_large)):
        print(f"{label:26}{found[0]:8.3f}{found[1]:8.3f}{found[2]:6.0f}")
    print(f"2P1D / imports            {of_small[0] / of_floor[0]:8.2f}{of_small[1] / of_floor[1]:8.2f}   (at most 1.3)")
    print(f"1,000 workers / 2P1D      {of_large[0] / of_small_again[0]:8.2f}{of_large[1] / of_small_again[1]:8.2f}   (at most 10, under 150 MiB)")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
