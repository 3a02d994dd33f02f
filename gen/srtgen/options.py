"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

cluster_option: Decorator = click.option(
    "--cluster", type=click.Path(path_type=Path), help="Cluster profile: what belongs to the site."
)


class OrderedCommand(click.Command):
    """Keeps the words of the command line, for the order of --set and --unset among each other."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["srtgen.argv"] = list(args)
        return super().parse_args(ctx, args)


def _keep(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> None:
    context.meta.setdefault("srtgen.overrides", {})[parameter.opts[0].lstrip("-")] = list(values)


def override_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--set and --unset, whose values `changes` returns."""
    unset = click.option(
        "--unset", multiple=True, metavar="PATH", callback=_keep, expose_value=False,
        help="Remove a key of the recipe before it is checked.",
    )
    set_ = click.option(
        "--set", multiple=True, metavar="PATH=VALUE", callback=_keep, expose_value=False,
        help="Set a key of the recipe before it is checked; the value is read as YAML.",
    )
    return set_(unset(command))


def changes(context: click.Context) -> list[tuple[str, str]]:
    """The overrides in the order of the command line: ("set", "path=value") and ("unset", "path")."""
    queues = {verb: list(given) for verb, given in context.meta.get("srtgen.overrides", {}).items()}
    ordered: list[tuple[str, str]] = []
    for argument in context.meta["srtgen.argv"]:
        for verb, queue in queues.items():
            if queue and (argument == f"--{verb}" or argument.startswith(f"--{verb}=")):
                ordered.append((verb, queue.pop(0)))
    return ordered
