"""Layout 1, the recipes without a `schema` key: rearranged into layout 2, every value still where its author wrote it.

This is the only reader of layout 1: behind `convert` there is one layout, whose problems are shown under the paths of
the file (`Document.speech`).
"""

from __future__ import annotations

from typing import Any, Mapping

from srtgen import bench
from srtgen.layout1 import names as layout1_names
from srtgen.layout1 import roles as layout1_roles
from srtgen.adapters import ENGINES, ROUTERS
from srtgen.document import Document, Mark
from srtgen.errors import Path
from srtgen.layout1.names import ARGS, ENGINE_KEYS, ENVIRONMENT, MOVED, REARRANGED, ROLES, SWITCHED_OFF
from srtgen.parts import Assembly
from srtgen.recipe import COLOCATE
from srtgen.report import Report


def convert(document: Document, gpus_per_node: int | None, report: Report) -> Document | None:
    """The recipe in layout 2; None where it names no workers. The schema of layout 1 has accepted `document`.

    `gpus_per_node` is the cluster profile's, for workers whose GPUs follow from their nodes.
    """
    maker = _Converter(document, report)
    return maker.document() if maker.fill(gpus_per_node) else None


class _Converter:
    """Collects the new data, and which old path each part of it came from."""

    def __init__(self, document: Document, report: Report) -> None:
        self._old = document
        self._report = report
        self._new = Assembly(document._replace(data={"schema": 2}, values={}, keys={}, sources={}, plain=frozenset()))
        self._places: list[tuple[Path, Path]] = [((), ())]
        self._paths: dict[Path, Path] = {}

    def fill(self, profile_gpus: int | None) -> bool:
        names = layout1_roles.given(self._old.data["resources"])
        if wrong := layout1_roles.problem(self._old.data["resources"], names):
            self._error(("resources", *wrong.path), wrong.message)
            return False
        for key in self._old.data:
            if key not in REARRANGED:
                self._move((key,), (key,))
        self._places.append((("resources",), ("resources",)))
        for key in ("gpu_type", "gpus_per_node"):
            self._move(("resources", key), ("resources", key))
        self._engine()
        self._mounts()
        self._block("frontend")
        self._block("benchmark")
        self._check_router()
        self._drop_unread()
        gpus_per_node = self._resource("gpus_per_node") or profile_gpus
        for name in names:
            self._role(name, gpus_per_node)
        self._warn_strays(names)
        return True

    def document(self) -> Document:
        new, old = self._new.document(), self._old
        return new._replace(
            values={**new.values, **self._placed(old.values)},
            keys={**new.keys, **self._placed(old.keys)},
            speech=layout1_names.speech(self._paths),
        )

    def _placed(self, index: Mapping[Path, Mark]) -> dict[Path, Mark]:
        """Marks of the mappings that layout 1 has no equal of, each at a key that stands for it."""
        return {target: index[source] for source, target in self._places if source in index}

    def _value(self, path: Path) -> Any:
        node: Any = self._old.data
        for step in path:
            node = node.get(step) if isinstance(node, dict) else None
        return node

    def _resource(self, key: str) -> Any:
        return self._value(("resources", key))

    def _put(self, target: Path, value: Any) -> None:
        """A value that the file does not have."""
        self._parent(target)[target[-1]] = value

    def _move(self, source: Path, target: Path) -> None:
        if self._value(source) is not None:
            self._parent(target)
            self._new.put(target, self._old, source)

    def _parent(self, target: Path) -> Any:
        node = self._new.data
        for step in target[:-1]:
            node = node[step] if isinstance(node, list) else node.setdefault(step, {})
        return node

    def _engine(self) -> None:
        self._put(("engine",), {})
        self._places.append((("backend",), ("engine",)))
        for key in ENGINE_KEYS:
            self._move(("backend", key), ("engine", key))
        if self._value(("backend", "type")) is None:
            where: Path = ("backend",) if self._value(("backend",)) is not None else ()
            key = "type" if where else "backend"
            message = f"missing key {key}, which means sglang in layout 1; known engines: {', '.join(ENGINES)}"
            self._error(where, message)
            self._put(("engine", "type"), next(iter(ENGINES)))

    def _mounts(self) -> None:
        """srt-slurm's mounts are a mapping from host to container; a list is taken as well."""
        mounts = self._value(("container_mounts",))
        self._move(("container_mounts",), ("container_mounts",))
        if not isinstance(mounts, dict):
            return
        self._put(("container_mounts",), [f"{host}:{target}" for host, target in mounts.items()])
        for index, host in enumerate(mounts):
            self._places.append((("container_mounts", host), ("container_mounts", index)))
            self._paths["container_mounts", index] = ("container_mounts", host)

    def _block(self, name: str) -> None:
        """A block whose keys stay, but for those of `MOVED`, and those that only say that something is off."""
        block = self._value((name,))
        if block is None:
            return
        self._put((name,), {})
        self._places.append(((name,), (name,)))
        for key in block:
            if (name, key) not in SWITCHED_OFF:
                self._move((name, key), MOVED.get((name, key), (name, key)))

    def _check_router(self) -> None:
        if self._value(("frontend", "type")) is None:
            where: Path = ("frontend",) if self._value(("frontend",)) is not None else ()
            key = "type" if where else "frontend"
            message = f"missing key {key}, which means dynamo in layout 1; known routers: {', '.join(ROUTERS)}"
            self._error(where, message)

    def _drop_unread(self) -> None:
        """srt-slurm ignores, in layout 1, benchmark fields that the type never reads."""
        block = self._new.data["benchmark"]
        reads = bench.READS.get(block["type"], frozenset(block))
        for key in [key for key in block if key not in reads]:
            self._new.drop(("benchmark", key))
            note = f"never read by type {block['type']}"
            self._report.note(self._old, ("benchmark", key), note, code="layout1-unread")

    def _role(self, name: str, gpus_per_node: int | None) -> None:
        role: Path = ("roles", name)
        self._places += [(("resources",), ("roles",)), (("resources", f"{name}_workers"), role)]
        colocated = name == "decode" and self._resource("decode_nodes") == 0
        self._move(("resources", f"{name}_nodes"), (*role, "nodes"))
        if colocated:
            self._new.scalar((*role, "nodes"), COLOCATE)
        self._move(("resources", f"{name}_workers"), (*role, "workers"))
        self._gpus(name, colocated, gpus_per_node)
        self._move(("backend", "atom_config", ARGS[name]), (*role, "args"))
        self._move(("backend", ENVIRONMENT[name]), (*role, "env"))

    def _gpus(self, name: str, colocated: bool, gpus_per_node: int | None) -> None:
        """GPUs of a worker: as given, else its share of the role's nodes, rounded down; behind prefill as prefill's."""
        target: Path = ("roles", name, "gpus")
        if self._resource(f"gpus_per_{name}") is not None:
            self._move(("resources", f"gpus_per_{name}"), target)
        elif colocated:
            self._places.append((("resources", "gpus_per_prefill"), target))
            self._paths[target] = ("resources", "gpus_per_prefill")
            if gpus := self._new.data["roles"].get("prefill", {}).get("gpus"):
                self._put(target, gpus)
        elif gpus_per_node:
            share = self._resource(f"{name}_nodes") * gpus_per_node // self._resource(f"{name}_workers")
            if share:
                self._put(target, share)

    def _warn_strays(self, names: list[str]) -> None:
        for name in ROLES:
            if name in names:
                continue
            for path in layout1_roles.keys(name):
                if self._value(path) is not None:
                    message = f"never read: the recipe has no {ARGS[name]} workers"
                    self._report.warning(self._old, path, message, code="layout1-unread")

    def _error(self, path: Path, message: str) -> None:
        self._report.error(self._old, path, message, at_key=True)
