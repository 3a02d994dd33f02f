"""From YAML text to a graph of nodes with positions: duplicates, keys, tags, merges, aliases and sizes are judged here.

Works on the parser's events, without recursion, so that neither nesting nor aliases can exhaust stack, memory or time.
libyaml and the pure parser differ in what they forgive (a tab at the end of a line), not in what the rest means.
"""

from __future__ import annotations


import yaml

from srtgen.errors import Path, Problem, RecipeError, dotted
from srtgen.document.nodes import (
    COLLECTION_TAGS,
    MAX_DEPTH,
    MAX_NODES,
    Frame,
    Mark,
    Node,
    Pairs,
    mark_of,
    measure,
    scalar_value,
    tag_message,
)
from srtgen.document.source import foreign_directive, syntax_problem
from srtgen.document.yaml12 import short

MAX_PROBLEMS = 100
DEFAULT_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Stop(Exception):
    """Reading on makes no sense; the problem is recorded."""


def compose(file: str, text: str, loader: type | None = None) -> Node | None:
    """The root node, None for a file without content; RecipeError with every problem of the text."""
    composer = _Composer(file, text)
    parser = (loader or DEFAULT_LOADER)(text)
    try:
        while parser.check_event():
            composer.take(parser.get_event())
    except _Stop:
        pass
    except (yaml.YAMLError, ValueError) as error:  # ValueError: the pure parser on "\U00110000"
        composer.problems.append(syntax_problem(file, text, error))
    finally:
        parser.dispose()
    if composer.problems:
        raise RecipeError(composer.problems)
    return composer.root


class _Composer:
    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.problems: list[Problem] = []
        self.root: Node | None = None
        self._stack: list[Frame] = []
        self._anchors: dict[str, Node] = {}
        self._count = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        """Process one event in the order of the text."""
        if isinstance(event, yaml.ScalarEvent):
            self._add(self._scalar(event))
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._alias(event))
        elif isinstance(event, yaml.DocumentStartEvent):
            self._document(event)

    def _document(self, event: yaml.DocumentStartEvent) -> None:
        mark = mark_of(event)
        self._documents += 1
        if self._documents > 1:
            self._stop(mark, "a second document starts here; one file holds one document", "yaml-documents")
        line = foreign_directive(self.text, event.end_mark.index if event.end_mark else 0) if event.explicit else 0
        if line:
            self._problem(Mark(line, 1), "only the directive %YAML 1.2 is supported", "yaml-directive")

    def _scalar(self, event: yaml.ScalarEvent) -> Node:
        text, tag, mark = event.value, event.tag, mark_of(event)
        plain = not event.style and tag is None
        node = Node("scalar", mark, text, text, plain)
        try:
            node.value = scalar_value(text, tag, not event.style)
        except ValueError as error:
            node.broken = True
            self._problem(mark, str(error), "yaml-value")
        self._register(event.anchor, node)
        return node

    def _alias(self, event: yaml.AliasEvent) -> Node:
        mark, target = mark_of(event), self._anchors.get(event.anchor or "")
        if target is not None and target.closed:
            # A key stands where its alias is; a value where it is written.
            key_next = self._stack and self._stack[-1].node.kind == "map" and self._stack[-1].key is None
            return target.at(mark) if key_next else target
        name = short(event.anchor or "")
        if target is None:
            self._problem(mark, f"no anchor &{name} before this alias", "yaml-alias")
        else:
            self._problem(mark, f"the alias *{name} stands inside its own anchor", "yaml-alias")
        return Node("scalar", mark, f"*{name}", f"*{name}", broken=True)

    def _register(self, anchor: str | None, node: Node) -> None:
        if anchor is None:
            return
        if anchor in self._anchors:
            message = f"duplicate anchor &{short(anchor)}, first used on line {self._anchors[anchor].mark.line}"
            self._problem(node.mark, message, "yaml-alias")
        self._anchors[anchor] = node

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        kind = "map" if isinstance(event, yaml.MappingStartEvent) else "list"
        node = Node(kind, mark_of(event), [] if kind == "list" else {}, closed=False)
        if len(self._stack) >= MAX_DEPTH:
            self._stop(node.mark, f"nested deeper than {MAX_DEPTH} levels", "yaml-size")
        if event.tag not in (None, COLLECTION_TAGS[kind]):
            self._problem(node.mark, tag_message(event.tag), "yaml-tag")
        self._register(event.anchor, node)
        self._stack.append(Frame(node, self._next_path()))

    def _close(self) -> None:
        frame = self._stack.pop()
        node = frame.node
        node.closed = True
        if node.kind == "map":
            node.value = self._merged(frame)
        excess = measure(node)
        if excess:
            self._problem(node.mark, excess, "yaml-size", frame.path)
        self._add(node)

    def _add(self, node: Node) -> None:
        self._spend(1, node.mark)
        if not self._stack:
            self.root = node
            return
        frame = self._stack[-1]
        if frame.node.kind == "list":
            frame.node.value.append(node)
        elif frame.key is None:
            frame.key = node
        else:
            key, path = frame.key, frame.next_path()
            message = frame.pair(key, node)
            if message:
                self._problem(key.mark, message, "yaml-key", path)

    def _merged(self, frame: Frame) -> Pairs:
        """Merged keys first, in their anchor's order; the first source wins, the mapping's own keys win over all."""
        pairs: Pairs = {}
        if frame.merge:
            key, value = frame.merge
            for source in value.value if value.kind == "list" else [value]:
                if source.kind != "map":
                    if not source.broken:
                        message = "<< takes a mapping or a list of mappings; quote it if the text << is meant"
                        self._problem(key.mark, message, "yaml-merge", (*frame.path, "<<"))
                    continue
                self._spend(len(source.value), key.mark)
                for name, pair in source.value.items():
                    pairs.setdefault(name, pair)
        pairs.update(frame.own)
        return pairs

    def _spend(self, nodes: int, mark: Mark) -> None:
        self._count += nodes
        if self._count > MAX_NODES:
            self._stop(mark, f"more than {MAX_NODES} keys and values", "yaml-size")

    def _next_path(self) -> Path:
        return self._stack[-1].next_path() if self._stack else ()

    def _problem(self, mark: Mark, message: str, code: str, path: Path | None = None) -> None:
        where = dotted(self._next_path() if path is None else path)
        self.problems.append(Problem(self.file, mark.line, mark.column, where, message, code=code))
        if len(self.problems) == MAX_PROBLEMS:
            message = "reading stops here, after so many problems"
            self.problems.append(Problem(self.file, mark.line, mark.column, "", message, "note", "yaml-size"))
            raise _Stop

    def _stop(self, mark: Mark, message: str, code: str) -> None:
        self._problem(mark, message, code, ())
        raise _Stop
