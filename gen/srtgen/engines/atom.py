"""ROCm ATOM: `python3 -m atom.entrypoints.openai_server`, one process a worker, one node a worker."""

import re
from functools import lru_cache
from typing import Mapping, NamedTuple

from srtgen import arguments, flags, resources
from srtgen.arguments import Dialect, Line
from srtgen.engines import Command, Site
from srtgen.recipe import EngineSettings, Recipe, Role, Setting
from srtgen.report import Report
from srtgen.words import Param, Word, word

KV_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
EXTRA_CONNECTORS = "extra-kv-connectors"
MANAGED = frozenset({"model", "host", "server_port", "port", "tensor_parallel_size", "kv_transfer_config"})
GREATEST_TP = 8  # ATOM 2026-08-22: config.py accepts 1..8
_DIALECT = Dialect(
    owner="ATOM",
    spell=lambda key: f"--{key}",
    joined=lambda text: not re.match(arguments.ARGPARSE_NUMBER, text),
)


@lru_cache(maxsize=None)
def table() -> flags.FlagTable:
    """ATOM's flags by date."""
    return flags.load(resources.text("schema", "engines/atom.json"))


class Sizes(NamedTuple):
    """Parallel sizes of one worker. GPUs = tp * dp * pp * pcp; dcp divides tp (ATOM 2026-08-22)."""

    dp: int
    pp: int
    pcp: int
    dcp: int
    dp_attention: bool

    @property
    def divisor(self) -> int:
        return self.dp * self.pp * self.pcp


def sizes(role: Role) -> Sizes:
    """The sizes in the role's args; 1 where they say nothing."""
    found = {f.key: s.value for s in role.args if (f := table().find(f"--{s.key}"))}

    def size(key: str) -> int:
        value = found.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1

    return Sizes(
        dp=size("data_parallel_size"),
        pp=size("pipeline_parallel_size"),
        pcp=size("prefill_context_parallel_size"),
        dcp=size("decode_context_parallel_size"),
        dp_attention=found.get("enable_dp_attention") is True,
    )


class Atom:
    name = "atom"
    connectors = ("mooncake",)
    services: tuple[str, ...] = ()
    # ATOM 2026-08-22: its own CI gives each worker these; stale compile caches have to be deleted by hand otherwise.
    caches = {
        "TRITON_CACHE_DIR": "cache/triton",
        "AITER_JIT_DIR": "cache/aiter-jit",
        "AITER_CACHE_DIR": "cache/aiter",
        "TORCHINDUCTOR_CACHE_DIR": "cache/inductor",
        "FLYDSL_RUNTIME_CACHE_DIR": "cache/flydsl",
    }
    # ATOM_DP_SIZE, _RANK, _RANK_LOCAL are overwritten by the server itself (ATOM 2026-08-22).
    reserved_env = frozenset(
        {
            "ATOM_HOST_IP",
            "HOST_IP",
            "ATOM_DP_MASTER_IP",
            "ATOM_DP_MASTER_PORT",
            "ATOM_DP_BASE_PORT",
            "ATOM_DP_SIZE",
            "ATOM_DP_RANK",
            "ATOM_DP_RANK_LOCAL",
        }
    )

    def check(self, recipe: Recipe, report: Report) -> None:
        settings, document = recipe.engine, recipe.document
        if settings.connector not in self.connectors:
            message = f"{settings.connector} is not supported; known: {', '.join(self.connectors)}"
            report.error(document, ("engine", "connector"), message)
        transfers = any(self.transfers_kv(role) for role in recipe.roles)
        for key in ("mooncake_protocol", "ib_device"):
            if getattr(settings, key) and not transfers:
                report.error(document, ("engine", key), "never read: aggregate workers transfer no KV cache")
        if settings.ib_device and settings.mooncake_protocol == "tcp":
            message = "an RDMA device contradicts mooncake_protocol: tcp; remove one of them"
            report.error(document, ("engine", "ib_device"), message)

    def served_name(self, role: Role, model: str) -> str:
        named = [s for s in role.args if s.key in ("served-model-name", "served_model_name")]
        return named[-1].source if named and isinstance(named[-1].value, (str, int, float)) else model

    def ranks(self, role: Role) -> int:
        """ATOM 2026-06-05: /kv_transfer_info reports dp_size tp*dp under DP attention, else dp."""
        found = sizes(role)
        return (role.gpus or 1) if found.dp_attention else found.dp

    def transfers_kv(self, role: Role) -> bool:
        return role.name in KV_ROLES

    def parallel(self, role: Role, gpus: int) -> Mapping[str, int | bool]:
        found = sizes(role)
        return {
            "tp": gpus // found.divisor,
            "dp": found.dp,
            "pp": found.pp,
            "pcp": found.pcp,
            "dcp": found.dcp,
            "dp_attention": found.dp_attention,
        }

    def check_sizes(self, recipe: Recipe, role: Role, gpus: int, report: Report) -> None:
        """The GPUs of a worker against the parallel sizes in its args."""
        found = sizes(role)
        tp, rest = divmod(gpus, found.divisor)
        where = (*role.path, "gpus")
        if rest:
            message = (
                f"{gpus} GPUs are not divisible by the sizes in args: "
                f"data {found.dp} x pipeline {found.pp} x prefill-context {found.pcp}"
            )
            report.error(recipe.document, where, message)
        elif tp > GREATEST_TP:
            message = f"{gpus} GPUs would give -tp {tp}; ATOM takes at most {GREATEST_TP}"
            report.error(recipe.document, where, message)

    def role_lines(self, role: Role, report: Report) -> tuple[Line, ...]:
        given = tuple(s for s in role.args if s.key != EXTRA_CONNECTORS)
        for setting in role.args:
            if setting.key == EXTRA_CONNECTORS:
                _check_extra(role, setting, report)
        return arguments.lines(given, table(), MANAGED, _DIALECT, report)

    def commands(self, settings: EngineSettings, site: Site, lines: tuple[Line, ...]) -> tuple[Command, ...]:
        tp = len(site.slot.gpus) // sizes(site.role).divisor
        head: list[Line] = [
            (word("python3"), word("-m"), word("atom.entrypoints.openai_server")),
            (word("--model"), word(site.model)),
            (word("--host"), word("0.0.0.0")),
            (word("--server-port"), word(Param("server_port", str(site.ports.http)))),
            (word("-tp"), word(str(tp))),
        ]
        if (config := _kv_transfer_config(settings, site)) is not None:
            head.append((word("--kv-transfer-config"), config))
        return (Command((*head, *lines), _environment(settings, site)),)


def _check_extra(role: Role, setting: Setting, report: Report) -> None:
    value = setting.value
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        report.error(setting.document, setting.path, "expected a list of mappings, one a connector")
        return
    for index, one in enumerate(value):
        if not isinstance(one.get("kv_connector"), str):
            report.error(setting.document, (*setting.path, index), "missing key kv_connector")
    if role.name not in KV_ROLES and len(value) > 1:
        report.error(setting.document, setting.path, "an aggregate worker takes one connector")


def _extra(role: Role) -> Setting | None:
    return next((s for s in role.args if s.key == EXTRA_CONNECTORS), None)


def _kv_transfer_config(settings: EngineSettings, site: Site) -> Word | None:
    """Strict JSON in a fixed key order. ATOM adds an integer to handshake_port, so it is a number."""
    extra = _extra(site.role)
    others = [
        arguments.compact_json(extra.document, (*extra.path, n), one) for n, one in enumerate(extra.value if extra else ())
    ]
    if site.role.name not in KV_ROLES:
        return word(others[0]) if others else None
    tail = {"protocol": settings.mooncake_protocol, "ib_device": settings.ib_device}
    ours = word(
        '{"kv_role":' + arguments.json_text(KV_ROLES[site.role.name]) + ',"kv_connector":' + arguments.json_text(settings.connector),
        ',"proxy_ip":"',
        Param("host_ip", site.address),
        '","handshake_port":',
        Param("handshake_port", str(site.ports.handshake)),
        "".join(f',"{key}":{arguments.json_text(value)}' for key, value in tail.items() if value) + "}",
    )
    if not others:
        return ours
    return word('{"kv_connector":"multi","connectors":[', *ours, "," + ",".join(others) + "]}")


def _environment(settings: EngineSettings, site: Site) -> dict[str, Word]:
    env: dict[str, Word] = {"ATOM_HOST_IP": word(Param("host_ip", site.address))}
    if site.partial_node:
        env[site.visible_devices_env] = word(Param("gpus", ",".join(map(str, site.slot.gpus))))
    # ATOM 2026-08-22: the gloo group of the ranks has a fixed default port and no flag; the rendezvous port is random.
    if site.ports.dp_master is not None:
        env["ATOM_DP_MASTER_PORT"] = word(Param("dp_master_port", str(site.ports.dp_master)))
        env["ATOM_DP_BASE_PORT"] = word(Param("dp_base_port", str(site.ports.dp_base)))
    # ATOM 2026-08-12 sets it itself; before, Mooncake found the adapters on its own and used RDMA all the same.
    if settings.mooncake_protocol == "tcp" and site.role.name in KV_ROLES:
        env["MC_FORCE_TCP"] = word("true")
    elif site.gid_index is not None and site.role.name in KV_ROLES:
        env["MC_IB_GID_INDEX"] = word(str(site.gid_index))
    return env
