"""What differs between two bundles in words that matter: commands, environment, ports, images, job settings.

Works on manifests and on run.sbatch's text, so that it compares what is generated now, what lies in a folder, and what
a job once ran with.
"""

import json
import re
import shlex
from typing import Any, Iterable, Mapping, NamedTuple

from srtgen import words

_DIRECTIVE = re.compile(r"^#SBATCH (--[a-z-]+)(?:=(.*))?$", re.MULTILINE)
_SETTING = re.compile(r"^readonly (PLAN_[A-Z0-9_]+)=(.*)$", re.MULTILINE)
_NOT_SETTINGS = frozenset({"PLAN_ID", "PLAN_WORKERS", "PLAN_LISTEN"})
# What a process is beside its argv and environment, and how it is shown.
_FACTS = ("node", "gpus", "ports", "image")
_ADDRESS = re.compile(r"\$\{NODE_[0-9]+_ADDR\}")
_LITERAL_FLAGS = re.compile(r"--?[A-Za-z]")


class Change(NamedTuple):
    """One difference: `sign` is + (only in the second), - (only in the first) or ~ (another value)."""

    subject: str
    aspect: str
    sign: str
    name: str
    before: str
    after: str

    def text(self) -> str:
        if self.sign == "~":
            return f"~ {self.name} {self.before} -> {self.after}".rstrip()
        return f"{self.sign} {self.name} {self.after if self.sign == '+' else self.before}".rstrip()


def flags(argv: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The command as flag to values; what stands before the first flag is the flag `command`."""
    found: dict[str, list[str]] = {"command": []}
    current = "command"
    for position, text in enumerate(argv):
        if position and text.startswith("-") and _LITERAL_FLAGS.match(text) and not (current == "command" and text == "-m"):
            current, equals, value = text.partition("=") if text.startswith("--") else (text, "", "")
            found.setdefault(current, [])
            if equals:
                found[current].append(value)
        else:
            found[current].append(text)
    return {name: tuple(values) for name, values in found.items()}


def mapping(subject: str, aspect: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """The differences of two tables of names and values, in the order of the second."""
    changes = []
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            changes.append(Change(subject, aspect, "-", name, before[name], ""))
        elif name not in before:
            changes.append(Change(subject, aspect, "+", name, "", after[name]))
        elif before[name] != after[name]:
            changes.append(Change(subject, aspect, "~", name, before[name], after[name]))
    return changes


def processes(subject: str, before: Mapping[str, Any], after: Mapping[str, Any], facts: bool = True) -> list[Change]:
    """The differences of two processes of manifests."""
    changes = mapping(subject, "argv", _shown_flags(before["argv"]), _shown_flags(after["argv"]))
    changes = [finer for change in changes for finer in _inside_json(change)]
    changes += mapping(subject, "env", before["env"], after["env"])
    if facts:
        shown = [{key: _fact(one[key]) for key in _FACTS} for one in (before, after)]
        changes += mapping(subject, "place", *shown)
    return changes


def _inside_json(change: Change) -> list[Change]:
    """Two JSON objects key by key instead of as two long words."""
    tables = []
    for shown in (change.before, change.after):
        try:
            value = json.loads("".join(shlex.split(shown)))
        except ValueError:
            return [change]
        if change.sign != "~" or not isinstance(value, dict):
            return [change]
        tables.append({f"{change.name} {key}": json.dumps(item, ensure_ascii=False) for key, item in value.items()})
    return mapping(change.subject, change.aspect, *tables) or [change]


def neutral(process: Mapping[str, Any]) -> dict[str, Any]:
    """The process without what tells it from its neighbours anyway: its own folders and its node's address."""

    def shown(text: str) -> str:
        return _ADDRESS.sub("${NODE_<n>_ADDR}", text).replace(f"/{process['step']}/", "/<step>/")

    env = {name: shown(value) for name, value in process["env"].items()}
    return {**process, "env": env, "argv": [shown(word) for word in process["argv"]]}


def _shown_flags(argv: Iterable[str]) -> dict[str, str]:
    return {name: " ".join(words.quote(v) for v in values) for name, values in flags(argv).items()}


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={port}" for name, port in value.items()) or "none"
    return ",".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def manifests(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """The differences of two manifests: whole-job facts, then process by process, workers of a role together."""
    keys = ("name", "served_model", "nodes")
    changes = mapping("job", "facts", *({key: str(one[key]) for key in keys} for one in (before, after)))
    tables = [{key_of(process): process for process in one["processes"]} for one in (before, after)]
    for step in dict.fromkeys([*tables[0], *tables[1]]):
        if step not in tables[1]:
            changes.append(Change("job", "processes", "-", step, "", ""))
        elif step not in tables[0]:
            changes.append(Change("job", "processes", "+", step, "", ""))
        else:
            changes += processes(step, tables[0][step], tables[1][step])
    return _together(changes, before, after)


def key_of(process: Mapping[str, Any]) -> str:
    """What a process is matched by; the points of a sweep by their concurrency."""
    if process["role"] != "bench":
        return str(process["step"])
    return f"bench {' '.join(flags(process['argv']).get('--max-concurrency', ()))}".rstrip()


def _together(changes: list[Change], before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """A change that all processes of a role share becomes one change of the role."""
    members: dict[str, set[str]] = {}
    for one in (before, after):
        for process in one["processes"]:
            members.setdefault(process["role"], set()).add(key_of(process))
    roles = {step: role for role, steps in members.items() for step in steps}
    seen: dict[tuple[str, ...], set[str]] = {}
    for change in changes:
        if change.subject in roles:
            seen.setdefault((roles[change.subject], *change[1:]), set()).add(change.subject)
    merged = []
    for change in changes:
        role = roles.get(change.subject)
        whole = role is not None and seen[(role, *change[1:])] == members[role]
        merged.append(change._replace(subject=role) if role and whole else change)
    return list(dict.fromkeys(merged))


def job_scripts(before: str, after: str) -> list[Change]:
    """The differences of two run.sbatch: directives and job settings."""
    directives = [{name: value for name, value in _DIRECTIVE.findall(text)} for text in (before, after)]
    settings = [
        {name: value for name, value in _SETTING.findall(text) if name not in _NOT_SETTINGS} for text in (before, after)
    ]
    return mapping("job", "directives", *directives) + mapping("job", "settings", *settings)


def text(changes: Iterable[Change]) -> str:
    """The changes grouped under what they are about."""
    groups: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        groups.setdefault((change.subject, change.aspect), []).append(change.text())
    return "\n".join(f"{subject}: {aspect}\n" + "\n".join(f"  {line}" for line in lines) for (subject, aspect), lines in groups.items())
