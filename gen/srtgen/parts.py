"""Documents made of parts of other documents: every value keeps the position that it has in its file."""

from __future__ import annotations

from typing import Any, Iterator

from srtgen.document import Document
from srtgen.errors import Path


def copied(value: Any) -> Any:
    """The value with lists and mappings of its own."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def value_at(data: Any, path: Path) -> Any:
    """The value at a path that exists."""
    for step in path:
        data = data[step]
    return data


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of the value and of everything below it."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from paths(item, (*path, number))


class Assembly:
    """A document under construction."""

    def __init__(self, document: Document) -> None:
        """Starts as a copy of `document`."""
        self._origin = document
        self.data = copied(document.data)
        self._values = dict(document.values)
        self._keys = dict(document.keys)
        self._sources = dict(document.sources)
        self._plain = dict.fromkeys(document.plain, True)

    def document(self) -> Document:
        return self._origin._replace(
            data=self.data,
            values=self._values,
            keys=self._keys,
            sources=self._sources,
            plain=frozenset(self._plain),
        )

    def drop(self, path: Path) -> None:
        """Remove a key or the value of the root, and all that is known of it."""
        for below in paths(value_at(self.data, path), path):
            for index in (self._values, self._keys, self._sources, self._plain):
                index.pop(below, None)  # type: ignore[attr-defined]
        if path:
            del value_at(self.data, path[:-1])[path[-1]]

    def put(self, path: Path, source: Document, origin: Path, stay: bool = False) -> None:
        """Set `path` to what `source` holds at `origin`. `stay`: it counts as standing where the old value stood."""
        mark, key_mark = self._values.get(path), self._keys.get(path)
        parent, value = value_at(self.data, path[:-1]) if path else None, value_at(source.data, origin)
        if path and (isinstance(parent, list) or path[-1] in parent):
            for below in paths(parent[path[-1]], path):
                for index in (self._values, self._keys, self._sources, self._plain):
                    index.pop(below, None)  # type: ignore[attr-defined]
        for rest in paths(value):
            self._copy_marks(source, (*origin, *rest), (*path, *rest))
        if stay and mark:
            self._values[path] = mark
        if key_mark and (stay or path not in self._keys):
            self._keys[path] = key_mark
        if path:
            parent[path[-1]] = copied(value)
        else:
            self.data = copied(value)

    def scalar(self, path: Path, value: Any, plain: bool = False) -> None:
        """Set an existing scalar, or a key of an existing mapping, to a value that stands where the old one stood."""
        value_at(self.data, path[:-1])[path[-1]] = value
        self._sources[path] = str(value)
        self._plain.pop(path, None)
        if plain:
            self._plain[path] = True

    def _copy_marks(self, source: Document, origin: Path, path: Path) -> None:
        for ours, theirs in ((self._values, source.values), (self._keys, source.keys), (self._sources, source.sources)):
            if origin in theirs:
                ours[path] = theirs[origin]  # type: ignore[index, assignment]
        if origin in source.plain:
            self._plain[path] = True


def below(document: Document, path: Path) -> Document:
    """The part of a document at a path as a document of its own."""
    empty = document._replace(data=None, values={}, keys={}, sources={}, plain=frozenset())
    part = Assembly(empty)
    part.put((), document, path)
    return part.document()
