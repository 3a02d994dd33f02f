"""Fixtures of the whole suite."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from golden_file import BundleFile, InvalidFile
from jobs_runner import outcome  # noqa: F401  (the fixture of the modules that run jobs)


@pytest.fixture
def golden(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """The file below golden/ that the test's id names."""
    return snapshot.use_extension(BundleFile)


@pytest.fixture
def golden_invalid(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """The file below golden/invalid/ that the test's id names."""
    return snapshot.use_extension(InvalidFile)
