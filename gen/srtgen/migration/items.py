"""The members of a tree's mappings with the notes above them: taken out one by one, and put together again."""

import re
from typing import Any, Iterable, Iterator, NamedTuple

from srtgen.migration.nodes import MappingNode, Node, copied, mapping, scalar, sequence, style
from srtgen.migration.notes import Note, Notes
from srtgen.migration.text import Pair

_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@:=,+-]*\Z")


class Item(NamedTuple):
    """A key with its value, and the notes above it."""

    notes: tuple[Pair, ...]
    key: Node
    value: Node


class Items:
    """Takes mappings apart; `said` are remarks for the author, each with the line that it is about."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._taken: set[int] = set()
        self.said: list[tuple[int, str]] = []

    def items(self, container: MappingNode) -> list[Item]:
        """The keys of a mapping with their notes, merged ones written out among them."""
        items: list[Item] = []
        waiting: list[Pair] = []
        own = {key.value for key, _ in container.value}
        for key, value in container.value:
            if self._notes.of(key) is not None:
                waiting.append((key, value))
                continue
            if is_merge(key):
                self.said.append((line_of(key), "the merge << is written out: its keys go to different places"))
                items += self._merged(value, own)
            else:
                items.append(Item(tuple(waiting), key, value))
                waiting = []
        return self._with_tail(items, waiting)

    def _with_tail(self, items: list[Item], tail: list[Pair]) -> list[Item]:
        """Notes behind the last key stay with it, as an item that is nothing but notes."""
        return [*items, Item(tuple(tail[:-1]), *tail[-1])] if tail else items

    def _merged(self, value: Node, own: set[str]) -> Iterator[Item]:
        """What a merge brings beside the mapping's own keys."""
        for name, (key, member) in _merge(sources_of(value)).items():
            if name not in own and self._notes.of(key) is None:
                yield Item((), copied(key), self._copied(member))

    def _copied(self, node: Node) -> Node:
        made = copied(node)
        if isinstance(made, MappingNode) and made is not node:
            made.value = [(k, self._copied(v)) for k, v in made.value if self._notes.of(k) is None]
        return made

    def opened(self, container: Node) -> list[Item]:
        """The items of a mapping that is taken apart; those of one that stands elsewhere too are copies."""
        if not isinstance(container, MappingNode):
            return []
        items = self.items(container)
        if id(container) in self._taken:
            self.said.append((line_of(container), "this mapping is written out twice: its keys go to different places"))
            items = [Item((), copied(i.key), self._copied(i.value)) for i in items if self._notes.of(i.key) is None]
        self._taken.add(id(container))
        return items

    def note(self, key: Node) -> Note:
        """The note that a key is known to stand for."""
        note = self._notes.of(key)
        assert note is not None
        return note

    def loose(self, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
        """Notes without the entry that they belonged to, each in lines of its own."""
        found = [self.note(key).outside() for key, _ in pairs]
        return tuple(self._notes.pair(note) for note in found if note.lines)

    def mounts(self, item: Item) -> Item:
        """Mounts as a mapping from host to container become a list."""
        if not isinstance(item.value, MappingNode):
            return item
        members: list[Node] = []
        for one in self.opened(item.value):
            members += [self._notes.item(self.note(key)) for key, _ in one.notes]
            if (note := self._notes.of(one.key)) is not None:
                members.append(self._notes.item(note))
                continue
            text = f"{one.key.value}:{one.value.value}"
            members.append(scalar(text, style(one.key) or style(one.value) or (None if _PLAIN.match(text) else "'")))
        return item._replace(value=sequence(members))

    def joined(self, items: list[Item], like: Node) -> MappingNode:
        """The items as a mapping, which starts without an empty line."""
        if items and items[0].notes:
            (key, _), *more = items[0].notes
            note = self.note(key).first()
            own = (self._notes.pair(note), *more) if note.lines else tuple(more)
            items = [items[0]._replace(notes=own), *items[1:]]
        return mapping(self.pairs(items, ()), like)

    def pairs(self, items: list[Item], tail: tuple[Pair, ...]) -> list[Pair]:
        return [pair for item in items for pair in (*item.notes, (item.key, item.value))] + list(tail)

    def is_spaced(self, item: Item) -> bool:
        """Whether an empty line stands above the key."""
        return bool(item.notes) and not self.note(item.notes[0][0]).lines[0][1]


def _merge(sources: list[Any]) -> dict[str, Pair]:
    """The keys of the sources of a merge: the first source wins, and in each its own keys over what it merges."""
    found: dict[str, Pair] = {}
    for source in sources:
        for key, value in source.value:
            if not is_merge(key):
                found.setdefault(key.value, (key, value))
        for key, value in source.value:
            if is_merge(key):
                for name, pair in _merge(sources_of(value)).items():
                    found.setdefault(name, pair)
    return found


def is_merge(key: Node) -> bool:
    return bool(key.value == "<<" and not style(key))


def notes_below(node: Node, notes: Notes) -> Iterator[Pair]:
    """The notes in a value, at any depth."""
    for key, value in node.value if isinstance(node, MappingNode) else ():
        if notes.of(key) is not None:
            yield key, value
        else:
            yield from notes_below(value, notes)


def keys_of(block: MappingNode) -> Iterator[Node]:
    """The keys of a mapping, those of its merges too."""
    for key, value in block.value:
        if is_merge(key):
            for source in sources_of(value):
                yield from keys_of(source)
        else:
            yield key


def sources_of(value: Node) -> list[Any]:
    return [value] if isinstance(value, MappingNode) else [one for one in value.value if isinstance(one, MappingNode)]


def type_of(block: Node) -> str:
    """The value of `type` in a mapping, its own or merged; "" if there is none."""
    pairs = block.value if isinstance(block, MappingNode) else []
    own = [value.value for key, value in pairs if key.value == "type" and isinstance(value.value, str)]
    merged = [type_of(one) for key, value in pairs if is_merge(key) for one in sources_of(value)]
    return next(iter([*own, *filter(None, merged)]), "")


def line_of(node: Node) -> int:
    """The line of the file, from 1."""
    return node.start_mark.line + 1 if node.start_mark else 1


def with_schema(items: list[Item], notes: Notes) -> list[Item]:
    """`schema: 2` as the first key, below what heads the file and above what belongs to the first key."""
    first, *rest = items
    head, own = list(first.notes), []
    if head and (note := notes.of(head[0][0])) is not None and not note.inline:
        empty = [n for n, (_, text) in enumerate(note.lines) if not text]
        if empty and empty[-1] < len(note.lines) - 1:
            head[:1] = [notes.pair(Note(note.lines[: empty[-1]]))]
            own = [notes.pair(Note(note.lines[empty[-1] :]))]
    inline = [pair for pair in head if (n := notes.of(pair[0])) is not None and n.inline]
    above = [pair for pair in head if pair not in inline]
    schema = Item(tuple(above), scalar("schema"), scalar("2"))
    return [schema, first._replace(notes=(*own, *inline)), *rest]
