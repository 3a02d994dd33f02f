"""Single-node keys: the flags of their launch scripts are no file of InferenceX' that a program could read, so they are
data of ours (schema/inferencex/single_node.json)."""

import json
from functools import lru_cache
from typing import Any, Mapping, NamedTuple

from srtgen import resources
from srtgen.inferencex import choices as choose
from srtgen.inferencex.choices import Choices
from srtgen.inferencex.draft import Draft, Item, Workers
from srtgen.inferencex.master import Entry, Row

_ACCURACY = "ATOM_MOE_GU_ITLV"
_COMMON = (Item("HF_HOME", "/hf_hub_cache"), Item("PYTHONUNBUFFERED", "1"))
_FLAG_DAY = "20260513"  # ATOM 73d039d66: prefix caching became the default, and got a negative flag
_RESTARTS = "InferenceX starts a server for each concurrency and gives it that number; the highest serves all of them."
_UNSAID = "InferenceX leaves prefix caching to the image, where it is on; stated, so that no other image changes it."
Facts = Mapping[str, Any]


@lru_cache(maxsize=None)
def table() -> Facts:
    return json.loads(resources.text("schema", "inferencex/single_node.json"))


class _Part(NamedTuple):
    """Some concurrencies of a row that one server can serve, with the flags that only they have."""

    concurrencies: tuple[int, ...]
    variant: Facts


def drafts(entry: Entry, choices: Choices) -> list[Draft]:
    """One recipe a row; several where the script's flags change within its concurrencies."""
    facts = _facts(entry, choices)
    return [_draft(entry, choices, facts, row, part) for row in entry.rows for part in _parts(row, facts)]


def _facts(entry: Entry, choices: Choices) -> Facts:
    own = table()["keys"].get(entry.key)
    if own is None:
        if not choices.args:
            entry.at.refuse("the flags of this key's launch script are not known; give them with --arg KEY=VALUE")
        return {}
    if "needs_image" in own and not choices.image:
        entry.at.refuse(own["needs_image"])
    facts = {**table()["families"].get(own.get("like"), {}), **own}
    for row in entry.rows:
        if row.speculative and "speculation" not in facts:
            row.at.refuse("the launch script of this key has no speculative decoding that srtgen knows of")
    return facts


def _parts(row: Row, facts: Facts) -> list[_Part]:
    (side,) = row.sides
    for variant in facts.get("variants", ()):
        if variant["dp_attention"] == side.dp_attention:
            below = tuple(c for c in row.concurrencies if c < variant["from"])
            above = tuple(c for c in row.concurrencies if c >= variant["from"])
            return [_Part(some, more) for some, more in ((below, {}), (above, variant)) if some]
    return [_Part(row.concurrencies, {})]


def _draft(entry: Entry, choices: Choices, facts: Facts, row: Row, part: _Part) -> Draft:
    image = choose.image(entry, choices)
    (side,) = row.sides
    mtp = row.speculative
    args = (*_args(row, facts, part, image), *choices.args)
    label = part.variant.get("label", "")
    topology = "agg" + "-dpa" * side.dp_attention + (f"-{label}" if label else "") + f"-tp{side.tp}" + "-mtp" * mtp
    return Draft(
        name=choose.name(entry, choices, topology, row),
        title=f"{choose.load(entry, choices, row, part.concurrencies)}: {_layout(row, facts, label)}.",
        remarks=(),
        model=entry.model,
        image=image,
        router_image=choose.router_image(image),
        precision=entry.precision,
        gpu=choose.gpu(entry, choices),
        gpus_per_node=choices.gpus_per_node,
        time_limit=choices.time_limit,
        version=_version(image),
        environment=(*_environment(entry, facts, part), *choices.env),
        roles=(Workers("agg", 1, 1, side.tp, args),),
        isl=row.isl,
        osl=row.osl,
        concurrencies=part.concurrencies,
        chat_template=mtp and "client" not in facts,
        client_args=_client(facts, mtp),
    )


def _args(row: Row, facts: Facts, part: _Part, image: str) -> tuple[Item, ...]:
    (side,) = row.sides
    length = facts.get("max_model_len", {}).get(str(row.isl))
    caching = _prefix_caching(facts, image)
    return (
        *([Item("enable-dp-attention", True)] if side.dp_attention else []),
        *([Item("enable-expert-parallel", True)] if side.ep > 1 else []),
        *_items(part.variant.get("args", {})),
        *_items(facts.get("args", {})),
        *_sequences(side.dp_attention, facts, part),
        *([Item("max-model-len", length)] if length else []),
        *(item for item in caching if item.key),
        *(_items(facts.get("speculation", {})) if row.speculative else ()),
        *([Item("cudagraph-capture-sizes", sizes)] if (sizes := facts.get("capture_sizes")) else []),
        *(item for item in caching if not item.key),
    )


def _items(pairs: Facts) -> tuple[Item, ...]:
    return tuple(Item(key, value) for key, value in pairs.items())


def _sequences(dp_attention: bool, facts: Facts, part: _Part) -> tuple[Item, ...]:
    most, start = max(part.concurrencies), facts.get("max_num_seqs")
    if start is None or not (dp_attention or most >= start):
        return ()
    return (Item("max-num-seqs", most, _RESTARTS if len(part.concurrencies) > 1 else ""),)


def _prefix_caching(facts: Facts, image: str) -> tuple[Item, ...]:
    if facts.get("prefix_caching") is False:
        return (Item("no-enable_prefix_caching", True),)
    if _day(image) < _FLAG_DAY:
        return (Item("", None, "Prefix caching is off in this image, which has no flag yet to say so."),)
    return (Item("enable_prefix_caching", True, _UNSAID),)


def _day(image: str) -> str:
    """The day of an image as digits, by its tag or what is known of its release; the flag's own where neither tells."""
    if release := _release(image):
        return str(release["date"]).replace("-", "")
    return choose.day(image) or _FLAG_DAY


def _release(image: str) -> Facts | None:
    ends = ((image.endswith(f"_{name}"), facts) for name, facts in table()["releases"].items())
    return next((facts for ends_so, facts in ends if ends_so), None)


def _version(image: str) -> Item | None:
    release = _release(image)
    return Item("version", release["date"], release["why"]) if release else None


def _environment(entry: Entry, facts: Facts, part: _Part) -> tuple[Item, ...]:
    model = entry.model.rsplit("/", 1)[-1]
    why = f"Without these two {model} loses accuracy and says nothing."
    own = [i._replace(comment=why) if i.key == _ACCURACY else i for i in _items(facts.get("env", {}))]
    return (*_COMMON, *own, *_items(part.variant.get("env", {})))


def _client(facts: Facts, mtp: bool) -> tuple[Item, ...]:
    if "client" in facts:
        return _items(facts["client"])
    return () if mtp else (Item("trust-remote-code", True),)


def _layout(row: Row, facts: Facts, label: str) -> str:
    (side,) = row.sides
    extras = ["data-parallel attention"] * side.dp_attention + ["two-batch overlap"] * (label == "tbo")
    if row.speculative:
        method = facts.get("speculation", {}).get("method", "")
        extras.append({"mtp": "multi-token prediction", "eagle3": "EAGLE3 drafts"}.get(method, "speculative decoding"))
    size = f"one aggregate worker, TP{side.tp}"
    return f"{size}, with {' and '.join(extras)}" if extras else size
