"""Runs a few lines of bash with library files sourced, and stubs on PATH."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "templates"
LIB = TEMPLATES / "lib"
PLAN = Path(__file__).resolve().parent / "plan_1p1d.sh"
HEAD = """set -Eeuo pipefail
shopt -s inherit_errexit
refuse() { printf 'refused: %s\\n' "$1" >&2; exit 10; }
"""


def stub(folder: Path, name: str, text: str) -> None:
    """An executable bash script on the PATH that `bash` uses."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/usr/bin/env bash\n" + text + "\n")
    path.chmod(0o755)


def bash(text: str, tmp: Path, libraries: Sequence[str] = (), env: Mapping[str, str] | None = None,
         plan: str | None = None, timeout: float = 30, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The text in one bash process; tmp/bin is first on PATH. `plan` replaces lines of the data block (NAME=…)."""
    script = HEAD + f"readonly BUNDLE='{tmp}/bundle'\n"
    if plan is not None:
        script += planned(plan)
    script += "".join(f"source '{LIB}/{name}.sh'\n" for name in libraries) + text
    names = {"PATH": f"{tmp}/bin:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0-1]", "HOME": str(tmp),
             "LANG": "C.UTF-8", **(env or {})}
    return subprocess.run(["bash", "-c", script], env=names, cwd=tmp, input=stdin, capture_output=True, text=True,
                          timeout=timeout, errors="surrogateescape")


def planned(changes: str) -> str:
    """The sample's data block with some constants replaced."""
    lines = PLAN.read_text().splitlines()
    for change in changes.split("\n"):
        name = change.partition("=")[0]
        if name:
            lines = replaced(lines, name.removeprefix("-A "), change)
    return "\n".join(lines) + "\n"


def replaced(lines: Sequence[str], name: str, change: str) -> list[str]:
    """The lines with the definition of a constant (one line, or an array of several) replaced, or added."""
    out: list[str] = []
    skipping, kind = False, "readonly"
    for line in lines:
        if skipping:
            skipping = line != ")"
        elif line.startswith((f"readonly {name}=", f"declare -rA {name}=")):
            skipping, kind = line.endswith("=("), line.partition(f" {name}=")[0]
        else:
            out.append(line)
    return [*out, f"{kind} {change}"]


def parent_environment(**more: str) -> dict[str, str]:
    """The tests' own environment with additions."""
    return {**os.environ, **more}
