"""Which kinds of workers a recipe of layout 1 has, by the keys of its `resources`."""

from typing import Any, Iterator, Mapping, NamedTuple

from srtgen.errors import Path
from srtgen.layout1.names import ARGS, ENVIRONMENT, ROLES

_PAIR = ("prefill", "decode")


class Wrong(NamedTuple):
    """A problem below `resources`."""

    path: Path
    message: str


def given(resources: Mapping[str, Any]) -> list[str]:
    """The roles with nodes or workers, in the order of layout 2."""
    return [name for name in ROLES if any(key in resources for key in _counts(name))]


def problem(resources: Mapping[str, Any], names: list[str]) -> Wrong | None:
    """What keeps these roles from being a whole: prefill and decode, or agg alone, each with nodes and workers."""
    if "agg" in names and len(names) > 1:
        key = next(key for key in reversed(_counts("agg")) if key in resources)
        return Wrong((key,), "aggregate workers exclude prefill and decode")
    needed = ["agg"] if names == ["agg"] else _PAIR
    missing = [key for name in needed for key in _counts(name) if key not in resources]
    if not missing:
        return None
    word = "keys" if len(missing) > 1 else "key"
    hint = "" if names else ", or agg_nodes and agg_workers"
    return Wrong((), f"missing {word} {', '.join(missing)}{hint}")


def keys(name: str) -> Iterator[Path]:
    """Keys of a role that mean nothing where it has no workers."""
    yield ("resources", f"gpus_per_{name}")
    yield ("backend", "atom_config", ARGS[name])
    yield ("backend", ENVIRONMENT[name])


def _counts(name: str) -> tuple[str, str]:
    return f"{name}_nodes", f"{name}_workers"
