"""Keys and values inside the flags that take a JSON object."""

from __future__ import annotations

from typing import Any, Mapping

from srtgen.errors import Path
from srtgen.recipe import Setting
from srtgen.report import Report
from srtgen.rules.facts import Facts, Program

_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "object": (dict,), "list": (list,),
}  # fmt: skip
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "list": "a list",
}
_EXTRA = "extra-kv-connectors"
ANY_CASE_SINCE = "2026-08-19"  # ATOM: connector names match in any case, exactly before


def check(
    program: Program,
    payload: Mapping[str, Any],
    setting: Setting,
    path: Path,
    value: dict[str, Any],
    doubtful: str,
    report: Report,
) -> None:
    """payload-key: a key the program does not know, or a value of the wrong kind."""
    if payload.get("connectors"):
        _connector(program, payload, setting, path, value, doubtful, report, nested=False)
    elif payload.get("keys") is not None:
        _keys(program, payload, setting, path, value, doubtful, report)
        _formats(payload, setting, path, value, doubtful, report)


def extra_connectors(facts: Facts, report: Report) -> None:
    """payload-key in `extra-kv-connectors`, whose entries are complete configurations of one connector each."""
    from srtgen.rules.contract import severity

    for worker in facts.workers:
        flag = worker.program.table.find("--kv-transfer-config")
        for setting in worker.role.args:
            if setting.key != _EXTRA or not isinstance(setting.value, list) or flag is None or flag.payload is None:
                continue
            doubtful = severity(worker.program)
            for index, one in enumerate(setting.value):
                if isinstance(one, dict):
                    path = (*setting.path, index)
                    _connector(worker.program, flag.payload, setting, path, one, doubtful, report, nested=True)


def _connector(
    program: Program,
    payload: Mapping[str, Any],
    setting: Setting,
    path: Path,
    value: dict[str, Any],
    doubtful: str,
    report: Report,
    nested: bool,
) -> None:
    name = value.get(payload["select"])
    if not isinstance(name, str):
        return
    where = (*path, payload["select"])
    known = _by_name(payload["connectors"])
    connector = known.get(name)
    if connector is None and (found := {k.casefold(): v for k, v in known.items()}.get(name.casefold())):
        connector = found
        if not program.version.surely_since(ANY_CASE_SINCE):
            message = f"connector names are matched exactly before {ANY_CASE_SINCE}, {program.version.words}"
            report.put(doubtful, setting.document, where, message, "payload-key", at_key=False)
    if connector is None:
        message = f"{name[:60]} is not a connector that srtgen knows; known: {', '.join(payload['connectors'])}"
        report.put(doubtful, setting.document, where, message, "payload-key", at_key=False)
        return
    if nested and connector is payload["connectors"].get("multi"):
        message = "multi cannot stand inside multi; list its connectors here"
        report.put("error", setting.document, where, message, "payload-key", at_key=False)
        return
    since = connector["since"]
    if since and not program.version.surely_since(since):
        surely = program.version.surely_before(since)
        message = f"the connector {name} is not known to {program.owner} before {since}, {program.version.words}"
        report.put(doubtful if surely else "warning", setting.document, where, message, "payload-key", at_key=False)
    _keys(program, connector, setting, path, value, doubtful, report)


def _by_name(connectors: Mapping[str, Any]) -> dict[str, Any]:
    named = dict(connectors)
    for connector in connectors.values():
        named.update(dict.fromkeys(connector.get("aliases", ()), connector))
    return named


def _keys(
    program: Program,
    spec: Mapping[str, Any],
    setting: Setting,
    path: Path,
    value: dict[str, Any],
    doubtful: str,
    report: Report,
) -> None:
    fatal = spec["unknown_keys"].startswith("error")
    for key, item in value.items():
        where = (*path, key) if isinstance(setting.value, (dict, list)) else setting.path
        known = spec["keys"].get(key)
        if known is not None:
            _value(program, known, setting, where, item, doubtful, report)
        elif not any(key.startswith(prefix) for prefix in spec.get("prefixes", ())):
            effect = "the start fails on it" if fatal else f"{program.owner} ignores it"
            known_keys = ", ".join(k for k, v in spec["keys"].items() if not v.get("unused"))
            message = f"unknown key {key[:60]}: {effect}; known: {known_keys}"
            report.put(doubtful if fatal else "warning", setting.document, where, message, "payload-key")


def _value(
    program: Program, known: Mapping[str, Any], setting: Setting, where: Path, item: Any, doubtful: str, report: Report
) -> None:
    said = [doubtful, ""]
    if not _fits(item, known["type"]):
        said = ["error", f"expected {' or '.join(_WORDS[name] for name in known['type'])}"]
    elif isinstance(item, str) and "choices" in known and item not in known["choices"]:
        said[1] = f"expected one of {', '.join(known['choices'])}"
    elif isinstance(item, (int, float)) and item < known.get("minimum", item):
        said[1] = f"the least value is {known['minimum']}"
    elif isinstance(item, (int, float)) and item > known.get("maximum", item):
        said[1] = f"the greatest value is {known['maximum']}"
    elif known.get("unused") and not program.version.surely_before(known.get("until", "")):
        said = ["note", f"{known.get('note', 'Has no effect.')}"]
    if said[1]:
        report.put(said[0], setting.document, where, said[1], "payload-key", at_key=said[0] == "note")


def _fits(item: Any, types: list[str]) -> bool:
    if isinstance(item, bool):
        return "bool" in types
    return any(isinstance(item, _TYPES[name]) for name in types if name != "bool")


def _formats(
    payload: Mapping[str, Any], setting: Setting, path: Path, value: dict[str, Any], doubtful: str, report: Report
) -> None:
    """ATOM 2026-08-22: the name of an unknown quantisation format ends the start while loading."""
    formats = payload.get("formats")
    if not formats:
        return
    layers = value.get("layer_quant_config")
    named: list[tuple[Path, Any]] = [(("global_quant_config",), value.get("global_quant_config"))]
    if isinstance(layers, dict):
        named += [(("layer_quant_config", layer), one) for layer, one in layers.items()]
    for below, name in named:
        if isinstance(name, str) and name and name not in formats:
            where = (*path, *below) if isinstance(setting.value, dict) else setting.path
            message = f"{name[:60]} is not a format that srtgen knows; known: {', '.join(formats)}"
            report.put(doubtful, setting.document, where, message, "payload-key", at_key=False)


def given(program: Program, key: str) -> dict[str, Any]:
    """The object given for a JSON flag, {} for none or for what is no JSON object."""
    import json

    value = program.value(key)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}
