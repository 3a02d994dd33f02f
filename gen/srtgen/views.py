"""What each template gets: final words and lines, nothing left to decide."""

from __future__ import annotations

import json
from typing import Any, Iterable

from srtgen import environment, planview, resources, slurm, topology, words
from srtgen.errors import Problem
from srtgen.model import HUB
from srtgen.bench import Point
from srtgen.bench import command as custom_command
from srtgen.plan import Plan, Process, work_folder
from srtgen.words import Shell, Word, bind, params, word

_WORKER_COLUMNS = ("step", "role", "index", "node", "http", "handshake", "ranks", "gpus")
_PARAM_ORDER = ("host_ip", "server_port", "handshake_port", "dp_master_port", "dp_base_port", "gpus")


def _common(processes: tuple[Process, ...]) -> frozenset[str]:
    """Names of the variables that all have: a worker alone on its node lacks those of workers that share one."""
    first, *others = ({name for name, _ in p.env} for p in processes)
    return frozenset(first.intersection(*others))


def _varying(processes: tuple[Process, ...], common: frozenset[str]) -> tuple[str, ...]:
    """The parameters in which the processes differ, in a fixed order."""
    seen: dict[str, set[Any]] = {}
    for process in processes:
        for value in (*(w for line in process.lines for w in line), *(v for n, v in process.env if n in common)):
            for name, part in params(value).items():
                seen.setdefault(name, set()).add(part)
    return tuple(name for name in _PARAM_ORDER if len(seen.get(name, ())) > 1)


def _cases(processes: tuple[Process, ...], varying: tuple[str, ...], common: frozenset[str]) -> Shell:
    """The arms of the case statement: what differs, and what only some have, by index."""
    arms = []
    for process in processes:
        own: dict[str, Any] = {}
        for value in (*(w for line in process.lines for w in line), *(v for _, v in process.env)):
            own.update(params(value))
        pairs = " ".join(f"{name}={words.shquote(word(own[name]))}" for name in varying)
        extra = " ".join(f"{n}={words.shquote(bind(v, frozenset()))}" for n, v in process.env if n not in common)
        body = "; ".join(part for part in (pairs, f"export {extra}" if extra else "") if part)
        arms.append(f"  {process.index}) {body} ;;" if body else f"  {process.index}) ;;")
    return Shell("\n".join(arms))


def _exports(process: Process, varying: frozenset[str]) -> list[tuple[str, Word]]:
    """The environment, with the process's work folder as `${work}`."""
    *head, start = work_folder(process.step)

    def shown(value: Word) -> Word:
        if list(value[: len(head)]) == head and str(value[-1]).startswith(str(start)):
            return word(words.Var("work"), str(value[-1])[len(str(start)) - 1 :])
        return value

    return [(name, bind(shown(value), varying)) for name, value in process.env]


def role_view(processes: tuple[Process, ...], router: bool) -> dict[str, Any]:
    """roles/<role>.sh: the first process's argv and environment, and what differs between the others."""
    common = _common(processes)
    varying = _varying(processes, common)
    first, last = processes[0], len(processes) - 1
    role = words.plain(first.role)
    summary = "Starts the router inside its container." if router else f"Starts one {role} worker inside its container."
    return {
        "role": role,
        "summary": Shell(summary),
        "range": Shell(f"0 to {last}" if last else "0"),
        "image": first.image,
        "cleared": Shell(" ".join(environment.CLEARED)),
        "cases": _cases(processes, varying, common),
        "exports": [(name, value) for name, value in _exports(first, frozenset(varying)) if name in common],
        "argv": [[bind(w, frozenset(varying)) for w in line] for line in first.lines],
    }


def _listed(values: Iterable[str]) -> list[Word]:
    return [word(value) for value in values]


def _table(rows: list[tuple[str, ...]]) -> list[Word]:
    """Rows as words with their columns aligned."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [word("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip()) for row in rows]


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
    rows = [_WORKER_COLUMNS, *_worker_rows(plan)]
    header, *table = _table(rows)
    engine = recipe.engine
    constants = {
        "PLAN_ID": manifest_id,
        "PLAN_NAME": recipe.name,
        "PLAN_NODES": plan.placement.nodes,
        "PLAN_GPUS_PER_NODE": plan.placement.gpus_per_node,
        "PLAN_SERVED_MODEL": served.name,
        "PLAN_MODEL_KIND": served.kind,
        "PLAN_MODEL_SOURCE": served.folder or served.argument,
        "PLAN_OFFLINE": int(recipe.model.offline),
        "PLAN_RUNTIME": plan.runtime.name,
        "PLAN_CONTAINER_ROOT": int(profile.runtime_root),
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
    }
    arrays = {
        "PLAN_MOUNTS": _listed(m.text for m in plan.mounts),
        "PLAN_CONTAINER_OPTIONS": _listed(profile.runtime_options),
        "PLAN_SRUN_OPTIONS": _listed(plan.srun_options),
        **{f"PLAN_SRUN_OPTIONS_{g.name}": _listed(g.srun_options) for g in plan.groups},
        "PLAN_PASS_ENV": _listed(plan.pass_env),
        "PLAN_REQUIRE_ENV": _listed(plan.require_env),
        "PLAN_FATAL_MARKERS": _listed(plan.health.markers),
        "PLAN_FATAL_PATTERNS": _listed(plan.health.patterns),
        "PLAN_IDENTITY": _listed(f"{k}={v}" for k, v in recipe.identity),
        "PLAN_PREFLIGHT_COMMANDS": _listed(f"{k}\t{v}" for k, v in profile.preflight_commands),
    }
    listeners = _table([(str(x.node), str(x.first), str(x.last), x.owner) for x in plan.listeners])
    return {
        "name": words.plain(recipe.name),
        "directives": _directives(plan),
        "constants": constants.items(),
        "worker_columns": words.text(header),
        "workers": [[row] for row in table],
        "images": Shell("\n".join(f"  [{words.plain(k)}]={words.shquote(v)}" for k, v in images.items())),
        "arrays": arrays.items(),
        "listeners": [[row] for row in listeners],
        "find_bundle": Shell(resources.text("templates", "_find_bundle.sh")),
    }


def _eval_run(plan: Plan) -> str:
    """none: the recipe has no evaluation; off: only RUN_EVAL at submission starts it; after_benchmark; only."""
    if plan.evaluation is None:
        return "none"
    return "only" if plan.recipe.benchmark.type == "lm-eval" else plan.evaluation.run


def _directives(plan: Plan) -> Shell:
    """The directives, each behind a comment that says where it comes from."""
    return Shell("\n".join(f"# {words.plain(d.origin)}\n#SBATCH {words.plain(d.text)}" for d in plan.directives))


def bench_view(plan: Plan) -> dict[str, Any]:
    """bench.sh: the data of the measurement, then one array a point."""
    bench, sweep = plan.recipe.benchmark, plan.recipe.benchmark.type == "sa-bench"
    constants: dict[str, str | int] = {
        "BENCH_TYPE": bench.type,
        "BENCH_NAME": plan.recipe.name,
        "BENCH_MODEL": plan.served.name,
        "BENCH_CLIENT": bench.client if sweep else "",
        "BENCH_CLIENT_PATH": bench.client_path if sweep and bench.client == "inferencex" else "",
        "BENCH_TOKENIZER": bench.tokenizer or (plan.served.argument if sweep and plan.served.argument != plan.served.name else ""),
        "BENCH_OFFLINE": int(plan.recipe.model.offline),
        "BENCH_ISL": bench.isl,
        "BENCH_OSL": bench.osl,
        "BENCH_RATIO": bench.range_ratio,
        "BENCH_REQUEST_RATE": bench.req_rate,
        "BENCH_CHAT_TEMPLATE": int(bench.chat_template or any(s.key in ("use-chat-template", "dsv4") for s in bench.client_args)),
        "BENCH_MAX_FAILED_RATIO": bench.max_failed_ratio,
        "BENCH_STALL_TIMEOUT_S": bench.stall_timeout_s if sweep or "stall_timeout_s" in bench.fields else 0,
        "BENCH_CONCURRENCIES": " ".join(str(p.concurrency) for p in plan.points),
        "BENCH_PROMPTS": " ".join(str(p.prompts) for p in plan.points),
        "BENCH_WARMUPS": " ".join(str(p.warmups) for p in plan.points),
        "BENCH_CWD": bench.cwd or "",
        "BENCH_GPUS_PREFILL": plan.gpus_of("prefill"),
        "BENCH_GPUS_DECODE": plan.gpus_of("decode"),
        "BENCH_GPUS_AGG": plan.gpus_of("agg"),
        "BENCH_GPUS_ALLOCATED": plan.placement.nodes * plan.placement.gpus_per_node,
        "BENCH_ROUTER_METRICS_PORT": plan.ports.router_metrics,
        "BENCH_META": _json(_meta(plan)),
    }
    return {
        "name": words.plain(plan.recipe.name),
        "constants": constants.items(),
        "exports": _exports(plan.client, frozenset()),
        **_bench_calls(plan),
    }


def _bench_calls(plan: Plan) -> dict[str, Any]:
    """What bench.sh calls: one array a point of a sweep, one for a custom command, none for manual."""
    bench = plan.recipe.benchmark
    required = " ".join(words.quote(name) for name in bench.require_env)
    before = Shell(f"bench_require {required}" if required else "")
    if bench.type == "lm-eval":
        return {"before": before, "begin": Shell(""), "points": [], "finish": Shell(": # the evaluation is the benchmark")}
    if bench.type == "manual":
        return {"before": before, "begin": Shell(""), "points": [], "finish": Shell("bench_manual")}
    run = Shell('bench_custom "${argv[@]}"')
    command = {"title": Shell("The command."), "argv": [[w] for w in custom_command(bench)], "call": run}
    return {
        "before": before,
        "begin": Shell("bench_begin" if plan.points else ""),
        "points": [_point(n, len(plan.points), p) for n, p in enumerate(plan.points, 1)] or [command],
        "finish": Shell("bench_finish"),
    }


def _point(number: int, count: int, point: Point) -> dict[str, Any]:
    title = (
        f"Point {number} of {count}: concurrency {point.concurrency}, "
        f"{point.prompts} prompts behind {point.warmups} warm-up requests."
    )
    call = f'bench_point {words.quote(point.name)} {point.concurrency} {point.prompts} "${{argv[@]}}"'
    return {"title": words.plain(title), "argv": point.lines, "call": Shell(call)}


def eval_view(plan: Plan) -> dict[str, Any]:
    """eval/plan.sh: what is evaluated, every default written out."""
    found = plan.evaluation
    assert found is not None
    bench = plan.recipe.benchmark
    meta = {**_meta(plan), "isl": bench.isl, "osl": bench.osl}
    constants: dict[str, str | int] = {
        "EVAL_MODEL": plan.served.name,
        "EVAL_TASKS": " ".join(found.tasks),
        "EVAL_NUM_FEWSHOT": "" if found.num_fewshot is None else found.num_fewshot,
        "EVAL_LIMIT": found.limit or "",
        "EVAL_MAX_TOKENS": found.max_tokens,
        "EVAL_MAX_LENGTH": found.max_length,
        "EVAL_CONCURRENCY": found.concurrency,
        "EVAL_ENDPOINT": found.endpoint,
        "EVAL_CHAT_TEMPLATE": int(found.chat_template),
        "EVAL_GEN_KWARGS": _json(found.gen_kwargs),
        "EVAL_REQUEST_TIMEOUT_S": found.request_timeout_s,
        "EVAL_THRESHOLDS": _json(found.thresholds),
        "EVAL_MAX_EMPTY_RATIO": found.max_empty_ratio,
        "EVAL_MAX_UNEXTRACTED_RATIO": found.max_unextracted_ratio,
        "EVAL_PYTHON": found.python,
        "EVAL_TARGET_PYTHON": found.target_python,
        "EVAL_PACKAGES": found.packages,
        "EVAL_PACKAGES_PATH": found.packages_path,
        "EVAL_SYSTEM_SITE_PACKAGES": int(found.system_site_packages),
        "EVAL_OFFLINE": int(found.offline),
        "EVAL_INDEX_URL": plan.profile.pip_index_url,
        "EVAL_CA_FILE": plan.profile.ca_file,
        "EVAL_COMMAND": 0,
        "EVAL_META": _json(meta),
    }
    own = work_folder(plan.client.step)
    exports = [(n, v) for n, v in plan.client.env if v[: len(own) - 1] != own[:-1]]
    return {"constants": [*constants.items(), *exports]}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _meta(plan: Plan) -> dict[str, Any]:
    """What the results are labelled with for readers of InferenceX's files."""
    recipe = plan.recipe
    roles = {
        g.name: {
            "tp": g.parallel["tp"],
            "pp": g.parallel["pp"],
            "dcp_size": g.parallel["dcp"],
            "pcp_size": g.parallel["pcp"],
            "ep": 1,
            "dp_attention": g.parallel["dp_attention"],
            "num_workers": len(g.processes),
        }
        for g in plan.groups
    }
    return {
        "hw": recipe.gpu_type or "",
        "image": plan.groups[0].processes[0].image,
        "framework": recipe.engine.type,
        "precision": recipe.model.precision,
        "spec_decoding": _speculation(plan),
        "router": {"name": recipe.frontend.type},
        **({"kv_p2p_transfer": recipe.engine.connector} if plan.transport else {}),
        "is_multinode": plan.placement.nodes > 1,
        **roles,
    }


def _speculation(plan: Plan) -> str:
    found = [s.source for r in plan.recipe.roles for s in r.args if s.key == "method" and isinstance(s.value, str)]
    return found[0] if found else "none"


def readme_view(plan: Plan, findings: tuple[Problem, ...]) -> dict[str, Any]:
    """README.md of the bundle: which process runs where, with which command and ports, and what is measured."""
    source = (HUB if plan.served.kind == "hub" else "") + (plan.served.folder or plan.served.argument)
    client = ("bench", plan.client.node, "none", "none", words.code("bench.sh"), words.code(plan.client.image))
    facts = [
        ("model", words.code(source)),
        ("nodes", f"{plan.placement.nodes}, with {plan.placement.gpus_per_node} GPUs each"),
        ("time limit", slurm.time_limit(plan.recipe, plan.profile) or "the partition's default"),
        ("workers may load for", f"{plan.health.attempts * plan.health.interval_s} s"),
        ("container runtime", plan.runtime.name),
        ("KV transfer", plan.transport or "none"),
        ("endpoint in the job", f"port {plan.ports.router} of node {plan.router.node}"),
    ]
    rows = [*(_process_row(p) for p in (*plan.workers, plan.router)), client]
    said = [_finding(f) for f in findings]
    return {
        "name": words.md(plan.recipe.name),
        "served": words.code(plan.served.name),
        "facts": words.table(("", ""), facts),
        "processes": words.table(("step", "node", "GPUs", "ports", "script", "image"), rows),
        "diagram": Shell(topology.mermaid(plan)),
        "commands": planview.markdown(plan),
        "failures": Shell("\n".join(f"- {line}" for line in planview.failures(plan))),
        "measured": _measured(plan),
        "findings": Shell("\n".join(said) or "None."),
    }


def _finding(finding: Problem) -> str:
    """One finding: its code, and the recipe's reason where it silences it."""
    code = f" ({words.md(finding.code)})" if finding.code else ""
    text = words.md(f"{finding.path}: {finding.message}" if finding.path else finding.message)
    if finding.reason:
        return f"- {finding.severity}{code}, silenced: {text}. Reason: {words.md(finding.reason)}"
    return f"- {finding.severity}{code}: {text}"


def _measured(plan: Plan) -> Shell:
    bench = plan.recipe.benchmark
    if not plan.points:
        return Shell(f"Benchmark type {words.md(bench.type)}: see {words.code('bench.sh')}.")
    text = (
        f"Random prompts, lengths drawn evenly from [{bench.range_ratio} x length, length]: "
        f"input {bench.isl} tokens, output {bench.osl} tokens."
    )
    rows = [(p.concurrency, p.prompts, p.warmups) for p in plan.points]
    return Shell(f"{words.md(text)}\n\n{words.table(('concurrency', 'prompts', 'warm-up requests'), rows)}")


def _process_row(process: Process) -> tuple[object, ...]:
    ports = ", ".join(f"{name} {port}" for name, port in process.ports.items())
    gpus = ",".join(map(str, process.gpus)) or "none"
    script = words.code(f"roles/{process.role}.sh {process.index}")
    return process.step, process.node, gpus, ports, script, words.code(process.image)
