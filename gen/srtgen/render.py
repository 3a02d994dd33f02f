"""From the plan to the bundle's files: templates print what the plan decided, everything else is copied."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from srtgen import evaluation, manifest, resources, words
from srtgen.adapters import RUNTIMES
from srtgen.bench import COMMAND_FILE
from srtgen.compiled import Compiled
from srtgen.errors import Problem
from srtgen.manifest import File, Input
from srtgen.plan import Plan
from srtgen.views.bench import bench_view
from srtgen.views.evaluation import eval_view
from srtgen.views.job import job_view
from srtgen.views.readme import readme_view
from srtgen.views.role import role_view

_EXECUTABLE = frozenset({"submit.sh", "wait.sh", "status.sh", "logs.sh", "stop.sh", "prefetch.sh", "eval/run.sh"})
# What the copied files begin with that only some bundles need, and which.
_OPTIONAL: tuple[tuple[tuple[str, ...], Callable[[Plan], object]], ...] = (
    (("eval/", "lib/eval"), lambda plan: plan.evaluation),
    (("eval/requirements", "eval/tasks/", "prefetch.sh"), lambda plan: plan.evaluation and not plan.evaluation.command),
    (("lib/jit_",), lambda plan: plan.profile.jit_cache),
    (("lib/stage_model",), lambda plan: plan.served.staged),
    (("lib/stage_image.py",), lambda plan: plan.profile.image_stage_dir),
    (("lib/prefetch_model",), lambda plan: plan.prefetch),
    (("lib/turn",), lambda plan: plan.prefetch or plan.served.staged or plan.profile.image_stage_dir),
)
_RUNTIME_SCRIPTS = frozenset(script for runtime in RUNTIMES.values() for script in runtime.scripts)
_ROUTES = "Starts the router inside its container."
_FETCHES = "Fetches the model into the Hugging Face cache before the load, inside a worker's container."
_GITIGNORE = b"/results/\n/offline/\n/slurm-*.out\n"


class UnquotedValue(Exception):
    """A template printed a value that no quoting filter made."""


def only_shell(value: object) -> object:
    """Jinja's gate on every printed value: quoted words pass, anything else is a mistake in a template."""
    if isinstance(value, words.Shell):
        return value
    raise UnquotedValue(f"unquoted value in a template: {value!r}; add | shquote")


@lru_cache(maxsize=None)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(str(resources.folder("templates"))),
        undefined=StrictUndefined,
        finalize=only_shell,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        bytecode_cache=Compiled(),
        optimized=False,  # a template is printed once: folding its constants costs more than it saves
    )
    environment.globals.clear()
    environment.tests.clear()
    environment.filters.clear()
    environment.filters.update({f.__name__: f for f in (words.plain, words.shargv, words.sharrays, words.shenv)})
    return environment


def page(template: str, view: dict[str, Any]) -> bytes:
    """One template, printed."""
    return _environment().get_template(template).render(view).encode()


def files(
    plan: Plan,
    recipe: Input,
    cluster: Input | None,
    overrides: tuple[str, ...],
    findings: tuple[Problem, ...],
    ignored: tuple[str, ...],
) -> dict[str, File]:
    """Every file of the bundle by its path, manifest included. Pure: the same input gives the same bytes."""
    bundle = {path: file for path, file in _verbatim() if not path.startswith(_unused(plan))}
    for group in plan.groups:
        bundle[f"roles/{group.name}.sh"] = File(page("roles/role.sh.j2", role_view(group.processes)), True)
    bundle[f"roles/{plan.router.role}.sh"] = File(page("roles/role.sh.j2", role_view((plan.router,), _ROUTES)), True)
    if plan.prefetch:
        bundle[f"roles/{plan.prefetch.role}.sh"] = File(page("roles/role.sh.j2", role_view((plan.prefetch,), _FETCHES)), True)
    bundle["bench.sh"] = File(page("bench.sh.j2", bench_view(plan)), True)
    if plan.recipe.benchmark.command is not None:
        bundle[COMMAND_FILE] = File(_text_file(plan.recipe.benchmark.command))
    if plan.evaluation and plan.evaluation.command:
        bundle[evaluation.COMMAND_FILE] = File(_text_file(plan.evaluation.command))
    if plan.evaluation:
        bundle["eval/plan.sh"] = File(page("eval/plan.sh.j2", eval_view(plan)))
    bundle[".gitignore"] = File(_GITIGNORE)
    bundle["recipe.yaml"] = File(recipe.content)
    if cluster:
        bundle["cluster.yaml"] = File(cluster.content)
    bundle["README.md"] = File(page("README.md.j2", readme_view(plan, findings)))
    inputs = (recipe, cluster) if cluster else (recipe,)
    draft = manifest.draft(plan, inputs, overrides, findings, ignored, bundle)
    job = File(page("run.sbatch.j2", job_view(plan, draft["id"])), True)
    bundle[manifest.JOB_SCRIPT] = job
    bundle[manifest.NAME] = File(manifest.finish(draft, job))
    return bundle


def _unused(plan: Plan) -> tuple[str, ...]:
    """What the copied files begin with that this plan has no use for."""
    others = _RUNTIME_SCRIPTS.difference(plan.runtime.scripts)
    return (*others, *(start for starts, needed in _OPTIONAL if not needed(plan) for start in starts))


def _text_file(text: str) -> bytes:
    return (text if text.endswith("\n") else text + "\n").encode()


@lru_cache(maxsize=None)
def _verbatim() -> tuple[tuple[str, File], ...]:
    """The files of `templates/` that are copied byte for byte. A leading underscore marks what goes elsewhere."""
    return tuple((name, File(resources.content("templates", name), name in _EXECUTABLE)) for name in _copied())


def _copied() -> list[str]:
    return [
        name
        for name in resources.names("templates")
        if not name.endswith((".j2", ".pyc")) and "/_" not in f"/{name}"
    ]
