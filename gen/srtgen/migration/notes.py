"""What the serializer does not keep, comments and spelling, under words that stand for it in the tree.

A comment travels as a pair of the tree before the entry that it belongs to. A value's text stays behind and a place
holder travels for it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from srtgen.migration.nodes import MappingNode, Node, ScalarNode, SequenceNode, scalar, walk
from srtgen.migration.text import Original, Pair, shifted


class Note(NamedTuple):
    """Comment lines above an entry, each with its further indentation; or what stands behind an entry (`inline`)."""

    lines: tuple[tuple[int, str], ...]
    inline: bool = False

    def outside(self) -> Note:
        """The note for a place of its own, above what comes next; empty lines alone are none."""
        lines = [(0, text.strip()) for _, text in self.lines] if self.inline else list(self.lines)
        while lines and not lines[-1][1]:
            lines.pop()
        return Note(tuple(lines))

    def first(self) -> Note:
        """The note at the start of a block: without empty lines above."""
        lines = list(self.lines)
        while lines and not lines[0][1]:
            lines.pop(0)
        return self._replace(lines=tuple(lines))


class Notes:
    """The notes of one text, and the keys that stand for them in the tree."""

    def __init__(self, text: str) -> None:
        self.word = "srtgen-note"
        while self.word in text:
            self.word += "-"
        self._notes: list[Note] = []

    def pair(self, note: Note) -> Pair:
        return self.item(note), scalar("")

    def item(self, note: Note) -> ScalarNode:
        self._notes.append(note)
        return scalar(f"{self.word}{len(self._notes) - 1}.")

    def of(self, node: Node) -> Note | None:
        """The note that a key or list item stands for."""
        value = node.value if isinstance(node, ScalarNode) else ""
        return self._notes[int(value[len(self.word) : -1])] if value.startswith(self.word) else None

    def restored(self, written: str, values: Values) -> list[str]:
        """The lines of the serialized tree, with notes and values as they were."""
        mark = re.compile(rf"( *)(?:- +)*({re.escape(self.word)}[0-9]+\.):?\Z")
        lines: list[str] = []
        inline = ""
        for line in written.splitlines():
            if not (match := mark.match(line)):
                lines += values.restored(line)
                lines[-1] += inline
                inline = ""
                continue
            note = self.of(scalar(match[2]))
            assert note is not None
            if note.inline:
                inline += note.lines[0][1]
            else:
                lines += [f"{match[1]}{' ' * more}{text}" if text else "" for more, text in note.lines]
        return lines


class Values:
    """Values whose text in the file takes the place of what the serializer would make of them."""

    def __init__(self, original: Original) -> None:
        self._original = original
        self._word = "srtgen-value"
        while self._word in original.text:
            self._word += "-"
        self._kept: list[Node] = []

    def conceal(self, root: Node) -> None:
        """Put a place holder where a value of a block mapping or list can stand as it is written."""
        for node in list(walk(root)):
            if isinstance(node, MappingNode) and not node.flow_style:
                node.value = [(key, self._holder(value)) for key, value in node.value]
            elif isinstance(node, SequenceNode) and not node.flow_style:
                node.value = [self._holder(item) for item in node.value]

    def _holder(self, node: Node) -> Node:
        if not self._original.whole(node):
            return node
        self._kept.append(node)
        return scalar(f"{self._word}{len(self._kept) - 1}.")

    def restored(self, line: str) -> list[str]:
        head, word, number = line.rpartition(self._word)
        if not word:
            return [line.rstrip(" ")]
        node = self._kept[int(number[:-1])]
        first, *more = self._original.spelled(node).split("\n")
        shift = len(line) - len(line.lstrip()) - self._original.indentation(node)
        return [head + first, *(shifted(one, shift) for one in more)]
