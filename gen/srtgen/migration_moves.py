"""The tree of a layout 1 recipe rearranged into layout 2, by the same tables as the converter (`layout1_names`)."""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator, Mapping, NamedTuple

from srtgen import bench
from srtgen.layout1_names import ARGS, ENVIRONMENT, MOVED, REARRANGED, ROLES, SWITCHED_OFF
from srtgen.migration_nodes import MappingNode, Node, ScalarNode, copied, mapping, scalar, sequence
from srtgen.migration_text import Entry, Note, Notes, Original
from srtgen.recipe import COLOCATE

Pair = tuple[Node, Node]
Gpus = Mapping[str, int]  # of a worker, by role, where layout 2 has to be told

_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@:=,+-]*\Z")
# Keys below `resources` that go to a role, and those of a role's flags and environment below `backend`.
_COUNTS = {f"{role}_{word}": (role, word) for role in ROLES for word in ("nodes", "workers")}
_SIZES = {f"gpus_per_{role}": (role, "gpus") for role in ROLES}
_FIRST = ("nodes", "workers", "gpus")
_FLAGS = {ARGS[role]: (role, "args") for role in ROLES}
_ENVIRONMENT = {ENVIRONMENT[role]: (role, "env") for role in ROLES}


class Item(NamedTuple):
    """A key with its value, and the notes above it."""

    notes: tuple[Pair, ...]
    key: Node
    value: Node


class Mover:
    """Rearranges trees of one file; `said` are the remarks for its author, each with the line that it is about."""

    def __init__(self, notes: Notes, original: Original) -> None:
        self._notes = notes
        self._entries = {id(entry.key): entry for entry in original.entries}
        self._original = original
        self._taken: set[int] = set()
        self._done: list[tuple[MappingNode, list[Pair]]] = []
        self.said: list[tuple[int, str]] = []

    def apply(self) -> None:
        """Put what was rearranged into the tree, which until then is as it was read, for merges from it."""
        for node, pairs in self._done:
            node.value = pairs

    def tree(self, root: MappingNode, gpus: Gpus, kind: str, roles: Iterable[str], first: bool) -> None:
        """Rearrange a recipe, or a part of one to merge over it; `apply` puts the result in its place.

        `kind` is the benchmark's type where the part has none, `roles` are those with workers, and the key `schema`
        comes `first` in a recipe.
        """
        made: list[Item] = []
        parts: dict[str, list[Item]] = {role: [] for role in ROLES}
        kept = set(roles)
        carried: tuple[Pair, ...] = ()
        place, space = -1, False
        for item in self._items(root):
            name = item.key.value
            if name == "backend" or (name == "resources" and place < 0):
                space = self._is_spaced(item)
            item = item._replace(notes=(*carried, *item.notes))
            carried = ()
            new: list[Item] = [item]
            if name == "resources":
                new, carried = self._resources(item, parts)
            elif name == "backend":
                new, carried = self._backend(item, parts, kept)
            elif name == "frontend":
                new = [self._renamed(item, "frontend", None)]
            elif name == "benchmark":
                new = [self._renamed(item, "benchmark", self._kind(item.value) or kind)]
            elif name == "container_mounts":
                new = [self._mounts(item)]
            elif name in REARRANGED:
                new, carried = [], self._gone(item, "ATOM jobs have no such part")
            made += new
            if name == "backend" or (name == "resources" and place < 0):
                place = len(made)
        for items in parts.values():
            items.sort(key=lambda one: one.key.value not in _FIRST)
        for role, size in gpus.items():
            counts = sum(one.key.value in _FIRST for one in parts[role])
            parts[role].insert(counts, Item((), scalar("gpus"), scalar(str(size))))
        inner = [Item((), scalar(role), self._joined(parts[role], root)) for role in ROLES if parts[role]]
        if inner:
            above = (self._notes.pair(Note(((0, ""),))),) if space and place else ()
            made.insert(place if place >= 0 else len(made), Item(above, scalar("roles"), self._joined(inner, root)))
        self._done.append((root, self._pairs(_with_schema(made, self._notes) if first else made, carried)))

    def _is_spaced(self, item: Item) -> bool:
        """Whether an empty line stands above the key."""
        return bool(item.notes) and not self._note(item.notes[0][0]).lines[0][1]

    def _items(self, container: MappingNode) -> list[Item]:
        """The keys of a mapping with their notes, merged ones written out among them."""
        items: list[Item] = []
        waiting: list[Pair] = []
        for key, value in container.value:
            if self._notes.of(key) is not None:
                waiting.append((key, value))
                continue
            if key.value == "<<" and not key.style:
                self.said.append((_line(key), "the merge << is written out: its keys go to different places"))
                items += self._merged(value)
            else:
                items.append(Item(tuple(waiting), key, value))
                waiting = []
        return self._distinct(self._with_tail(items, waiting))

    def _with_tail(self, items: list[Item], tail: list[Pair]) -> list[Item]:
        """Notes behind the last key stay with it, as an item that is nothing but notes."""
        return [*items, Item(tuple(tail[:-1]), *tail[-1])] if tail else items

    def _merged(self, value: Node) -> Iterator[Item]:
        sources = [value] if isinstance(value, MappingNode) else value.value
        for source in reversed(sources):
            for key, member in source.value:
                if key.value == "<<" and not key.style:
                    yield from self._merged(member)
                elif self._notes.of(key) is None:
                    yield Item((), copied(key), self._copied(member))

    def _copied(self, node: Node) -> Node:
        made = copied(node)
        if isinstance(made, MappingNode) and made is not node:
            made.value = [(k, self._copied(v)) for k, v in made.value if self._notes.of(k) is None]
        return made

    def _distinct(self, items: list[Item]) -> list[Item]:
        """One item a key: the place of the first, the value of the last; notes are all kept."""
        found: dict[str, Item] = {}
        for item in items:
            earlier = found.get(item.key.value)
            found[item.key.value] = item._replace(notes=(*(earlier.notes if earlier else ()), *item.notes))
        return list(found.values())

    def _opened(self, container: Node) -> list[Item]:
        """The items of a mapping that is taken apart; those of one that stands elsewhere too are copies."""
        if not isinstance(container, MappingNode):
            return []
        items = self._items(container)
        if id(container) in self._taken:
            self.said.append((_line(container), "this mapping is written out twice: its keys go to different places"))
            items = [Item((), copied(i.key), self._copied(i.value)) for i in items if self._notes.of(i.key) is None]
        self._taken.add(id(container))
        return items

    def _resources(self, item: Item, parts: dict[str, list[Item]]) -> tuple[list[Item], tuple[Pair, ...]]:
        left: list[Item] = []
        for one in self._opened(item.value):
            role, name = {**_COUNTS, **_SIZES}.get(one.key.value, ("", ""))
            if not role:
                left.append(one)
                continue
            if one.key.value == "decode_nodes" and isinstance(one.value, ScalarNode) and one.value.value == "0":
                one = one._replace(value=scalar(COLOCATE))
            parts[role].append(one._replace(key=scalar(name)))
        return self._left(item, left)

    def _left(self, item: Item, left: list[Item]) -> tuple[list[Item], tuple[Pair, ...]]:
        """The block with what is left in it; without it only its notes."""
        if [one for one in left if self._notes.of(one.key) is None]:
            return [item._replace(value=self._joined(left, item.value))], ()
        return [], (*self._loose(item.notes), *self._loose(pair for one in left for pair in (*one.notes, (one.key, one.value))))

    def _backend(
        self, item: Item, parts: dict[str, list[Item]], roles: set[str]
    ) -> tuple[list[Item], tuple[Pair, ...]]:
        left: list[Item] = []
        carried: tuple[Pair, ...] = ()
        for one in self._opened(item.value):
            one = one._replace(notes=(*carried, *one.notes))
            carried = ()
            if one.key.value == "atom_config":
                carried = self._loose(one.notes)
                for flags in self._opened(one.value):
                    flags = flags._replace(notes=(*carried, *flags.notes))
                    carried = self._to_role(flags, _FLAGS, parts, roles, left)
            elif one.key.value in _ENVIRONMENT:
                carried = self._to_role(one, _ENVIRONMENT, parts, roles, left)
            else:
                left.append(one)
        made, rest = self._left(item._replace(key=scalar("engine")), left)
        return made, (*rest, *carried)

    def _to_role(
        self, one: Item, table: Mapping[str, tuple[str, str]], parts: dict[str, list[Item]], roles: set[str],
        left: list[Item],
    ) -> tuple[Pair, ...]:
        if one.key.value not in table:
            if self._notes.of(one.key) is None:
                left.append(one)
                return ()
            return (*one.notes, (one.key, one.value))
        role, name = table[one.key.value]
        if role not in roles:
            return self._commented(one, f"the recipe has no {role} workers")
        parts[role].append(one._replace(key=scalar(name)))
        return ()

    def _renamed(self, item: Item, block: str, kind: str | None) -> Item:
        """`frontend` or `benchmark`: keys that have another place, that nobody reads, or that say what holds anyway."""
        if not isinstance(item.value, MappingNode) or not self._changes(item.value, block, kind):
            return item
        made: list[Item] = []
        carried: tuple[Pair, ...] = ()
        for one in self._opened(item.value):
            one = one._replace(notes=(*carried, *one.notes))
            carried = ()
            name = one.key.value
            if (block, name) in SWITCHED_OFF:
                carried = self._gone(one, "false is what holds anyway")
            elif self._unread(block, name, kind):
                carried = self._commented(one, f"never read by type {kind}")
            elif (block, name) in MOVED:
                *_, outer, inner = MOVED[block, name]
                below = mapping([(scalar(str(inner)), one.value)], item.value)
                made.append(Item(one.notes, scalar(str(outer)), below))
            else:
                if (block, name) == ("benchmark", "overrides"):
                    self._overrides(one.value, kind or "")
                made.append(one)
        pairs = self._pairs(made, carried)
        return item._replace(value=mapping(pairs, item.value))

    def _changes(self, block: MappingNode, name: str, kind: str | None) -> bool:
        keys = [key.value for key in _keys(block)]
        return any(
            (name, key) in SWITCHED_OFF or (name, key) in MOVED or self._unread(name, key, kind) or key == "overrides"
            for key in keys
        )

    def _unread(self, block: str, name: str, kind: str | None) -> bool:
        if kind not in bench.READS or name == "overrides" or name.startswith(self._notes.word):
            return False
        return MOVED.get((block, name), (block, name))[1] not in bench.READS[kind]

    def _overrides(self, items: Node, kind: str) -> None:
        """Settings by concurrency are parts of recipes."""
        for part in items.value if not isinstance(items, ScalarNode) else ():
            if isinstance(part, MappingNode):
                self.tree(part, {}, kind, ROLES, first=False)

    def _kind(self, block: Node) -> str:
        pairs = block.value if isinstance(block, MappingNode) else []
        own = [value.value for key, value in pairs if key.value == "type" and isinstance(value, ScalarNode)]
        merged = [self._kind(one) for key, value in pairs if key.value == "<<" for one in _sources(value)]
        return next(iter([*own, *filter(None, merged)]), "")

    def _mounts(self, item: Item) -> Item:
        """Mounts as a mapping from host to container become a list."""
        if not isinstance(item.value, MappingNode):
            return item
        members: list[Node] = []
        for one in self._opened(item.value):
            members += [self._notes.item(self._notes.of(key)) for key, _ in one.notes]  # type: ignore[arg-type]
            if (note := self._notes.of(one.key)) is not None:
                members.append(self._notes.item(note))
                continue
            text = f"{one.key.value}:{one.value.value}"
            members.append(scalar(text, one.key.style or one.value.style or (None if _PLAIN.match(text) else "'")))
        return item._replace(value=sequence(members))

    def _gone(self, item: Item, reason: str) -> tuple[Pair, ...]:
        """Notes of a key that is left out, its own behind it among them."""
        self.said.append((_line(item.key), f"{item.key.value} is left out: {reason}"))
        inner = list(_notes_below(item.value, self._notes))
        return self._loose([*item.notes, *inner])

    def _commented(self, item: Item, reason: str) -> tuple[Pair, ...]:
        """A key that layout 1 ignores and layout 2 refuses, as a comment."""
        self.said.append((_line(item.key), f"{item.key.value} is now a comment: {reason}"))
        entry: Entry | None = self._entries.get(id(item.key))
        if entry is None:
            return self._loose(item.notes)
        above = [(key, value) for key, value in item.notes if not self._note(key).inline]
        lines = [f"# {line}".rstrip() for line in self._original.source(entry)]
        return (*above, self._notes.pair(Note(tuple((0, line) for line in lines))))

    def _note(self, key: Node) -> Note:
        note = self._notes.of(key)
        assert note is not None
        return note

    def _loose(self, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
        """Notes without the entry that they belonged to, each in lines of its own."""
        found = [self._note(key).outside() for key, _ in pairs]
        return tuple(self._notes.pair(note) for note in found if note.lines)

    def _joined(self, items: list[Item], like: Node) -> MappingNode:
        """The items as a mapping, which starts without an empty line."""
        if items and items[0].notes:
            (key, _), *more = items[0].notes
            note = self._note(key).first()
            own = (self._notes.pair(note), *more) if note.lines else tuple(more)
            items = [items[0]._replace(notes=own), *items[1:]]
        return mapping(self._pairs(items, ()), like)

    def _pairs(self, items: list[Item], tail: tuple[Pair, ...]) -> list[Pair]:
        return [pair for item in items for pair in (*item.notes, (item.key, item.value))] + list(tail)


def _with_schema(items: list[Item], notes: Notes) -> list[Item]:
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


def _notes_below(node: Node, notes: Notes) -> Iterator[Pair]:
    for key, value in node.value if isinstance(node, MappingNode) else ():
        if notes.of(key) is not None:
            yield key, value
        else:
            yield from _notes_below(value, notes)


def _keys(block: MappingNode) -> Iterator[Node]:
    """The keys of a mapping, those of its merges too."""
    for key, value in block.value:
        if key.value == "<<" and not key.style:
            for source in _sources(value):
                yield from _keys(source)
        else:
            yield key


def _sources(value: Node) -> list[Any]:
    return [value] if isinstance(value, MappingNode) else [one for one in value.value if isinstance(one, MappingNode)]


def _line(node: Node) -> int:
    return node.start_mark.line + 1 if node.start_mark else 1
