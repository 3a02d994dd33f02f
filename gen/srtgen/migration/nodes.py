"""YAML as nodes that can be rearranged and written again, by ruamel.yaml: the only module that imports it.

The text of a value is never taken apart: what moves keeps its spelling, because the writer gets a place holder and the
original text takes its place afterwards (`migration_text`).
"""

import io
from typing import Any, Iterator, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.anchor import Anchor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

__all__ = ["Indents", "MappingNode", "Node", "ScalarNode", "SequenceNode", "YAMLError"]

_TAG = "tag:yaml.org,2002:"
_WIDTH = 1 << 30  # lines stay whole


class Indents(NamedTuple):
    """Blanks before the keys of a mapping in a mapping, and before the dash of a list in a mapping."""

    mapping: int = 2
    dash: int = 2


def compose(text: str) -> Node | None:
    """The root node of a text; every node knows where it starts and ends. YAMLError where the parser is stricter."""
    root: Node | None = YAML(typ="safe", pure=True).compose(io.StringIO(text))
    for node in walk(root) if root else ():
        if isinstance(node.anchor, str):
            node.anchor = _anchor(node.anchor)
    return root


def serialize(root: Node, indents: Indents) -> str:
    """The text of a tree; a node that stands in it twice has an anchor and aliases."""
    writer = YAML(typ="safe", pure=True)
    writer.width = _WIDTH
    writer.allow_unicode = True
    writer.indent(mapping=indents.mapping, sequence=indents.dash + 2, offset=indents.dash)
    out = io.StringIO()
    writer.serialize(root, out)
    return out.getvalue()


def _anchor(name: str) -> Anchor:
    anchor = Anchor()
    anchor.value = name  # type: ignore[assignment]  # ruamel declares None alone
    anchor.always_dump = True
    return anchor


def anchored(node: Node) -> bool:
    return node.anchor is not None


def in_flow(node: Node) -> bool:
    """Whether a list or mapping is written with brackets."""
    return bool(getattr(node, "flow_style", False))


def style(node: Node) -> str | None:
    """How a scalar is written: a quote, | or >; None if plain."""
    found: str | None = getattr(node, "style", None)
    return found


def is_new(node: Node) -> bool:
    """Whether the node does not come from a file."""
    return node.start_mark is None


def scalar(text: str, quote: str | None = None) -> ScalarNode:
    return ScalarNode(f"{_TAG}str" if quote else _plain_tag(text), text, None, None, quote)


def _plain_tag(text: str) -> Any:
    return YAML(typ="safe", pure=True).resolver.resolve(ScalarNode, text, (True, False))


def mapping(pairs: list[tuple[Node, Node]], like: Node | None = None) -> MappingNode:
    """A mapping that the file does not have, in the style of `like`."""
    return MappingNode(f"{_TAG}map", pairs, None, None, like is not None and in_flow(like))


def sequence(items: list[Node]) -> SequenceNode:
    return SequenceNode(f"{_TAG}seq", items, None, None, False)


def copied(node: Node) -> Node:
    """The node for a second place: an anchored one itself, so that an alias is written, others anew."""
    if anchored(node):
        return node
    if isinstance(node, MappingNode):
        pairs = [(copied(key), copied(value)) for key, value in node.value]
        return MappingNode(node.tag, pairs, node.start_mark, node.end_mark, node.flow_style)
    if isinstance(node, SequenceNode):
        return SequenceNode(node.tag, [copied(item) for item in node.value], node.start_mark, node.end_mark, node.flow_style)
    return ScalarNode(node.tag, node.value, node.start_mark, node.end_mark, style(node))


def children(node: Node) -> Iterator[Node]:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, SequenceNode):
        yield from node.value


def walk(root: Node) -> Iterator[Node]:
    """Every node once, in the order of the text."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(reversed(list(children(node))))
