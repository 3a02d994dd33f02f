"""Fixtures of the whole suite."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from golden_file import BundleFile, InvalidFile
from jobs_runner import outcome  # noqa: F401  (the fixture of the modules that run jobs)


# Who starts the suite with nohup, or in the background, makes its processes deaf to signals that tests send.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture
def golden(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """The file below golden/ that the test's id names."""
    return snapshot.use_extension(BundleFile)


@pytest.fixture
def golden_invalid(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """The file below golden/invalid/ that the test's id names."""
    return snapshot.use_extension(InvalidFile)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """tmp_path/bin, first on PATH before the system's folders."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


@pytest.fixture
def handlers() -> Iterator[None]:
    """Signal handlers as they were."""
    old = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in old.items():
        signal.signal(number, handler)


@pytest.fixture
def process() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes, each in a session of its own, that are killed in any case."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()
