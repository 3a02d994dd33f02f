"""`srtgen results A B`: two result folders, point by point."""

from __future__ import annotations

import json
from pathlib import Path

import click

from srtgen import compare, outcomes
from srtgen.console import EXIT_INPUT
from srtgen.errors import visible
from srtgen.outcomes import Measure, NoResults, Results


@click.command("results")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Compare although the workloads differ.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def command(context: click.Context, first: Path, second: Path, force: bool, form: str) -> None:
    """Compare two jobs: change of each point in percent, and what differs in versions, commands and environment.

    FIRST and SECOND are folders as results/JOBID. Different workloads are refused without --force.
    """
    try:
        one, two = outcomes.read(first), outcomes.read(second)
    except NoResults as error:
        click.echo(visible(f"srtgen: {error}"), err=True)
        context.exit(EXIT_INPUT)
    differing = outcomes.workload_differences(one, two)
    if differing:
        click.echo(visible_lines(compare.text(differing)), err=True)
        if not force:
            click.echo("srtgen: these are different workloads; --force compares them all the same", err=True)
            context.exit(EXIT_INPUT)
    click.echo(_json(one, two, differing) if form == "json" else visible_lines(_text(one, two)))


def visible_lines(text: str) -> str:
    """The text with what a terminal would act upon escaped, line breaks kept."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _json(one: Results, two: Results, differing: list[compare.Change]) -> str:
    content = {
        "schema": outcomes.SCHEMA,
        "first": str(one.folder),
        "second": str(two.folder),
        "workload": [change._asdict() for change in differing],
        "points": [measure._asdict() for measure in outcomes.measures(one, two)],
        "setup": [change._asdict() for change in outcomes.setup_differences(one, two)],
        "caveats": outcomes.caveats(one, two),
    }
    return json.dumps(content, indent=1, ensure_ascii=False)


def _text(one: Results, two: Results) -> str:
    parts = [f"first:  {_title(one)}\nsecond: {_title(two)}"]
    if said := outcomes.caveats(one, two):
        parts.append("\n".join(f"! {line}" for line in said))
    parts.append(_table(outcomes.measures(one, two)))
    parts.append(compare.text(outcomes.setup_differences(one, two)) or "the same versions, commands and environment")
    return "\n\n".join(parts)


def _title(results: Results) -> str:
    result = results.result
    return f"{results.folder}  {result.get('name')}, job {result.get('job_id')}, {result.get('verdict')}"


def _table(measures: list[Measure]) -> str:
    rows = [("concurrency", "measure", "first", "second", "change", "")]
    shown = None
    for one in measures:
        change = "-" if one.percent is None else f"{one.percent:+.1f} %"
        word = "" if one.better is None or abs(one.percent or 0) < 0.05 else ("better" if one.better else "worse")
        rows.append(("" if one.concurrency == shown else str(one.concurrency), one.name, _number(one.before), _number(one.after), change, word))
        shown = one.concurrency
    widths = [max(len(row[n]) for row in rows) for n in range(6)]
    return "\n".join(
        "  ".join(c.ljust(w) if n in (1, 5) else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths))).rstrip() for row in rows
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
