"""roles/<role>.sh: the first process's argv and environment, and what differs between the others."""

from __future__ import annotations

from typing import Any

from srtgen import environment, words
from srtgen.jitcache import FOLDER as JIT_FOLDER
from srtgen.plan import Process, work_folder
from srtgen.words import Shell, Word, bind, params, word

_PARAM_ORDER = ("host_ip", "server_port", "handshake_port", "dp_master_port", "dp_base_port", "gpus", "position")


def _common(processes: tuple[Process, ...]) -> frozenset[str]:
    """Names of the variables that all have: a worker alone on its node lacks those of workers that share one."""
    first, *others = ({name for name, _ in p.env} for p in processes)
    return frozenset(first.intersection(*others))


def _varying(processes: tuple[Process, ...], common: frozenset[str]) -> tuple[str, ...]:
    """The parameters in which the processes differ, in a fixed order."""
    seen: dict[str, set[Any]] = {}
    for process in processes:
        for value in (*(w for line in process.lines for w in line), *(v for n, v in process.env if n in common)):
            for name, part in params(value).items():
                seen.setdefault(name, set()).add(part)
    return tuple(name for name in _PARAM_ORDER if len(seen.get(name, ())) > 1)


def _cases(processes: tuple[Process, ...], varying: tuple[str, ...], common: frozenset[str]) -> Shell:
    """The arms of the case statement: what differs, and what only some have, by index."""
    arms = []
    for process in processes:
        own: dict[str, Any] = {}
        for value in (*(w for line in process.lines for w in line), *(v for _, v in process.env)):
            own.update(params(value))
        pairs = " ".join(f"{name}={words.shquote(word(own[name]))}" for name in varying)
        extra = " ".join(f"{n}={words.shquote(bind(v, frozenset()))}" for n, v in process.env if n not in common)
        body = "; ".join(part for part in (pairs, f"export {extra}" if extra else "") if part)
        arms.append(f"  {process.index}) {body} ;;" if body else f"  {process.index}) ;;")
    return Shell("\n".join(arms))


def exports(process: Process, varying: frozenset[str]) -> list[tuple[str, Word]]:
    """The environment, with the process's work folder as `${work}`."""
    *head, start = work_folder(process.step)

    def shown(value: Word) -> Word:
        if list(value[: len(head)]) == head and str(value[-1]).startswith(str(start)):
            return word(words.Var("work"), str(value[-1])[len(str(start)) - 1 :])
        return value

    return [(name, bind(shown(value), varying)) for name, value in process.env]


def role_view(processes: tuple[Process, ...], summary: str = "") -> dict[str, Any]:
    """roles/<role>.sh: the first process's argv and environment, and what differs between the others."""
    common = _common(processes)
    varying = _varying(processes, common)
    first, last = processes[0], len(processes) - 1
    role = words.plain(first.role)
    return {
        "role": role,
        "summary": Shell(summary or f"Starts one {role} worker inside its container."),
        "range": Shell(f"0 to {last}" if last else "0"),
        "image": first.image,
        "jit": any(name == JIT_FOLDER for name, _ in first.env),
        "cleared": Shell(" ".join(environment.CLEARED)),
        "cases": _cases(processes, varying, common),
        "exports": [(name, value) for name, value in exports(first, frozenset(varying)) if name in common],
        "argv": [[bind(w, frozenset(varying)) for w in line] for line in first.lines],
    }
