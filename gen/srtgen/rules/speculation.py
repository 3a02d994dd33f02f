"""Speculative decoding: flags that exclude or need each other (ATOM 2026-08-22)."""

from __future__ import annotations

from srtgen.report import Report
from srtgen.rules.facts import Facts, Program
from srtgen.rules.payloads import given

_ONLY_WITH_METHOD = (
    "num_speculative_tokens",
    "draft_model",
    "spec_decode_acceptance_rate",
    "spec_decode_acceptance_length",
)
_FORCED = ("spec_decode_acceptance_rate", "spec_decode_acceptance_length")
MOST_TOKENS = 4


def method(facts: Facts, report: Report) -> None:
    """speculation-ignored, draft-model, speculative-tokens."""
    for worker in facts.workers:
        program = worker.program
        named = program.text("method")
        given_ = [key for key in _ONLY_WITH_METHOD if key in program.flags]
        if not named and "method" not in program.flags:
            for key in given_:
                _say(
                    "warning",
                    program,
                    key,
                    "ignored without method; add method, or remove it",
                    "speculation-ignored",
                    report,
                )
            continue
        if named == "eagle3" and "draft_model" not in program.flags:
            _say("error", program, "method", "eagle3 needs draft-model", "draft-model", report)
        if named == "mtp" and "draft_model" in program.flags:
            _say(
                "error",
                program,
                "draft_model",
                "mtp takes no draft-model: it is part of the checkpoint",
                "draft-model",
                report,
            )
        _tokens(program, named, report)


def _tokens(program: Program, named: str, report: Report) -> None:
    tokens = program.number("num_speculative_tokens")
    if tokens is None:
        return
    if tokens <= 0:
        message = "0 or less switches speculation off; remove method instead"
        _say("warning", program, "num_speculative_tokens", message, "speculative-tokens", report)
    elif named in ("mtp", "eagle3") and tokens > MOST_TOKENS:
        message = f"{named} takes 1 to {MOST_TOKENS} tokens"
        _say("error", program, "num_speculative_tokens", message, "speculative-tokens", report)


def acceptance(facts: Facts, report: Report) -> None:
    """acceptance-conflict: two forced acceptances, one beyond the drafts, or one beside a confidence schedule."""
    for worker in facts.workers:
        program = worker.program
        forced = [key for key in _FORCED if key in program.flags]
        if len(forced) == 2:
            _say(
                "error",
                program,
                forced[1],
                "rate and length exclude each other; keep one",
                "acceptance-conflict",
                report,
            )
        length = program.number("spec_decode_acceptance_length")
        drafts = program.number("num_speculative_tokens")
        if length is not None and drafts is not None and length > drafts + 1:
            message = f"{length} tokens a step are more than {int(drafts)} drafts and one allow"
            _say("error", program, "spec_decode_acceptance_length", message, "acceptance-conflict", report)
        if forced and given(program, "dspark_config").get("confidence_schedule") is True:
            message = "excludes confidence_schedule in dspark-config; remove one of them"
            _say("error", program, forced[0], message, "acceptance-conflict", report)


def forced(facts: Facts, report: Report) -> None:
    """forced-acceptance: the output is not the model's, which an evaluation must never see."""
    run = (facts.document.data.get("eval") or facts.document.data.get("post_eval") or {}).get("run", False)
    for worker in facts.workers:
        for key in _FORCED:
            if key in worker.program.flags and run not in (False, "false"):
                message = (
                    "output with forced acceptance is not the model's: an evaluation of it means nothing; remove one"
                )
                _say("error", worker.program, key, message, "forced-acceptance", report)
            elif key in worker.program.flags:
                message = "the output is not the model's: good for throughput, never for an evaluation (RUN_EVAL)"
                _say("note", worker.program, key, message, "forced-acceptance", report)


def _say(severity: str, program: Program, key: str, message: str, code: str, report: Report) -> None:
    setting = program.flags[key]
    report.put(severity, setting.document, setting.path, message, code)
