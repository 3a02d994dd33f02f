"""Comments, blank lines and the spelling of values: taken off a recipe's text before it is rearranged, put back after.

A comment travels as a pair of the tree (`Notes`) before the entry that it belongs to; a value's text stays behind and a
place holder travels for it.
"""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple, Sequence

from srtgen.migration_nodes import MappingNode, Node, ScalarNode, SequenceNode, anchored, is_new, scalar, walk

Pair = tuple[Node, Node]


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
        return [head + first, *(_shifted(one, shift) for one in more)]


def _shifted(line: str, by: int) -> str:
    if by >= 0 or not line:
        return " " * by + line if line else line
    return line[min(-by, len(line) - len(line.lstrip(" "))) :]


class Entry(NamedTuple):
    """A key with its value, or a list item (its own key): lines from 0, and which child of which node it is."""

    line: int
    column: int
    container: Node
    index: int
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
        if not isinstance(node, ScalarNode) and not node.flow_style:
            return False
        start, end = node.start_mark.index, self._end(node)
        return not any(anchored(one) or is_new(one) or not start <= one.start_mark.index <= end for one in walk(node))

    def source(self, entry: Entry) -> list[str]:
        """The lines of an entry, comments behind and in it included, moved to the left margin."""
        return [_shifted(line, -entry.column) for line in self.lines[entry.line : entry.last + 1]]

    def gaps(self, start: int) -> Iterator[tuple[int, int]]:
        """What lies between keys and values from offset `start` on."""
        for first, last in [*self._spans, (len(self.text), len(self.text))]:
            if first > start:
                yield start, first
            start = max(start, last)

    def _end(self, node: Node) -> int:
        return self._ends.get(id(node), node.end_mark.index)

    def _visit(self, node: Node) -> int:
        """Collect what is below a node that stands here; returns where its text ends."""
        if isinstance(node, ScalarNode) or (node.flow_style and id(node) not in self._opened):
            return self._span(node.start_mark.index, self._end(node))
        block = not node.flow_style
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
        return end

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


class Comment(NamedTuple):
    line: int
    column: int
    text: str
    blanks: str
    alone: bool


def find_comments(original: Original, start: int) -> list[Comment]:
    """Comments, and empty lines, between the keys and values from offset `start` on."""
    return list(_comments(original, start))


def _comments(original: Original, start: int) -> Iterator[Comment]:
    text = original.text
    for first, last in original.gaps(start):
        position = first
        for piece in text[first:last].split("\n"):
            begin, end = position, position + len(piece)
            position = end + 1
            line_start = text.rfind("\n", 0, begin) + 1
            full = text[line_start:end]
            match = re.search(r"(^|\s)#.*", piece)
            if match and (match[1] or begin == line_start or text[begin - 1 : begin].isspace()):
                at = begin + match.start() + len(match[1])
                before = text[line_start:at]
                bare = before.rstrip()
                yield Comment(text.count("\n", 0, at), at - line_start, text[at:end].rstrip(), before[len(bare) :], not bare)
            elif not full.strip() and end < last and begin == line_start and (begin > first or first == start):
                yield Comment(text.count("\n", 0, begin), 0, "", "", True)


def attach(original: Original, notes: Notes, found: Sequence[Comment]) -> list[str]:
    """Put every comment into the tree; returns those that have no place there, for the top."""
    before: dict[tuple[int, int], list[Note]] = {}
    after: dict[tuple[int, int], list[Note]] = {}
    entries = original.entries
    if not entries:
        return [one.text for one in found]
    for one in (one for one in found if not one.alone):
        entry = [e for e in entries if e.line <= one.line][-1:] or entries[:1]
        outer = next(e for e in entries if e.line == entry[0].line)
        inline = one.line in (entry[0].line, entry[0].last)
        text = (one.blanks or " ") + one.text if inline else one.text
        before.setdefault(_key(outer), []).append(Note(((0, text),), inline))
    for run in _runs([one for one in found if one.alone], entries):
        _place(run, entries, before, after)
    _insert(notes, entries, before, after)
    return []


def _key(entry: Entry) -> tuple[int, int]:
    return id(entry.container), entry.index


def _runs(alone: Sequence[Comment], entries: Sequence[Entry]) -> Iterator[list[Comment]]:
    """Comment lines with no entry between them."""
    starts = [entry.line for entry in entries]
    groups: dict[int, list[Comment]] = {}
    for one in alone:
        groups.setdefault(sum(start < one.line for start in starts), []).append(one)
    yield from groups.values()


def _place(
    run: list[Comment], entries: Sequence[Entry], before: dict[tuple[int, int], list[Note]],
    after: dict[tuple[int, int], list[Note]],
) -> None:
    """What is indented deeper than the next entry ends a block before it; the rest stands above the next entry."""
    following = next((e for e in entries if e.line > run[-1].line), None)
    margin = following.column if following else -1
    if following is None:
        while run and not run[-1].text:
            run.pop()
    cut = max((n + 1 for n, one in enumerate(run) if one.text and one.column > margin), default=0)
    cut = cut if run and entries[0].line < run[0].line else 0
    for one in run[:cut]:
        column = one.column if one.text else next(c.column for c in run[:cut] if c.text and c.line > one.line)
        target = _ending(entries, one.line, column)
        after.setdefault(_key(target), []).append(Note(((max(0, column - target.column), one.text),)))
    if following and run[cut:]:
        lines = tuple((max(0, one.column - margin), one.text) for one in run[cut:])
        before.setdefault(_key(following), []).insert(0, Note(lines))


def _ending(entries: Sequence[Entry], line: int, column: int) -> Entry:
    """The entry that a comment at this column ends: the last one at its column, or else the nearest to the left."""
    open_entries: list[Entry] = []
    for entry in (e for e in entries if e.line < line):
        while open_entries and open_entries[-1].column >= entry.column and open_entries[-1].container is not entry.container:
            open_entries.pop()
        if open_entries and open_entries[-1].container is entry.container:
            open_entries.pop()
        open_entries.append(entry)
    fitting = [e for e in open_entries if e.column <= column]
    return fitting[-1] if fitting else open_entries[0]


def _insert(
    notes: Notes, entries: Sequence[Entry], before: dict[tuple[int, int], list[Note]],
    after: dict[tuple[int, int], list[Note]],
) -> None:
    for container in {id(entry.container): entry.container for entry in entries}.values():
        made: list[object] = []
        make = notes.pair if isinstance(container, MappingNode) else notes.item
        for index, member in enumerate(container.value):
            made += [make(note) for note in before.get((id(container), index), ())]
            made.append(member)
            made += [make(note) for note in after.get((id(container), index), ())]
        container.value = made
