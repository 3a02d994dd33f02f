"""Files of compile caches: which of them are finished, and how they are copied."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from pathlib import Path
from typing import Iterator, NamedTuple, Tuple

CHUNK = 1 << 20
QUIET_S = 2.0  # a file that changed a moment ago may still be written
# Locks stay behind when their holder is killed, and whoever finds one waits; temporaries of Triton (tmp.pid_…),
# Inductor (.<pid>.<thread>.tmp), compilers and ours.
UNFINISHED = re.compile(r"lock|lock_.*|\.lock.*|.*\.lock|\.?tmp.*|.*\.tmp|.*\.part|\.ninja_lock|\.srtgen-.*")
# Torch and AITER remove this lock when a build ends: while it is there, so is a build.
BUILDING = re.compile(r"lock(_.*)?")


class Found(NamedTuple):
    """A finished file, as it was when it was looked at."""

    path: str
    source: Path
    size: int
    mode: int
    mtime_ns: int

    def unchanged(self) -> bool:
        """True if it is still the same file."""
        try:
            now = os.lstat(str(self.source))
        except OSError:
            return False
        return (now.st_size, now.st_mtime_ns) == (self.size, self.mtime_ns)


def finished_files(folder: Path) -> "Iterator[Found]":
    """Every finished regular file below a folder; nothing below one in which something is being built."""
    for root, folders, names in os.walk(str(folder)):
        if any(BUILDING.fullmatch(name) for name in names):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not UNFINISHED.fullmatch(name))
        for name in sorted(names):
            source = Path(root, name)
            try:
                found = os.lstat(str(source))
            except OSError:
                continue
            quiet = abs(time.time() - found.st_mtime) >= QUIET_S
            if stat.S_ISREG(found.st_mode) and quiet and not UNFINISHED.fullmatch(name):
                yield Found(str(source.relative_to(folder)), source, found.st_size, stat.S_IMODE(found.st_mode), found.st_mtime_ns)


def copy_hashed(source: Path, target: Path, sync: bool = False) -> "Tuple[str, int]":
    """Copies a file to a new one; the sha256 and the bytes of what was written."""
    digest, size = hashlib.sha256(), 0
    with open(str(source), "rb") as reader, open(str(target), "xb") as writer:
        while True:
            chunk = reader.read(CHUNK)
            if not chunk:
                break
            digest.update(chunk)
            writer.write(chunk)
            size += len(chunk)
        if sync:
            writer.flush()
            os.fsync(writer.fileno())
    return digest.hexdigest(), size


def age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass
