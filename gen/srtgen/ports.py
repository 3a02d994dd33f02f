"""The table of ports: every listening socket of every process, per node, none twice."""

from typing import NamedTuple


from srtgen.placement import Placement, Slot
from srtgen.recipe import Ports, Recipe
from srtgen.report import Report

LOWEST, HIGHEST = 1024, 32767
HTTP_STRIDE = 32
DP_BASE_STRIDE = 8


class WorkerPorts(NamedTuple):
    """Ports of one worker. `handshake` is the first of as many as it has GPUs; None where it has no such socket."""

    http: int
    handshake: int | None
    dp_master: int | None
    dp_base: int | None


class Listener(NamedTuple):
    """A range of ports that one process may bind on one node."""

    node: int
    first: int
    last: int
    owner: str
    key: str


def worker_ports(ports: Ports, slot: Slot, transfers_kv: bool, ranks: bool) -> WorkerPorts:
    """The ports of the worker in `slot`; `ranks`: it has data-parallel ranks or shares its node."""
    return WorkerPorts(
        http=ports.worker_http + HTTP_STRIDE * slot.position,
        handshake=ports.handshake + slot.gpus[0] if transfers_kv else None,
        dp_master=ports.dp_master + slot.position if ranks else None,
        dp_base=ports.dp_base + DP_BASE_STRIDE * slot.position if ranks else None,
    )


def worker_listeners(step: str, slot: Slot, ports: WorkerPorts) -> list[Listener]:
    """Every range that the worker may bind."""
    ranges = [(ports.http, 1, "worker_http")]
    if ports.handshake is not None:
        ranges.append((ports.handshake, len(slot.gpus), "handshake"))
    if ports.dp_master is not None:
        ranges.append((ports.dp_master, 1, "dp_master"))
    if ports.dp_base is not None:
        ranges.append((ports.dp_base, DP_BASE_STRIDE, "dp_base"))
    return [Listener(slot.node, first, first + count - 1, step, key) for first, count, key in ranges]


def check(recipe: Recipe, placement: Placement, listeners: list[Listener], report: Report) -> None:
    """Overlaps on a node and ports outside 1024–32767, each at the key that moves it."""
    seen: set[tuple[str, ...]] = set()
    before: Listener | None = None
    for one in sorted(listeners, key=lambda x: (x.node, x.first)):
        if one.last > HIGHEST and (one.key,) not in seen:
            seen.add((one.key,))
            message = f"{one.owner} would need port {one.last} on node {one.node}; ports end at {HIGHEST}"
            report.error(recipe.document, ("ports", one.key), message)
        if before and before.node == one.node and one.first <= before.last and (one.key, before.key) not in seen:
            seen.add((one.key, before.key))
            message = (
                f"{_range(one)} of {one.owner} overlaps {_range(before)} of {before.owner} ({before.key}) "
                f"on node {one.node}"
            )
            report.error(recipe.document, ("ports", one.key), message)
        if not (before and before.node == one.node and before.last > one.last):
            before = one


def _range(listener: Listener) -> str:
    if listener.first == listener.last:
        return f"port {listener.first}"
    return f"ports {listener.first}-{listener.last}"
