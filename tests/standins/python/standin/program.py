"""Which container program this stand-in is, by the name that it is called by, and its settings <PREFIX>_STANDIN_<NAME>.

The prefix is that of the program's own variables, which jobs hand on to it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from fnmatch import fnmatchcase
from pathlib import Path

NAME = Path(sys.argv[0]).name
PREFIXES = {"podman": "CONTAINERS"}
store = ""  # of podman: which --root


def setting(name: str, default: str = "") -> str:
    return os.environ.get(f"{PREFIXES.get(NAME, NAME.upper())}_STANDIN_{name}") or default


def words(name: str, default: str = "") -> list[str]:
    return setting(name, default).split()


def image_is_there(image: str) -> bool:
    return any(fnmatchcase(image, pattern) for pattern in words("IMAGES", "*"))


def fails(*names: str) -> bool:
    """True if one of the names is to fail."""
    pattern = setting("FAIL")
    return bool(pattern) and any(fnmatchcase(name, pattern) for name in names)


def state_root() -> Path:
    return Path(setting("STATE", f"/tmp/standin-{NAME}"))


def state_dir() -> Path:
    """This node's containers."""
    return state_root() / socket.gethostname() / store


def record(argv: list[str]) -> None:
    """Appends the call to calls.jsonl as {"node", "argv"}."""
    root = state_root()
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "calls.jsonl", "a", encoding="utf-8") as out:
        out.write(json.dumps({"node": socket.gethostname(), "argv": argv}) + "\n")
