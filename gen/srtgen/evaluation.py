"""The accuracy evaluation: what the recipe asks for, with every default written out."""

import re
from typing import Any, Mapping, NamedTuple

from srtgen.document import Document
from srtgen.errors import Path
from srtgen.recipe import Recipe
from srtgen.report import Report

OWN_TASKS = frozenset({"gsm8k"})
DEFAULT_CONTEXT = 16384
LONGEST_ANSWER = 16384
PROMPT_ROOM = 4096
DEFAULT_CONCURRENCY = 64
COMMAND_FILE = "eval/command.sh"
# What srt-slurm would put into the command, and its names of the submitting shell's that every such command gets.
_PLACEHOLDERS = {"endpoint": "${SRT_ENDPOINT}", "infmax_workspace": "the path that your mount has in the container"}
_ALWAYS_PASSED = (
    *("RUN_EVAL", "EVAL_ONLY", "IS_MULTINODE", "FRAMEWORK", "PRECISION", "MODEL_PREFIX", "RUNNER_TYPE", "RESULT_FILENAME"),
    *("SPEC_DECODING", "ISL", "OSL", "MODEL", "MODEL_PATH", "MAX_MODEL_LEN", "EVAL_MAX_MODEL_LEN"),
    *(f"{role}_{what}" for role in ("PREFILL", "DECODE") for what in ("TP", "EP", "DP_ATTN", "NUM_WORKERS")),
)


class Evaluation(NamedTuple):
    """One evaluation. `run`: off, after_benchmark or only. Lengths in tokens, times in seconds."""

    run: str
    tasks: tuple[str, ...]
    num_fewshot: int | None
    limit: int | None
    concurrency: int
    max_tokens: int
    max_length: int
    endpoint: str
    chat_template: bool
    gen_kwargs: Mapping[str, Any]
    request_timeout_s: int
    thresholds: Mapping[str, Mapping[str, float]]
    max_empty_ratio: str
    max_unextracted_ratio: str
    python: str
    target_python: str
    packages: str
    packages_path: str
    system_site_packages: bool
    offline: bool
    command: str = ""
    pass_env: tuple[str, ...] = ()


def read(recipe: Recipe, report: Report) -> Evaluation | None:
    """The recipe's evaluation, None where it has none. Contradictions go to `report`."""
    document = recipe.document
    given = document.data.get("eval")
    if (own := document.data.get("post_eval")) is not None:
        return _own_command(own, given, recipe, report)
    if given is None:
        return None
    context = _context(recipe)
    endpoint = given.get("endpoint", "chat")
    found = Evaluation(
        run=given.get("run") or "off",
        tasks=tuple(given.get("tasks", sorted(OWN_TASKS))),
        num_fewshot=given.get("num_fewshot"),
        limit=given.get("limit"),
        concurrency=given.get("concurrency") or max(recipe.benchmark.concurrencies, default=DEFAULT_CONCURRENCY),
        max_tokens=given.get("max_tokens") or _answer(context),
        max_length=context,
        endpoint=endpoint,
        chat_template=given.get("apply_chat_template", endpoint == "chat"),
        gen_kwargs=given.get("gen_kwargs", {"temperature": 0, "top_p": 1}),
        request_timeout_s=given.get("request_timeout_s", 1800),
        thresholds=given["thresholds"],
        max_empty_ratio=document.sources.get(("eval", "max_empty_ratio"), "0"),
        max_unextracted_ratio=document.sources.get(("eval", "max_unextracted_ratio"), ""),
        python=given.get("python", "python3"),
        target_python=given.get("target_python", "3.12"),
        packages=given.get("packages", "index"),
        packages_path=given.get("packages_path", ""),
        system_site_packages=given.get("system_site_packages", False),
        offline=given.get("offline", recipe.model.offline),
    )
    _check(found, document, report)
    return found


def _own_command(own: Mapping[str, Any], other: Any, recipe: Recipe, report: Report) -> Evaluation:
    """The evaluation by the recipe's own command; what only lm-eval reads is empty."""
    document = recipe.document
    if other is not None:
        message = "eval and post_eval are two evaluations, and a job has one; remove one of them"
        report.error(document, ("post_eval",), message, at_key=True)
    for name, instead in _PLACEHOLDERS.items():
        if re.search(rf"(?<!\$)\{{{name}\}}", own["command"]):
            report.error(document, ("post_eval", "command"), f"{{{name}}} is not expanded; write {instead}")
    nothing = {name: "" for name in ("endpoint", "max_empty_ratio", "max_unextracted_ratio", "python", "target_python")}
    return Evaluation(
        run=own.get("run") or "off",
        tasks=(),
        num_fewshot=None,
        limit=None,
        concurrency=max(recipe.benchmark.concurrencies, default=DEFAULT_CONCURRENCY),
        max_tokens=0,
        max_length=0,
        chat_template=False,
        gen_kwargs={},
        request_timeout_s=0,
        thresholds={},
        packages="",
        packages_path="",
        system_site_packages=False,
        offline=False,
        command=own["command"],
        pass_env=tuple(dict.fromkeys((*_ALWAYS_PASSED, *own.get("passthrough_env", ())))),
        **nothing,
    )


def _context(recipe: Recipe) -> int:
    """The context that the workers are started with: the least max-model-len of the roles."""
    lengths = [
        s.value
        for role in recipe.roles
        for s in role.args
        if s.key.replace("_", "-") == "max-model-len" and isinstance(s.value, int)
    ]
    return min(lengths, default=DEFAULT_CONTEXT)


def _answer(context: int) -> int:
    return min(LONGEST_ANSWER, context - PROMPT_ROOM) if context > PROMPT_ROOM else max(1, context // 2)


def _check(found: Evaluation, document: Document, report: Report) -> None:
    def error(key: str, message: str) -> None:
        path: Path = ("eval", key)
        report.error(document, path, message, at_key=True)

    if found.chat_template != (found.endpoint == "chat"):
        error("apply_chat_template", f"lm-eval needs {str(not found.chat_template).lower()} with endpoint {found.endpoint}")
    if found.packages != "index" and not found.packages_path:
        error("packages", f"packages {found.packages} needs packages_path")
    if found.packages == "index" and found.packages_path:
        error("packages_path", "never read with packages index; remove it, or write packages: wheels")
    for task in found.tasks:
        if task not in found.thresholds:
            error("thresholds", f"no threshold for task {task}; an evaluation without one proves nothing")
        if found.offline and task not in OWN_TASKS:
            error("tasks", f"{task} cannot run offline; known: {', '.join(sorted(OWN_TASKS))}")
    for task in found.thresholds:
        if task not in found.tasks:
            error("thresholds", f"{task} is not among the tasks")
