"""Writing into a folder: whole or recognisably unfinished, completed by the next run, never over what is not ours."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from srtgen import bundle
from srtgen.bundle import MARKER, Refused, write
from srtgen.manifest import File, sha256


def files(**contents: str) -> dict[str, File]:
    """Generated files, with the manifest that lists them; `a__b` is a/b."""
    made = {name.replace("__", "/").replace("_sh", ".sh"): File(text.encode(), name.endswith("_sh")) for name, text in contents.items()}
    listed = {path: {"sha256": sha256(file.content), "executable": file.executable} for path, file in made.items()}
    return {**made, "manifest.json": File(json.dumps({"files": listed}).encode())}


OLD = files(run_sh="old", lib__a="a", lib__gone="gone", roles__x_sh="x")
NEW = files(run_sh="new", lib__a="a", lib__b="b", roles__x_sh="x2")


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def contents(made: dict[str, File]) -> dict[str, bytes]:
    return {path: file.content for path, file in sorted(made.items())}


def test_a_new_folder(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "job"
    write(out, OLD, force=False)
    assert tree(out) == contents(OLD)


def test_a_second_generation_replaces_and_removes(tmp_path: Path) -> None:
    write(tmp_path, OLD, force=False)
    write(tmp_path, NEW, force=False)
    assert tree(tmp_path) == contents(NEW)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o177])
def test_modes_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path, OLD, force=False)
    finally:
        os.umask(before)
    modes = {p: stat.S_IMODE((tmp_path / p).stat().st_mode) for p in OLD}
    assert modes == {p: 0o755 if file.executable else 0o644 for p, file in OLD.items()}


def test_a_lost_executable_bit_comes_back(tmp_path: Path) -> None:
    write(tmp_path, OLD, force=False)
    (tmp_path / "run.sh").chmod(0o600)
    write(tmp_path, OLD, force=False)
    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o755


def test_foreign_files_and_results_stay(tmp_path: Path) -> None:
    write(tmp_path, OLD, force=False)
    for path in ("results/1/result.json", "slurm-1.out", "notes.txt", "lib/mine", "roles/y/z"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("mine")
    write(tmp_path, NEW, force=False)
    kept = {path for path, content in tree(tmp_path).items() if content == b"mine"}
    assert kept == {"results/1/result.json", "slurm-1.out", "notes.txt", "lib/mine", "roles/y/z"}


def test_a_manifest_cannot_make_us_remove_what_is_not_ours(tmp_path: Path) -> None:
    write(tmp_path / "job", OLD, force=False)
    (tmp_path / "precious").write_text("x")
    (tmp_path / "job/results").mkdir()
    (tmp_path / "job/results/r").write_text("x")
    listed = json.loads(OLD["manifest.json"].content)
    entry = {"sha256": sha256(b"x"), "executable": False}
    listed["files"] |= {"../precious": entry, str(tmp_path / "precious"): entry, "results/r": entry, "lib/../../precious": entry}
    (tmp_path / "job/manifest.json").write_text(json.dumps(listed))
    write(tmp_path / "job", NEW, force=True)
    assert (tmp_path / "precious").exists() and (tmp_path / "job/results/r").exists()


def test_a_folder_that_holds_no_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(Refused, match="is not empty and holds no bundle"):
        write(tmp_path, OLD, force=False)
    assert tree(tmp_path) == {"notes.txt": b"mine"}
    write(tmp_path, OLD, force=True)
    assert tree(tmp_path) == {**contents(OLD), "notes.txt": b"mine"}


def test_edited_files_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, OLD, force=False)
    (tmp_path / "run.sh").write_text("edited")
    (tmp_path / "lib/gone").write_text("edited")
    before = tree(tmp_path)
    with pytest.raises(Refused, match=r"edited: lib/gone, run\.sh; --force"):
        write(tmp_path, NEW, force=False)
    assert tree(tmp_path) == before
    write(tmp_path, NEW, force=True)
    assert tree(tmp_path) == contents(NEW)


def test_a_foreign_file_in_the_way_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, OLD, force=False)
    (tmp_path / "lib/b").write_text("mine")
    with pytest.raises(Refused, match="in the way: lib/b; --force"):
        write(tmp_path, NEW, force=False)
    write(tmp_path, NEW, force=True)
    assert tree(tmp_path) == contents(NEW)


def test_a_removed_file_is_no_edit(tmp_path: Path) -> None:
    write(tmp_path, OLD, force=False)
    (tmp_path / "lib/a").unlink()
    write(tmp_path, NEW, force=False)
    assert tree(tmp_path) == contents(NEW)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"files": 1}', b'{"files": {"x": 1}}', b"\xff\xfe"])
def test_a_manifest_that_is_none(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, OLD, force=False)
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(Refused):
        write(tmp_path, NEW, force=False)
    write(tmp_path, NEW, force=True)
    assert tree(tmp_path).items() >= contents(NEW).items()


class Crash(Exception):
    """Stands for a kill at this place."""


def crash_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The `number`-th change of a name (rename, unlink) does not happen any more."""
    count = 0

    def counted(real: object) -> object:
        def call(*args: object, **keys: object) -> object:
            nonlocal count
            count += 1
            if count > number:
                raise Crash
            return real(*args, **keys)  # type: ignore[operator]

        return call

    monkeypatch.setattr(bundle.os, "replace", counted(os.replace))
    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))


def is_whole(folder: Path, made: dict[str, File]) -> bool:
    found = tree(folder)
    return MARKER not in found and all(found.get(path) == content for path, content in contents(made).items())


@pytest.mark.parametrize("first", [False, True], ids=["over_an_old_bundle", "into_a_new_folder"])
@pytest.mark.parametrize("number", range(14))
def test_a_crash_at_any_rename_is_completed_by_the_next_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, first: bool
) -> None:
    out = tmp_path / "job"
    if not first:
        write(out, OLD, force=False)
    with monkeypatch.context() as patched:
        crash_at(patched, number)
        try:
            write(out, NEW, force=False)
        except Crash:
            pass
    found = tree(out)
    # The old bundle, the new one, or one with the marker, which jobs refuse.
    assert MARKER in found or is_whole(out, NEW) or (not first and is_whole(out, OLD)) or (first and not found)
    if MARKER in found:
        assert "manifest.json" not in found or is_manifest_last(found)
    write(out, NEW, force=False)
    left = {p for p in tree(out) if p not in NEW}
    assert is_whole(out, NEW)
    assert not {p for p in left if not p.rpartition("/")[2].startswith(".")}


def is_manifest_last(found: dict[str, bytes]) -> bool:
    """The new manifest may stand beside the marker only when all its files are there."""
    return all(found.get(path) == content for path, content in contents(NEW).items())


def test_links(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    write(tmp_path / "link", OLD, force=False)
    assert tree(real) == contents(OLD)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(Refused, match="dangling"):
        write(tmp_path / "dangling", OLD, force=False)
    (tmp_path / "file").write_text("x")
    with pytest.raises(Refused, match="not a folder"):
        write(tmp_path / "file", OLD, force=False)


def test_a_link_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    out = tmp_path / "job"
    out.mkdir()
    (out / "lib").symlink_to(elsewhere)
    with pytest.raises(Refused, match="is a link"):
        write(out, OLD, force=True)
    assert not list(elsewhere.iterdir())


def test_a_link_in_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    out = tmp_path / "job"
    write(out, OLD, force=False)
    (out / "run.sh").unlink()
    (out / "run.sh").symlink_to(precious)
    write(out, NEW, force=True)
    assert precious.read_text() == "mine"
    assert not (out / "run.sh").is_symlink() and (out / "run.sh").read_text() == "new"


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, OLD, force=False)
    (tmp_path / "lib/b").mkdir()
    with pytest.raises(Refused):
        write(tmp_path, NEW, force=True)


def test_an_unchanged_bundle_is_not_rewritten(tmp_path: Path) -> None:
    write(tmp_path, OLD, force=False)
    before = (tmp_path / "lib/a").stat().st_ino
    write(tmp_path, NEW, force=False)
    assert (tmp_path / "lib/a").stat().st_ino == before
