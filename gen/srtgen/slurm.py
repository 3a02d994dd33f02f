"""Slurm's words: time limits and the sbatch directives of the job, each with its origin."""

from typing import NamedTuple

import re

from srtgen.document import Document
from srtgen.profile import Profile
from srtgen.recipe import Recipe
from srtgen.report import Report

_TIME = re.compile(r"(?:(?P<days>[0-9]+)-)?(?P<parts>[0-9]+(?::[0-9]+){0,2})\Z")
LONGEST_LEAD_S = 300
MANAGED_DIRECTIVES = {
    "job-name": "write name",
    "nodes": "it follows from roles.*.nodes",
    "account": "write slurm.account",
    "partition": "write slurm.partition",
    "time": "write slurm.time_limit",
    "output": "the job's output is slurm-%j.out",
    "error": "the job's output is slurm-%j.out",
    "open-mode": "it is append",
    "requeue": "a restarted job would measure something else",
    "no-requeue": "it is built in",
    "signal": "it follows from the time limit",
    "ntasks": "it follows from the nodes",
    "ntasks-per-node": "it is 1",
    "gpus-per-node": "it follows from gpus_per_node and the profile's gpu_directive",
    "gres": "it follows from gpus_per_node and the profile's gpu_directive",
    "array": "a bundle is one job",
    "wrap": "the bundle has its own script",
    "export": "the environment is passed on by name",
    "chdir": "the job runs in the folder of its submission",
}
MANAGED_OPTIONS = frozenset(
    "job-name nodes ntasks ntasks-per-node nodelist overlap output error open-mode export input wait label "
    "kill-on-bad-exit jobid container-image container-mounts container-name container-workdir "
    "no-container-entrypoint no-container-mount-home container-mount-home cpus-per-task".split()
)


class Directive(NamedTuple):
    """One `#SBATCH` line. `value` is None for a bare one; `origin` says where it comes from."""

    name: str
    value: str | None
    origin: str

    @property
    def text(self) -> str:
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


def seconds(limit: str) -> int | None:
    """A time limit in seconds; None if it is none of Slurm's six formats."""
    found = _TIME.match(limit)
    if not found:
        return None
    parts = [int(part) for part in found["parts"].split(":")]
    if found["days"] is not None:
        hours, minutes, rest = [*parts, 0, 0][:3]
        return ((int(found["days"]) * 24 + hours) * 60 + minutes) * 60 + rest
    if len(parts) == 3:
        return (parts[0] * 60 + parts[1]) * 60 + parts[2]
    return parts[0] * 60 + (parts[1] if len(parts) == 2 else 0)


def lead_s(limit: str | None) -> int:
    """Seconds before the limit at which the job is told, so that results are kept: a tenth, at most five minutes."""
    total = seconds(limit) if limit else None
    return LONGEST_LEAD_S if total is None else max(1, min(LONGEST_LEAD_S, total // 10))


def time_limit(recipe: Recipe, profile: Profile) -> str | None:
    return recipe.time_limit or profile.time_limit


def check(recipe: Recipe, profile: Profile, report: Report) -> None:
    """Directives and srun options that srtgen sets itself, and time limits of no duration."""
    sources: list[tuple[Document | None, str, tuple[tuple[str, str], ...]]] = [
        (recipe.document, "sbatch_directives", recipe.sbatch_directives),
        (profile.document, "default_sbatch_directives", profile.sbatch_directives),
    ]
    for document, key, directives in sources:
        for name, _ in directives:
            if document and name in MANAGED_DIRECTIVES:
                report.error(document, (key, name), f"{name} cannot be given: {MANAGED_DIRECTIVES[name]}", at_key=True)
    option_sources = [
        (recipe.document, ("srun_options",), recipe.srun_options),
        (profile.document, ("default_srun_options",), profile.srun_options),
        *((recipe.document, (*role.path, "srun_options"), role.srun_options) for role in recipe.roles),
    ]
    for document, path, options in option_sources:
        for name, _ in options:
            if document and name in MANAGED_OPTIONS:
                report.error(document, (*path, name), f"{name} is set by srtgen and cannot be given", at_key=True)
    if recipe.time_limit and not seconds(recipe.time_limit):
        report.error(recipe.document, ("slurm", "time_limit"), "the time limit is 0")
    if profile.document and profile.node_excludes and any(n == "exclude" for n, _ in profile.sbatch_directives):
        message = "exclude stands in default_sbatch_directives as well; write it once"
        report.error(profile.document, ("node_excludes",), message, at_key=True)


def directives(recipe: Recipe, profile: Profile, nodes: int, gpus_per_node: int) -> tuple[Directive, ...]:
    """All directives of `run.sbatch`: own keys first, then built-ins, the profile's and the recipe's over them."""
    chosen: dict[str, Directive] = {}

    def put(name: str, value: str | None, origin: str) -> None:
        chosen.pop(name, None)
        chosen[name] = Directive(name, value or None, origin)

    put("job-name", recipe.name, "recipe: name")
    put("nodes", str(nodes), "recipe: roles.*.nodes")
    own = [
        ("account", recipe.account, profile.account),
        ("partition", recipe.partition, profile.partition),
        ("qos", None, profile.qos),
    ]
    for name, from_recipe, from_profile in own:
        if value := from_recipe or from_profile:
            put(name, value, f"recipe: slurm.{name}" if from_recipe else f"cluster: default_{name}")
    if limit := time_limit(recipe, profile):
        put("time", limit, "recipe: slurm.time_limit" if recipe.time_limit else "cluster: default_time_limit")
    origin = "recipe: resources.gpus_per_node" if recipe.gpus_per_node else "cluster: gpus_per_node"
    if profile.gpu_directive == "gpus-per-node":
        put("gpus-per-node", str(gpus_per_node), origin)
    elif profile.gpu_directive == "gres":
        put("gres", f"gpu:{gpus_per_node}", origin)
    if profile.exclusive:
        put("exclusive", None, "built-in")
    put("mem", "0", "built-in")
    put("ntasks-per-node", "1", "built-in")
    if profile.node_excludes:
        put("exclude", ",".join(profile.node_excludes), "cluster: node_excludes")
    for name, value in profile.sbatch_directives:
        put(name, value, f"cluster: default_sbatch_directives.{name}")
    for name, value in recipe.sbatch_directives:
        put(name, value, f"recipe: sbatch_directives.{name}")
    put("output", "slurm-%j.out", "built-in")
    put("open-mode", "append", "built-in")
    put("no-requeue", None, "built-in")
    put("signal", f"B:USR1@{lead_s(time_limit(recipe, profile))}", "built-in, from the time limit")
    return tuple(chosen.values())
