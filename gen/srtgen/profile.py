"""The cluster profile as typed data: what belongs to a site and never to a recipe."""

from typing import Any, Mapping, NamedTuple

from srtgen.document import Document
from srtgen.recipe import options


JIT_MAX_GB = 100


class Profile(NamedTuple):
    """A site. The defaults are those of a job that is generated without a profile."""

    document: Document | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    time_limit: str | None = None
    gpus_per_node: int | None = None
    gpu_directive: str = "gpus-per-node"
    exclusive: bool = True
    sbatch_directives: tuple[tuple[str, str], ...] = ()
    srun_options: tuple[tuple[str, str], ...] = ()
    node_excludes: tuple[str, ...] = ()
    network_interface: str | None = None
    visible_devices_env: str = "HIP_VISIBLE_DEVICES"
    runtime: str = "pyxis"
    runtime_options: tuple[str, ...] = ()
    runtime_root: bool = False
    runtime_storage: str = ""
    image_stage_dir: str = ""
    containers: Mapping[str, str] = {}
    model_paths: Mapping[str, str] = {}
    mounts: tuple[tuple[str, str], ...] = ()
    preamble: str = ""
    pass_environment: tuple[str, ...] = ()
    preflight_commands: tuple[tuple[str, str], ...] = ()
    health_check: Mapping[str, Any] = {}
    gpu_drain_timeout_s: int | None = None
    gid_index: int | None = None
    output_dir: str = ""
    hf_cache: str = ""
    prefetch: str = "none"
    pip_index_url: str = ""
    ca_file: str = ""
    jit_cache: tuple[str, int] | None = None


def read(document: Document) -> Profile:
    """The typed profile of a document that the schema has accepted."""
    data = document.data
    runtime = data.get("container_runtime", {})
    return Profile(
        document=document,
        account=data.get("default_account"),
        partition=data.get("default_partition"),
        qos=data.get("default_qos"),
        time_limit=data.get("default_time_limit"),
        gpus_per_node=data.get("gpus_per_node"),
        gpu_directive=_gpu_directive(data),
        exclusive=data.get("use_exclusive_sbatch_directive", True),
        sbatch_directives=options(document, ("default_sbatch_directives",)),
        srun_options=options(document, ("default_srun_options",)),
        node_excludes=tuple(data.get("node_excludes", ())),
        network_interface=data.get("network_interface"),
        visible_devices_env=data.get("visible_devices_env", "HIP_VISIBLE_DEVICES"),
        runtime=runtime.get("type", "pyxis"),
        runtime_options=tuple(runtime.get("options", ())),
        runtime_root=runtime.get("root", False),
        runtime_storage=runtime.get("storage", ""),
        image_stage_dir=runtime.get("stage_dir", ""),
        containers=data.get("containers", {}),
        model_paths=data.get("model_paths", {}),
        mounts=tuple(data.get("default_mounts", {}).items()),
        preamble=data.get("default_bash_preamble", ""),
        pass_environment=tuple(data.get("pass_environment", ())),
        preflight_commands=tuple(data.get("preflight_commands", {}).items()),
        health_check=data.get("default_health_check", {}),
        gpu_drain_timeout_s=data.get("gpu_drain_timeout_s"),
        gid_index=data.get("rdma", {}).get("gid_index"),
        output_dir=data.get("output_dir", ""),
        hf_cache=data.get("hf_cache", ""),
        prefetch=data.get("model_prefetch", "none"),
        pip_index_url=data.get("pip_index_url", ""),
        ca_file=data.get("ca_file", ""),
        jit_cache=(jit["dir"], jit.get("max_gb", JIT_MAX_GB)) if (jit := data.get("jit_cache")) else None,
    )


def _gpu_directive(data: Mapping[str, Any]) -> str:
    if data.get("use_gpus_per_node_directive") is False and "gpu_sbatch_directive" not in data:
        return data.get("gpu_directive", "none")
    return data.get("gpu_directive", data.get("gpu_sbatch_directive", "gpus-per-node"))
