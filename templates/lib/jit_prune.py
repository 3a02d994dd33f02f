"""Keeps the store of compiled kernels within its size: what was used longest ago goes first."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from jit_lists import read_list


def size(part: Path) -> int:
    """Bytes of one image's and GPU type's files, by its lists."""
    objects = {entry[0]: entry[1] for path in part.glob("lists/*/*.json") for entry in read_list(path).values()}
    return sum(objects.values())


def prune(store: Path, current: Path, limit: int) -> None:
    """Removes parts other than the current one until the rest is within `limit` bytes.

    A job that is loading from one finds files missing, and compiles them.
    """
    parts = sorted((path for path in store.glob("*/*") if (path / "lists").is_dir()), key=lambda path: path.stat().st_mtime)
    sizes = {path: size(path) for path in parts}
    total = sum(sizes.values())
    for path in parts:
        if total <= limit:
            return
        if path != current:
            gone = path.with_name(".gone-" + uuid.uuid4().hex)
            path.rename(gone)
            shutil.rmtree(str(gone), ignore_errors=True)
            total -= sizes[path]
