"""run.sbatch: directives with their origin, and the plan as data."""

from __future__ import annotations

from typing import Any, Mapping

from srtgen import resources, words
from srtgen.plan import Plan
from srtgen.views.lists import aligned, listed
from srtgen.words import Shell

_WORKER_COLUMNS = ("step", "role", "index", "node", "http", "handshake", "ranks", "gpus")


def _worker_rows(plan: Plan) -> list[tuple[str, ...]]:
    return [
        (
            p.step,
            p.role,
            str(p.index),
            str(p.node),
            str(p.ports["http"]),
            str(p.ports.get("handshake", "-")),
            str(p.ranks),
            ",".join(map(str, p.gpus)),
        )
        for p in plan.workers
    ]


def job_view(plan: Plan, manifest_id: str) -> dict[str, Any]:
    """run.sbatch: directives with their origin, and the data block."""
    recipe, profile, served = plan.recipe, plan.profile, plan.served
    images = {g.name: g.processes[0].image for g in plan.groups}
    images |= {plan.router.role: plan.router.image, "bench": plan.client.image}
    images |= {plan.prefetch.role: plan.prefetch.image} if plan.prefetch else {}
    staged = _staged_images(plan, images)
    images = {r: staged[i][0] if i in staged else plan.runtime.reference(i) for r, i in images.items()}
    rows = [_WORKER_COLUMNS, *_worker_rows(plan)]
    header, *table = aligned(rows)
    engine = recipe.engine
    constants = {
        "PLAN_ID": manifest_id,
        "PLAN_NAME": recipe.name,
        "PLAN_NODES": plan.placement.nodes,
        "PLAN_GPUS_PER_NODE": plan.placement.gpus_per_node,
        "PLAN_SERVED_MODEL": served.name,
        "PLAN_MODEL_KIND": served.kind,
        "PLAN_MODEL_SOURCE": served.folder or served.argument,
        "PLAN_MODEL_STAGED": served.staged,
        "PLAN_MODEL_PREFETCH": plan.hub.prefetch,
        "PLAN_HUB_CACHE": plan.hub.cache.host if plan.prefetch or recipe.model.offline else "",
        "PLAN_OFFLINE": int(recipe.model.offline),
        "PLAN_RUNTIME": plan.runtime.name,
        "PLAN_CONTAINER_ROOT": int(profile.runtime_root),
        **_container_folders(plan),
        "PLAN_INTERFACE": profile.network_interface or "",
        "PLAN_OUTPUT_DIR": profile.output_dir,
        "PLAN_HEALTH_ATTEMPTS": plan.health.attempts,
        "PLAN_HEALTH_INTERVAL_S": plan.health.interval_s,
        "PLAN_HEALTH_DEADLINE_S": plan.health.attempts * plan.health.interval_s,
        "PLAN_GPU_DRAIN_TIMEOUT_S": plan.gpu_drain_timeout_s,
        "PLAN_CPUS_PER_TASK": plan.cpus_per_task,
        "PLAN_TRANSPORT": plan.transport,
        "PLAN_TRANSPORT_EXPLICIT": int(engine.mooncake_protocol is not None),
        "PLAN_RDMA_GID_INDEX": "" if profile.gid_index is None else str(profile.gid_index),
        "PLAN_IB_DEVICE": engine.ib_device or "",
        "PLAN_ROUTER_STEP": plan.router.step,
        "PLAN_ROUTER_NODE": plan.router.node,
        "PLAN_ROUTER_PORT": plan.ports.router,
        "PLAN_ROUTER_METRICS_PORT": plan.ports.router_metrics,
        "PLAN_ROUTER_RANKS": int(plan.router_lists_ranks),
        "PLAN_BENCH": "none" if recipe.benchmark.type == "lm-eval" else recipe.benchmark.type,
        "PLAN_EVAL": _eval_run(plan),
        "PLAN_EVAL_OFFLINE": int(plan.evaluation.offline) if plan.evaluation else 0,
        "PLAN_BENCH_NODE": plan.client.node,
        "PLAN_BENCH_MAX_CONCURRENCY": max(recipe.benchmark.concurrencies, default=0),
        "PLAN_PREAMBLE": profile.preamble,
        **({"PLAN_JIT_CACHE": profile.jit_cache[0]} if profile.jit_cache else {}),
    }
    arrays = {
        "PLAN_MOUNTS": listed(m.text for m in plan.mounts),
        "PLAN_CONTAINER_OPTIONS": listed(profile.runtime_options),
        "PLAN_SRUN_OPTIONS": listed(plan.srun_options),
        **{f"PLAN_SRUN_OPTIONS_{g.name}": listed(g.srun_options) for g in plan.groups},
        "PLAN_PASS_ENV": listed(plan.pass_env),
        "PLAN_REQUIRE_ENV": listed(plan.require_env),
        "PLAN_FATAL_MARKERS": listed(plan.health.markers),
        "PLAN_FATAL_PATTERNS": listed(plan.health.patterns),
        "PLAN_IDENTITY": listed(f"{k}={v}" for k, v in recipe.identity),
        "PLAN_PREFLIGHT_COMMANDS": listed(f"{k}\t{v}" for k, v in profile.preflight_commands),
        **({"PLAN_STAGED_IMAGES": listed(f"{file}\t{source}" for file, source in staged.values())} if staged else {}),
    }
    if plan.evaluation and plan.evaluation.command:
        arrays["PLAN_EVAL_PASS_ENV"] = listed(plan.evaluation.pass_env)
    listeners = aligned([(str(x.node), str(x.first), str(x.last), x.owner) for x in plan.listeners])
    return {
        "name": words.plain(recipe.name),
        "directives": _directives(plan),
        "constants": constants.items(),
        "worker_columns": words.text(header),
        "workers": [[row] for row in table],
        "images": Shell("\n".join(f"  [{words.plain(k)}]={words.shquote(v)}" for k, v in images.items())),
        "arrays": arrays.items(),
        "listeners": [[row] for row in listeners],
        "find_bundle": head("_find_bundle.sh"),
    }


def head(way: str) -> Shell:
    """What run.sbatch does before the library has the word; `way` is the template that gets it the bundle."""
    return Shell(resources.text("templates", "_head.sh") + resources.text("templates", way))


def _container_folders(plan: Plan) -> dict[str, str]:
    """Folders on the nodes for the runtime's own use, where it needs any."""
    storage = plan.runtime.storage and (plan.profile.runtime_storage or plan.runtime.storage)
    return {"PLAN_CONTAINER_STORAGE": storage} if storage else {}


def _staged_images(plan: Plan, images: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """By image reference: the file on each node that it is imported into before the load, and where from."""
    folder = plan.profile.image_stage_dir
    found = {i: plan.runtime.staged(i, folder) for i in images.values()} if folder else {}
    return {image: file for image, file in found.items() if file}


def _eval_run(plan: Plan) -> str:
    """none: the recipe has no evaluation; off: only RUN_EVAL at submission starts it; after_benchmark; only."""
    if plan.evaluation is None:
        return "none"
    return "only" if plan.recipe.benchmark.type == "lm-eval" else plan.evaluation.run


def _directives(plan: Plan) -> Shell:
    """The directives, each behind a comment that says where it comes from."""
    return Shell("\n".join(f"# {words.plain(d.origin)}\n#SBATCH {words.plain(d.text)}" for d in plan.directives))
