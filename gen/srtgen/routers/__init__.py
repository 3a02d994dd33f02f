"""Routers. A router is one adapter here; nothing outside this package asks which one it is."""

from typing import NamedTuple, Protocol

from srtgen.arguments import Line
from srtgen.recipe import Ports, Recipe
from srtgen.report import Report
from srtgen.words import Word


class Backend(NamedTuple):
    """One worker as a router sees it: its role and its URL."""

    role: str
    url: Word


class Router(Protocol):
    """What the plan asks of a router."""

    name: str
    engines: tuple[str, ...]
    starts_after_workers: bool
    reserved_env: frozenset[str]

    def check(self, recipe: Recipe, report: Report) -> None:
        """Problems of the router's settings."""

    def ports(self, recipe: Recipe, report: Report) -> Ports:
        """The port table's first ports, with what the router's own args move."""

    def argv(self, recipe: Recipe, ports: Ports, backends: tuple[Backend, ...], report: Report) -> tuple[Line, ...]:
        """The router's command, one flag a line."""

    def listed(self, backends: tuple[Backend, ...]) -> tuple[Backend, ...]:
        """The workers whose URLs the router must report before the job goes on."""

    def lists_ranks(self, recipe: Recipe) -> bool:
        """Whether the router lists a worker once for each of its data-parallel ranks."""
