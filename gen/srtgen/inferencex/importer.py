"""From a key to the texts of its recipes. Pure: documents in, texts out."""

from __future__ import annotations

from collections import Counter

from srtgen import generate
from srtgen.document import Document
from srtgen.errors import RecipeError
from srtgen.inferencex import disagg, master, models, single, text
from srtgen.inferencex.choices import Choices
from srtgen.inferencex.draft import Draft


def recipes(models_file: Document, master_file: Document, key: str, choices: Choices) -> dict[str, str]:
    """The recipes of a key by file name, each of which generates. RecipeError with the reason where that can't be."""
    entry = master.read(master_file, key)
    if entry.disaggregated:
        drafts = disagg.drafts(entry, models.find(models_file, entry.model, entry.at.at("model")), choices)
    else:
        drafts = single.drafts(entry, choices)
    made = {f"{draft.name}.yaml": text.render(draft) for draft in _distinct(drafts)}
    for name, content in made.items():
        _prove(name, content)
    return made


def _distinct(drafts: list[Draft]) -> list[Draft]:
    """Recipes that differ in their concurrencies alone get them into their names."""
    counts = Counter(draft.name for draft in drafts)
    return [
        d._replace(name=f"{d.name}-c{min(d.concurrencies)}-{max(d.concurrencies)}") if counts[d.name] > 1 else d
        for d in drafts
    ]


def _prove(name: str, content: str) -> None:
    """Generates the recipe, so that none is written which doesn't."""
    try:
        generate.bundle(generate.Source(name, name, content.encode()), None, [])
    except RecipeError as error:
        raise RecipeError(p for p in error.problems if p.severity == "error") from None
