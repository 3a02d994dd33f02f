"""README.md of the bundle: which process runs where, with which command and ports, and what is measured."""

from __future__ import annotations

from typing import Any

from srtgen import planview, slurm, topology, words
from srtgen.errors import Problem
from srtgen.model import HUB
from srtgen.plan import Plan, Process
from srtgen.words import Shell

_FETCHING = {"shared": "by one node, for all", "local": "by each node, for itself"}


def readme_view(plan: Plan, findings: tuple[Problem, ...], single: bool = False) -> dict[str, Any]:
    """README.md of the bundle: which process runs where, with which command and ports, and what is measured.

    `single`: the folder holds no more than a run.sbatch that carries the bundle.
    """
    source = (HUB if plan.served.kind == "hub" else "") + (plan.served.folder or plan.served.argument)
    client = ("bench", plan.client.node, "none", "none", words.code("bench.sh"), words.code(plan.client.image))
    facts = [
        ("model", words.code(source)),
        *([("its copy on each node", words.code(plan.served.staged))] if plan.served.staged else []),
        *([("image files on each node", words.code(folder))] if (folder := plan.profile.image_stage_dir) else []),
        *([("fetched before the load", _FETCHING[plan.hub.prefetch])] if plan.prefetch else []),
        ("nodes", f"{plan.placement.nodes}, with {plan.placement.gpus_per_node} GPUs each"),
        ("time limit", slurm.time_limit(plan.recipe, plan.profile) or "the partition's default"),
        ("workers may load for", f"{plan.health.attempts * plan.health.interval_s} s"),
        ("container runtime", plan.runtime.name),
        ("KV transfer", plan.transport or "none"),
        ("endpoint in the job", f"port {plan.ports.router} of node {plan.router.node}"),
    ]
    if plan.profile.jit_cache:
        facts.append(("compiled kernels are kept in", words.code(plan.profile.jit_cache[0])))
    rows = [*(_process_row(p) for p in plan.programs), client]
    said = [_finding(f) for f in findings]
    return {
        "single": single,
        "evaluation": plan.evaluation is not None,
        "threshold": plan.evaluation is not None and not plan.evaluation.command,
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
