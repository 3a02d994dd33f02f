"""Which worker runs on which node and GPUs."""

from typing import NamedTuple

from collections import Counter

from srtgen.recipe import Recipe, Role
from srtgen.report import Report


class Slot(NamedTuple):
    """One worker's place: node (0-based, allocation order), its GPUs there, and how many workers stand before it."""

    role: str
    index: int
    node: int
    gpus: tuple[int, ...]
    position: int


class Placement(NamedTuple):
    nodes: int
    gpus_per_node: int
    slots: tuple[Slot, ...]

    def sharing(self) -> frozenset[int]:
        """The nodes that hold more than one worker."""
        counts = Counter(slot.node for slot in self.slots)
        return frozenset(node for node, count in counts.items() if count > 1)


def worker_gpus(role: Role, gpus_per_node: int, report: Report, recipe: Recipe) -> int:
    """GPUs of each worker of the role; 0 after an error."""
    if role.gpus is not None:
        if role.gpus <= gpus_per_node:
            return role.gpus
        message = f"{role.gpus} is more than a node has ({gpus_per_node}); a worker never spans nodes"
        report.error(recipe.document, (*role.path, "gpus"), message)
        return 0
    if role.nodes is None:
        report.error(recipe.document, role.path, "gpus is needed with nodes: colocate", at_key=True)
        return 0
    share, rest = divmod(role.nodes * gpus_per_node, role.workers)
    if not rest and share > gpus_per_node:
        message = f"{share} GPUs for each worker are more than a node has ({gpus_per_node}); a worker never spans nodes"
        report.error(recipe.document, (*role.path, "workers"), message)
        return 0
    if rest or not share:
        total = role.nodes * gpus_per_node
        message = f"{total} GPUs do not divide evenly among {role.workers} workers within nodes; write gpus"
        report.error(recipe.document, (*role.path, "workers"), message)
        return 0
    return share


def place(recipe: Recipe, gpus_per_node: int, report: Report) -> Placement | None:
    """Prefill, decode, then aggregate workers over nodes 0..N-1, each role spread evenly over its own nodes.

    None after an error (in `report`): no role, a worker larger than a node, more workers than the nodes hold, nodes without
    a worker.
    """
    used: list[int] = []
    slots: list[Slot] = []
    positions: Counter[int] = Counter()
    failed = False
    for role in recipe.roles:
        gpus = worker_gpus(role, gpus_per_node, report, recipe)
        if not gpus:
            failed = True
            continue
        homes = _colocated(role, gpus, used, gpus_per_node, report, recipe)
        if role.nodes is not None:
            homes = _spread(role, gpus, len(used), gpus_per_node, report, recipe)
            used.extend([0] * role.nodes)
        failed = failed or homes is None
        for index, node in enumerate(homes or ()):
            first = used[node]
            slots.append(Slot(role.name, index, node, tuple(range(first, first + gpus)), positions[node]))
            used[node] += gpus
            positions[node] += 1
    if failed or not slots:
        return None
    _note_idle(recipe, used, gpus_per_node, report)
    return Placement(len(used), gpus_per_node, tuple(slots))


def _spread(
    role: Role, gpus: int, first: int, gpus_per_node: int, report: Report, recipe: Recipe
) -> list[int] | None:
    assert role.nodes is not None
    path = (*role.path, "nodes")
    if role.nodes > role.workers:
        idle = role.nodes - role.workers
        report.error(recipe.document, path, f"{idle} of {role.nodes} nodes would have no worker; write {role.workers}")
        return None
    fit = gpus_per_node // gpus
    if role.workers > role.nodes * fit:
        needed = -(-role.workers // fit)
        message = f"{role.workers} workers of {gpus} GPUs need {needed} nodes of {gpus_per_node} GPUs"
        report.error(recipe.document, path, message)
        return None
    share, rest = divmod(role.workers, role.nodes)
    return [first + n for n in range(role.nodes) for _ in range(share + (n < rest))]


def _colocated(
    role: Role, gpus: int, used: list[int], gpus_per_node: int, report: Report, recipe: Recipe
) -> list[int] | None:
    """Nodes of a role that goes behind the workers already placed, in node order."""
    if role.nodes is not None:
        return None
    path = (*role.path, "nodes")
    if role.name != "decode" or not used:
        report.error(recipe.document, path, "only decode can be colocated, with prefill workers to stand behind")
        return None
    room = [node for node, taken in enumerate(used) for _ in range((gpus_per_node - taken) // gpus)]
    if len(room) < role.workers:
        message = f"{role.workers} workers of {gpus} GPUs do not fit behind prefill: room for {len(room)}"
        report.error(recipe.document, path, message)
        return None
    return room[: role.workers]


def _note_idle(recipe: Recipe, used: list[int], gpus_per_node: int, report: Report) -> None:
    idle = sum(gpus_per_node - taken for taken in used)
    if idle:
        nodes = sum(taken < gpus_per_node for taken in used)
        message = f"{idle} GPUs on {nodes} of {len(used)} nodes stay idle"
        report.note(recipe.document, ("roles",), message, code="idle-gpus")
