"""The plan for people and programs: a table for each node, and each process's whole command."""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping

from srtgen import environment, manifest, words
from srtgen.evaluation import Evaluation
from srtgen.plan import Plan, Process, address
from srtgen.topology import idle_gpus, on_node, ranges
from srtgen.words import Part, Shell, Var, Word, word

SCHEMA = "srtgen/plan/1"
_VARIABLE = re.compile(r"\"\$\{([A-Za-z0-9_]+)(?::\?)?\}\"")


def text(plan: Plan) -> str:
    """The plan as a page of text; every command can be pasted into a shell that has the addresses set."""
    parts = [_head(plan)]
    parts += [_node(plan, node) for node in range(plan.placement.nodes)]
    parts += [f"# {title}\n{command}" for title, command in commands(plan)]
    return "\n\n".join(parts) + "\n"


def commands(plan: Plan) -> list[tuple[str, str]]:
    """Title and command of every process, as the manifest lists them."""
    known = _frontend(plan)
    servers = [(_place(p), _command(p.env, p.lines, {})) for p in plan.programs]
    place, env = _place(plan.client), plan.client.env
    return servers + [(place + title, _command(env, lines, known)) for title, lines in _client(plan)]


def _frontend(plan: Plan) -> dict[str, Part]:
    """What the client's own variables will be."""
    return {"SRT_FRONTEND_HOST": address(plan.router.node), "SRT_FRONTEND_PORT": str(plan.ports.router)}


def document(plan: Plan) -> dict[str, Any]:
    """The same for programs."""
    listed = manifest.draft(plan, (), (), (), (), {})["processes"]
    shown = [{**entry, "command": command} for entry, (_, command) in zip(listed, commands(plan))]
    return {
        "name": plan.recipe.name,
        "served_model": plan.served.name,
        "transport": plan.transport,
        "directives": [directive.text for directive in plan.directives],
        "nodes": [_node_document(plan, node, shown) for node in range(plan.placement.nodes)],
    }


def _node_document(plan: Plan, node: int, shown: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "index": node,
        "address": f"${{NODE_{node}_ADDR}}",
        "gpus": plan.placement.gpus_per_node,
        "idle_gpus": idle_gpus(plan, node),
        "processes": [entry for entry in shown if entry["node"] == node],
    }


def _head(plan: Plan) -> str:
    directives = " ".join(f"{d.text}" for d in plan.directives)
    lines = [
        f"{plan.recipe.name}: serves {plan.served.name} on {plan.placement.nodes} nodes"
        f" with {plan.placement.gpus_per_node} GPUs each",
        f"sbatch: {directives}",
        f"KV transfer: {plan.transport or 'none'}; container runtime: {plan.runtime.name}",
    ]
    needed = dict.fromkeys(name for _, command in commands(plan) for name in _VARIABLE.findall(command))
    return "\n".join([*lines, f"The commands below read {', '.join(needed)}."])


def _node(plan: Plan, node: int) -> str:
    rows = [("process", "GPUs", "ports", "image")]
    for process in on_node(plan, node):
        ports = " ".join(f"{name}={port}" for name, port in process.ports.items()) or "none"
        rows.append((process.step, ranges(process.gpus), ports, process.image))
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    table = "\n".join("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in rows)
    idle = idle_gpus(plan, node)
    return f"node {node}, address ${{NODE_{node}_ADDR}}, idle GPUs: {ranges(idle)}\n{table}"


def markdown(plan: Plan) -> Shell:
    """The command of the first process of each role, folded away, for the bundle's README."""
    first = {group.processes[0].step: len(group.processes) for group in plan.groups}
    parts = []
    for process in (p for p in plan.programs if p.index == 0):
        others = first.get(process.step, 1) - 1
        note = f"; {others} more like it, each with its own address, ports and GPUs" if others else ""
        parts.append(_folded(f"{process.step} on node {process.node}{note}", _command(process.env, process.lines, {})))
    for title, lines in _client(plan)[:1]:
        parts.append(_folded(f"{plan.client.step}{title}", _command(plan.client.env, lines, _frontend(plan))))
    return Shell("\n\n".join(parts))


def _folded(title: str, command: str) -> str:
    longest = max((len(run) for run in re.findall("`+", command)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"<details><summary>{words.md(title)}</summary>\n\n{fence}sh\n{command}\n{fence}\n\n</details>"


def _place(process: Process) -> str:
    return f"{process.step} on node {process.node}, in {process.image}"


def _client(plan: Plan) -> list[tuple[str, tuple[tuple[Word, ...], ...]]]:
    """The client's commands with their titles; none for a job that only serves."""
    if plan.points:
        return [(f", concurrency {p.concurrency}, {p.prompts} prompts", p.lines) for p in plan.points]
    bench = plan.recipe.benchmark
    if bench.type != "custom":
        return []
    argv = list(bench.argv) or ["bash", "-l", "-c", bench.command or ""]
    return [("", (tuple(word(text) for text in argv),))]


def _command(env: Iterable[tuple[str, Word]], lines: Iterable[Iterable[Word]], known: Mapping[str, Part]) -> str:
    """One shell command, a setting or flag a line; variables in `known` are written out."""

    def shown(value: Word) -> str:
        bound = words.bind(value, frozenset())
        return words.shquote(word(*(known.get(p.name, p) if isinstance(p, Var) else p for p in bound)))

    cleared = " ".join(f"-u {name}" for name in environment.CLEARED)
    parts = [f"env {cleared}", *(f"{name}={shown(value)}" for name, value in env)]
    parts += [" ".join(map(shown, line)) for line in lines]
    return " \\\n  ".join(parts)


def failures(plan: Plan) -> list[str]:
    """What ends the job early or makes its numbers invalid, in words, with the exit code of each."""
    health, bench = plan.health, plan.recipe.benchmark
    markers = ", ".join(words.code(marker) for marker in health.markers) or "none"
    said = [
        "before anything loads: a check of the nodes fails (image, model, mounts, disk, ports, GPUs, limits, RDMA) (10)",
        *(["a node cannot import an image (10)"] if plan.profile.image_stage_dir else []),
        *(["the model cannot be fetched, or a node does not see it whole then (10)"] if plan.prefetch else []),
        *(["a node's copy of the model cannot be made, or stands still for 300 s (10)"] if plan.served.staged else []),
        f"a worker is not ready after {health.attempts * health.interval_s} s (12), or its log shows while loading: {markers} (11)",
        "a worker ends, or does not answer `/health` for 30 s or refuses twice (11); the router ends (13)",
        "the router does not list exactly the workers above (13)",
        "a request through each pair of workers, and through the router, does not answer (14)",
    ]
    if plan.recipe.engine.mooncake_protocol:
        said.append(f"a worker's log says that the KV cache does not go over {words.md(plan.transport)} (14)")
    if plan.recipe.identity:
        versions = ", ".join(words.code(f"{name} {version}") for name, version in plan.recipe.identity)
        said.append(f"the versions in the containers are not {versions} (15)")
    if plan.points:
        said += [
            f"the client fails, or no request finishes for {bench.stall_timeout_s} s (20)",
            f"a point completes less than it asked for (allowed share {words.md(bench.max_failed_ratio)}), or its token counts do not"
            " fit the lengths asked for (21)",
        ]
    elif bench.type == "custom":
        said.append("the command ends with another code than 0 (20)")
    if plan.evaluation:
        said.append(_evaluation_failures(plan.evaluation, bench.type))
    return said


def _evaluation_failures(evaluation: Evaluation, benchmark: str) -> str:
    """Of a command of the recipe's own only the exit code is judged, so that it is never below a threshold."""
    when = " (`RUN_EVAL=1` at submission starts it)" if evaluation.run == "off" and benchmark != "lm-eval" else ""
    if evaluation.command:
        return f"the evaluation command{when} ends with another code than 0 (22)"
    return f"the evaluation{when} cannot be prepared or fails (22), or a score is below its threshold (23)"
