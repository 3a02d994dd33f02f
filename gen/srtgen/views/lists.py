"""Lists and tables of values as words of a shell array."""

from __future__ import annotations

from typing import Iterable

from srtgen.words import Word, word


def listed(values: Iterable[str]) -> list[Word]:
    return [word(value) for value in values]


def aligned(rows: list[tuple[str, ...]]) -> list[Word]:
    """Rows as words with their columns aligned."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [word("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip()) for row in rows]
