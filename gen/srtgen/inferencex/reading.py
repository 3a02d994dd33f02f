"""Typed access to a YAML document that has no schema of ours: a wrong type or unknown key is said at its line."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple, NoReturn

from srtgen.document import Document
from srtgen.errors import Path, RecipeError


class Cursor(NamedTuple):
    """A place in a document."""

    document: Document
    path: Path = ()

    @property
    def value(self) -> Any:
        node: Any = self.document.data
        for step in self.path:
            node = node[step]
        return node

    def refuse(self, message: str) -> NoReturn:
        raise RecipeError([self.document.problem(self.path, message, at_key=True)])

    def has(self, key: str) -> bool:
        return self.value.get(key) is not None

    def at(self, key: str) -> Cursor:
        """The value of a key that must be there."""
        if not isinstance(self.value, dict):
            self.refuse("expected a mapping")
        if not self.has(key):
            self.refuse(f"missing key {key}")
        return Cursor(self.document, (*self.path, key))

    def items(self) -> list[Cursor]:
        if not isinstance(self.value, list):
            self.refuse("expected a list")
        return [Cursor(self.document, (*self.path, number)) for number in range(len(self.value))]

    def text(self, key: str, default: str = "") -> str:
        """The text of a key; a number as the file writes it."""
        if not self.has(key):
            return default
        there = self.at(key)
        if isinstance(there.value, (dict, list, bool)):
            there.refuse("expected text")
        return self.document.sources[there.path]

    def whole(self, key: str, default: int | None = None) -> int:
        if default is not None and not self.has(key):
            return default
        there = self.at(key)
        if not isinstance(there.value, int) or isinstance(there.value, bool) or there.value < 1:
            there.refuse("expected a whole number above 0")
        return there.value

    def flag(self, key: str) -> bool:
        if not self.has(key):
            return False
        there = self.at(key)
        if not isinstance(there.value, bool):
            there.refuse("expected true or false")
        return there.value

    def only(self, known: Iterable[str]) -> None:
        """Refuses keys that the importer has no meaning for: leaving one out would change what is measured."""
        if not isinstance(self.value, dict):
            self.refuse("expected a mapping")
        for key in self.value:
            if key not in known:
                Cursor(self.document, (*self.path, key)).refuse("the import has no meaning for this key")
