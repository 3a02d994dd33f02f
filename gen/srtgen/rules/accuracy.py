"""Settings that make numbers wrong while everything looks well."""

from __future__ import annotations

from srtgen.recipe import Setting
from srtgen.report import Report
from srtgen.rules.facts import Facts

# InferenceX: without both, DeepSeek-V4 runs and its accuracy is silently wrong.
_DSV4 = {"ATOM_MOE_GU_ITLV": "1", "AITER_BF16_FP8_MOE_BOUND": "0"}
PREFIX_CACHING_ON_SINCE = "2026-05-13"  # ATOM: the default turned from off to on
_LOSSY = {
    "ATOM_ENABLE_RELAXED_MTP": "accepts drafts that the model would not",
    "ATOM_ENABLE_GDN_DECODE_LOSSY_FAST": "is faster and less exact",
}


def dsv4_pair(facts: Facts, report: Report) -> None:
    """dsv4-accuracy."""
    if not facts.dsv4:
        return
    for worker in facts.workers:
        wrong = [n for n, v in _DSV4.items() if n not in worker.env or _source(worker.env[n]) != v]
        if wrong:
            place = next((worker.env[n].path for n in wrong if n in worker.env), worker.role.path)
            wanted = " and ".join(f'{n}: "{_DSV4[n]}"' for n in wrong)
            message = f"DeepSeek-V4 silently loses accuracy without {wanted} in {worker.role.name}'s environment"
            report.put("warning", facts.document, place, message, "dsv4-accuracy")


def _source(setting: Setting) -> str:
    return "" if isinstance(setting.value, dict) else setting.source


def hf_overrides(facts: Facts, report: Report) -> None:
    """hf-overrides: the result is no longer that of the published model."""
    for worker in facts.workers:
        setting = worker.program.flags.get("hf_overrides")
        if setting and facts.measures:
            message = "changes the model: the result is not that of the published one"
            report.put("warning", setting.document, setting.path, message, "hf-overrides")


def prefix_caching(facts: Facts, report: Report) -> None:
    """prefix-caching-unstated."""
    for worker in facts.workers:
        known = worker.program.version
        if (
            not facts.measures
            or "enable_prefix_caching" in worker.program.flags
            or known.surely_before(PREFIX_CACHING_ON_SINCE)
        ):
            continue
        message = (
            f"{worker.role.name} leaves enable_prefix_caching to the image: off before {PREFIX_CACHING_ON_SINCE}, "
            f"on since; {known.words}; write true or false"
        )
        report.put("warning", *worker.place, message, "prefix-caching-unstated")


def made_up(facts: Facts, report: Report) -> None:
    """dummy-weights, fake-eplb, lossy-setting."""
    for worker in facts.workers:
        program = worker.program
        if program.switched("load_dummy") and facts.measures:
            setting = program.flags["load_dummy"]
            report.put(
                "warning",
                setting.document,
                setting.path,
                "the weights are made up: no figure means anything",
                "dummy-weights",
            )
        if program.switched("fake_eplb"):
            setting = program.flags["fake_eplb"]
            message = "pretends an even expert load: the output is meaningless, the speed not comparable"
            report.put("warning", setting.document, setting.path, message, "fake-eplb")
        for name, effect in _LOSSY.items():
            if name in worker.env and _source(worker.env[name]) == "1":
                report.put(
                    "note", facts.document, worker.env[name].path, f"{effect}; say so with the result", "lossy-setting"
                )
