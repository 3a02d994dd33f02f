"""Many bundles into one folder: all are made and judged before the first file is written, in constant memory."""

from __future__ import annotations

import pickle
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence, TypeVar

import click

from srtgen import bundle, jobs_index
from srtgen.errors import Problem, RecipeError
from srtgen.generate import Bundle, Family, make
from srtgen.jobs_index import Entry
from srtgen.manifest import File
from srtgen.points import Point

T = TypeVar("T")


class Collected(NamedTuple):
    """What all points came to: their entries, what was found, and their files, which wait on disk."""

    entries: tuple[Entry, ...]
    findings: tuple[Problem, ...]
    spool: Spool


class Spool:
    """The files of many bundles in a temporary file; what they share with the first is held once."""

    def __init__(self) -> None:
        self._stream: IO[bytes] = tempfile.TemporaryFile()
        self._shared: Mapping[str, File] = {}

    def add(self, files: Mapping[str, File]) -> None:
        self._shared = self._shared or files
        own = {path: tuple(file) for path, file in files.items() if file is not self._shared.get(path)}
        same = [path for path, file in files.items() if file is self._shared.get(path)]
        pickle.dump((own, same), self._stream, pickle.HIGHEST_PROTOCOL)

    def __iter__(self) -> Iterator[dict[str, File]]:
        self._stream.seek(0)
        while True:
            try:
                own, same = pickle.load(self._stream)
            except EOFError:
                return
            yield {**{path: self._shared[path] for path in same}, **{path: File(*file) for path, file in own.items()}}


def collect(families: Sequence[Family], check_output: Callable[[Bundle], None]) -> Collected:
    """Make every point. RecipeError with the problems of all of them, each naming the points that have it."""
    entries: list[Entry] = []
    findings: dict[Problem, None] = {}
    wrong: dict[Problem, list[str]] = {}
    spool, count = Spool(), 0
    with _bar(_points(families), "making") as points:
        for of, point in points:
            count += 1
            try:
                made = make(of, point)
                check_output(made)
            except RecipeError as error:
                _note(wrong, error, _name_of(point.document.data))
                continue
            findings.update(dict.fromkeys(made.findings))
            entries.append(jobs_index.entry(made, of.source.base))
            if not wrong:
                spool.add(made.files)
    _note_twins(wrong, families, entries)
    if wrong:
        raise RecipeError(_said(problem, names, count) for problem, names in wrong.items())
    return Collected(tuple(entries), tuple(sorted(findings)), spool)


def _points(families: Sequence[Family]) -> Iterator[tuple[Family, Point]]:
    for of in families:
        for point in of.points:
            yield of, point


def _name_of(data: object) -> str:
    return str(data.get("name", "?")) if isinstance(data, dict) else "?"


def _note(wrong: dict[Problem, list[str]], error: RecipeError, name: str) -> None:
    for problem in error.problems:
        wrong.setdefault(problem, []).append(name)


def _said(problem: Problem, names: list[str], count: int) -> Problem:
    """The problem, with the points that have it unless all do."""
    if len(names) in (0, count):
        return problem
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return problem._replace(message=f"{problem.message} (in {names[0]}{more})")


def _note_twins(wrong: dict[Problem, list[str]], families: Sequence[Family], entries: Sequence[Entry]) -> None:
    """Two points of one name would write into one folder."""
    seen: dict[str, Entry] = {}
    for entry in entries:
        if (twin := seen.setdefault(entry.name, entry)) is not entry:
            shown = next((of.source.shown for of in families if of.source.base == entry.recipe), entry.recipe)
            message = f"two points have the name {entry.name}, here and in {twin.recipe}; names are folders, and must differ"
            wrong.setdefault(Problem(shown, 1, 1, "name", message), [])


def write(out: Path, made: Collected, force: bool) -> list[str]:
    """Write all bundles and the folder's index; returns bundles of an earlier index that are no longer in it.

    Raises Refused, before anything is written, or OSError.
    """
    own = jobs_index.files(made.entries)
    former = _former(out)
    bundle.check(out, own, force)
    for entry, files in zip(made.entries, made.spool):
        bundle.check(out / entry.name, files, force)
    bundle.begin(out)
    with _bar(list(made.entries), "writing") as entries:
        for entry, files in zip(entries, made.spool):
            bundle.write(out / entry.name, files, force)
    bundle.write(out, own, True)
    return sorted(former - {entry.name for entry in made.entries})


def _former(out: Path) -> set[str]:
    try:
        text = (out / jobs_index.TABLE).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return set()
    return {name for line in text.splitlines() if (name := line.partition("\t")[0]) and (out / name).is_dir()}


@contextmanager
def _bar(items: Iterable[T], label: str) -> Iterator[Iterable[T]]:
    """The items with a progress bar, on a terminal."""
    if not sys.stderr.isatty():
        yield items
        return
    with click.progressbar(items, label=label, file=sys.stderr) as bar:
        yield bar
