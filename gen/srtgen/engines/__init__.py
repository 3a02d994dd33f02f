"""Inference engines. An engine is one adapter here; nothing outside this package asks which one it is."""

from typing import Mapping, NamedTuple, Protocol

from srtgen.arguments import Line
from srtgen.placement import Slot
from srtgen.ports import WorkerPorts
from srtgen.recipe import EngineSettings, Recipe, Role
from srtgen.report import Report
from srtgen.words import Var, Word


class Site(NamedTuple):
    """One worker's surroundings: what an engine needs to write its command."""

    role: Role
    slot: Slot
    ports: WorkerPorts
    address: Var
    model: str
    shares_node: bool
    partial_node: bool
    visible_devices_env: str
    gid_index: int | None


class Command(NamedTuple):
    """A process of a worker: its argv, one flag a line, and the variables that srtgen sets for it."""

    lines: tuple[Line, ...]
    env: Mapping[str, Word]


class Engine(Protocol):
    """What the plan asks of an engine."""

    name: str
    connectors: tuple[str, ...]
    reserved_env: frozenset[str]
    services: tuple[str, ...]
    caches: Mapping[str, str]

    def check(self, recipe: Recipe, report: Report) -> None:
        """Problems of the engine's settings and of the roles' args."""

    def check_sizes(self, recipe: Recipe, role: Role, gpus: int, report: Report) -> None:
        """The GPUs of a worker of the role against the parallel sizes in its args."""

    def served_name(self, role: Role, model: str) -> str:
        """The model name that the role's workers answer to; `model` is the literal model argument."""

    def ranks(self, role: Role) -> int:
        """Data-parallel ranks of one worker of the role, as a router that knows ranks counts them."""

    def transfers_kv(self, role: Role) -> bool:
        """Whether the role's workers open KV transfer ports."""

    def parallel(self, role: Role, gpus: int) -> Mapping[str, int | bool]:
        """Parallel sizes of a worker of the role: tp, dp, pp, pcp, dcp, and dp_attention."""

    def commands(self, settings: EngineSettings, site: Site, lines: tuple[Line, ...]) -> tuple[Command, ...]:
        """The processes of one worker; `lines` are the role's own flags."""

    def role_lines(self, role: Role, report: Report) -> tuple[Line, ...]:
        """The role's args as command-line words."""
