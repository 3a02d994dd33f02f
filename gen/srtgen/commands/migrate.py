"""`srtgen migrate`: recipes of layout 1 become recipes of layout 2 with the same plans."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, NamedTuple, NoReturn

import click

from srtgen import document
from srtgen.bundle import MARKER
from srtgen.console import EXIT_INPUT, fail, read, say
from srtgen.errors import RecipeError, visible
from srtgen.generate import Source
from srtgen.manifest import NAME
from srtgen.options import cluster_option

if TYPE_CHECKING:
    from srtgen.migration import Migrated

_ENDS = (".yaml", ".yml")
_FILE = click.Path(path_type=Path)
_EXTRA = "migrate needs ruamel.yaml; pip install 'srtgen[migrate]'"


class _Target(NamedTuple):
    """Where a result goes: a file (None: nowhere), and whether it may replace one."""

    path: Path | None
    replaces: bool


@click.command("migrate")
@click.argument("old", type=_FILE)
@click.option("-o", "--output", type=_FILE, help="File to write, or folder where OLD is one.")
@click.option("--in-place", is_flag=True, help="Write each recipe over itself.")
@click.option("--force", is_flag=True, help="Let -o write over files that exist.")
@cluster_option
@click.pass_context
def command(
    context: click.Context, old: Path, output: Path | None, in_place: bool, force: bool, cluster: Path | None
) -> None:
    """Write the recipe OLD of layout 1 in layout 2, with its comments, order and spelling.

    Both must give the same job, byte for byte, or nothing is written. OLD may be a folder: every recipe of layout 1
    below it, bundles left out. Without -o and --in-place a recipe is printed, and a folder is only tried.
    """
    if output is not None and in_place:
        raise click.UsageError("give -o or --in-place, not both")
    _check_extra()
    try:
        site = read(cluster) if cluster else None
        if old.is_dir():
            context.exit(_folder(old, output, in_place, force, site))
        made = _one(read(old), site)
    except RecipeError as error:
        fail(error, "nothing written")
    say(made.remarks)
    if output is None and not in_place:
        click.echo(made.content, nl=False)
        return
    target = _Target(old if in_place else output, in_place or force)
    if problem := _write(target, made.content):
        _stop(problem)
    click.echo(visible(f"{target.path}: layout 2, the same plan"), err=True)


def _check_extra() -> None:
    try:
        from srtgen import migration  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ruamel":
            raise
        _stop(_EXTRA)


def _stop(message: str) -> NoReturn:
    click.echo(visible(f"srtgen: {message}"), err=True)
    raise click.exceptions.Exit(EXIT_INPUT)


def _one(source: Source, site: Source | None) -> Migrated:
    from srtgen import migration  # needs the extra

    return migration.migrate(source, site)


def _folder(old: Path, output: Path | None, in_place: bool, force: bool, site: Source | None) -> int:
    """Migrate every recipe below a folder and report on each; the exit code."""
    counts = {"migrated": 0, "failed": 0, "left as they are": 0}
    for path in list(_yaml_files(old)):
        target = _Target(path if in_place else output and output / path.relative_to(old), in_place or force)
        counts[_member(path, target, site)] += 1
    click.echo(", ".join(f"{number} {words}" for words, number in counts.items()), err=True)
    return EXIT_INPUT if counts["failed"] else 0


def _member(path: Path, target: _Target, site: Source | None) -> str:
    """Migrate one file of a folder; what became of it."""
    from srtgen import migration

    try:
        source = read(path)
        if migration.layout(document.load(source.shown, source.content).data) != 1:
            return "left as they are"
        made = _one(source, site)
    except RecipeError as error:
        say(error.problems)
        click.echo(visible(f"{path}: not migrated"), err=True)
        return "failed"
    say(made.remarks)
    if target.path and (problem := _write(target, made.content)):
        click.echo(visible(f"{path}: not migrated: {problem}"), err=True)
        return "failed"
    click.echo(visible(f"{path}: {f'layout 2 in {target.path}' if target.path else 'can be layout 2'}, the same plan"))
    return "migrated"


def _yaml_files(folder: Path) -> Iterator[Path]:
    """The YAML files below a folder but for those of bundles, which belong to them, and of hidden folders."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if NAME in names or MARKER in names:
            folders.clear()
            continue
        yield from (Path(place, name) for name in sorted(names) if name.endswith(_ENDS))


def _write(target: _Target, content: bytes) -> str:
    """Write a whole file or none; returns what kept it from that."""
    assert target.path is not None
    place = Path(os.path.realpath(target.path))
    if place.exists() and not target.replaces:
        return f"{target.path} exists; --force writes over it"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _replace(place, content)
    except OSError as error:
        return f"cannot write {target.path}: {error.strerror}"
    return ""


def _replace(place: Path, content: bytes) -> None:
    """By rename, so that the file is the old or the new one at any moment; it keeps its mode."""
    mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else 0o666 & ~_umask()
    descriptor, name = tempfile.mkstemp(prefix=f".{place.name[:100]}.", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        os.chmod(name, mode)
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
