"""`srtgen diff`: a recipe against a folder, two recipes, or prefill against decode."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, Mapping

import click

from srtgen import compare, folders, manifest
from srtgen.console import EXIT_INPUT, fail
from srtgen.errors import RecipeError, visible
from srtgen.folders import Unreadable
from srtgen.generate import Bundle
from srtgen.options import OrderedCommand, changes, cluster_option, override_options
from srtgen.selection import bundles


@click.command("diff", cls=OrderedCommand)
@click.argument("first", metavar="RECIPE")
@click.argument("second", metavar="FOLDER|RECIPE", required=False)
@cluster_option
@override_options
@click.option("--roles", is_flag=True, help="Compare prefill with decode instead.")
@click.pass_context
def command(context: click.Context, first: str, second: str | None, cluster: Path | None, roles: bool) -> None:
    """Show what would change, in words and then as a unified diff.

    RECIPE FOLDER: what generating RECIPE into FOLDER would change; hand edits show. RECIPE RECIPE: from the first to
    the second. --roles RECIPE: from prefill to decode. Ends with 0 whether or not anything differs; see --check.
    """
    if (second is None) != roles:
        raise click.UsageError("give a folder or a second recipe, or --roles and one recipe")
    given = changes(context)
    try:
        if second is None:
            _roles(_one(list(bundles([first], cluster, given)), first))
        elif Path(second).is_dir():
            _with_folder(list(bundles([first], cluster, given)), Path(second))
        else:
            one, two = (_one(list(bundles([name], cluster, given)), name) for name in (first, second))
            _two(one, two)
    except RecipeError as error:
        fail(error, "no comparison")
    except Unreadable as error:
        click.echo(visible(f"srtgen: {error}"), err=True)
        context.exit(EXIT_INPUT)


def _one(made: list[Bundle], name: str) -> Bundle:
    if len(made) == 1:
        return made[0]
    raise Unreadable(f"{name} holds {len(made)} recipes; choose one of its variants, as file:override_x")


def _roles(made: Bundle) -> None:
    listed = _manifest(made)["processes"]
    firsts = {role: next(g) for role, g in itertools.groupby(listed, key=lambda p: p["role"])}
    if not {"prefill", "decode"} <= set(firsts):
        raise Unreadable("no prefill and decode in this recipe")
    said = compare.processes("prefill -> decode", *(compare.neutral(firsts[role]) for role in ("prefill", "decode")))
    click.echo(compare.text(said) or "prefill and decode are the same")


def _two(one: Bundle, two: Bundle) -> None:
    _print(
        compare.manifests(_manifest(one), _manifest(two)) + compare.job_scripts(_script(one), _script(two)),
        [
            folders.unified(path, *(b.files[path].content if path in b.files else b"" for b in (one, two)), ("first", "second"))
            for path in sorted({*one.files, *two.files} - {manifest.NAME})
        ],
    )


def _with_folder(made: list[Bundle], folder: Path) -> None:
    """From what lies in the folder to what would be generated."""
    before = folders.manifest_of(folder)
    chosen = _of_name(made, before)
    if "bundle" in before:
        from srtgen import single  # a folder of --single-file

        chosen = single.wrap(chosen)
    found = folders.differences(folder, chosen.files)
    edited = [p for p in folders.verify(folder) if not p.startswith(manifest.NAME)]
    for problem in edited:
        click.echo(visible(f"by hand: {problem}"))
    script = folder / manifest.JOB_SCRIPT
    text = script.read_text(encoding="utf-8", errors="replace") if script.is_file() else ""
    said = compare.manifests(before, _manifest(chosen)) + compare.job_scripts(text, _script(chosen))
    diffs = []
    for path, what in found:
        if path == manifest.NAME and len(found) > 1:
            continue
        place = folder / path
        old = place.read_bytes() if place.is_file() else b""
        new = chosen.files[path].content if path in chosen.files else b""
        diffs.append(folders.unified(path, old, new, (str(folder), "generated")) if old != new else f"{path}: {what}")
    _print(said, diffs)


def _of_name(made: list[Bundle], before: Mapping[str, Any]) -> Bundle:
    """The recipe that the folder was made of, where the file holds several."""
    if len(made) == 1:
        return made[0]
    for one in made:
        if one.plan.recipe.name == before.get("name"):
            return one
    raise Unreadable(f"none of the {len(made)} recipes is named {before.get('name')}, as the folder's is")


def _manifest(made: Bundle) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(made.files[manifest.NAME].content)
    return content


def _script(made: Bundle) -> str:
    return made.files[manifest.JOB_SCRIPT].content.decode()


def _print(said: list[compare.Change], diffs: list[str]) -> None:
    shown = [text for text in diffs if text]
    if not said and not shown:
        click.echo("no difference")
        return
    if said:
        click.echo(compare.text(said))
    for text in shown:
        click.echo(f"\n{text}")
