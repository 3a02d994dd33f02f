"""Lists of the store of compiled kernels: what is in it, by path."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Dict, Tuple

Entry = Tuple[str, int, int, int]  # hash, bytes, mode, modification time in ns


def read_list(path: Path) -> "Dict[str, Entry]":
    """A list's entries; {} if it is not what its name says."""
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != path.stem:
            return {}
        files = json.loads(content.decode())["files"]
        return {name: tuple(entry) for name, entry in files.items() if inside(name)}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return {}


def inside(name: str) -> bool:
    """True for a path that stays below the folder it is put into."""
    return not name.startswith("/") and ".." not in name.split("/")
