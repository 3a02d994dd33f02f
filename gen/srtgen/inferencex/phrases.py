"""How a prefill and decode topology is named and described."""

from __future__ import annotations

from srtgen.inferencex.choices import Choices, count
from srtgen.inferencex.draft import Workers
from srtgen.inferencex.master import Row, Side
from srtgen.recipe import COLOCATE


def topology(row: Row) -> str:
    """The part of a recipe's name: `2p1d-dpa-tp8`."""
    prefill, decode = row.sides
    sizes = f"tp{prefill.tp}" + ("" if prefill.tp == decode.tp else f"-tp{decode.tp}")
    parallel = {(True, True): "-dpa", (True, False): "-pdpa", (False, True): "-ddpa", (False, False): ""}
    attention = parallel[prefill.dp_attention, decode.dp_attention]
    mtp = "-mtp" if row.speculative else ""
    return f"{prefill.workers}p{decode.workers}d{attention}-{sizes}{mtp}"


def layout(row: Row, roles: tuple[Workers, ...]) -> str:
    """The part of its title: `two prefill nodes and one decode node with data-parallel attention`."""
    sides = row.sides
    sizes = " and ".join(dict.fromkeys(f"TP{side.tp}" for side in sides))
    sizes += " each" if len({side.tp for side in sides}) == 1 else ""
    extras = []
    if any(side.dp_attention for side in sides):
        extras.append("data-parallel attention")
    if any(item.key == "enable-tbo" for role in roles for item in role.args):
        extras.append("two-batch overlap")
    if row.speculative:
        extras.append("speculative decoding")
    place = _places(row, roles)
    return f"{place} with {' and '.join(extras)}" if extras else f"{place}, {sizes}"


def _places(row: Row, roles: tuple[Workers, ...]) -> str:
    prefill, decode = row.sides
    nodes = [role.nodes for role in roles]
    if nodes[1] == COLOCATE:
        return f"{_workers(prefill, 'prefill')} and {_workers(decode, 'decode')} on {count(int(nodes[0]), 'node')}"
    if nodes != [prefill.workers, decode.workers]:
        first = f"{_workers(prefill, 'prefill')} on {count(int(nodes[0]), 'node')}"
        return f"{first} and {_workers(decode, 'decode')} on {count(int(nodes[1]), 'further node')}"
    if prefill.workers == decode.workers == 1:
        return "one prefill and one decode node"
    return f"{count(prefill.workers, 'prefill node')} and {count(decode.workers, 'decode node')}"


def _workers(side: Side, kind: str) -> str:
    return count(side.workers, f"{kind} worker")


def remarks(row: Row, choices: Choices, packed: bool) -> tuple[str, ...]:
    """Further paragraphs of the comment on top."""
    if packed:
        return ("InferenceX gives each of these workers a node of its own; here they share nodes.",)
    idle = {choices.gpus_per_node - side.tp for side in row.sides}
    if idle == {0}:
        return ()
    least, most = min(idle), max(idle)
    gpus = f"{most}" if least in (0, most) else f"{least} or {most}"
    size = f"TP{choices.gpus_per_node - most}"
    return (f"As InferenceX runs it, a worker has its node to itself: {size} leaves {gpus} GPUs idle.",)
