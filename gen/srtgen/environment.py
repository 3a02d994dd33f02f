"""The environment of a process: what the recipe says, what srtgen sets, and what may not be set."""

from __future__ import annotations

import re
from typing import Iterable, Mapping

from srtgen.recipe import Setting
from srtgen.report import Report
from srtgen.words import Var, Word, word

# Inherited masks are applied on top of each other (HIP and CUDA index into what ROCR leaves), and
# USE_ATOMESH_ENTRYPOINTS swaps ATOM's argument parser; a role script clears them all.
CLEARED = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "USE_ATOMESH_ENTRYPOINTS",
)
_OUR_PREFIXES = ("SRTGEN_", "SRT_", "SLURM_", "BENCH_", "EVAL_", "PLAN_")
# Variables of bash itself that cannot be set, change what it does, or are changed before the process starts, and those
# that a role script uses itself.
_SHELL_NAMES = frozenset(
    "_ BASH_ENV BASHOPTS SHELLOPTS IFS PWD OLDPWD SHLVL UID EUID PPID GROUPS DIRSTACK FUNCNAME PIPESTATUS LINENO SECONDS "
    "RANDOM SRANDOM EPOCHSECONDS EPOCHREALTIME HISTCMD OPTIND OPTARG OPTERR REPLY MAPFILE ENV POSIXLY_CORRECT CDPATH "
    "GLOBIGNORE EXECIGNORE PS4 index here work argv host_ip server_port handshake_port dp_master_port dp_base_port gpus "
    "position bench_child bench_lib".split()
)
# Patterns stay text: most recipes have no value that needs one, and compiling them costs as much as all other checks.
_SECRET_STARTS = ("hf_", "sk-", "AKIA", "-----BEGIN")
_SECRET_VALUE = r"hf_[A-Za-z0-9]{30,}|(?<![A-Za-z0-9_-])sk-[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{12,}|-----BEGIN [A-Z ]+-----"
_SECRET_ENDS = ("_TOKEN", "_PASSWORD", "_SECRET", "_SECRET_KEY", "_SECRET_ACCESS_KEY", "_API_KEY")
_PLACEHOLDER = r"\$[A-Za-z_][A-Za-z0-9_]*|\$\{[A-Za-z_][A-Za-z0-9_]*[^}]*\}?|\{[a-z_]+\}"

Environment = tuple[tuple[str, Word], ...]


def merge(
    layers: Iterable[tuple[Setting, ...]], managed: Mapping[str, Word], reserved: frozenset[str], report: Report
) -> Environment:
    """The union of the recipe's `layers` behind the variables that srtgen manages.

    One name with two different values, a name of ours, or a secret in plain text is an error.
    """
    chosen: dict[str, Setting] = {}
    for setting in (s for layer in layers for s in layer):
        first = chosen.setdefault(setting.key, setting)
        if _value(first) != _value(setting):
            message = f"{setting.key} has another value at {first.place}; write it once"
            report.error(setting.document, setting.path, message)
        _check(setting, managed, reserved, report)
        _check_placeholder(setting, report)
    ours = tuple((name, value) for name, value in managed.items() if name not in chosen)
    return (*ours, *((name, _value(setting)) for name, setting in chosen.items()))


def _value(setting: Setting) -> Word:
    if isinstance(setting.value, dict):
        return word(Var(setting.value["from_submit"], required=True))
    return word(setting.source)


def secrets(environment: Environment) -> list[str]:
    """Names of variables that the submitting shell must provide."""
    return [p.name for _, value in environment for p in value if isinstance(p, Var) and p.required]


def _check(setting: Setting, managed: Mapping[str, Word], reserved: frozenset[str], report: Report) -> None:
    name = setting.key
    if name in CLEARED or name in reserved or _is_ours(name):
        message = f"{name} is set by srtgen and cannot be set in a recipe"
        report.error(setting.document, setting.path, message, at_key=True)
    elif name in managed and _value(setting) != managed[name]:
        wanted = "".join(str(part) for part in managed[name])
        message = f"{name} contradicts the recipe's other settings, which make it {wanted}"
        report.error(setting.document, setting.path, message)
    elif not isinstance(setting.value, dict) and _is_secret(name, setting.source):
        message = f"a secret in plain text; write {name}: {{from_submit: {name}}}"
        report.error(setting.document, setting.path, message)


def _is_ours(name: str) -> bool:
    node = name.startswith("NODE_") and name.endswith("_ADDR")
    return node or name.startswith((*_OUR_PREFIXES, "BASH_", "COMP_")) or name in _SHELL_NAMES


def _is_secret(name: str, value: str) -> bool:
    return looks_secret(value) or (name.endswith(_SECRET_ENDS) and value not in ("", "EMPTY"))


def looks_secret(value: str) -> bool:
    """Whether a text holds what only a token or a private key looks like."""
    return any(start in value for start in _SECRET_STARTS) and bool(re.search(_SECRET_VALUE, value))


def _check_placeholder(setting: Setting, report: Report) -> None:
    """A value that srt-slurm would expand: here it would arrive as literal text."""
    if isinstance(setting.value, str) and (found := placeholder(setting.value)):
        report.error(setting.document, setting.path, f"{found} is not expanded; {_instead(setting.value)}")


def placeholder(text: str) -> str | None:
    """The first placeholder in a text that srt-slurm would expand, or None."""
    found = re.search(_PLACEHOLDER, text) if "$" in text or "{" in text else None
    return found.group(0) if found else None


_INSTEAD = {
    "job_id": "in a command write ${SLURM_JOB_ID}",
    "log_dir": "logs are at /logs",
    "model_path": "the model is at /model",
    "head_node_ip": "in a command write ${SRT_FRONTEND_HOST}",
}


def _instead(value: str) -> str:
    for name, advice in _INSTEAD.items():
        if name in value:
            return advice
    return "write the value itself, or {from_submit: NAME} for a variable of the submitting shell"
