"""Prints bench/verdict.json for the shell: {"points","valid"} as JSON, then the reason, a line each."""

from __future__ import annotations

import json
import sys


def main(path: str) -> None:
    """Missing keys are null and an empty reason."""
    with open(path, encoding="utf-8") as stream:
        verdict = json.load(stream)
    print(json.dumps({"points": verdict.get("points"), "valid": verdict.get("valid")}, separators=(",", ":")))
    print(" ".join(str(verdict.get("reason") or "").split()))


if __name__ == "__main__":
    main(sys.argv[1])
