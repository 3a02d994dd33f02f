"""`srtgen reference`: the documentation of fields and codes."""

from __future__ import annotations

import click

from srtgen import reference


@click.command("reference")
def command() -> None:
    """Print the reference of all keys and codes as Markdown; `srtgen reference > schema/REFERENCE.md` refreshes it."""
    click.echo(reference.text(), nl=False)
