"""InferenceX's search space: the entry of one key, one row a topology (InferenceX 2026-08-22, amd-master.yaml)."""

import re
from typing import NamedTuple

from srtgen.document import Document
from srtgen.inferencex.reading import Cursor

DISAGGREGATED, SINGLE_NODE = "atom-disagg", "atom"
_ROUTER = "atomesh"
_GPU = re.compile(r"mi[0-9]+[a-z]?")
_ENTRY_KEYS = frozenset(
    "image model model-prefix runner precision framework multinode disagg router kv-p2p-transfer scenarios".split()
)
_ROW_KEYS = frozenset("tp ep dp-attn conc-start conc-end conc-list spec-decoding".split())
_PAIR_KEYS = frozenset("conc-list conc-start conc-end spec-decoding prefill decode".split())
_ROLE_KEYS = frozenset("num-worker tp ep dp-attn additional-settings".split())
_SETTINGS = frozenset({"PREFILL_NODES", "DECODE_NODES", "DECODE_MTP_SIZE"})


class Side(NamedTuple):
    """Workers of one kind. `nodes` is 0 where the entry does not say it."""

    workers: int
    nodes: int
    tp: int
    ep: int
    dp_attention: bool


class Row(NamedTuple):
    """One topology of a search space: `sides` are prefill and decode, or one single-node server."""

    at: Cursor
    isl: int
    osl: int
    sides: tuple[Side, ...]
    concurrencies: tuple[int, ...]
    speculative: bool
    speculative_tokens: int


class Entry(NamedTuple):
    """One configuration key."""

    key: str
    at: Cursor
    image: str
    model: str
    prefix: str
    gpu: str
    precision: str
    disaggregated: bool
    rows: tuple[Row, ...]


def read(document: Document, key: str) -> Entry:
    """The entry of `key`. RecipeError where it is not there, is no ATOM configuration, or says more than we know."""
    root = Cursor(document)
    if not isinstance(root.value, dict) or key not in root.value:
        known = [name for name in root.value or () if SINGLE_NODE in name] if isinstance(root.value, dict) else []
        root.refuse(f"no key {key}; keys with atom: {', '.join(known) or 'none'}")
    entry = root.at(key)
    framework = entry.text("framework")
    if framework not in (DISAGGREGATED, SINGLE_NODE):
        entry.at("framework").refuse(f"{framework} is not supported; known: {SINGLE_NODE}, {DISAGGREGATED}")
    entry.only(_ENTRY_KEYS)
    router = entry.at("router").text("name") if entry.has("router") else _ROUTER
    if router != _ROUTER:
        entry.at("router").refuse(f"the router {router} is not supported; known: {_ROUTER}")
    found = _GPU.search(entry.text("runner")) or _GPU.search(key)
    return Entry(
        key=key,
        at=entry,
        image=_needed(entry, "image"),
        model=_needed(entry, "model"),
        prefix=_needed(entry, "model-prefix"),
        gpu=found.group(0) if found else "",
        precision=_needed(entry, "precision"),
        disaggregated=framework == DISAGGREGATED,
        rows=tuple(_rows(entry, framework == DISAGGREGATED)),
    )


def _needed(entry: Cursor, key: str) -> str:
    entry.at(key)
    return entry.text(key)


def _rows(entry: Cursor, disaggregated: bool) -> list[Row]:
    scenarios = entry.at("scenarios")
    for name in scenarios.value:
        if name != "fixed-seq-len":
            scenarios.at(name).refuse(f"{name} is not supported: its load is a trace replay with aiperf, not a sweep")
    rows: list[Row] = []
    for scenario in scenarios.at("fixed-seq-len").items():
        scenario.only({"isl", "osl", "search-space"})
        isl, osl = scenario.whole("isl"), scenario.whole("osl")
        for row in scenario.at("search-space").items():
            rows.append(_pair(row, isl, osl) if disaggregated else _server(row, isl, osl))
    return rows


def _server(row: Cursor, isl: int, osl: int) -> Row:
    row.only(_ROW_KEYS)
    side = Side(1, 1, row.whole("tp"), row.whole("ep", 1), row.flag("dp-attn"))
    return Row(row, isl, osl, (side,), _concurrencies(row), _speculative(row), 0)


def _pair(row: Cursor, isl: int, osl: int) -> Row:
    row.only(_PAIR_KEYS)
    settings = {**_settings(row.at("prefill")), **_settings(row.at("decode"))}
    sides = tuple(_side(row.at(name), settings.get(f"{name.upper()}_NODES", 0)) for name in ("prefill", "decode"))
    tokens = settings.get("DECODE_MTP_SIZE", 0)
    if _speculative(row) and not tokens:
        row.at("spec-decoding").refuse("no DECODE_MTP_SIZE says how many tokens are speculated")
    return Row(row, isl, osl, sides, _concurrencies(row), tokens > 0, tokens)


def _side(at: Cursor, nodes: int) -> Side:
    at.only(_ROLE_KEYS)
    workers = at.whole("num-worker")
    if nodes > workers:
        at.refuse(f"{nodes} nodes for {workers} workers: an ATOM worker never spans nodes")
    return Side(workers, nodes or workers, at.whole("tp"), at.whole("ep", 1), at.flag("dp-attn"))


def _settings(role: Cursor) -> dict[str, int]:
    if not role.has("additional-settings"):
        return {}
    found: dict[str, int] = {}
    for item in role.at("additional-settings").items():
        name, _, value = str(item.value).partition("=")
        if name not in _SETTINGS or not value.isdigit():
            item.refuse(f"the import has no meaning for {item.value}")
        found[name] = int(value)
    return found


def _speculative(row: Cursor) -> bool:
    word = row.text("spec-decoding", "none")
    if word not in ("none", "mtp"):
        row.at("spec-decoding").refuse(f"{word} is not known; known: none, mtp")
    return word == "mtp"


def _concurrencies(row: Cursor) -> tuple[int, ...]:
    """The list as given, or from start to end in doublings, the end always among them."""
    if row.has("conc-list"):
        values = [item.value for item in row.at("conc-list").items()]
        if not values or not all(type(value) is int and value > 0 for value in values):
            row.at("conc-list").refuse("expected a list of whole numbers above 0")
        return tuple(values)
    start, end = row.whole("conc-start"), row.whole("conc-end")
    if start > end:
        row.at("conc-start").refuse(f"{start} is above conc-end, {end}")
    values = [start]
    while values[-1] < end:
        values.append(min(values[-1] * 2, end))
    return tuple(values)
