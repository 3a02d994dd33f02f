"""A YAML file as plain data, with the position and the source text of every value."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from srtgen.document.compose import compose
from srtgen.errors import Path, Problem, RecipeError, dotted
from srtgen.document.nodes import MAX_DEPTH, Mark, Node
from srtgen.document.source import MAX_BYTES, decode

__all__ = ["MAX_BYTES", "MAX_DEPTH", "Document", "Mark", "load", "parse"]


class Speech(NamedTuple):
    """How a document converted from another layout is spoken of: its paths and key names in the author's layout."""

    paths: Mapping[Path, Path] = {}
    names: tuple[tuple[str, str], ...] = ()

    def path(self, path: Path) -> Path:
        """The author's path, by the longest beginning that has another one."""
        for end in range(len(path), 0, -1):
            if (other := self.paths.get(path[:end])) is not None:
                return other + path[end:]
        return path

    def words(self, message: str) -> str:
        for ours, theirs in self.names:
            message = message.replace(ours, theirs)
        return message


class Document(NamedTuple):
    """Plain `data` (dict, list, str, int, float, bool, None) and, by path, where each part of it stands.

    `keys` holds the key that introduces a mapping's value, `sources` the text of scalars before it was given a type,
    `plain` the scalars written without quotes or tag. A value that came through an alias or a merge stands where the
    anchor has it. An empty value has no position of its own.
    """

    file: str
    data: Any
    values: Mapping[Path, Mark]
    keys: Mapping[Path, Mark]
    sources: Mapping[Path, str]
    plain: frozenset[Path]
    speech: Speech = Speech()

    def mark(self, path: Path) -> Mark:
        """Where the value stands: its own position, else its key's, else the nearest parent's, else 1:1."""
        return self._nearest(path, self.values, self.keys)

    def key_mark(self, path: Path) -> Mark:
        """Where the key stands; a list item, which has none, stands where its value does."""
        return self._nearest(path, self.keys, self.values)

    def problem(
        self, path: Path, message: str, at_key: bool = False, severity: str = "error", code: str = ""
    ) -> Problem:
        """A problem at the value, or at the key, of a path."""
        mark = self.key_mark(path) if at_key else self.mark(path)
        said = self.speech.words(message)
        return Problem(mark.file or self.file, mark.line, mark.column, self.shown(path), said, severity, code)

    def shown(self, path: Path) -> str:
        """The path as the file's author knows it."""
        return dotted(self.speech.path(path))

    def _nearest(self, path: Path, first: Mapping[Path, Mark], second: Mapping[Path, Mark]) -> Mark:
        for end in range(len(path), -1, -1):
            mark = first.get(path[:end]) or second.get(path[:end])
            if mark:
                return mark
        return Mark(1, 1)


def load(file: str, content: bytes, loader: type | None = None) -> Document:
    """Read a file's bytes; RecipeError with every problem found. `loader`: a PyYAML one, by default libyaml's."""
    document = parse(file, content, loader)
    if document.data is None and not document.sources.get(()):
        raise RecipeError([Problem(file, 1, 1, "", "the file is empty", code="file-empty")])
    return document


def parse(file: str, content: bytes, loader: type | None = None) -> Document:
    """As `load`, but text without content is the value None."""
    root = compose(file, decode(file, content), loader)
    index = _Index()
    data = index.expand(root or Node("scalar", Mark(1, 1), None, plain=True), ())
    return Document(file, data, index.values, index.keys, index.sources, frozenset(index.plain))


class _Index:
    """Collects positions while nodes become data; size and depth were bounded when the nodes were made."""

    def __init__(self) -> None:
        self.values: dict[Path, Mark] = {}
        self.keys: dict[Path, Mark] = {}
        self.sources: dict[Path, str] = {}
        self.plain: set[Path] = set()

    def expand(self, node: Node, path: Path) -> Any:
        if node.kind == "scalar":
            return self._scalar(node, path)
        self.values[path] = node.mark
        if node.kind == "list":
            return [self.expand(item, (*path, number)) for number, item in enumerate(node.value)]
        data: dict[str, Any] = {}
        for name, (key, value) in node.value.items():
            below = (*path, name)
            self.keys[below] = key.mark
            data[name] = self.expand(value, below)
        return data

    def _scalar(self, node: Node, path: Path) -> Any:
        self.sources[path] = node.source
        if node.plain:
            self.plain.add(path)
        if node.source or not node.plain:
            self.values[path] = node.mark
        return node.value
