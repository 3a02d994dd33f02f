"""From the recipe's `args` to command-line words, spelled and valued exactly as the recipe has them."""

import json
import re
from typing import Any, Callable, Iterable, NamedTuple

from srtgen.document import Document
from srtgen.errors import Path
from srtgen.flags import Flag, FlagTable
from srtgen.recipe import Setting
from srtgen.report import Report
from srtgen.words import Word, word

Line = tuple[Word, ...]

# argparse takes a word that starts with "-" for a flag unless it looks like this (CPython 3.10 to 3.13).
ARGPARSE_NUMBER = r"-[0-9]+\Z|-[0-9]*\.[0-9]+\Z"
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")


class Dialect(NamedTuple):
    """How a program reads its command line: `spell` makes the flag of a key; `joined` tells which values that start
    with "-" must be written `--flag=value`; `repeats` are the kinds of flags that a list repeats; `owner` names the
    program in messages."""

    owner: str
    spell: Callable[[str], str]
    joined: Callable[[str], bool]
    repeats: frozenset[str] = frozenset()
    negatable: bool = True


class _Refused(Exception):
    """The message of a setting that cannot become words."""


def lines(
    given: Iterable[Setting], table: FlagTable, managed: frozenset[str], dialect: Dialect, report: Report
) -> tuple[Line, ...]:
    """One line of words a flag, in the recipe's order. Problems go to `report`."""
    result: list[Line] = []
    first: dict[str, Setting] = {}
    for setting in given:
        try:
            flag = _flag(setting.key, table, managed, dialect)
        except _Refused as refused:
            report.error(setting.document, setting.path, str(refused), at_key=True)
            continue
        known = table.find(flag)
        same = first.setdefault(known.key if known else flag, setting)
        if same is not setting:
            report.error(setting.document, setting.path, f"the same flag as {same.place}; write it once", at_key=True)
        try:
            result.extend(_words(setting, flag, known, table, dialect))
        except _Refused as refused:
            report.error(setting.document, setting.path, str(refused))
    return tuple(result)


def is_flag_name(key: str) -> bool:
    """Whether a key can be the name of a flag, without its dashes."""
    return bool(key) and key.isprintable() and not key.startswith("-") and not any(c in key for c in " ='\"")


def _flag(key: str, table: FlagTable, managed: frozenset[str], dialect: Dialect) -> str:
    if key.startswith("-"):
        raise _Refused(f"write the key without leading dashes: {key.lstrip('-')}")
    if not is_flag_name(key):
        raise _Refused(f"{key!r} cannot be the name of a flag")
    flag = dialect.spell(key)
    ours = [f for f in table.expand(flag) if f.key in managed]
    if ours:
        name = next(iter(ours[0].spellings))
        short = "" if table.find(flag) else f" (it can stand for {name})"
        raise _Refused(f"{key} is set by srtgen and cannot be given{short}")
    return flag


def _words(setting: Setting, flag: str, known: Flag | None, table: FlagTable, dialect: Dialect) -> list[Line]:
    value = setting.value
    if value is None:
        raise _Refused('no value; write true for the bare flag, "" for an empty word, or remove the key')
    if value is True:
        return [(word(_bare(flag, known)),)]
    if value is False:
        return [(word(_negative(setting.key, known, table, dialect)),)]
    if known and (known.kind == "switch" or known.is_negative(flag) or known.kind == "boolean_optional"):
        raise _Refused(f"{flag} takes no value; write true{' or false' if known.negatives else ''}")
    if isinstance(value, list) and known and known.kind in dialect.repeats:
        return _repeated(setting, flag, dialect)
    if isinstance(value, (list, dict)):
        return [(word(flag), word(_structured(setting, flag, known)))]
    return [_valued(flag, setting.source, dialect)]


def _bare(flag: str, known: Flag | None) -> str:
    if known and known.kind not in ("switch", "boolean_optional", "optional_value"):
        raise _Refused(f"{flag} needs a value; write it, or remove the key for the default")
    return flag


def _negative(key: str, known: Flag | None, table: FlagTable, dialect: Dialect) -> str:
    if dialect.negatable and (negative := table.negative_for(key)):
        return negative
    if known and known.is_negative(dialect.spell(key)):
        raise _Refused(f"a double negative; write {key.removeprefix('no-')}: true")
    if known and known.kind in ("value", "json"):
        raise _Refused(f"{dialect.spell(key)} needs a value; write it, or remove the key for the default")
    raise _Refused(f"{dialect.spell(key)} has no negative form; remove the key to leave it off")


def _repeated(setting: Setting, flag: str, dialect: Dialect) -> list[Line]:
    if not setting.value:
        raise _Refused("the list is empty; remove the key")
    paths = [(*setting.path, index) for index in range(len(setting.value))]
    if any(isinstance(item, (list, dict, bool)) or item is None for item in setting.value):
        raise _Refused("expected a list of texts or numbers")
    return [_valued(flag, setting.document.sources[path], dialect) for path in paths]


def _structured(setting: Setting, flag: str, known: Flag | None) -> str:
    if not setting.value:
        raise _Refused("the value is empty; remove the key")
    form = known.format if known else None
    if form == "int-list" and isinstance(setting.value, list):
        if all(isinstance(item, int) and not isinstance(item, bool) for item in setting.value):
            return compact_json(setting.document, setting.path, setting.value)
        raise _Refused("expected a list of whole numbers")
    if known and (form == "json-object" or known.kind == "json"):
        return compact_json(setting.document, setting.path, setting.value)
    kind = "list" if isinstance(setting.value, list) else "mapping"
    raise _Refused(f"{flag} takes no {kind}; write its value as text")


def _valued(flag: str, text: str, dialect: Dialect) -> Line:
    if "\0" in text:
        raise _Refused("a NUL byte cannot be part of a command line")
    if text.startswith("-") and dialect.joined(text):
        return (word(f"{flag}={text}"),)
    return (word(flag), word(text))


def compact_json(document: Document, path: Path, value: Any) -> str:
    """A YAML value as JSON without blanks, key order kept, UTF-8, numbers as the recipe writes them."""
    if isinstance(value, dict):
        items = (f"{json_text(k)}:{compact_json(document, (*path, k), v)}" for k, v in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(compact_json(document, (*path, n), v) for n, v in enumerate(value)) + "]"
    source = document.sources.get(path, "")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and _JSON_NUMBER.match(source):
        return source
    return json_text(value)


def json_text(value: Any) -> str:
    """A value as JSON without blanks, key order kept, UTF-8: the one form of JSON words."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
