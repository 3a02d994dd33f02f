"""Runs a few lines of bash with the functions of a script whose last line would start its work: that line is cut."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from jobs.shell import LIB, TEMPLATES

LAST = 'main "$@"\n'


def functions(script: str, text: str, folder: Path) -> Path:
    """The script of the templates in a folder with its library beside it, the lines in place of the call of main."""
    content = (TEMPLATES / script).read_text()
    assert content.endswith("\n" + LAST)
    own = folder / Path(script).name
    own.parent.mkdir(parents=True, exist_ok=True)
    if not (folder / "lib").exists():
        (folder / "lib").symlink_to(LIB)
    own.write_text(content[: -len(LAST)] + text + "\n")
    return own


def environment(tmp: Path, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """tmp/bin first on PATH, and a job."""
    return {"PATH": f"{tmp}/bin:/usr/bin:/bin", "SLURM_JOB_ID": "7", "HOME": str(tmp), "LANG": "C.UTF-8", **(env or {})}


def call(script: str, text: str, tmp: Path, env: Mapping[str, str] | None = None, timeout: float = 30,
         stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the lines in one bash process; the script lies in tmp/bundle, the current folder is tmp."""
    path = functions(script, text, tmp / "bundle")
    return subprocess.run(["bash", str(path)], env=environment(tmp, env), cwd=tmp, input=stdin, capture_output=True, text=True,
                          timeout=timeout, errors="surrogateescape")


def start(script: str, text: str, tmp: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """The same in the background, in a process group of its own."""
    path = functions(script, text, tmp / "bundle")
    return subprocess.Popen(["bash", str(path)], env=environment(tmp, env), cwd=tmp, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True, start_new_session=True)


def gone(pid: int, limit_s: float = 10) -> bool:
    """True as soon as no such process lives; one that still does may be about to end."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False
