"""The library's errors, with its base classes."""

from __future__ import annotations

from typing import NamedTuple


class Response(NamedTuple):
    """What remains of an HTTP answer."""

    status_code: int


class HfHubHTTPError(OSError):
    """An answer of the hub that is no success."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.response = Response(status)


class RepositoryNotFoundError(HfHubHTTPError):
    """No such model, or none that this token may know of."""


class GatedRepoError(RepositoryNotFoundError):
    """A model whose terms this token's owner has not accepted."""


class LocalEntryNotFoundError(FileNotFoundError, ValueError):
    """Neither the hub nor the cache has it."""
