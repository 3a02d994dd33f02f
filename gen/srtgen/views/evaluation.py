"""eval/plan.sh: what is evaluated, every default written out."""

from __future__ import annotations

from typing import Any, Mapping

from srtgen.arguments import json_text
from srtgen.evaluation import Evaluation
from srtgen.plan import Plan, work_folder
from srtgen.views.labels import labels


def eval_view(plan: Plan) -> dict[str, Any]:
    """eval/plan.sh: what is evaluated, every default written out."""
    found = plan.evaluation
    assert found is not None
    bench = plan.recipe.benchmark
    meta = {**labels(plan), "isl": bench.isl, "osl": bench.osl}
    own = work_folder(plan.client.step)
    exports = [(n, v) for n, v in plan.client.env if v[: len(own) - 1] != own[:-1]]
    if found.command:
        return {"constants": [*_own_command(plan.served.name, found, meta).items(), *exports]}
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
        "EVAL_GEN_KWARGS": json_text(found.gen_kwargs),
        "EVAL_REQUEST_TIMEOUT_S": found.request_timeout_s,
        "EVAL_THRESHOLDS": json_text(found.thresholds),
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
        "EVAL_META": json_text(meta),
    }
    return {"constants": [*constants.items(), *exports]}


def _own_command(model: str, found: Evaluation, meta: Mapping[str, Any]) -> dict[str, str | int]:
    """What eval/command.sh needs; it is the recipe's text."""
    return {
        "EVAL_MODEL": model,
        "EVAL_CONCURRENCY": found.concurrency,
        "EVAL_COMMAND": 1,
        "EVAL_META": json_text(meta),
    }
