"""Where templates and schemas are: inside an installed wheel, else at the top of the checkout."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


@lru_cache(maxsize=None)
def folder(name: str) -> Path:
    """The folder `name` ("templates" or "schema"). A checkout's own folder wins, so an edit takes effect at once."""
    installed = _PACKAGE / "data" / name
    checkout = _PACKAGE.parents[1] / name
    return installed if installed.is_dir() else checkout


def names(name: str) -> list[str]:
    """The paths of all files in a folder, sorted."""
    root = str(folder(name))
    found = []
    for place, folders, files in os.walk(root):
        folders[:] = [one for one in folders if one != "__pycache__"]
        prefix = place[len(root) + 1 :].replace(os.sep, "/")
        found += [f"{prefix}/{file}" if prefix else file for file in files]
    return sorted(found)


def content(name: str, path: str) -> bytes:
    """The bytes of one file."""
    with open(f"{folder(name)}/{path}", "rb") as stream:
        return stream.read()


@lru_cache(maxsize=None)
def text(name: str, path: str) -> str:
    """The text of one packaged file."""
    return content(name, path).decode()
