"""`srtgen import-inferencex`: InferenceX's configuration keys become recipes."""

from __future__ import annotations

from pathlib import Path

import click

from srtgen import document
from srtgen.console import EXIT_INPUT, fail, read, say
from srtgen.document import Document
from srtgen.errors import RecipeError, visible
from srtgen.inferencex import importer
from srtgen.inferencex.choices import Choices
from srtgen.inferencex.draft import Item

_FILE = click.Path(path_type=Path)


def _items(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[Item, ...]:
    """KEY=VALUE pairs; a key alone is the bare flag."""
    items = []
    for text in values:
        key, equals, value = text.partition("=")
        if not key or (parameter.name == "env" and not equals):
            raise click.BadParameter(f"{text!r} is no NAME=VALUE", context, parameter)
        items.append(Item(key, value if equals else True))
    return tuple(items)


@click.command("import-inferencex")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@click.option("--models", required=True, type=_FILE, help="InferenceX's models_atom.yaml: flags of multi-node models.")
@click.option("--master", required=True, type=_FILE, help="InferenceX's amd-master.yaml: the search space of the keys.")
@click.option("-o", "--output", required=True, type=_FILE, help="Folder that the recipes are written to.")
@click.option("--pack", is_flag=True, help="Also write recipes whose prefill and decode workers share nodes.")
@click.option("--image", default="", help="Image instead of the key's.")
@click.option("--gpu-type", default="", help="GPU where neither runner nor key names it.")
@click.option("--gpus-per-node", default=8, show_default=True, type=click.IntRange(1, 64), help="GPUs of a node.")
@click.option("--time-limit", default="08:00:00", show_default=True, help="Time limit of the jobs.")
@click.option("--arg", "args", multiple=True, metavar="KEY[=VALUE]", callback=_items, help="A further engine flag.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", callback=_items, help="A further environment variable.")
@click.option("--force", is_flag=True, help="Write over recipes that have other content.")
@click.pass_context
def command(
    context: click.Context,
    keys: tuple[str, ...],
    models: Path,
    master: Path,
    output: Path,
    pack: bool,
    image: str,
    gpu_type: str,
    gpus_per_node: int,
    time_limit: str,
    args: tuple[Item, ...],
    env: tuple[Item, ...],
    force: bool,
) -> None:
    """Write the recipes of each KEY of InferenceX's search space, one for each topology.

    A key that can't become a recipe is refused with the reason; the others are written all the same.
    """
    choices = Choices(image, gpu_type, gpus_per_node, time_limit, args, env, pack)
    try:
        files = _load(models), _load(master)
    except RecipeError as error:
        fail(error, "nothing written")
    refused = 0
    for key in keys:
        try:
            made = importer.recipes(*files, key, choices)
        except RecipeError as error:
            say(error.problems)
            click.echo(visible(f"{key}: no recipe"), err=True)
            refused += 1
            continue
        refused += not _write(output, made, force)
    context.exit(EXIT_INPUT if refused else 0)


def _load(path: Path) -> Document:
    source = read(path)
    return document.load(source.shown, source.content)


def _write(folder: Path, made: dict[str, str], force: bool) -> bool:
    """Whether all could be written; a recipe with other content stays unless `force`."""
    kept = [name for name, text in made.items() if not force and _differs(folder / name, text)]
    for name in kept:
        click.echo(visible(f"{folder / name}: has other content; --force writes over it"), err=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in made.keys() - set(kept):
            (folder / name).write_text(made[name], encoding="utf-8")
    except OSError as error:
        click.echo(visible(f"srtgen: cannot write {folder}: {error.strerror}"), err=True)
        return False
    for name in (name for name in made if name not in kept):
        click.echo(visible(str(folder / name)))
    return not kept


def _differs(path: Path, text: str) -> bool:
    return path.exists() and path.read_bytes() != text.encode()
