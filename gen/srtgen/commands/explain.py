"""`srtgen explain`: what a code means, why, on what evidence, and what to write instead."""

from __future__ import annotations

import click

from srtgen import catalogue
from srtgen.console import EXIT_USAGE
from srtgen.errors import visible


@click.command("explain")
@click.argument("code", required=False)
@click.pass_context
def command(context: click.Context, code: str | None) -> None:
    """Explain a CODE that stands behind a message; without one, list them all."""
    if code is None:
        width = max(map(len, catalogue.codes()))
        for one in catalogue.codes():
            found = catalogue.entry(one)
            click.echo(f"{one:<{width}}  {found.severity:<16}  {found.says}")
        return
    if code not in catalogue.codes():
        near = catalogue.nearest(code)
        hint = f"; did you mean {near}?" if near else "; srtgen explain lists them"
        click.echo(f"no code {visible(code)}{hint}", err=True)
        context.exit(EXIT_USAGE)
    click.echo(_text(catalogue.entry(code)), nl=False)


def _text(found: catalogue.Entry) -> str:
    parts = [f"{found.code} ({found.severity}): {found.says}\n", found.why, f"Evidence: {found.evidence}\n"]
    for title, example in (("Wrong", found.wrong), ("Right", found.right)):
        if example:
            parts.append(f"{title}:\n\n" + "".join(f"    {line}\n" if line else "\n" for line in example.splitlines()))
    return "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)
