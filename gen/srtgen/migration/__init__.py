"""From layout 1 to layout 2 in the author's own text, and the proof that both give the same plan."""

import re
from typing import Any, Iterator, Mapping, NamedTuple

from srtgen import document, generate, layout1, points, schemas, variants
from srtgen.layout1 import roles as layout1_roles
from srtgen.migration import proof as migration_proof
from srtgen.document import source
from srtgen.document import Document
from srtgen.errors import Problem, RecipeError
from srtgen.generate import Source
from srtgen.layout1.names import ROLES
from srtgen.migration.comments import attach, find_comments
from srtgen.migration.moves import Mover
from srtgen.migration.nodes import MappingNode, Node, YAMLError, compose, serialize
from srtgen.migration.notes import Notes, Values
from srtgen.migration.text import Original
from srtgen.recipe import COLOCATE
from srtgen.report import Report

_BOM = b"\xef\xbb\xbf"
_START = re.compile(r"^---(?=[ \n])", re.MULTILINE)
_WRITTEN = "gpus: {size} is written for the {role} workers, as layout 1 works it out"
_TAKEN_APART = ("resources", "backend", "frontend", "benchmark", "container_mounts")


class Migrated(NamedTuple):
    """The recipe in layout 2, and remarks on what became of single keys, at their places in the old one."""

    content: bytes
    remarks: tuple[Problem, ...]


def migrate(old: Source, cluster: Source | None) -> Migrated:
    """The recipe in layout 2, of equal plans. RecipeError where it cannot be read, is refused, or can't be expressed."""
    loaded = document.load(old.shown, old.content)
    _check_layout(loaded)
    gpus_per_node = _accept(old, cluster)
    try:
        text, said = _rewritten(source.decode(old.shown, old.content), loaded, gpus_per_node)
    except YAMLError as error:
        raise RecipeError([migration_proof.failure(old, " ".join(str(error).split()))]) from None
    content = _as_before(text, old.content)
    migration_proof.prove(old, old._replace(content=content), cluster, _selectors(loaded))
    return Migrated(content, tuple(Problem(old.shown, line, 1, "", words, "note") for line, words in said))


def layout(data: Any) -> int:
    """The layout of a file's content, by its form; 0 where it is no recipe."""
    if not isinstance(data, dict):
        return 0
    recipe = data.get("base") if variants.is_variants(data) else data
    if not isinstance(recipe, dict):
        return 1  # variants of nothing: the generator says so
    if {"schema", "roles", "engine"} & set(recipe):
        return 2
    return 1 if len({"model", "resources", "backend", "frontend", "benchmark"} & set(recipe)) > 1 else 0


def _check_layout(loaded: Document) -> None:
    if (found := layout(loaded.data)) != 1:
        message = "the recipe is in layout 2 already" if found else "this is no recipe"
        raise RecipeError([loaded.problem((), message)])


def _accept(old: Source, cluster: Source | None) -> int | None:
    """The GPUs of a node by the profile, if the recipe gives plans at all. RecipeError with what is wrong with it."""
    of = generate.family(old, cluster)
    for point in of.points:
        generate.check(of, point)
    return of.profile.gpus_per_node if of.profile else None


def _as_before(text: str, content: bytes) -> bytes:
    """The text with the line ends and the byte order mark of the old content."""
    made = text.replace("\n", "\r\n") if b"\r\n" in content else text
    return (_BOM if content.startswith(_BOM) else b"") + made.encode()


def _rewritten(text: str, loaded: Document, gpus_per_node: int | None) -> tuple[str, list[tuple[int, str]]]:
    """The text in layout 2, and what there is to say about it, each with a line of the old one."""
    root = compose(text)
    assert isinstance(root, MappingNode)
    trees = _trees(root)
    head = _START.search(text, 0, root.start_mark.index)
    start = head.end() if head else 0
    start = text.index("\n", start) + 1 if head and not text[start : text.index("\n", start)].strip() else start
    original = Original(text, root, {id(node) for tree in trees.values() for node in _opened(tree)} | {id(root)})
    comments = find_comments(original, start)
    notes = Notes(text)
    top = attach(original, notes, comments)
    mover = Mover(notes, original)
    _move(mover, trees, loaded, gpus_per_node)
    mover.apply()
    values = Values(original)
    values.conceal(root)
    lines = top + notes.restored(serialize(root, original.indents()), values)
    before = text[: head.start()] + "---\n" if head else ""
    made = before + "\n".join(lines) + "\n"
    lost = [(one.line + 1, f"no place for this comment: {one.text}") for one in comments if one.text not in made]
    return made, sorted({*mover.said, *lost})


def _trees(root: MappingNode) -> dict[str, MappingNode]:
    """The recipes in the file: "" alone, or base and its variants by key."""
    keys = [key.value for key, _ in root.value]
    if not variants.is_variants(dict.fromkeys(keys)):
        return {"": root}
    return {key.value: value for key, value in root.value if isinstance(value, MappingNode)}


def _opened(tree: MappingNode) -> Iterator[Node]:
    """The mappings whose keys go to different places."""
    yield tree
    for key, value in tree.value:
        if key.value not in _TAKEN_APART or not isinstance(value, MappingNode):
            continue
        yield value
        for name, inner in value.value:
            if name.value == "atom_config":
                yield inner
            if (key.value, name.value) == ("benchmark", "overrides") and not isinstance(inner, MappingNode):
                yield inner
                for item in inner.value:
                    if isinstance(item, MappingNode):
                        yield from _opened(item)


def _move(mover: Mover, trees: Mapping[str, MappingNode], loaded: Document, gpus_per_node: int | None) -> None:
    resolved = {key: _points(loaded, key) for key in trees}
    roles = {role for docs in resolved.values() for doc in docs for role in layout1_roles.given(doc.data["resources"])}
    main = "" if "" in trees else "base"
    kind = _kind(loaded.data[main] if main else loaded.data)
    needed = _gpus(resolved[main], gpus_per_node, frozenset())
    mover.said += [(_line(loaded, main, role), _WRITTEN.format(size=size, role=role)) for role, size in needed.items()]
    mover.tree(trees[main], needed, kind, roles or ROLES, first=True)
    for key, tree in trees.items():
        if key != main and tree is not trees[main]:
            own = _gpus(resolved[key], gpus_per_node, frozenset(needed))
            changed = {role: size for role, size in own.items() if size != needed.get(role)}
            mover.tree(tree, changed, kind, roles or ROLES, first=False)


def _line(loaded: Document, main: str, role: str) -> int:
    return loaded.key_mark((*filter(None, (main,)), "resources", f"{role}_workers")).line


def _kind(data: Mapping[str, Any]) -> str:
    block = data.get("benchmark")
    return str(block.get("type", "")) if isinstance(block, dict) else ""


def _points(loaded: Document, key: str) -> list[Document]:
    """The recipes that a part of the file stands for, where it stands for whole ones."""
    try:
        found = [point.document for point in points.expand(loaded, (), key)[1]]
    except RecipeError:
        return []
    return [doc for doc in found if not schemas.judge(doc, "recipe-1").problems]


def _gpus(docs: list[Document], gpus_per_node: int | None, written: frozenset[str]) -> dict[str, int]:
    """GPUs of a worker that layout 1 works out and layout 2 is told: uneven shares, and roles on shared nodes.

    `written` are roles that are told theirs in any case. Empty where the recipes do not agree.
    """
    found = [_uneven(doc, gpus_per_node, written) for doc in docs]
    return found[0] if found and all(one == found[0] for one in found) else {}


def _uneven(doc: Document, gpus_per_node: int | None, written: frozenset[str]) -> dict[str, int]:
    new = layout1.convert(doc, gpus_per_node, Report())
    resources = doc.data["resources"]
    per_node = resources.get("gpus_per_node") or gpus_per_node
    if new is None or not per_node:
        return {}
    roles = new.data["roles"]
    shared = any(role.get("nodes") == COLOCATE for role in roles.values())
    return {
        name: role["gpus"]
        for name, role in roles.items()
        if "gpus" in role
        and f"gpus_per_{name}" not in resources
        and (shared or name in written or role["gpus"] * role["workers"] != role["nodes"] * per_node)
    }


def _selectors(loaded: Document) -> list[str]:
    """What chooses every recipe of the file, the base too where it is one."""
    if "base" not in loaded.data:
        return [""]
    return ["base"] * bool(_points(loaded, "base")) + [""] * (len(loaded.data) > 1)
