"""Is a bundle's offline/ folder complete and unaltered? `eval_offline.py BUNDLE` prints what is not, exit 1 then."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import List

SUMS = "SHA256SUMS"
NEEDED = ("wheels", "task-data")


def digest(path: Path) -> str:
    """sha256 of a file, read in pieces."""
    value = hashlib.sha256()
    with path.open("rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            value.update(piece)
    return value.hexdigest()


def problems(offline: Path) -> List[str]:
    """One line for each missing or altered file."""
    try:
        lines = (offline / SUMS).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ["%s is missing: run prefetch.sh on a connected machine" % (offline / SUMS)]
    found = []
    names = [line.partition("  ")[2] for line in lines]
    for line in lines:
        wanted, _, name = line.partition("  ")
        path = offline / name
        if not path.is_file():
            found.append("%s is missing" % path)
        elif digest(path) != wanted:
            found.append("%s is not the file that prefetch.sh wrote" % path)
    found += ["%s holds nothing" % (offline / part) for part in NEEDED if not any(name.startswith(part + "/") for name in names)]
    return found


def main(bundle: str) -> int:
    """Print the problems."""
    found = problems(Path(bundle) / "offline")
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
