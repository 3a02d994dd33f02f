"""Flag tables: what the command line of an engine or router accepts, and since when.

Dates are ISO days; a spelling is valid from its date on, that day included. A missing date means the newest state.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

LONGEST_GUESS = 80  # difflib compares letter by letter; nobody mistypes a flag into a longer text


class Flag(NamedTuple):
    """One flag with all its spellings; `choices`, `default` and `kind` are those of the newest version."""

    key: str
    kind: str  # value, switch, boolean_optional, optional_value, json; routers also multi, append, custom
    type: str | None  # int, float, str, json
    spellings: Mapping[str, str | None]  # positive spelling -> first date, None where no dates are known
    declared: tuple[str, ...]  # spelled out in the source; the rest are aliases made by the parser
    default: Any
    negatives: Mapping[str, str | None] = {}
    choices: tuple[str, ...] | None = None
    const: Any = None
    format: str | None = None  # json-object or int-list: what the text has to hold
    parsed_by: str | None = None  # argparse or server: who finds broken JSON
    range: tuple[int, int] | None = None  # of the integer type; outside is a usage error
    limits: tuple[float | None, float | None] | None = None  # inclusive; outside is refused after parsing
    requires: tuple[str, ...] = ()
    payload: Mapping[str, Any] | None = None  # keys of a JSON flag, see flag-table.schema.json
    history: tuple[Mapping[str, Any], ...] = ()  # earlier values, oldest first
    group: str | None = None
    note: str = ""

    def is_negative(self, spelling: str) -> bool:
        """Tell whether this spelling switches the flag off."""
        return spelling in self.negatives

    def since(self, spelling: str) -> str | None:
        """Return the first date of a spelling; None if there is no date or no such spelling."""
        return self.spellings.get(spelling) or self.negatives.get(spelling)

    def valid_on(self, date: str | None) -> tuple[str, ...]:
        """Return the positive spellings valid on a date, the declared ones first."""
        valid = [text for text, since in self.spellings.items() if not (date and since and since > date)]
        return tuple(sorted(valid, key=lambda text: text not in self.declared))

    @property
    def first_date(self) -> str | None:
        """The date from which the flag exists in any spelling."""
        return min((since for since in self.spellings.values() if since), default=None)

    @property
    def change_dates(self) -> tuple[str, ...]:
        """The dates on which kind, type, choices, default or const changed."""
        return tuple(change["before"] for change in self.history)

    def kind_on(self, date: str | None) -> str:
        """Return the kind in force on a date."""
        return self._on(date, "kind", self.kind)

    def type_on(self, date: str | None) -> str | None:
        """Return the type in force on a date."""
        return self._on(date, "type", self.type)

    def choices_on(self, date: str | None) -> tuple[str, ...] | None:
        """Return the choices in force on a date; None means anything of the type."""
        choices = self._on(date, "choices", self.choices)
        return None if choices is None else tuple(choices)

    def default_on(self, date: str | None) -> Any:
        """Return the default in force on a date."""
        return self._on(date, "default", self.default)

    def const_on(self, date: str | None) -> Any:
        """Return what the bare flag stands for on a date."""
        return self._on(date, "const", self.const)

    def _on(self, date: str | None, name: str, newest: Any) -> Any:
        if date:
            for change in self.history:
                if name in change and date < change["before"]:
                    return change[name]
        return newest


class FlagTable(NamedTuple):
    """The flags of one command line, known from `first_date` (None: undated) to `last_date`."""

    name: str
    command: tuple[str, ...]
    commit: str
    first_date: str | None
    last_date: str
    flags: tuple[Flag, ...]
    by_spelling: Mapping[str, Flag]

    def find(self, spelling: str) -> Flag | None:
        """Return the flag with this exact spelling, negatives included, whatever its date."""
        return self.by_spelling.get(spelling)

    def expand(self, text: str) -> tuple[Flag, ...]:
        """Return the flags that a text stands for: exactly one spelling, else all it may abbreviate.

        ATOM 2026-08-22: argparse takes any unambiguous beginning. Separators and the number of dashes are not
        compared, so that `--tp` or `--tensor_p` can't slip past a rule about `-tp`; `=value` is cut off.
        """
        text = text.partition("=")[0]
        if exact := self.find(text):
            return (exact,)
        start = _plain(text)
        if not start:
            return ()
        return tuple(flag for flag in self.flags if any(_plain(s).startswith(start) for s in _all_spellings(flag)))

    def twin(self, text: str) -> str | None:
        """Return the spelling in the table that differs from the text only in `-` and `_`."""
        wanted = _plain(text)
        for spelling in self.by_spelling:
            if spelling != text and spelling.startswith("--") and _plain(spelling) == wanted:
                return spelling
        return None

    def nearest(self, text: str) -> str | None:
        """Return the spelling that looks most like a mistyped one."""
        import difflib  # only wrong recipes pay for it

        if len(text) > LONGEST_GUESS:
            return None
        return next(iter(difflib.get_close_matches(text, list(self.by_spelling), n=1)), None)

    def negative_for(self, key: str) -> str | None:
        """Return the negative in the style of a recipe key: `enable_x` gives `--no-enable_x`; None if it has none."""
        negative = f"--no-{key.lstrip('-')}"
        flag = self.find(negative)
        return negative if flag and flag.is_negative(negative) else None


def load(source: Path | str) -> FlagTable:
    """Read a flag table from a path, or from its JSON text."""
    text = source if isinstance(source, str) else source.read_text(encoding="utf-8")
    data = json.loads(text)
    flags = tuple(_flag(row) for row in data["flags"])
    return FlagTable(
        name=data["name"],
        command=tuple(data["command"]),
        commit=data["source"]["commit"],
        first_date=data["first_date"],
        last_date=data["last_date"],
        flags=flags,
        by_spelling={spelling: flag for flag in flags for spelling in _all_spellings(flag)},
    )


def _flag(row: dict[str, Any]) -> Flag:
    for name in ("declared", "choices", "range", "limits", "requires", "history"):
        if name in row:
            row[name] = tuple(row[name])
    return Flag(**row)


def _all_spellings(flag: Flag) -> Iterator[str]:
    yield from flag.spellings
    yield from flag.negatives


def _plain(spelling: str) -> str:
    return spelling.lstrip("-").replace("_", "-")
