"""Prints a verdict.json for the shell: what result.json takes of it as JSON, then the reason, a line each."""

from __future__ import annotations

import json
import sys


def main(kind: str, path: str) -> None:
    """Of a benchmark only {"points","valid"}, of an evaluation all; missing keys are null and an empty reason."""
    with open(path, encoding="utf-8") as stream:
        verdict = json.load(stream)
    kept = {"points": verdict.get("points"), "valid": verdict.get("valid")} if kind == "bench" else verdict
    print(json.dumps(kept, separators=(",", ":")))
    print(" ".join(str(verdict.get("reason") or "").split()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
