"""The names of layout 1 beside those of layout 2 (srt-slurm: configuration before its schema 2)."""

from __future__ import annotations

from typing import Iterator, Mapping

from srtgen.document import Speech
from srtgen.errors import Path

ROLES = ("prefill", "decode", "agg")
ARGS = {"prefill": "prefill", "decode": "decode", "agg": "aggregated"}
ENVIRONMENT = {name: f"{word}_environment" for name, word in ARGS.items()}
ENGINE_KEYS = ("type", "connector", "mooncake_protocol", "ib_device", "version")
# Top-level keys that layout 2 has elsewhere, in another form, or not at all; all others stay as they are.
REARRANGED = frozenset({"resources", "backend", "frontend", "benchmark", "container_mounts", "dynamo", "infra"})
MOVED: Mapping[Path, Path] = {
    ("frontend", "orchestrator_placement"): ("frontend", "placement", "node"),
    ("benchmark", "client_placement"): ("benchmark", "placement", "node"),
}
# Accepted with the value false alone, which is what happens anyway.
SWITCHED_OFF = frozenset(
    {
        ("frontend", "dedicated_node"),
        ("benchmark", "client_dedicated_node"),
        ("benchmark", "colocate_with_frontend"),
    }
)


def _role_paths(name: str) -> Iterator[tuple[Path, Path]]:
    role: Path = ("roles", name)
    yield role, ("resources", f"{name}_workers")
    yield (*role, "nodes"), ("resources", f"{name}_nodes")
    yield (*role, "workers"), ("resources", f"{name}_workers")
    yield (*role, "gpus"), ("resources", f"gpus_per_{name}")
    yield (*role, "args"), ("backend", "atom_config", ARGS[name])
    yield (*role, "env"), ("backend", ENVIRONMENT[name])


def _paths() -> Iterator[tuple[Path, Path]]:
    yield ("engine",), ("backend",)
    yield ("roles",), ("resources",)
    for old, new in MOVED.items():
        yield new, old
        yield new[:-1], old
    for name in ROLES:
        yield from _role_paths(name)


def _names() -> Iterator[tuple[str, str]]:
    """Names of keys inside messages, longer ones before those that they begin with."""
    for name in ROLES:
        for path, other in _role_paths(name):
            if len(path) > 2:
                yield ".".join(map(str, path)), ".".join(map(str, other))
    yield "roles.*.nodes", "resources.*_nodes"
    yield "nodes: colocate", "decode_nodes: 0"
    yield "; write gpus", "; write gpus_per_prefill, gpus_per_decode or gpus_per_agg"
    yield "frontend.placement.node", "frontend.orchestrator_placement"
    yield "benchmark.placement.node", "benchmark.client_placement"
    for key in ENGINE_KEYS:
        yield f"engine.{key}", f"backend.{key}"
    default = "; srt-slurm's 4 is not assumed"
    given = "missing key gpus_per_node, which no cluster profile gives either"
    yield given, given + default


def speech(more: Mapping[Path, Path]) -> Speech:
    """How a converted recipe is spoken of; `more` are paths of this one recipe."""
    return Speech({**dict(_paths()), **more}, tuple(_names()))
