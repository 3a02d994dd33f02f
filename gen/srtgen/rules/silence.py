"""What a recipe silences: warnings and notes by code, each with a reason that is kept beside them."""

from __future__ import annotations

from typing import Any, Sequence

from srtgen.document import Document
from srtgen.errors import Problem

KEY = "silence"
UNUSED = "unused-silence"


def apply(document: Document, findings: Sequence[Problem]) -> tuple[Problem, ...]:
    """The findings, silenced ones with their reason, and a note for each entry that silences nothing."""
    entries: list[dict[str, Any]] = document.data.get(KEY, [])
    if not entries:
        return tuple(findings)
    reasons = {one["code"]: one["reason"] for one in reversed(entries)}
    fired = {finding.code for finding in findings}
    kept = [f._replace(reason=reasons[f.code]) if f.code in reasons else f for f in findings]
    for index, one in enumerate(entries):
        if one["code"] not in fired and one["code"] != UNUSED:
            message = f"silences nothing here: {_why(one['code'])}"
            path = (KEY, index, "code")
            note = document.problem(path, message, severity="note", code=UNUSED)
            kept.append(note._replace(reason=reasons.get(UNUSED, "")))
    return tuple(sorted(set(kept)))


def strict(findings: Sequence[Problem]) -> tuple[Problem, ...]:
    """The findings with every warning that is not silenced turned into an error."""
    return tuple(f._replace(severity="error") if f.severity == "warning" and not f.reason else f for f in findings)


def _why(code: str) -> str:
    from srtgen import catalogue  # only recipes with a stale entry pay for it

    known = catalogue.codes()
    if code in known:
        return f"no check says {code}"
    near = catalogue.nearest(code)
    return f"no check has the code {code}" + (f"; did you mean {near}?" if near else "")
