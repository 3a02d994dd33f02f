"""A model folder and a node's own copy of it: what is in it, what is missing there, what its checksum files say."""

import hashlib
import os
import re
import stat
from typing import Callable, Dict, List, NamedTuple

PART = ".srtgen-part"  # the end of a name that is being written
CHUNK = 16 << 20
SUM_LINE = re.compile(r"([0-9a-fA-F]{64})(?:[ \t]+[*]?(.+))?$")


class StageError(Exception):
    """Why the copy cannot be made, in one line."""


class Item(NamedTuple):
    """A file of the model: its name below the folder, where links have led to, size in bytes, time of change in ns."""

    name: str
    path: str
    size: int
    mtime_ns: int
    mode: int


def listing(folder: str) -> List[Item]:
    """The model's files, links resolved, sorted. Hidden ones (.git, .cache) are no part of a model."""
    found = []
    seen = set()
    for root, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        real = os.path.realpath(root)
        if real in seen:
            raise StageError("{} is reached twice, by links".format(root))
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [_item(folder, os.path.join(root, name)) for name in sorted(names) if not name.startswith(".")]
    return found


def _raise(error: OSError) -> None:
    raise StageError("cannot read {}: {}".format(error.filename, error.strerror))


def _item(folder: str, path: str) -> Item:
    try:
        info = os.stat(path)
    except OSError as error:
        link = " (a link to {})".format(os.readlink(path)) if os.path.islink(path) else ""
        raise StageError("cannot read {}{}: {}".format(path, link, error.strerror))
    if not stat.S_ISREG(info.st_mode):
        raise StageError("{} is no file".format(path))
    return Item(os.path.relpath(path, folder), os.path.realpath(path), info.st_size, info.st_mtime_ns,
                stat.S_IMODE(info.st_mode))


def is_there(item: Item, target: str) -> bool:
    """The copy has the size and, to the second, the time of its source: a changed model often keeps every size."""
    try:
        info = os.lstat(os.path.join(target, item.name))
    except OSError:
        return False
    same_time = info.st_mtime_ns // 10**9 == item.mtime_ns // 10**9
    return stat.S_ISREG(info.st_mode) and info.st_size == item.size and same_time


def leftovers(items: List[Item], target: str) -> List[str]:
    """Files of the copy that the model does not have: half-written ones, and those of an older state of the model."""
    wanted = {item.name for item in items}
    found = []
    for root, _, names in os.walk(target):
        found += [os.path.join(root, name) for name in names]
    return sorted(path for path in found if os.path.relpath(path, target) not in wanted)


def needed(items: List[Item], target: str) -> int:
    """Bytes that the copy still takes, less those that its leftovers give back."""
    return sum(item.size for item in items if not is_there(item, target)) - sum(
        os.lstat(path).st_size for path in leftovers(items, target))


def free(folder: str) -> int:
    """Bytes free where the folder is or will be."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    info = os.statvfs(folder)
    return info.f_bavail * info.f_frsize


def size(count: int) -> str:
    """Bytes as people read them."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return "{:.1f} {}".format(count / (1 << power), unit)
    return "{} bytes".format(count)


def checksums(items: List[Item]) -> Dict[str, str]:
    """sha256 by file name, from the folder's SHA256SUMS, sha256sum.txt and *.sha256 files."""
    sums = {}
    for item in items:
        base = os.path.basename(item.name)
        if base.upper().startswith("SHA256SUM") or base.endswith(".sha256"):
            with open(item.path, encoding="utf-8", errors="replace") as stream:
                own = base[: -len(".sha256")] if base.endswith(".sha256") else ""
                for line in stream:
                    found = SUM_LINE.match(line.strip())
                    named = found and (found.group(2) or own)  # without a name: of the file that this one is named after
                    if found and named:
                        path = os.path.normpath(os.path.join(os.path.dirname(item.name), named))
                        sums[path] = found.group(1).lower()
    return sums


def sha256(path: str, tick: Callable[[int], None]) -> str:
    """The file's hash; `tick` hears of every chunk."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as stream:
        while True:
            chunk = stream.read(CHUNK)
            if not chunk:
                return digest.hexdigest()
            digest.update(chunk)
            tick(len(chunk))
