"""The plan: every decision made, every word final. Made from checked recipe and profile, rendered by templates."""

from typing import Mapping, NamedTuple

from srtgen.arguments import Line
from srtgen.bench import Point
from srtgen.environment import Environment
from srtgen.evaluation import Evaluation
from srtgen.hub import Hub
from srtgen.model import Mount, Served
from srtgen.placement import Placement
from srtgen.ports import Listener
from srtgen.profile import Profile
from srtgen.recipe import Ports, Recipe
from srtgen.runtimes import Runtime
from srtgen.slurm import Directive
from srtgen.words import Var, Word, word


class Process(NamedTuple):
    """One process of the job. `lines` is its argv, one flag a line; `node` counts from 0 in allocation order."""

    step: str
    role: str
    index: int
    node: int
    gpus: tuple[int, ...]
    ports: Mapping[str, int]
    image: str
    env: Environment
    lines: tuple[Line, ...]
    ranks: int = 1


class RoleGroup(NamedTuple):
    """The processes of one role, which share a launch script."""

    name: str
    processes: tuple[Process, ...]
    parallel: Mapping[str, int | bool]
    srun_options: tuple[str, ...]


class Health(NamedTuple):
    """Deadline of loading = attempts * interval (seconds); texts and patterns that end the wait."""

    attempts: int
    interval_s: int
    markers: tuple[str, ...]
    patterns: tuple[str, ...]


class Plan(NamedTuple):
    recipe: Recipe
    profile: Profile
    runtime: Runtime
    placement: Placement
    ports: Ports
    served: Served
    hub: Hub
    prefetch: Process | None
    groups: tuple[RoleGroup, ...]
    router: Process
    router_lists_ranks: bool
    listeners: tuple[Listener, ...]
    client: Process
    points: tuple[Point, ...]
    evaluation: Evaluation | None
    directives: tuple[Directive, ...]
    mounts: tuple[Mount, ...]
    srun_options: tuple[str, ...]
    cpus_per_task: str
    pass_env: tuple[str, ...]
    require_env: tuple[str, ...]
    health: Health
    gpu_drain_timeout_s: int
    transport: str

    @property
    def workers(self) -> tuple[Process, ...]:
        return tuple(p for group in self.groups for p in group.processes)

    @property
    def programs(self) -> tuple[Process, ...]:
        """Every process but the client, in the order of their start."""
        return (*((self.prefetch,) if self.prefetch else ()), *self.workers, self.router)

    def gpus_of(self, role: str) -> int:
        """GPUs that the workers of a role hold together."""
        return sum(len(p.gpus) for p in self.workers if p.role == role)


def address(node: int) -> Var:
    """The variable that holds a node's address in the job."""
    return Var(f"NODE_{node}_ADDR")


def work_folder(step: str) -> Word:
    """The writable folder that a process starts in."""
    return word("/tmp/srtgen-", Var("SLURM_JOB_ID"), f"/{step}/")
