"""Writing a bundle into a folder: whole, or recognisably unfinished, and never over what is not ours.

The order is what makes a crash harmless: the manifest becomes the marker `.srtgen-writing`, each file is replaced by
rename, stale files go, the new manifest comes last, and the marker goes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator, Mapping

from srtgen.manifest import NAME, File

MARKER = ".srtgen-writing"
_LONGEST_NAME = 200
_FILE_MODE, _SCRIPT_MODE, _FOLDER_MODE = 0o644, 0o755, 0o755


class Refused(Exception):
    """The output folder cannot be written; the message says why and what to do."""


def write(out: Path, files: Mapping[str, File], force: bool) -> None:
    """Make `out` hold exactly these generated files, beside whatever else is there. Raises Refused or OSError."""
    if out.is_symlink() and not out.exists():
        raise Refused(f"{out} is a dangling link")
    if out.exists() and not out.is_dir():
        raise Refused(f"{out} is not a folder")
    out.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    with _locked(out):
        names = _owned(out)
        if not force:
            _refuse(out, files, names)
        _check_places(out, files)
        _mark(out)
        for path in sorted(files):
            if path != NAME:
                _replace(out, path, files[path])
        for path in sorted(set(names) - set(files)):
            _remove(out, path)
        _replace(out, NAME, files[NAME])
        with suppress(FileNotFoundError):
            (out / MARKER).unlink()


def check(out: Path, files: Mapping[str, File], force: bool) -> None:
    """Raises Refused where `write` would, without touching anything."""
    if out.is_symlink() and not out.exists():
        raise Refused(f"{out} is a dangling link")
    if out.exists() and not out.is_dir():
        raise Refused(f"{out} is not a folder")
    if out.exists():
        if not force:
            _refuse(out, files, _owned(out))
        _check_places(out, files)


def begin(out: Path) -> None:
    """Mark a folder as unfinished, for one whose content takes several calls of `write`; its own ends that."""
    out.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    _mark(out)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """One generation at a time in a folder; a file system without locks is taken as it is."""
    descriptor = os.open(out, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _owned(out: Path) -> dict[str, dict[str, object]]:
    """The files that the folder's manifest, or the marker of an unfinished generation, lists."""
    for name in (NAME, MARKER):
        try:
            listed = json.loads(_content(out / name))["files"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(listed, dict):
            return {path: entry for path, entry in listed.items() if _inside(path) and isinstance(entry, dict)}
    return {}


def _inside(path: str) -> bool:
    parts = Path(path).parts
    if not parts or path.startswith("/") or ".." in parts or parts[0] == "results":
        return False
    return "\0" not in path and all(len(part) < _LONGEST_NAME for part in parts)


def _content(path: Path) -> bytes:
    """The bytes of a file; OSError for anything else, since a pipe or device would not end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise IsADirectoryError(path)
    return path.read_bytes()


def _refuse(out: Path, files: Mapping[str, File], owned: dict[str, dict[str, object]]) -> None:
    if (out / MARKER).exists():
        return
    if not (out / NAME).exists():
        if any(out.iterdir()):
            raise Refused(f"{out} is not empty and holds no bundle; choose another folder, or --force")
        return
    edited = sorted(p for p, entry in owned.items() if _edited(out / p, entry))
    foreign = sorted(p for p in files if p != NAME and p not in owned and (out / p).exists())
    if edited:
        raise Refused(f"{out} holds generated files that were edited: {', '.join(edited)}; --force overwrites them")
    if foreign:
        raise Refused(f"{out} holds files that are in the way: {', '.join(foreign)}; --force overwrites them")


def _edited(path: Path, entry: dict[str, object]) -> bool:
    try:
        return hashlib.sha256(_content(path)).hexdigest() != entry.get("sha256")
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _check_places(out: Path, files: Mapping[str, File]) -> None:
    """A link or a file where a folder of the bundle has to be would lead the writing elsewhere."""
    split = [path.split("/") for path in files]
    for folder in sorted({"/".join(parts[:depth]) for parts in split for depth in range(1, len(parts))}):
        place = out / folder
        if place.is_symlink():
            raise Refused(f"{place} is a link; a bundle's folders must be real")
        if place.exists() and not place.is_dir():
            raise Refused(f"{place} is not a folder")
    for path in files:
        if os.path.isdir(f"{out}/{path}") and not os.path.islink(f"{out}/{path}"):
            raise Refused(f"{out / path} is a folder where a file has to be")


def _mark(out: Path) -> None:
    with suppress(FileNotFoundError):
        os.replace(out / NAME, out / MARKER)
        return
    if not (out / MARKER).exists():
        (out / MARKER).touch(mode=_FILE_MODE)


def _replace(out: Path, path: str, file: File) -> None:
    """Put one file in place by rename, with its mode whatever the umask. An unchanged file is left alone."""
    target = f"{out}/{path}"
    mode = _SCRIPT_MODE if file.executable else _FILE_MODE
    if _is_already(target, mode, file.content):
        return
    folder, _, name = target.rpartition("/")
    temporary = f"{folder}/.{name}.srtgen-{os.getpid()}"
    try:
        descriptor = _create(temporary, folder)
        try:
            left = memoryview(file.content)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _create(path: str, folder: str) -> int:
    """A descriptor of a new file; its folder is made only where it turns out to be missing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(folder, _FOLDER_MODE, exist_ok=True)
        return os.open(path, flags, 0o600)


def _is_already(target: str, mode: int, content: bytes) -> bool:
    try:
        found = os.lstat(target)
        if stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == mode and found.st_size == len(content):
            with open(target, "rb") as stream:
                return stream.read() == content
    except OSError:
        pass
    return False


def _remove(out: Path, path: str) -> None:
    if any((out / parent).is_symlink() for parent in Path(path).parents):
        return
    with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        (out / path).unlink()
    with suppress(OSError):
        (out / path).parent.rmdir()

