"""The command line in this process, for many short runs, and in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from srtgen import cli

GEN = Path(__file__).resolve().parents[1] / "gen"


def run_here(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, pytest.CaptureResult[str]]:
    """The exit code of `srtgen WORDS`, and what it printed."""
    monkeypatch.setattr(sys, "argv", ["srtgen", *words])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main()
    code = ended.value.code
    return (code if isinstance(code, int) else 1), capsys.readouterr()


def srtgen(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """`python -m srtgen WORDS`, with this checkout's code."""
    return subprocess.run(
        [sys.executable, "-m", "srtgen", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(GEN), **(env or {})},
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
    )
