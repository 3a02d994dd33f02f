"""What is evaluated, read from the constants of eval/plan.sh; the places and the environment it works in."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

FAILED, BELOW = 22, 23
LOCAL_TASKS = ("gsm8k",)
# Variables of a shell or an image that would change what pip installs or what lm-eval does.
HOSTILE = ("PIP_", "PYTHON", "UV_", "CONDA", "VIRTUAL_ENV", "LMEVAL_", "LM_HARNESS", "HF_", "HUGGINGFACE_", "TRANSFORMERS_")
KEPT = ("HF_TOKEN", "HF_ENDPOINT")


class EvalError(Exception):
    """The evaluation can't be done; the text is for the operator."""


@dataclass(frozen=True)
class EvalPlan:
    """eval/plan.sh, typed."""

    model: str
    endpoint_url: str
    endpoint: str
    chat_template: bool
    tasks: Tuple[str, ...]
    num_fewshot: Optional[int]
    limit: Optional[int]
    concurrency: int
    max_tokens: int
    max_length: int
    gen_kwargs: Dict[str, Any]
    request_timeout_s: int
    thresholds: Dict[str, Dict[str, float]]
    max_empty_ratio: float
    max_unextracted_ratio: Optional[float]
    python: str
    packages: str
    packages_path: str
    system_site_packages: bool
    offline: bool
    index_url: str
    ca_file: str
    task_data: str
    meta: Dict[str, Any]
    bundle: Path
    results: Path
    work: Path

    @property
    def wheels(self) -> Path:
        """Folder that packages come from: the bundle's own when offline."""
        return Path(self.packages_path) if self.packages_path else self.bundle / "offline" / "wheels"

    @property
    def local(self) -> bool:
        """True if every task reads local files, so that nothing needs the hub once these are there."""
        return all(task in LOCAL_TASKS for task in self.tasks)


def _whole(env: Mapping[str, str], name: str, default: str = "") -> Optional[int]:
    text = env.get(name) or default
    try:
        return int(text) if text else None
    except ValueError:
        raise EvalError("%s is not a whole number: %r" % (name, text)) from None


def _json(env: Mapping[str, str], name: str) -> Dict[str, Any]:
    try:
        value = json.loads(env.get(name) or "{}")
    except ValueError:
        raise EvalError("%s is not JSON: %r" % (name, env.get(name))) from None
    if not isinstance(value, dict):
        raise EvalError("%s is not a JSON object" % name)
    return value


def work_folder(env: Mapping[str, str]) -> Path:
    """Node-local folder of this job's evaluation."""
    return Path("/tmp/srtgen-%s/eval" % (env.get("SLURM_JOB_ID") or "local"))


def load(env: Mapping[str, str] = os.environ) -> EvalPlan:
    """Read the plan; raises EvalError."""
    unextracted = env.get("EVAL_MAX_UNEXTRACTED_RATIO")
    bundle = Path(env.get("SRTGEN_BUNDLE", ""))
    # prefetch.sh writes the sums last: where they are, everything is, and the network is left alone.
    offline = env.get("EVAL_OFFLINE") == "1" or (bundle / "offline" / "SHA256SUMS").is_file()
    packages = env.get("EVAL_PACKAGES") or "index"
    if offline and packages == "index":
        packages = "wheels"  # those of the bundle's own offline/ folder
    return EvalPlan(
        model=env.get("EVAL_MODEL", ""), endpoint_url=env.get("SRT_ENDPOINT", "").rstrip("/"),
        endpoint=env.get("EVAL_ENDPOINT") or "chat", chat_template=env.get("EVAL_CHAT_TEMPLATE", "1") == "1",
        tasks=tuple((env.get("EVAL_TASKS") or "gsm8k").split()),
        num_fewshot=_whole(env, "EVAL_NUM_FEWSHOT"), limit=_whole(env, "EVAL_LIMIT"),
        concurrency=_whole(env, "EVAL_CONC", env.get("EVAL_CONCURRENCY") or "16") or 16,
        max_tokens=_whole(env, "EVAL_MAX_TOKENS", "5376") or 5376,
        max_length=_whole(env, "EVAL_MAX_LENGTH", "9472") or 9472,
        gen_kwargs=_json(env, "EVAL_GEN_KWARGS") or {"temperature": 0, "top_p": 1},
        request_timeout_s=_whole(env, "EVAL_REQUEST_TIMEOUT_S", "1800") or 1800,
        thresholds=_json(env, "EVAL_THRESHOLDS"), max_empty_ratio=float(env.get("EVAL_MAX_EMPTY_RATIO") or 0),
        max_unextracted_ratio=float(unextracted) if unextracted else None,
        python=env.get("EVAL_PYTHON") or "python3", packages=packages,
        packages_path=env.get("EVAL_PACKAGES_PATH", ""),
        system_site_packages=env.get("EVAL_SYSTEM_SITE_PACKAGES") == "1", offline=offline,
        index_url=env.get("SRTGEN_PIP_INDEX_URL") or env.get("EVAL_INDEX_URL", ""),
        ca_file=env.get("SRTGEN_CA_FILE") or env.get("EVAL_CA_FILE", ""),
        task_data=env.get("SRTGEN_TASK_DATA", ""), meta=_json(env, "EVAL_META"),
        bundle=bundle, results=Path(env.get("SRTGEN_RESULTS", "")) / "eval",
        work=work_folder(env),
    )


def load_command(env: Mapping[str, str] = os.environ) -> EvalPlan:
    """The plan of a command of the recipe's own, to which EVAL_CONC is just text (`64 128`)."""
    return load({name: value for name, value in env.items() if name != "EVAL_CONC"})


def clean_environment(plan: EvalPlan, offline: Optional[bool] = None) -> Dict[str, str]:
    """Environment for pip and lm-eval: nobody's pip configuration, home, Python paths or hub caches."""
    env = {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(HOSTILE)}
    home = plan.work / "home"
    env.update(
        HOME=str(home), TMPDIR=str(plan.work), XDG_CACHE_HOME=str(home / "cache"), XDG_CONFIG_HOME=str(home / "config"),
        XDG_DATA_HOME=str(home / "data"), HF_HOME=str(home / "hf"), HF_DATASETS_CACHE=str(home / "hf" / "datasets"),
        PIP_CONFIG_FILE=os.devnull, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PIP_CACHE_DIR=str(home / "pip"),
        PYTHONNOUSERSITE="1", PYTHONUTF8="1", LC_ALL="C.UTF-8",
        HF_HUB_DISABLE_TELEMETRY="1", DO_NOT_TRACK="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TOKENIZERS_PARALLELISM="false",
        OPENAI_API_KEY="EMPTY",
    )
    if plan.ca_file:
        env.update(PIP_CERT=plan.ca_file, SSL_CERT_FILE=plan.ca_file, REQUESTS_CA_BUNDLE=plan.ca_file)
    if plan.offline if offline is None else offline:
        env.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_EVALUATE_OFFLINE="1")
    return env


def requirements_name(version: str) -> str:
    """File of pinned, hashed requirements for a Python version such as 3.12."""
    return "requirements-%s.txt" % version


def machine() -> str:
    """Platform that the requirement lists are for, as Python names it."""
    return "%s %s" % (platform.system(), platform.machine())


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(str(temporary), str(path))


def write_verdict(plan: EvalPlan, code: int, reason: str, **more: Any) -> None:
    """eval/verdict.json, which the job reads."""
    write_json(plan.results / "verdict.json", dict({"code": code, "reason": reason}, **more))
