"""Where templates and schemas are: inside an installed wheel, else at the top of the checkout."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


@lru_cache(maxsize=None)
def folder(name: str) -> Path:
    """The folder `name` ("templates" or "schema"). A checkout's own folder wins, so an edit takes effect at once."""
    installed = _PACKAGE / "data" / name
    checkout = _PACKAGE.parents[1] / name
    return installed if installed.is_dir() else checkout


@lru_cache(maxsize=None)
def text(name: str, path: str) -> str:
    """The text of one packaged file."""
    return (folder(name) / path).read_text(encoding="utf-8")
