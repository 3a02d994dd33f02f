"""A YAML node with its position, and the rules for what one node may be: tags, scalar values, keys."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import yaml

from srtgen.document import yaml12
from srtgen.errors import Path

MAX_NODES = 100_000  # keys and values, counted where an alias or merge repeats them
MAX_DEPTH = 64

_TAG = "tag:yaml.org,2002:"
COLLECTION_TAGS = {"list": f"{_TAG}seq", "map": f"{_TAG}map"}
_SCALAR_TAGS: dict[str, tuple[type, ...]] = {
    f"{_TAG}int": (int,),
    f"{_TAG}float": (float, int),
    f"{_TAG}bool": (bool,),
    f"{_TAG}null": (type(None),),
}
_NOT_TEXT = "[\0\ud800-\udfff]"


class Mark(NamedTuple):
    """A position, counted from 1; `file` is set where it is not the document's own."""

    line: int
    column: int
    file: str = ""


class Node:
    """A scalar, a list of nodes, or a mapping from key text to (key node, value node), merges applied."""

    __slots__ = ("kind", "mark", "value", "source", "plain", "broken", "closed", "size", "height")

    def __init__(
        self, kind: str, mark: Mark, value: Any, source: str = "", plain: bool = False, broken: bool = False,
        closed: bool = True, size: int = 1, height: int = 1,
    ) -> None:
        self.kind = kind
        self.mark = mark
        self.value = value
        self.source = source
        self.plain = plain
        self.broken = broken
        self.closed = closed
        self.size = size
        self.height = height

    def at(self, mark: Mark) -> Node:
        """The same node at another position."""
        return Node(
            self.kind, mark, self.value, self.source, self.plain, self.broken, self.closed, self.size, self.height
        )


Pairs = dict[str, tuple[Node, Node]]


class Frame:
    """A list or mapping under construction: its own pairs so far, its << pair, and a key that waits for its value."""

    __slots__ = ("node", "path", "key", "own", "merge")

    def __init__(self, node: Node, path: Path) -> None:
        self.node = node
        self.path = path
        self.key: Node | None = None
        self.own: Pairs = {}
        self.merge: tuple[Node, Node] | None = None

    def next_path(self) -> Path:
        """The path of the value that comes next."""
        if self.node.kind == "list":
            return (*self.path, len(self.node.value))
        if self.key is None or self.key.kind != "scalar":
            return self.path
        return (*self.path, self.key.source)

    def pair(self, key: Node, value: Node) -> str:
        """Take a key with its value; the message if the key is no text or comes again (the first one stays)."""
        self.key = None
        if key.kind == "scalar" and key.plain and key.source == "<<":
            first, self.merge = self.merge, self.merge or (key, value)
            hint = "; merge several with <<: [*a, *b]"
        elif key.kind != "scalar" or not isinstance(key.value, str):
            return key_message(self.node, key)
        else:
            first, hint = self.own.get(key.value), ""
            self.own.setdefault(key.value, (key, value))
        return f"duplicate key, first used on line {first[0].mark.line}{hint}" if first else ""


def measure(node: Node) -> str:
    """Set the size and height of a complete list or mapping, aliases expanded; the message if they are too large."""
    children = node.value if node.kind == "list" else [value for _, value in node.value.values()]
    node.size = 1 + sum(child.size for child in children)
    node.height = 1 + max((child.height for child in children), default=0)
    node.broken = any(child.broken for child in children)
    message = ""
    if node.size > MAX_NODES:
        message = f"aliases expand this to more than {MAX_NODES} values"
    elif node.height > MAX_DEPTH:
        message = f"aliases nest this deeper than {MAX_DEPTH} levels"
    if message or node.broken:  # what holds a broken node is not measured: one problem, not one a level
        message = "" if node.broken else message
        node.broken, node.size, node.height = True, 1, 1
    return message


def mark_of(event: yaml.Event) -> Mark:
    """Where a parser's event starts."""
    mark = event.start_mark
    return Mark(mark.line + 1, mark.column + 1) if mark else Mark(1, 1)


def scalar_value(text: str, tag: str | None, bare: bool) -> Any:
    if not text.isprintable() and re.search(_NOT_TEXT, text):
        raise ValueError("a text cannot hold NUL or half a surrogate pair")
    if tag is None:
        return yaml12.scalar(text) if bare else text
    if tag == f"{_TAG}str":
        return text
    if tag not in _SCALAR_TAGS:
        raise ValueError(tag_message(tag))
    value = yaml12.scalar(text)
    if type(value) not in _SCALAR_TAGS[tag]:
        raise ValueError(f"{yaml12.short(text)!r} is not what its tag !!{tag.removeprefix(_TAG)} says")
    return float(value) if tag == f"{_TAG}float" and isinstance(value, int) else value


def tag_message(tag: str) -> str:
    shown = f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag
    return f"the tag {yaml12.short(shown)} is not supported; quote a text that starts with !"


def key_message(mapping: Node, key: Node) -> str:
    if key.kind == "map" and (key.mark.line, key.mark.column) == (mapping.mark.line, mapping.mark.column + 1):
        return "a mapping cannot be a key; quote a text that holds {{ }}"
    if key.kind != "scalar":
        return f"a {'list' if key.kind == 'list' else 'mapping'} cannot be a key; quote it if text is meant"
    if not key.source:
        return 'an empty key; write "" if that is meant'
    return f'the key {yaml12.short(key.source)} is read as {_kind(key.value)}; quote it: "{yaml12.short(key.source)}"'


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return "a boolean" if isinstance(value, bool) else "a number"
