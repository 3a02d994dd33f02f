"""A recipe about to be written: what the importer found out, before it becomes text."""

import shlex
from typing import Any, NamedTuple


class Item(NamedTuple):
    """One entry of args or environment; the comment goes above it."""

    key: str
    value: Any
    comment: str = ""


class Workers(NamedTuple):
    """One role. `nodes` is a number or `colocate`."""

    role: str
    nodes: int | str
    workers: int
    gpus: int
    args: tuple[Item, ...]


class Draft(NamedTuple):
    """One recipe. `title` and `remarks` become the comment on top, a paragraph each."""

    name: str
    title: str
    remarks: tuple[str, ...]
    model: str
    image: str
    router_image: str
    precision: str
    gpu: str
    gpus_per_node: int
    time_limit: str
    version: Item | None
    environment: tuple[Item, ...]
    roles: tuple[Workers, ...]
    isl: int
    osl: int
    concurrencies: tuple[int, ...]
    chat_template: bool
    client_args: tuple[Item, ...]
    silence: tuple[tuple[str, str], ...] = ()  # code and reason


def words(flags: str) -> tuple[Item, ...]:
    """A piece of command line as args: `--method mtp --enable-tbo` gives method: mtp, enable-tbo: true."""
    items: list[Item] = []
    for word in shlex.split(flags):
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            items.append(Item(key, value if equals else True))
        elif items and items[-1].value is True:
            items[-1] = items[-1]._replace(value=word)
        else:
            raise ValueError(f"{word} belongs to no flag")
    return tuple(items)


def variables(assignments: str) -> tuple[Item, ...]:
    """`A=1 B=2` as environment."""
    pairs = [word.partition("=") for word in shlex.split(assignments)]
    bad = [name for name, equals, _ in pairs if not equals or not name.isidentifier()]
    if bad:
        raise ValueError(f"{bad[0]} is no NAME=VALUE")
    return tuple(Item(name, value) for name, _, value in pairs)
