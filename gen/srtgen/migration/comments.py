"""Comments and empty lines of a recipe: found between its values, and put into its tree where they belong."""

import re
from typing import Iterator, NamedTuple, Sequence

from srtgen.migration.nodes import MappingNode
from srtgen.migration.notes import Note, Notes
from srtgen.migration.text import Entry, Original

_Places = dict[tuple[int, int], list[Note]]  # by container and index of an entry


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
    before: _Places = {}
    after: _Places = {}
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
    return id(entry.container), entry.number


def _runs(alone: Sequence[Comment], entries: Sequence[Entry]) -> Iterator[list[Comment]]:
    """Comment lines with no entry between them."""
    starts = [entry.line for entry in entries]
    groups: dict[int, list[Comment]] = {}
    for one in alone:
        groups.setdefault(sum(start < one.line for start in starts), []).append(one)
    yield from groups.values()


def _place(
    run: list[Comment], entries: Sequence[Entry], before: _Places,
    after: _Places,
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
    notes: Notes, entries: Sequence[Entry], before: _Places,
    after: _Places,
) -> None:
    for container in {id(entry.container): entry.container for entry in entries}.values():
        made: list[object] = []
        make = notes.pair if isinstance(container, MappingNode) else notes.item
        for index, member in enumerate(container.value):
            made += [make(note) for note in before.get((id(container), index), ())]
            made.append(member)
            made += [make(note) for note in after.get((id(container), index), ())]
        container.value = made
