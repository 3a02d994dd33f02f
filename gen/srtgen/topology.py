"""The topology as a Mermaid flowchart: nodes as boxes, roles by colour, GPU slots, and what flows between processes."""

from __future__ import annotations

from typing import Iterable

from srtgen.plan import Plan, Process

_STYLES = {
    "client": "fill:#e8e8e8,stroke:#555555,color:#000000",
    "router": "fill:#ffe0a3,stroke:#9c6500,color:#000000",
    "prefill": "fill:#b9d7f5,stroke:#1f5a96,color:#000000",
    "decode": "fill:#bfe6c4,stroke:#23702f,color:#000000",
    "agg": "fill:#e2ccf2,stroke:#64398a,color:#000000",
    "kv": "fill:#ffffff,stroke:#555555,color:#000000,stroke-dasharray:4 3",
    "idle": "fill:#ffffff,stroke:#bbbbbb,color:#777777,stroke-dasharray:2 2",
}
# Above this many pairs the KV arrows meet in one box, else they hide the processes.
_MOST_PAIRS = 4


def ranges(numbers: Iterable[int]) -> str:
    """Sorted numbers, runs shortened: `0-3,6`; `none` where there is none."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"


def _processes(plan: Plan) -> tuple[Process, ...]:
    """Workers, router and client, in the order of their start."""
    return (*plan.workers, plan.router, plan.client)


def on_node(plan: Plan, node: int) -> tuple[Process, ...]:
    return tuple(p for p in _processes(plan) if p.node == node)


def idle_gpus(plan: Plan, node: int) -> list[int]:
    used = {gpu for p in on_node(plan, node) for gpu in p.gpus}
    return [gpu for gpu in range(plan.placement.gpus_per_node) if gpu not in used]


def mermaid(plan: Plan) -> str:
    """The diagram. Its words are names and numbers of the plan, so nothing in it needs escaping."""
    lines = ["flowchart LR"]
    for node in range(plan.placement.nodes):
        lines += _node(plan, node)
    lines += _arrows(plan)
    shown = {_kind(plan, p) for n in range(plan.placement.nodes) for p in on_node(plan, n)}
    shown |= {name for name in ("kv", "idle") if any(f":::{name}" in line for line in lines)}
    lines += [f"  classDef {name} {style}" for name, style in _STYLES.items() if name in shown]
    return "\n".join(lines)


def _node(plan: Plan, node: int) -> list[str]:
    inside = [_box(plan, process) for process in on_node(plan, node)]
    if idle := idle_gpus(plan, node):
        inside.append(f'    idle_{node}["idle GPUs {ranges(idle)}"]:::idle')
    return [f'  subgraph node_{node}["node {node}"]', "    direction TB", *inside, "  end"]


def _box(plan: Plan, process: Process) -> str:
    details = [f"<b>{process.step}</b>"]
    if process.gpus:
        details += [f"GPU {ranges(process.gpus)}", _slots(process, plan.placement.gpus_per_node)]
    if "http" in process.ports:
        details.append(f"port {process.ports['http']}")
    return f'    {process.step}["{"<br/>".join(details)}"]:::{_kind(plan, process)}'


def _slots(process: Process, gpus: int) -> str:
    """One square a GPU of the node, filled where this process has it."""
    return "".join("■" if gpu in process.gpus else "□" for gpu in range(gpus))


def _kind(plan: Plan, process: Process) -> str:
    if process.step == plan.router.step:
        return "router"
    return "client" if process.step == plan.client.step else process.role


def _arrows(plan: Plan) -> list[str]:
    router = plan.router.step
    lines = [f'  {plan.client.step} -->|requests| {router}']
    workers = {g.name: [p.step for p in g.processes] for g in plan.groups}
    first = workers.get("agg") or workers["prefill"]
    lines.append(f"  {router} --> {' & '.join(first)}")
    if "decode" not in workers:
        return lines
    engine = plan.recipe.engine
    label = f"KV cache: {engine.connector}, {plan.transport}" + ("" if engine.mooncake_protocol else " (default)")
    decode = " & ".join(workers["decode"])
    if len(first) * len(workers["decode"]) <= _MOST_PAIRS:
        return [*lines, f'  {" & ".join(first)} ==>|"{label}"| {decode}']
    return [*lines, f'  kv{{{{"{label}"}}}}:::kv', f"  {' & '.join(first)} ==> kv", f"  kv ==> {decode}"]
