"""Golden files: one file below `golden/` for each test, readable as it is, compared in both directions.

A test's id in brackets is the path below the extension's folder. `pytest --snapshot-update` rewrites what changed and
deletes what no test asks for any more; without it a left-over file fails the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from syrupy.data import Snapshot, SnapshotCollection, SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


class BundleFile(SingleFileSnapshotExtension):
    """Files of golden bundles: everything below golden/ but golden/invalid/."""

    _write_mode = WriteMode.TEXT
    file_extension = ""
    folder = GOLDEN

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        return str(cls.folder)

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: int | str = 0) -> str:
        return test_location.snapshot_name

    @classmethod
    def get_file_basename(cls, *, test_location: PyTestLocation, index: int | str) -> str:
        return test_location.snapshot_name.partition("[")[2].removesuffix("]")

    @classmethod
    def matches_test_location(cls, *, test_location: PyTestLocation, snapshot_location: str) -> bool:
        return cls.folder in Path(snapshot_location).parents

    def discover_snapshots(
        self, *, test_location: PyTestLocation, ignore_extensions: list[str] | None = None
    ) -> SnapshotCollections:
        found = SnapshotCollections()
        for path in self.files():
            found.add(self.read_snapshot_collection(snapshot_location=str(path)))
        return found

    def read_snapshot_collection(self, *, snapshot_location: str) -> SnapshotCollection:
        name = Path(snapshot_location).relative_to(self.folder).as_posix()
        collection = SnapshotCollection(location=snapshot_location)
        collection.add(Snapshot(name=f"test_file[{name}]"))
        return collection

    @classmethod
    def files(cls) -> Iterator[Path]:
        """The files that stand there."""
        return (p for p in sorted(GOLDEN.rglob("*")) if p.is_file() and InvalidFile.folder not in p.parents)


class InvalidFile(BundleFile):
    """What is said about each wrong recipe: golden/invalid/."""

    folder = GOLDEN / "invalid"

    @classmethod
    def files(cls) -> Iterator[Path]:
        return (p for p in sorted(cls.folder.rglob("*")) if p.is_file())



def left_over(kind: type[BundleFile], wanted: set[str], delete: bool) -> list[str]:
    """Files that no test asks for, which syrupy sees only when the whole suite runs; deleted if `delete`."""
    extra = [path for path in kind.files() if path.relative_to(kind.folder).as_posix() not in wanted]
    for path in extra if delete else ():
        path.unlink()
    return [] if delete else [path.relative_to(kind.folder).as_posix() for path in extra]
