"""What the checks look at: the recipe with its flags by name, and what is known of the images."""

import math
from typing import Any, Mapping, NamedTuple

from srtgen.document import Document
from srtgen.engines import atom
from srtgen.engines.dates import Version, version
from srtgen.errors import Path
from srtgen.flags import FlagTable
from srtgen.placement import worker_gpus
from srtgen.profile import Profile
from srtgen.recipe import Recipe, Role, Setting
from srtgen.report import Report
from srtgen.routers import atomesh

Place = tuple[Document, Path]


class Program(NamedTuple):
    """A command line of the recipe: its settings, and by the table's names the ones that the table knows."""

    owner: str
    settings: tuple[Setting, ...]
    table: FlagTable
    flags: Mapping[str, Setting]
    managed: frozenset[str]
    version: Version

    def spelled(self, setting: Setting) -> str:
        """The flag that a setting's key names."""
        return _spelled(setting.key, self.table)

    def emitted(self, setting: Setting) -> str:
        """The flag as the program gets it: `false` asks for the negative form, where there is one."""
        negative = self.table.negative_for(setting.key) if setting.value is False else None
        return negative or self.spelled(setting)

    def value(self, key: str) -> Any:
        """The value given for a flag; None where the recipe says nothing."""
        setting = self.flags.get(key)
        return None if setting is None else setting.value

    def text(self, key: str) -> str:
        """The text given for a flag, "" for none."""
        value = self.value(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> float | None:
        """The number given for a flag; None for none, or for what is no number."""
        return as_number(self.value(key))

    def effective(self, key: str) -> float:
        """The number given for a flag, else its default on the image's date; 0 if that is none."""
        given = self.number(key)
        if given is None and (flag := self.table.find(f"--{key.replace('_', '-')}") or self.table.find(f"--{key}")):
            given = as_number(flag.default_on(self.version.date))
        return given or 0

    def switched(self, key: str) -> bool | None:
        """Whether a switch is on; None where the recipe says nothing."""
        setting = self.flags.get(key)
        if setting is None or setting.value is None:
            return None
        flag = self.table.find(self.spelled(setting))
        negative = bool(flag and flag.is_negative(self.spelled(setting)))
        return (setting.value is not False) != negative


class Worker(NamedTuple):
    """A role: its command line, the GPUs of each worker (0: not known), its parallel sizes, its environment."""

    role: Role
    program: Program
    gpus: int
    sizes: atom.Sizes
    env: Mapping[str, Setting]
    document: Document

    @property
    def tp(self) -> int:
        return self.gpus // self.sizes.divisor

    @property
    def ranks(self) -> int:
        """Data-parallel ranks of a worker; with DP attention each GPU is one (ATOM 2026-08-22)."""
        return (self.gpus or 1) if self.sizes.dp_attention else self.sizes.dp

    @property
    def place(self) -> Place:
        """Where a check points that misses something in the role's args."""
        return self.document, (*self.role.path, "args")


class Facts(NamedTuple):
    recipe: Recipe
    profile: Profile
    workers: tuple[Worker, ...]
    router: Program
    model: str

    @property
    def document(self) -> Document:
        return self.recipe.document

    @property
    def pair(self) -> tuple[Worker, Worker] | None:
        """Prefill and decode, where the recipe has both."""
        by_name = {w.role.name: w for w in self.workers}
        return (by_name["prefill"], by_name["decode"]) if {"prefill", "decode"} <= set(by_name) else None

    @property
    def dsv4(self) -> bool:
        """Whether the model is of the DeepSeek-V4 family, as far as its path tells."""
        return "deepseekv4" in self.model.casefold().replace("-", "").replace("_", "").replace(".", "")

    @property
    def measures(self) -> bool:
        return self.recipe.benchmark.type != "manual"


def gather(recipe: Recipe, profile: Profile) -> Facts:
    """The facts of a recipe on a site; pure, and never an error: what cannot be known is left out."""
    path = recipe.model.path
    return Facts(
        recipe=recipe,
        profile=profile,
        workers=tuple(_worker(recipe, role, profile) for role in recipe.roles),
        router=_program(
            "AToMesh",
            recipe.frontend.args,
            atomesh.table(),
            atomesh.MANAGED,
            _version(recipe, profile, recipe.frontend.container),
        ),
        model=profile.model_paths.get(path, path),
    )


def as_number(value: Any) -> float | None:
    """A number, or the number that a text holds; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = int(value) if isinstance(value, (int, str)) else value
    except ValueError:
        try:
            number = float(value)
        except ValueError:
            return None
    return number if isinstance(number, int) or math.isfinite(number) else None


def _version(recipe: Recipe, profile: Profile, container: str) -> Version:
    return version(recipe.engine.version, profile.containers.get(container, container))


def _spelled(key: str, table: FlagTable) -> str:
    """ATOM keeps the recipe's spelling, AToMesh (which has no dates) has hyphens only."""
    return f"--{key}" if table.first_date else "--" + key.replace("_", "-")


def _program(
    owner: str, settings: tuple[Setting, ...], table: FlagTable, managed: frozenset[str], known: Version
) -> Program:
    flags: dict[str, Setting] = {}
    for setting in settings:
        if flag := table.find(_spelled(setting.key, table)):
            flags.setdefault(flag.key, setting)
    return Program(owner, settings, table, flags, managed, known)


def _worker(recipe: Recipe, role: Role, profile: Profile) -> Worker:
    per_node = recipe.gpus_per_node or profile.gpus_per_node
    gpus = role.gpus or 0
    if not gpus and per_node and role.nodes:
        gpus = worker_gpus(role, per_node, Report(), recipe)
    known = _version(recipe, profile, role.container)
    program = _program("ATOM", role.args, atom.table(), atom.MANAGED, known)
    env = {s.key: s for s in (*recipe.environment, *role.env)}
    return Worker(role, program, gpus, atom.sizes(role), env, recipe.document)
