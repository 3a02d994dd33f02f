"""`srtgen plan`: what a recipe will run, where and with which commands, without writing anything."""

from __future__ import annotations

import json
from pathlib import Path

import click

from srtgen import planview
from srtgen.console import fail, say
from srtgen.errors import RecipeError
from srtgen.options import OrderedCommand, changes, cluster_option, override_options
from srtgen.selection import bundles


@click.command("plan", cls=OrderedCommand)
@click.argument("recipe", nargs=-1, required=True)
@cluster_option
@override_options
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def command(context: click.Context, recipe: tuple[str, ...], cluster: Path | None, form: str) -> None:
    """Show a table for each node and every process's whole command, ready to be pasted.

    RECIPE is a file, or file:SELECTOR for a variant in it.
    """
    try:
        made = list(bundles(recipe, cluster, changes(context)))
    except RecipeError as error:
        fail(error, "no plan")
    say(dict.fromkeys(finding for one in made for finding in one.findings))
    if form == "json":
        plans = [planview.document(one.plan) for one in made]
        click.echo(json.dumps({"schema": planview.SCHEMA, "plans": plans}, indent=1, ensure_ascii=False))
        return
    click.echo("\n".join(planview.text(one.plan) for one in made), nl=False)
