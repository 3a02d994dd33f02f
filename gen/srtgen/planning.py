"""From checked recipe and profile to the plan: each decision in its own module, put together here."""

from typing import Mapping, NamedTuple

from srtgen import bench, checks, environment, evaluation, hub, jitcache, model, ports, slurm
from srtgen.adapters import ENGINES, ROUTERS, RUNTIMES
from srtgen.arguments import Line
from srtgen.engines import Engine, Site
from srtgen.environment import Environment
from srtgen.hub import Hub
from srtgen.model import Mount, Served
from srtgen.placement import Placement, Slot, place
from srtgen.plan import Health, Plan, Process, RoleGroup, address, work_folder
from srtgen.ports import Listener, WorkerPorts
from srtgen.profile import Profile
from srtgen.recipe import Ports, Recipe, Role
from srtgen.report import Report
from srtgen.routers import Backend, Router
from srtgen.words import Word, word

BENCH_ROLE = "bench"
PREFETCH_ROLE = "prefetch"
HEALTH_DEFAULTS = {"max_attempts": 720, "interval_seconds": 5}
FATAL_MARKERS = (
    "OutOfMemoryError",
    "HIP out of memory",
    "Memory access fault by GPU",
    "Address already in use",
    "Segmentation fault",
)
GPU_DRAIN_TIMEOUT_S = 300
# Folders of its own for each process: a shared home or cache mixes images, and two processes of a node race in it.
_OWN_FOLDERS = {"HOME": "home", "XDG_CACHE_HOME": "cache"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


def make(recipe: Recipe, profile: Profile, report: Report) -> Plan:
    """The plan of a recipe on a site. RecipeError with all problems, unless it holds together."""
    checks.names(recipe, report)
    checks.roles(recipe, report)
    checks.secrets(recipe, profile, report)
    slurm.check(recipe, profile, report)
    jitcache.check(profile, report)
    bench.check(recipe, report)
    served = model.resolve(recipe, profile, report)
    cache = hub.resolve(recipe, profile, served, report)
    mounts = model.mounts(recipe, profile, served, cache.cache.mount, report)
    if RUNTIMES[profile.runtime].contained:
        bench.check_mount(recipe, [mount.target for mount in mounts], report)
    engine, router = ENGINES.get(recipe.engine.type), ROUTERS.get(recipe.frontend.type)
    gpus_per_node = recipe.gpus_per_node or profile.gpus_per_node
    if gpus_per_node is None:
        message = "missing key gpus_per_node, which no cluster profile gives either"
        report.error(recipe.document, ("resources",), message, at_key=True)
    placement = place(recipe, gpus_per_node, report) if gpus_per_node else None
    if engine is None or router is None or placement is None or served is None or not recipe.roles:
        report.stop_on_errors()
        raise AssertionError("a plan without engine, router, placement or model must have an error")
    return _Maker(recipe, profile, report, engine, router, placement, served, cache, mounts).plan()


class _Maker(NamedTuple):
    """The parts that later decisions share."""

    recipe: Recipe
    profile: Profile
    report: Report
    engine: Engine
    router: Router
    placement: Placement
    served: Served
    hub: Hub
    mounts: tuple[Mount, ...]

    def plan(self) -> Plan:
        recipe, profile, report = self.recipe, self.profile, self.report
        self.engine.check(recipe, report)
        self.router.check(recipe, report)
        table = self.router.ports(recipe, report)
        roles = tuple(r._replace(gpus=self._gpus(r)) for r in recipe.roles)
        groups = tuple(self._group(role, table) for role in roles)
        served = model.name(self.engine, roles, self.served, report, recipe)
        router, backends_env = self._router(table, groups), self._client_env()
        url = word("http://", address(router.node), f":{table.router}")
        points = bench.points(recipe, served.name, served.argument, url, report)
        evaluated = evaluation.read(recipe, report)
        listeners = self._listeners(groups, table, router)
        ports.check(recipe, self.placement, listeners, report)
        directives = slurm.directives(recipe, profile, self.placement.nodes, self.placement.gpus_per_node)
        client = self._client(backends_env)
        self._check_masks(groups)
        report.stop_on_errors()
        return Plan(
            recipe=recipe._replace(roles=roles),
            profile=profile,
            runtime=RUNTIMES[profile.runtime],
            placement=self.placement,
            ports=table,
            served=served,
            hub=self.hub,
            prefetch=self._prefetch(groups),
            groups=groups,
            router=router,
            router_lists_ranks=self.router.lists_ranks(recipe),
            listeners=tuple(listeners),
            client=client,
            points=points,
            evaluation=evaluated,
            directives=directives,
            mounts=self.mounts,
            srun_options=_options({**dict(profile.srun_options), **dict(recipe.srun_options)}),
            cpus_per_task=next((d.value or "" for d in directives if d.name == "cpus-per-task"), ""),
            pass_env=self._pass_env(groups, router, client),
            require_env=self._require_env(groups, router, client),
            health=_health(recipe, profile),
            gpu_drain_timeout_s=_first(recipe.gpu_drain_timeout_s, profile.gpu_drain_timeout_s, GPU_DRAIN_TIMEOUT_S),
            transport=self._transport(),
        )

    def _gpus(self, role: Role) -> int:
        return next(len(s.gpus) for s in self.placement.slots if s.role == role.name)

    def _group(self, role: Role, table: Ports) -> RoleGroup:
        assert role.gpus is not None
        self.engine.check_sizes(self.recipe, role, role.gpus, self.report)
        lines = self.engine.role_lines(role, self.report)
        sharing = self.placement.sharing()
        processes = []
        merged: dict[tuple[str, ...], Environment] = {}
        for slot in (s for s in self.placement.slots if s.role == role.name):
            processes.append(self._worker(role, slot, table, lines, sharing, merged))
        parallel = self.engine.parallel(role, role.gpus)
        return RoleGroup(role.name, tuple(processes), parallel, _options(dict(role.srun_options)))

    def _worker(
        self,
        role: Role,
        slot: Slot,
        table: Ports,
        lines: tuple[Line, ...],
        sharing: frozenset[int],
        merged: dict[tuple[str, ...], Environment],
    ) -> Process:
        ranks = self.engine.ranks(role)
        shares = slot.node in sharing
        own = ports.worker_ports(table, slot, self.engine.transfers_kv(role), ranks > 1 or shares)
        site = Site(
            role=role,
            slot=slot,
            ports=own,
            address=address(slot.node),
            model=self.served.argument,
            shares_node=shares,
            partial_node=len(slot.gpus) < self.placement.gpus_per_node,
            visible_devices_env=self.profile.visible_devices_env,
            gid_index=self.profile.gid_index,
        )
        (command,) = self.engine.commands(self.recipe.engine, site, lines)
        step = f"{role.name}_{slot.index}"
        managed = {**command.env, **self._site()}
        # The recipe's part is the same for all workers of a role that manage the same names: merge and judge it once.
        if (names := tuple(managed)) not in merged:
            layers = (self.recipe.environment, role.env)
            merged[names] = environment.merge(layers, managed, self.engine.reserved_env, self.report)
        env = tuple((name, managed.get(name, value)) for name, value in merged[names])
        return Process(
            step=step,
            role=role.name,
            index=slot.index,
            node=slot.node,
            gpus=slot.gpus,
            ports=_named(own),
            image=model.image(role.container, self.profile),
            env=(*self._caches(step, slot, role, env), *env),
            lines=command.lines,
            ranks=ranks,
        )

    def _caches(self, step: str, slot: Slot, role: Role, env: Environment) -> Environment:
        """Home and caches of a worker; those of compilers are the store's where the profile has one."""
        if self.profile.jit_cache is None:
            return _own_folders(step, env, {**self.engine.caches, **self.hub.folders})
        given = {name for name, _ in env}
        image = model.image(role.container, self.profile)
        kept = jitcache.environment(self.profile, step, slot.position, image, self.engine.caches)
        return (*_own_folders(step, env, self.hub.folders), *((name, value) for name, value in kept if name not in given))

    def _site(self) -> dict[str, Word]:
        """What every process gets beside the recipe's: the switches of an offline job, the site's hub cache."""
        switches = {name: word(value) for name, value in _OFFLINE.items()} if self.recipe.model.offline else {}
        return {**switches, **self.hub.cache.env}

    def _prefetch(self, groups: tuple[RoleGroup, ...]) -> Process | None:
        """What fetches the model, as the first worker would: its image, and the environment of all workers."""
        if self.hub.prefetch == "none":
            return None
        first, env = groups[0].processes[0], dict[str, Word]()
        for role in self.recipe.roles:
            layers = (self.recipe.environment, role.env)
            merged = environment.merge(layers, self._site(), self.engine.reserved_env, self.report)
            env = {**dict(merged), **env}
        step, lines = f"{PREFETCH_ROLE}_0", hub.prefetch_lines(self.served, RUNTIMES[self.profile.runtime].contained)
        own = _own_folders(step, tuple(env.items()), self.hub.folders)
        return Process(step, PREFETCH_ROLE, 0, first.node, (), {}, first.image, (*own, *env.items()), lines)

    def _router(self, table: Ports, groups: tuple[RoleGroup, ...]) -> Process:
        recipe = self.recipe
        backends = tuple(
            Backend(p.role, word("http://", address(p.node), f":{p.ports['http']}")) for g in groups for p in g.processes
        )
        layers = (recipe.environment, recipe.frontend.env)
        step = f"{self.router.name}_0"
        env = environment.merge(layers, self._site(), self.router.reserved_env, self.report)
        return Process(
            step=step,
            role=self.router.name,
            index=0,
            node=self._node_of(recipe.frontend.node, "first_decode", groups),
            gpus=(),
            ports={"http": table.router, "metrics": table.router_metrics},
            image=model.image(recipe.frontend.container, self.profile),
            env=(*_own_folders(step, env, self.hub.folders), *env),
            lines=self.router.argv(recipe, table, backends, self.report),
        )

    def _node_of(self, wanted: str, decode: str, groups: tuple[RoleGroup, ...]) -> int:
        if wanted != decode:
            return 0
        nodes = [p.node for g in groups if g.name == "decode" for p in g.processes]
        return (nodes[0] if decode == "first_decode" else nodes[-1]) if nodes else 0

    def _client_env(self) -> Environment:
        layers = (self.recipe.environment, self.recipe.benchmark.env)
        return environment.merge(layers, self._site(), frozenset(), self.report)

    def _client(self, env: Environment) -> Process:
        bench_ = self.recipe.benchmark
        node = 0
        if bench_.node == "last_decode":
            node = max((s.node for s in self.placement.slots if s.role == "decode"), default=0)
        image = model.image(bench_.container, self.profile)
        return Process(BENCH_ROLE, BENCH_ROLE, 0, node, (), {}, image, (*_own_folders(BENCH_ROLE, env, self.hub.folders), *env), ())

    def _listeners(self, groups: tuple[RoleGroup, ...], table: Ports, router: Process) -> list[Listener]:
        slots = {(s.role, s.index): s for s in self.placement.slots}
        found = [
            Listener(router.node, table.router, table.router, router.step, "router"),
            Listener(router.node, table.router_metrics, table.router_metrics, router.step, "router_metrics"),
        ]
        for process in (p for g in groups for p in g.processes):
            own = WorkerPorts(**{k: process.ports.get(k) for k in ("http", "handshake", "dp_master", "dp_base")})  # type: ignore[arg-type]
            found.extend(ports.worker_listeners(process.step, slots[process.role, process.index], own))
        return found

    def _check_masks(self, groups: tuple[RoleGroup, ...]) -> None:
        """ATOM 2026-08-22 picks the RDMA adapter by HIP_VISIBLE_DEVICES and never reads ROCR_VISIBLE_DEVICES."""
        masked = any(len(p.gpus) < self.placement.gpus_per_node for g in groups for p in g.processes)
        risky = self.profile.visible_devices_env == "ROCR_VISIBLE_DEVICES" and self._transport() == "rdma"
        if masked and risky and not self.recipe.engine.ib_device and self.profile.document:
            message = (
                "ATOM picks the RDMA adapter of a GPU by HIP_VISIBLE_DEVICES; under ROCR_VISIBLE_DEVICES it takes the "
                "wrong one. Use HIP_VISIBLE_DEVICES, or name engine.ib_device in the recipe"
            )
            self.report.error(self.profile.document, ("visible_devices_env",), message)

    def _transport(self) -> str:
        if not any(self.engine.transfers_kv(role) for role in self.recipe.roles):
            return ""
        return self.recipe.engine.mooncake_protocol or "rdma"

    def _pass_env(self, groups: tuple[RoleGroup, ...], *others: Process) -> tuple[str, ...]:
        return _unique([*self.profile.pass_environment, *self._secrets(groups, *others)])

    def _require_env(self, groups: tuple[RoleGroup, ...], *others: Process) -> tuple[str, ...]:
        return _unique([*self._secrets(groups, *others), *self.recipe.benchmark.require_env])

    def _secrets(self, groups: tuple[RoleGroup, ...], *others: Process) -> list[str]:
        first = [g.processes[0] for g in groups]
        return [name for p in (*first, *others) for name in environment.secrets(p.env)]


def _own_folders(step: str, env: Environment, folders: Mapping[str, str]) -> Environment:
    """Home and caches of a process below its work folder, for the names that the recipe leaves alone."""
    given = {name for name, _ in env}
    every = {**_OWN_FOLDERS, **folders}
    return tuple((name, word(*work_folder(step), folder)) for name, folder in every.items() if name not in given)


def _named(own: WorkerPorts) -> dict[str, int]:
    every = {"http": own.http, "handshake": own.handshake, "dp_master": own.dp_master, "dp_base": own.dp_base}
    return {name: port for name, port in every.items() if port is not None}


def _options(options: Mapping[str, str]) -> tuple[str, ...]:
    """srun options as words; an empty value is the bare option."""
    return tuple(f"--{name}={value}" if value else f"--{name}" for name, value in options.items())


def _unique(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _first(*values: int | None) -> int:
    return next(v for v in values if v is not None)


def _health(recipe: Recipe, profile: Profile) -> Health:
    merged = {**HEALTH_DEFAULTS, **profile.health_check, **recipe.health_check}
    return Health(
        attempts=merged["max_attempts"],
        interval_s=merged["interval_seconds"],
        markers=tuple(merged.get("fatal_log_markers", FATAL_MARKERS)),
        patterns=tuple(merged.get("extra_fatal_log_patterns", ())),
    )
