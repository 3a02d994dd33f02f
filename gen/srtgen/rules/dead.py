"""Settings that nothing reads, or that point to the wrong place, in an image of that date."""

from __future__ import annotations

import re

from srtgen.recipe import Setting
from srtgen.report import Report
from srtgen.rules.facts import Facts, Worker

AFFINITY, NUMA_SINCE = "ATOM_CPU_AFFINITY", "2026-06-24"
# ATOM 2026-08-22: no code reads these; its logger is fixed at INFO.
_UNREAD = {
    "VLLM_LOG_LEVEL": "AITER_LOG_LEVEL quietens the kernels",
    "ATOM_LOG_LEVEL": "AITER_LOG_LEVEL quietens the kernels",
    "LOG_LEVEL": "AITER_LOG_LEVEL quietens the kernels, frontend.args.log-level the router",
    "LOGLEVEL": "AITER_LOG_LEVEL quietens the kernels",
    "IBDEVICES": "write engine.ib_device, or leave the choice to ATOM",
}
_PATHS = ("LD_LIBRARY_PATH", "PYTHONPATH")
_PYTHON_DIR = r"python(3\.[0-9]+)/"
_PYTHON_TAG = r"py(3\.[0-9]+)"
IMAGE_PYTHON = "3.12"  # ATOM 2026-08-22: the default of its release image


def environment(facts: Facts, report: Report) -> None:
    """dead-env."""
    for setting, worker in _settings(facts):
        if setting.key in _UNREAD:
            message = f"no version of ATOM reads it; {_UNREAD[setting.key]}"
            report.put("warning", setting.document, setting.path, message, "dead-env")
        elif setting.key == AFFINITY:
            _affinity(setting, worker, report)
        elif setting.key == "ATOM_NUMA_BIND" and worker.program.version.surely_before(NUMA_SINCE):
            message = f"not read before {NUMA_SINCE}, {worker.program.version.words}; there it is {AFFINITY}"
            report.put("warning", setting.document, setting.path, message, "dead-env")


def _affinity(setting: Setting, worker: Worker, report: Report) -> None:
    known = worker.program.version
    if known.surely_before(NUMA_SINCE):
        return
    message = f'not read since {NUMA_SINCE}, {known.words}; write ATOM_NUMA_BIND: "1"'
    severity = "warning" if known.surely_since(NUMA_SINCE) else "note"
    report.put(severity, setting.document, setting.path, message, "dead-env")


def python_path(facts: Facts, report: Report) -> None:
    """python-path: libraries of another Python than the image's."""
    for setting, worker in _settings(facts):
        if setting.key not in _PATHS or not isinstance(setting.value, str):
            continue
        image = facts.profile.containers.get(worker.role.container, worker.role.container)
        found = re.search(_PYTHON_TAG, image)
        python = found[1] if found else IMAGE_PYTHON
        other = sorted({v for v in re.findall(_PYTHON_DIR, setting.value) if v != python})
        if other:
            what = "the image has" if found else "ATOM's images have"
            message = f"holds libraries of Python {', '.join(other)}, {what} {python}: they are not found there"
            report.put("warning", setting.document, setting.path, message, "python-path", at_key=False)


def _settings(facts: Facts) -> list[tuple[Setting, Worker]]:
    """The variables of each role's own environment, and once those of all roles."""
    own = [(setting, worker) for worker in facts.workers for setting in worker.role.env]
    return [*((setting, facts.workers[0]) for setting in facts.recipe.environment if facts.workers), *own]


def flags(facts: Facts, report: Report) -> None:
    """dead-flag: given beside something that takes its effect away."""
    for worker in facts.workers:
        program = worker.program
        for key, why in _without_effect(worker):
            if key in program.flags:
                setting = program.flags[key]
                report.put("note", setting.document, setting.path, f"without effect {why}", "dead-flag")


def _without_effect(worker: Worker) -> list[tuple[str, str]]:
    program = worker.program
    found: list[tuple[str, str]] = []
    if program.switched("enforce_eager"):
        found += [(key, "beside enforce-eager") for key in ("cudagraph_capture_sizes", "cudagraph_mode")]
    if worker.ranks == 1:
        found.append(("dp_load_balance", "on a single rank"))
    if not program.switched("eplb_enable"):
        found.append(("eplb_config", "without eplb-enable"))
    if program.text("method") != "dspark":
        found.append(("dspark_config", "without method dspark"))
    if worker.sizes.dcp <= 1:
        found.append(("dcp_config", "without decode context parallelism"))
    if not program.switched("enable_rapidserve"):
        found += [(key, "without enable-rapidserve") for key in ("disagg_prefill_max_num_seqs", "disagg_constrained")]
    return found


def decode_overlap(facts: Facts, report: Report) -> None:
    """tbo-decode: the bare flag means prefill, also on a decode worker."""
    for worker in facts.workers:
        setting = worker.program.flags.get("enable_tbo")
        if setting and worker.role.name == "decode" and setting.value in (True, "prefill"):
            message = (
                "overlaps prefill steps only, of which a decode worker has none; all is the value that acts on decode"
            )
            report.put("note", setting.document, setting.path, message, "tbo-decode")
