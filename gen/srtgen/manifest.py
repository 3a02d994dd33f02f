"""`manifest.json`: what the bundle is made of and exactly what will run."""

import hashlib
import json
from typing import Any, Mapping, NamedTuple

from srtgen import __version__
from srtgen.arguments import Line
from srtgen.bench import command
from srtgen.errors import Problem
from srtgen.plan import Plan, Process
from srtgen.words import text

SCHEMA = "srtgen/manifest/1"
NAME = "manifest.json"
JOB_SCRIPT = "run.sbatch"


class Input(NamedTuple):
    """One input file: its base name and exact bytes."""

    file: str
    content: bytes


class File(NamedTuple):
    """One file of the bundle."""

    content: bytes
    executable: bool = False


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def draft(
    plan: Plan,
    inputs: tuple[Input, ...],
    overrides: tuple[str, ...],
    findings: tuple[Problem, ...],
    ignored: tuple[str, ...],
    files: Mapping[str, File],
) -> dict[str, Any]:
    """The manifest over `files`, with its id. `files` is the bundle but for run.sbatch, which carries the id."""
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "id": "",
        "srtgen": __version__,
        "name": plan.recipe.name,
        "inputs": [{"file": i.file, "sha256": sha256(i.content)} for i in inputs],
        "overrides": list(overrides),
        "recipe": resolved(plan),
        "served_model": plan.served.name,
        "nodes": plan.placement.nodes,
        "processes": [_process(p, p.lines) for p in plan.programs] + _points(plan),
        "findings": [_finding(f) for f in findings],
        "ignored_profile_keys": list(ignored),
        "files": {path: _file(files[path]) for path in sorted(files)},
    }
    manifest["id"] = identity(manifest)
    return manifest


def identity(content: Mapping[str, Any]) -> str:
    """The id of a manifest: the sha256 of its compact, key-sorted JSON without `id` and run.sbatch's entry."""
    bare = {key: value for key, value in content.items() if key != "id"}
    bare["files"] = {path: entry for path, entry in content["files"].items() if path != JOB_SCRIPT}
    compact = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(compact.encode())


def finish(manifest: dict[str, Any], job_script: File) -> bytes:
    """The manifest's bytes, run.sbatch included."""
    manifest["files"] = dict(sorted({**manifest["files"], JOB_SCRIPT: _file(job_script)}.items()))
    return _pretty(manifest).encode()


def _file(file: File) -> dict[str, Any]:
    return {"sha256": sha256(file.content), "executable": file.executable}


def _finding(problem: Problem) -> dict[str, Any]:
    return {
        "severity": problem.severity,
        "code": problem.code,
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
        **({"silenced": problem.reason} if problem.reason else {}),
    }


def _process(process: Process, lines: tuple[Line, ...], index: int | None = None) -> dict[str, Any]:
    return {
        "step": process.step,
        "role": process.role,
        "index": process.index if index is None else index,
        "node": process.node,
        "gpus": list(process.gpus),
        "ports": dict(process.ports),
        "image": process.image,
        "env": {name: text(value) for name, value in process.env},
        "argv": [text(w) for line in lines for w in line],
    }


def _points(plan: Plan) -> list[dict[str, Any]]:
    """The client: one entry a point of a sweep, one for a custom command, none for manual."""
    if plan.points:
        return [_process(plan.client, point.lines, n) for n, point in enumerate(plan.points)]
    bench = plan.recipe.benchmark
    if bench.type != "custom":
        return []
    return [_process(plan.client, (command(bench),))]


def resolved(plan: Plan) -> dict[str, Any]:
    """The recipe with anchors and overrides applied and the decisions that it leaves to srtgen written out."""
    data = dict(plan.recipe.document.data)
    bench = plan.recipe.benchmark
    data["resources"] = {**data.get("resources", {}), "gpus_per_node": plan.placement.gpus_per_node}
    data["roles"] = {r.name: {**data["roles"][r.name], "gpus": r.gpus} for r in plan.recipe.roles}
    data["ports"] = plan.ports._asdict()
    if bench.type == "sa-bench":
        data["benchmark"] = {
            **data["benchmark"],
            "concurrencies": list(bench.concurrencies),
            "req_rate": bench.req_rate,
            "random_range_ratio": float(bench.range_ratio),
            "num_prompts_mult": bench.prompts_mult,
            "num_warmup_mult": bench.warmup_mult,
            "client": bench.client,
            "max_failed_ratio": float(bench.max_failed_ratio),
            "stall_timeout_s": bench.stall_timeout_s,
        }
    return data


def _pretty(manifest: Mapping[str, Any]) -> str:
    """JSON with one entry a line in the long lists, so that a diff of two bundles reads well."""
    parts = []
    for key, value in manifest.items():
        if key in ("processes", "findings", "inputs") and value:
            body = ",\n  ".join(_compact(one) for one in value)
            parts.append(f' "{key}": [\n  {body}\n ]')
        elif key == "files":
            body = ",\n  ".join(f"{_compact(k)}: {_compact(v)}" for k, v in value.items())
            parts.append(f' "{key}": {{\n  {body}\n }}')
        elif key == "recipe":
            parts.append(f' "{key}": {json.dumps(value, indent=1, ensure_ascii=False)}'.replace("\n", "\n "))
        else:
            parts.append(f' "{key}": {_compact(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
