"""`--set dotted.path=value` and `--unset dotted.path`, applied to a document before it is validated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from srtgen.assignment import Assignment, Change, label_of, split
from srtgen.document import MAX_DEPTH, Document, Mark, parse
from srtgen.errors import Path, Problem, RecipeError, dotted

T = TypeVar("T")
Move = Callable[[Path], Path | None]


def apply(document: Document, assignments: Sequence[Assignment]) -> Document:
    """A new document with the assignments made in their order; RecipeError with the problems of all of them.

    What is set stands at line 1 of a file named like the option, `--set a.b=1`. Missing parents become mappings, a
    replaced value keeps its place, a new key goes last, the items after a removed list item move up.
    """
    editor = _Editor(document)
    problems: list[Problem] = []
    for action, text in assignments:
        try:
            editor.run(action, text)
        except RecipeError as error:
            problems.extend(error.problems)
    if problems:
        raise RecipeError(problems)
    return editor.document()


class _Editor:
    """A document's parts, copied, and changed in place."""

    def __init__(self, document: Document) -> None:
        self._origin = document
        self._data = _copy(document.data)
        self._values = dict(document.values)
        self._keys = dict(document.keys)
        self._sources = dict(document.sources)
        self._plain = dict.fromkeys(document.plain, True)

    def document(self) -> Document:
        return self._origin._replace(
            data=self._data,
            values=self._values,
            keys=self._keys,
            sources=self._sources,
            plain=frozenset(self._plain),
        )

    def run(self, action: str, text: str) -> None:
        label = label_of(action, text)
        try:
            path, value = split(text)
        except ValueError as error:
            raise Change(label, ()).refuse(str(error)) from None
        change = Change(label, path)
        if action == "unset":
            if value is not None:
                raise change.refuse("--unset takes a path without =")
            self._unset(change)
        elif value is None:
            raise change.refuse("--set takes path=value")
        else:
            self._set(change, self._read(change, value, offset=len(text) - len(value)))

    def _read(self, change: Change, text: str, offset: int) -> Document:
        content = text.encode("utf-8", "surrogateescape")
        try:
            value = parse(change.label, content)
        except RecipeError as error:
            raise RecipeError(_shifted(problem, change, offset) for problem in error.problems) from None
        if value.data is None and text.lstrip().startswith("#"):
            raise change.refuse("the value is a comment; quote it")
        if any(len(change.path) + len(path) > MAX_DEPTH for path in (*value.values, *value.sources)):
            raise change.refuse(f"nested deeper than {MAX_DEPTH} levels", depth=1)
        marks = {path: _moved(mark, change, offset) for path, mark in value.values.items()}
        keys = {path: _moved(mark, change, offset) for path, mark in value.keys.items()}
        return value._replace(values=marks, keys=keys)

    def _set(self, change: Change, value: Document) -> None:
        path, here = change.path, Mark(1, 1, change.label)
        parent, created = self._parent(change)
        change.check_kind(parent, len(path))
        if isinstance(parent, list):
            change.item(parent, len(path))
        self._rewrite(path, _drop)
        for depth in created:
            self._values[path[:depth]] = here
            if isinstance(path[depth - 1], str):
                self._keys[path[:depth]] = here
        parent[path[-1]] = value.data
        if isinstance(path[-1], str):
            self._keys[path] = here
        self._values[path] = here
        self._values.update({path + rest: mark for rest, mark in value.values.items()})
        self._keys.update({path + rest: mark for rest, mark in value.keys.items()})
        self._sources.update({path + rest: source for rest, source in value.sources.items()})
        self._plain.update(dict.fromkeys((path + rest for rest in value.plain), True))

    def _parent(self, change: Change) -> tuple[Any, list[int]]:
        """The container of the path's last segment, and the lengths of the paths that had to be created for it."""
        node, created = self._data, []
        if node is None:
            raise change.refuse("the document is empty")
        for depth, segment in enumerate(change.path[:-1], start=1):
            change.check_kind(node, depth)
            below = node.get(segment) if isinstance(segment, str) else change.item(node, depth)
            if below is None:
                if isinstance(change.path[depth], int):
                    raise change.refuse("no list here", depth)
                below = node[segment] = {}
                self._rewrite(change.path[:depth], _drop)
                created.append(depth)
            node = below
        return node, created

    def _unset(self, change: Change) -> None:
        node, path = self._data, change.path
        for depth in range(1, len(path) + 1):
            change.check_kind(node, depth)
            if isinstance(path[depth - 1], int):
                change.item(node, depth)
            elif path[depth - 1] not in node:
                raise change.refuse(f"no such key{_nearest(str(path[depth - 1]), node)}", depth)
            if depth < len(path):
                node = node[path[depth - 1]]
        del node[path[-1]]
        self._rewrite(path, _drop)
        if isinstance(path[-1], int):
            self._close_gap(path[:-1], path[-1])

    def _close_gap(self, parent: Path, removed: int) -> None:
        def move(rest: Path) -> Path:
            number = rest[0] if rest else removed
            return (number - 1, *rest[1:]) if isinstance(number, int) and number > removed else rest

        self._rewrite(parent, move)

    def _rewrite(self, prefix: Path, move: Move) -> None:
        _rewrite(self._values, prefix, move)
        _rewrite(self._keys, prefix, move)
        _rewrite(self._sources, prefix, move)
        _rewrite(self._plain, prefix, move)


def _rewrite(index: dict[Path, T], prefix: Path, move: Move) -> None:
    """Give every path from `prefix` on the new rest that `move` returns, or drop it for None."""
    affected = [path for path in index if path[: len(prefix)] == prefix]
    taken = [(move(path[len(prefix) :]), index.pop(path)) for path in affected]
    index.update({prefix + rest: entry for rest, entry in taken if rest is not None})


def _drop(rest: Path) -> None:
    return None


def _nearest(key: str, known: Mapping[str, Any]) -> str:
    import difflib  # only wrong overrides pay for it

    found = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {dotted((found[0],))}?" if found else ""


def _moved(mark: Mark, change: Change, offset: int) -> Mark:
    return Mark(mark.line, mark.column + (offset if mark.line == 1 else 0), change.label)


def _shifted(problem: Problem, change: Change, offset: int) -> Problem:
    column = problem.column + (offset if problem.line == 1 else 0)
    below = f"{'' if problem.path.startswith('[') else '.'}{problem.path}" if problem.path else ""
    return problem._replace(column=column, path=dotted(change.path) + below)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
