"""The recipe as typed data: what layout 2 says, defaults filled in, nothing decided yet."""

from typing import Any, Mapping, NamedTuple

from srtgen.document import Document
from srtgen.errors import Path

ROLE_NAMES = ("prefill", "decode", "agg")
COLOCATE = "colocate"


class Setting(NamedTuple):
    """One entry of a free-form mapping (args, env): its value and where it is written."""

    key: str
    value: Any
    path: Path
    document: Document

    @property
    def source(self) -> str:
        """The scalar as the recipe writes it: `0.90` stays `0.90`."""
        return self.document.sources[self.path]

    @property
    def place(self) -> str:
        return f"{self.document.shown(self.path)} (line {self.document.key_mark(self.path).line})"


class Model(NamedTuple):
    path: str
    container: str
    precision: str
    offline: bool
    stage_dir: str | None


class EngineSettings(NamedTuple):
    type: str
    connector: str
    mooncake_protocol: str | None
    ib_device: str | None
    version: str | None


class Role(NamedTuple):
    """One role. `nodes` is None where it shares prefill's; `gpus` is None where the recipe leaves it to division."""

    name: str
    nodes: int | None
    workers: int
    gpus: int | None
    args: tuple[Setting, ...]
    env: tuple[Setting, ...]
    container: str
    srun_options: tuple[tuple[str, str], ...]
    path: Path


class Frontend(NamedTuple):
    type: str
    args: tuple[Setting, ...]
    env: tuple[Setting, ...]
    container: str
    node: str


class Ports(NamedTuple):
    """First ports of the port table (bundle defaults)."""

    router: int = 8000
    router_metrics: int = 29000
    worker_http: int = 6100
    handshake: int = 5400
    dp_master: int = 29500
    dp_base: int = 29700


class Benchmark(NamedTuple):
    """What is measured. Times in seconds, lengths in tokens; `fields` are the keys that the recipe gives."""

    type: str
    isl: int
    osl: int
    concurrencies: tuple[int, ...]
    req_rate: str
    range_ratio: str
    prompts_mult: int
    warmup_mult: int
    chat_template: bool
    client: str
    client_path: str
    client_args: tuple[Setting, ...]
    tokenizer: str | None
    max_failed_ratio: str
    stall_timeout_s: int
    command: str | None
    argv: tuple[str, ...]
    cwd: str | None
    require_env: tuple[str, ...]
    env: tuple[Setting, ...]
    container: str
    node: str
    fields: frozenset[str]


class Recipe(NamedTuple):
    document: Document
    name: str
    model: Model
    gpu_type: str | None
    gpus_per_node: int | None
    account: str | None
    partition: str | None
    time_limit: str | None
    engine: EngineSettings
    roles: tuple[Role, ...]
    frontend: Frontend
    ports: Ports
    environment: tuple[Setting, ...]
    mounts: tuple[tuple[str, Path], ...]
    srun_options: tuple[tuple[str, str], ...]
    sbatch_directives: tuple[tuple[str, str], ...]
    health_check: Mapping[str, Any]
    gpu_drain_timeout_s: int | None
    identity: tuple[tuple[str, str], ...]
    benchmark: Benchmark

    def role(self, name: str) -> Role | None:
        return next((r for r in self.roles if r.name == name), None)


def settings(document: Document, path: Path) -> tuple[Setting, ...]:
    """The entries of the mapping at `path`, in the recipe's order; () where there is none."""
    node: Any = document.data
    for step in path:
        node = node.get(step) if isinstance(node, dict) else None
        if node is None:
            return ()
    return tuple(Setting(key, value, (*path, key), document) for key, value in node.items())


def options(document: Document, path: Path) -> tuple[tuple[str, str], ...]:
    """A mapping of options as (name, source text) pairs."""
    return tuple((s.key, s.source) for s in settings(document, path))


def read(document: Document) -> Recipe:
    """The typed recipe of a document that the schema has accepted."""
    data = document.data
    model = data["model"]
    image = model["container"]
    resources, slurm = data.get("resources", {}), data.get("slurm", {})
    ports = {k: v for k, v in data.get("ports", {}).items() if k in Ports._fields}  # others were refused
    return Recipe(
        document=document,
        name=data["name"],
        model=Model(model["path"], image, model.get("precision", ""), model.get("offline", False),
                    model.get("stage_dir")),
        gpu_type=resources.get("gpu_type"),
        gpus_per_node=resources.get("gpus_per_node"),
        account=slurm.get("account"),
        partition=slurm.get("partition"),
        time_limit=slurm.get("time_limit"),
        engine=_engine(data["engine"]),
        roles=tuple(_role(document, name, image) for name in ROLE_NAMES if name in data["roles"]),
        frontend=_frontend(document, image),
        ports=Ports(**ports),
        environment=settings(document, ("environment",)),
        mounts=_mounts(data),
        srun_options=options(document, ("srun_options",)),
        sbatch_directives=options(document, ("sbatch_directives",)),
        health_check=data.get("health_check", {}),
        gpu_drain_timeout_s=data.get("gpu_drain_timeout_s"),
        identity=tuple(data.get("identity", {}).get("frameworks", {}).items()),
        benchmark=_benchmark(document, image),
    )


def _engine(value: Any) -> EngineSettings:
    given = {"type": value} if isinstance(value, str) else value
    return EngineSettings(
        type=given["type"],
        connector=given.get("connector", "mooncake"),
        mooncake_protocol=given.get("mooncake_protocol"),
        ib_device=given.get("ib_device"),
        version=given.get("version"),
    )


def _role(document: Document, name: str, image: str) -> Role:
    given = document.data["roles"][name]
    path: Path = ("roles", name)
    return Role(
        name=name,
        nodes=None if given["nodes"] == COLOCATE else given["nodes"],
        workers=given["workers"],
        gpus=given.get("gpus"),
        args=settings(document, (*path, "args")),
        env=settings(document, (*path, "env")),
        container=given.get("container", image),
        srun_options=options(document, (*path, "srun_options")),
        path=path,
    )


def _frontend(document: Document, image: str) -> Frontend:
    given = document.data.get("frontend", {})
    return Frontend(
        type=given.get("type", "atomesh"),
        args=settings(document, ("frontend", "args")),
        env=settings(document, ("frontend", "env")),
        container=given.get("container_image", image),
        node=given.get("placement", {}).get("node", "head"),
    )


def _mounts(data: Mapping[str, Any]) -> tuple[tuple[str, Path], ...]:
    return tuple(
        (mount, (key, index))
        for key in ("container_mounts", "extra_mount")
        for index, mount in enumerate(data.get(key, []))
    )


def concurrencies(value: Any) -> tuple[int, ...]:
    """The points of a sweep: 8, [4, 8] or "4x8"."""
    if isinstance(value, str):
        return tuple(int(part) for part in value.split("x"))
    return (value,) if isinstance(value, int) else tuple(value or ())


def _benchmark(document: Document, image: str) -> Benchmark:
    given = document.data["benchmark"]

    def source(key: str, default: str) -> str:
        return document.sources.get(("benchmark", key), default)

    return Benchmark(
        type=given["type"],
        isl=given.get("isl", 0),
        osl=given.get("osl", 0),
        concurrencies=concurrencies(given.get("concurrencies")),
        req_rate=source("req_rate", "inf"),
        range_ratio=source("random_range_ratio", "0.8"),
        prompts_mult=given.get("num_prompts_mult", 10),
        warmup_mult=given.get("num_warmup_mult", 2),
        chat_template=given.get("use_chat_template", False),
        client=given.get("client", "atom"),
        client_path=given.get("client_path", "/infmax-workspace/utils/bench_serving/benchmark_serving.py"),
        client_args=settings(document, ("benchmark", "client_args")),
        tokenizer=given.get("tokenizer"),
        max_failed_ratio=source("max_failed_ratio", "0"),
        stall_timeout_s=given.get("stall_timeout_s", 600),
        command=given.get("command"),
        argv=tuple(given.get("argv", ())),
        cwd=given.get("cwd"),
        require_env=tuple(given.get("require_env", ())),
        env=settings(document, ("benchmark", "env")),
        container=given.get("container_image", image),
        node=given.get("placement", {}).get("node", "head"),
        fields=frozenset(given),
    )
