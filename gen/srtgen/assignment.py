"""One `--set path=value` or `--unset path`: its text taken apart, and how its problems are reported."""

import json
import re
from typing import Any, Literal, NamedTuple

from srtgen.errors import Path, Problem, RecipeError, dotted

Assignment = tuple[Literal["set", "unset"], str]

_SEGMENT = (
    r'(?P<dot>\.?)(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s."=\[\]]+))|\[(?P<index>[0-9]{1,9})\]'
)
_LABEL_LENGTH = 80


class Change(NamedTuple):
    """One assignment: where its problems are reported, and the path that it is about."""

    label: str
    path: Path

    def refuse(self, message: str, depth: int | None = None) -> RecipeError:
        """An error at the path, or at its first `depth` segments."""
        path = dotted(self.path if depth is None else self.path[:depth])
        return RecipeError([Problem(self.label, 1, 1, path, message, code="override")])

    def check_kind(self, node: Any, depth: int) -> None:
        """The container that holds segment number `depth` must be of the kind that the segment asks for."""
        segment = self.path[depth - 1]
        wanted = dict if isinstance(segment, str) else list
        if isinstance(node, wanted):
            return
        what = _kind(node)
        if wanted is list:
            raise self.refuse(f"is {what}, [{segment}] needs a list", depth - 1)
        hint = "; write an item as [0]" if isinstance(node, list) else ""
        raise self.refuse(f"is {what} and has no key {segment}{hint}", depth - 1)

    def item(self, items: list[Any], depth: int) -> Any:
        """The list item that segment number `depth` names."""
        number = self.path[depth - 1]
        if isinstance(number, int) and number < len(items):
            return items[number]
        held = f"has {len(items)} item{'s' * (len(items) != 1)}, counted from 0" if items else "is empty"
        raise self.refuse(f"no item [{number}]; the list {held}", depth)


def _kind(node: Any) -> str:
    if isinstance(node, dict):
        return "a mapping"
    if isinstance(node, list):
        return "a list"
    return "empty" if node is None else "a single value"


def split(text: str) -> tuple[Path, str | None]:
    """The path before the first "=" outside quotes, and the text after it, if any; ValueError if malformed."""
    path: list[str | int] = []
    position = 0
    while position < len(text) and text[position] != "=":
        match = re.compile(_SEGMENT).match(text, position)
        if not match or (match["index"] is None and bool(match["dot"]) != bool(path)):
            raise ValueError(f'column {position + 1}: expected a path like a.b[0]."c.d"')
        path.append(_segment(match, position))
        position = match.end()
    if not path or isinstance(path[0], int):
        raise ValueError("a path starts with a key")
    return tuple(path), text[position + 1 :] if position < len(text) else None


def _segment(match: re.Match[str], position: int) -> str | int:
    if match["index"] is not None:
        return int(match["index"])
    key = match["bare"]
    try:
        key = str(json.loads(f'"{match["quoted"]}"', strict=False)) if key is None else key
        key.encode("utf-8")
    except ValueError:
        raise ValueError(f"column {position + 1}: an unknown escape, or not UTF-8 text") from None
    return key


def label_of(action: str, text: str) -> str:
    """The option as the file name of its problems."""
    label = f"--{action} {text}"
    return label if len(label) <= _LABEL_LENGTH else label[: _LABEL_LENGTH - 3] + "..."
