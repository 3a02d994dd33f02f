"""AToMesh: `atomesh launch`, started once every worker answers (a worker that comes late is never registered)."""

from __future__ import annotations

from functools import lru_cache

from srtgen import arguments, flags, resources
from srtgen.arguments import Dialect, Line
from srtgen.recipe import Ports, Recipe, Setting
from srtgen.report import Report
from srtgen.routers import Backend
from srtgen.words import Word, word

MANAGED = frozenset({"host", "port", "prefill", "decode", "worker_urls", "pd_disaggregation", "backend"})
METRICS_KEY = "prometheus-port"
# clap takes any word that starts with "-" for a flag, numbers included.
_DIALECT = Dialect(
    owner="AToMesh",
    spell=lambda key: "--" + key.replace("_", "-"),
    joined=lambda _text: True,
    repeats=frozenset({"multi", "append"}),
    negatable=False,
)


@lru_cache(maxsize=None)
def table() -> flags.FlagTable:
    """AToMesh's flags."""
    return flags.load(resources.text("schema", "routers/atomesh.json"))


def _metrics_setting(recipe: Recipe) -> Setting | None:
    return next((s for s in recipe.frontend.args if s.key.replace("_", "-") == METRICS_KEY), None)


class AtoMesh:
    name = "atomesh"
    engines = ("atom",)
    starts_after_workers = True
    reserved_env: frozenset[str] = frozenset()

    def check(self, recipe: Recipe, report: Report) -> None:
        if recipe.document.data.get("frontend", {}).get("enable_multiple_frontends"):
            message = "several frontends are not supported; write false or remove the key"
            report.error(recipe.document, ("frontend", "enable_multiple_frontends"), message)

    def ports(self, recipe: Recipe, report: Report) -> Ports:
        setting = _metrics_setting(recipe)
        if setting is None:
            return recipe.ports
        source = setting.source if isinstance(setting.value, (int, str)) and setting.value is not True else ""
        if not source.isascii() or not source.isdigit() or not 1024 <= int(source) <= 32767:
            report.error(recipe.document, setting.path, "expected a port from 1024 to 32767")
            return recipe.ports
        given = recipe.document.data.get("ports", {}).get("router_metrics")
        if given is not None and given != int(source):
            report.error(recipe.document, setting.path, f"contradicts ports.router_metrics, which is {given}")
        return recipe.ports._replace(router_metrics=int(source))

    def argv(self, recipe: Recipe, ports: Ports, backends: tuple[Backend, ...], report: Report) -> tuple[Line, ...]:
        """AToMesh 2026-08-22: no bootstrap port behind a URL, no trailing slash, --worker-urls takes all that follow."""
        own = arguments.lines(recipe.frontend.args, table(), MANAGED, _DIALECT, report)
        moved = ports.router_metrics != Ports().router_metrics and _metrics_setting(recipe) is None
        return (
            (word("atomesh"), word("launch")),
            *_mode(backends),
            (word("--host"), word("0.0.0.0")),
            (word("--port"), word(str(ports.router))),
            (word("--backend"), word("atom")),
            *([(word(f"--{METRICS_KEY}"), word(str(ports.router_metrics)))] if moved else []),
            *own,
        )

    def listed(self, backends: tuple[Backend, ...]) -> tuple[Backend, ...]:
        return backends

    def lists_ranks(self, recipe: Recipe) -> bool:
        return any(s.key.replace("_", "-") == "dp-aware" and s.value is True for s in recipe.frontend.args)


def _mode(backends: tuple[Backend, ...]) -> list[Line]:
    if any(b.role == "agg" for b in backends):
        urls: list[Word] = [b.url for b in backends]
        return [(word("--worker-urls"), *urls)]
    return [
        (word("--pd-disaggregation"),),
        *((word(f"--{role}"), b.url) for role in ("prefill", "decode") for b in backends if b.role == role),
    ]
