"""The tree of a layout 1 recipe rearranged into layout 2, by the same tables as the converter (`layout1_names`)."""

from __future__ import annotations

from typing import Iterable, Mapping

from srtgen import bench
from srtgen.layout1.names import ARGS, ENVIRONMENT, MOVED, REARRANGED, ROLES, SWITCHED_OFF
from srtgen.migration.items import Item, Items, keys_of, line_of, notes_below, type_of, with_schema
from srtgen.migration.nodes import MappingNode, Node, ScalarNode, mapping, scalar
from srtgen.migration.notes import Note, Notes
from srtgen.migration.text import Entry, Original, Pair
from srtgen.recipe import COLOCATE

Parts = Mapping[str, list[Item]]  # what goes to each role
Gpus = Mapping[str, int]  # of a worker, by role, where layout 2 has to be told

# Keys below `resources` that go to a role, and those of a role's flags and environment below `backend`.
_COUNTS = {f"{role}_{word}": (role, word) for role in ROLES for word in ("nodes", "workers")}
_SIZES = {f"gpus_per_{role}": (role, "gpus") for role in ROLES}
_FIRST = ("nodes", "workers", "gpus")
_FLAGS = {ARGS[role]: (role, "args") for role in ROLES}
_ENVIRONMENT = {ENVIRONMENT[role]: (role, "env") for role in ROLES}


class Mover(Items):
    """Rearranges the trees of one file."""

    def __init__(self, notes: Notes, original: Original) -> None:
        super().__init__(notes)
        self._entries = {id(entry.key): entry for entry in original.entries}
        self._original = original
        self._done: list[tuple[MappingNode, list[Pair]]] = []

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
        parts: Parts = {role: [] for role in ROLES}
        carried: tuple[Pair, ...] = ()
        place, space = -1, False
        for item in self.items(root):
            name = item.key.value
            if name == "backend" or (name == "resources" and place < 0):
                space = self.is_spaced(item)
            item = item._replace(notes=(*carried, *item.notes))
            new, carried = self._moved(item, parts, kind, set(roles))
            made += new
            if name == "backend" or (name == "resources" and place < 0):
                place = len(made)
        if inner := self._roles(parts, gpus, root):
            above = (self._notes.pair(Note(((0, ""),))),) if space and place else ()
            made.insert(place if place >= 0 else len(made), Item(above, scalar("roles"), self.joined(inner, root)))
        self._done.append((root, self.pairs(with_schema(made, self._notes) if first else made, carried)))

    def _moved(self, item: Item, parts: Parts, kind: str, roles: set[str]) -> tuple[list[Item], tuple[Pair, ...]]:
        """What becomes of a key of the recipe, and notes for what comes next."""
        name = item.key.value
        if name == "resources":
            return self._resources(item, parts)
        if name == "backend":
            return self._backend(item, parts, roles)
        if name == "frontend":
            return [self._renamed(item, "frontend", None)], ()
        if name == "benchmark":
            return [self._renamed(item, "benchmark", type_of(item.value) or kind)], ()
        if name == "container_mounts":
            return [self.mounts(item)], ()
        if name in REARRANGED:
            return [], self._gone(item, "ATOM jobs have no such part")
        return [item], ()

    def _roles(self, parts: Parts, gpus: Gpus, root: MappingNode) -> list[Item]:
        for items in parts.values():
            items.sort(key=lambda one: one.key.value not in _FIRST)
        for role, size in gpus.items():
            counts = sum(one.key.value in _FIRST for one in parts[role])
            parts[role].insert(counts, Item((), scalar("gpus"), scalar(str(size))))
        return [Item((), scalar(role), self.joined(parts[role], root)) for role in ROLES if parts[role]]

    def _resources(self, item: Item, parts: Parts) -> tuple[list[Item], tuple[Pair, ...]]:
        left: list[Item] = []
        for one in self.opened(item.value):
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
            return [item._replace(value=self.joined(left, item.value))], ()
        return [], (*self.loose(item.notes), *self.loose(pair for one in left for pair in (*one.notes, (one.key, one.value))))

    def _backend(self, item: Item, parts: Parts, roles: set[str]) -> tuple[list[Item], tuple[Pair, ...]]:
        left: list[Item] = []
        carried: tuple[Pair, ...] = ()
        for one in self.opened(item.value):
            one = one._replace(notes=(*carried, *one.notes))
            carried = ()
            if one.key.value == "atom_config":
                carried = self.loose(one.notes)
                for flags in self.opened(one.value):
                    flags = flags._replace(notes=(*carried, *flags.notes))
                    carried = self._to_role(flags, _FLAGS, parts, roles, left)
            elif one.key.value in _ENVIRONMENT:
                carried = self._to_role(one, _ENVIRONMENT, parts, roles, left)
            else:
                left.append(one)
        made, rest = self._left(item._replace(key=scalar("engine")), left)
        return made, (*rest, *carried)

    def _to_role(
        self, one: Item, table: Mapping[str, tuple[str, str]], parts: Parts, roles: set[str], left: list[Item]
    ) -> tuple[Pair, ...]:
        """Move flags or an environment to their role; returns notes for what comes next."""
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
        for one in self.opened(item.value):
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
        pairs = self.pairs(made, carried)
        return item._replace(value=mapping(pairs, item.value))

    def _changes(self, block: MappingNode, name: str, kind: str | None) -> bool:
        keys = [key.value for key in keys_of(block)]
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

    def _gone(self, item: Item, reason: str) -> tuple[Pair, ...]:
        """Notes of a key that is left out, its own behind it among them."""
        self.said.append((line_of(item.key), f"{item.key.value} is left out: {reason}"))
        inner = list(notes_below(item.value, self._notes))
        return self.loose([*item.notes, *inner])

    def _commented(self, item: Item, reason: str) -> tuple[Pair, ...]:
        """A key that layout 1 ignores and layout 2 refuses, as a comment."""
        self.said.append((line_of(item.key), f"{item.key.value} is now a comment: {reason}"))
        entry: Entry | None = self._entries.get(id(item.key))
        if entry is None:
            return self.loose(item.notes)
        above = [(key, value) for key, value in item.notes if not self.note(key).inline]
        lines = [f"# {line}".rstrip() for line in self._original.source(entry)]
        return (*above, self._notes.pair(Note(tuple((0, line) for line in lines))))
