"""The text of a recipe beside its tree: where keys, list items and values stand, and how they are written."""

import re
from typing import Iterator, NamedTuple

from srtgen.migration.nodes import Indents, MappingNode, Node, ScalarNode, anchored, in_flow, is_new, walk

Pair = tuple[Node, Node]


def shifted(line: str, by: int) -> str:
    if by >= 0 or not line:
        return " " * by + line if line else line
    return line[min(-by, len(line) - len(line.lstrip(" "))) :]


class Entry(NamedTuple):
    """A key with its value, or a list item (its own key): lines from 0, and which child of which node it is."""

    line: int
    column: int
    container: Node
    number: int
    key: Node
    value: Node
    last: int


class Original:
    """The text of a recipe with the tree that was read from it."""

    def __init__(self, text: str, root: Node, opened: set[int]) -> None:
        """`opened`: the flow collections that will be taken apart."""
        self.text = text
        self.lines = text.split("\n")
        self._opened = opened
        self._ends: dict[int, int] = {}
        self._indentations: dict[int, int] = {}
        self._spans: list[tuple[int, int]] = []
        self.entries: list[Entry] = []
        self._visit(root)
        self._spans.sort()

    def spelled(self, node: Node) -> str:
        return self.text[node.start_mark.index : self._end(node)]

    def indentation(self, node: Node) -> int:
        """Blanks before the line on which the node's entry starts."""
        return self._indentations[id(node)]

    def whole(self, node: Node) -> bool:
        """Whether the value can stand elsewhere as it is written: a scalar or flow collection without references."""
        if is_new(node) or id(node) not in self._indentations or not self.spelled(node):
            return False
        if not isinstance(node, ScalarNode) and not in_flow(node):
            return False
        start, end = node.start_mark.index, self._end(node)
        return not any(anchored(one) or is_new(one) or not start <= one.start_mark.index <= end for one in walk(node))

    def source(self, entry: Entry) -> list[str]:
        """The lines of an entry, comments behind and in it included, moved to the left margin."""
        return [shifted(line, -entry.column) for line in self.lines[entry.line : entry.last + 1]]

    def indents(self) -> Indents:
        """How the file indents, by the first mapping and the first list in a mapping."""
        found: dict[bool, int] = {}
        for outer in (entry for entry in self.entries if isinstance(entry.container, MappingNode)):
            inner = next((entry for entry in self.entries if entry.container is outer.value), None)
            if inner is not None:
                found.setdefault(isinstance(outer.value, MappingNode), inner.column - outer.column)
        return Indents(found.get(True, 2), found.get(False, 2))

    def gaps(self, start: int) -> Iterator[tuple[int, int]]:
        """What lies between keys and values from offset `start` on."""
        for first, last in [*self._spans, (len(self.text), len(self.text))]:
            if first > start:
                yield start, first
            start = max(start, last)

    def _end(self, node: Node) -> int:
        return int(self._ends.get(id(node), node.end_mark.index))

    def _visit(self, node: Node) -> int:
        """Collect what is below a node that stands here; returns where its text ends."""
        if isinstance(node, ScalarNode) or (in_flow(node) and id(node) not in self._opened):
            return self._span(node.start_mark.index, self._end(node))
        block = not in_flow(node)
        end = node.start_mark.index + len(self._properties(node)) if block else node.end_mark.index
        members = [*enumerate(node.value)]
        for index, member in members:
            if isinstance(node, MappingNode):
                key, value = member
                start, column = key.start_mark.index, key.start_mark.column
                after = self._span(start, key.end_mark.index)
            else:
                value = member
                start = after = self._dash(value, end) if block else value.start_mark.index
                column = start - self.text.rfind("\n", 0, start) - 1
            here = self._entry(node, member, index, start, column) if block else None
            stands_here = value.start_mark.index >= after
            if stands_here:
                self._note_value(value, start, column)
                after = self._visit(value)
            end = max(end, after)
            if here is not None:
                self.entries[here] = self.entries[here]._replace(last=self._line(max(after - 1, start)))
        return int(end)

    def _properties(self, node: Node) -> str:
        match = re.match(r"(?:[&!][^\s]*[ \n]*)*", self.text[node.start_mark.index :])
        return match[0] if match else ""

    def _dash(self, item: Node, after: int) -> int:
        """Where a list item's dash stands: before the item, or, for an alias, the next one behind the last item."""
        dash = re.compile(r"^[ ]*(?:- +)*(-)(?=\s)|(?<=- )(-)(?=\s)", re.MULTILINE)
        if item.start_mark.index >= after:
            return self.text.rfind("-", 0, item.start_mark.index + (1 if self._is_empty(item) else 0))
        match = dash.search(self.text, after)
        return match.start(1) if match else after

    def _is_empty(self, node: Node) -> bool:
        return isinstance(node, ScalarNode) and node.start_mark.index == node.end_mark.index

    def _entry(self, container: Node, member: Node | Pair, index: int, start: int, column: int) -> int:
        line = self._line(start)
        key, value = member if isinstance(member, tuple) else (member, member)
        self.entries.append(Entry(line, column, container, index, key, value, line))
        return len(self.entries) - 1

    def _note_value(self, value: Node, start: int, column: int) -> None:
        line = self.lines[self._line(start)]
        self._indentations[id(value)] = len(line) - len(line.lstrip(" "))
        if isinstance(value, ScalarNode) and value.style in ("|", ">"):
            self._ends[id(value)] = self._block_end(value.start_mark.index, column)

    def _block_end(self, start: int, column: int) -> int:
        """Where a literal or folded text ends; blank lines behind it are part of it only where it keeps them."""
        header = self.text.find("\n", start)
        keeps = "+" in self.text[start:header].partition("#")[0]
        number = self._line(start) + 1
        last = number - 1
        while number < len(self.lines):
            line = self.lines[number]
            if line.strip(" ") and len(line) - len(line.lstrip(" ")) <= column:
                break
            if line.strip(" ") or (keeps and number < len(self.lines) - 1):
                last = number
            number += 1
        return sum(len(line) + 1 for line in self.lines[: last + 1]) - 1

    def _span(self, start: int, end: int) -> int:
        if end > start:
            self._spans.append((start, end))
        return end

    def _line(self, index: int) -> int:
        return self.text.count("\n", 0, index)
