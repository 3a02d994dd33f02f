"""report.md of a job: verdict, time line, points, warnings, and what was not as the recipe says.

`report.py JOB_FOLDER` reads result.json, manifest.json and bench/summary.json there and writes report.md beside them.
Files that are missing or broken make a shorter report, never a failure of the job."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Sequence

COLUMNS = (
    ("concurrency", "concurrency", "%d"), ("completed", "completed", "%d"), ("tok/s/GPU", "total_tok_s_per_gpu", "%.1f"),
    ("output tok/s", "output_tok_s", "%.1f"), ("tok/s/user", "interactivity", "%.1f"), ("TTFT p50 ms", "ttft_ms_p50", "%.1f"),
    ("TTFT p99 ms", "ttft_ms_p99", "%.1f"), ("TPOT p50 ms", "tpot_ms_p50", "%.2f"), ("E2E p50 ms", "e2el_ms_p50", "%.1f"),
)
MARKS = str.maketrans({c: "\\" + c for c in "\\`*_{}[]<>#|~$"})


def load(path: Path) -> Dict[str, Any]:
    """The JSON object in a file, {} where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def md(value: object) -> str:
    """Text on one line, nothing in it acted upon by Markdown."""
    return " ".join(str(value).split()).replace("&", "&amp;").translate(MARKS)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(head), ["---"] * len(head)] + [list(row) for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def section(title: str, lines: Iterable[str]) -> List[str]:
    """A titled list, nothing where it would be empty."""
    found = ["- " + line for line in lines]
    return ["## " + title, "\n".join(found)] if found else []


def verdict(result: Mapping[str, Any]) -> List[str]:
    """Heading and the reason, with the end of the failed step's log."""
    parts = ["# %s: %s" % (md(result.get("name", "job")), md(result.get("verdict", "no verdict")))]
    parts.append("Job %s, attempt %s, exit code %s: %s" % (
        md(result.get("job_id", "?")), md(result.get("attempt", "?")), md(result.get("exit_code")), md(result.get("reason", ""))))
    failed = result.get("failed")
    if isinstance(failed, dict):
        parts.append("%s on %s ended with %s; its log is %s" % (
            md(failed.get("step")), md(failed.get("node")), md(failed.get("exit_code")), md(failed.get("log"))))
        tail = [str(line) for line in failed.get("tail") or []]
        if tail:
            fence = "`" * max(3, 1 + max(_longest_run(line) for line in tail))
            parts.append("%s\n%s\n%s" % (fence, "\n".join(tail), fence))
    return parts


def _longest_run(text: str) -> int:
    best = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        best = max(best, run)
    return best


def time_line(result: Mapping[str, Any]) -> List[str]:
    """Phases with start and length; the longest is told apart."""
    phases = [p for p in result.get("phases") or [] if isinstance(p, dict)]
    if not phases:
        return []
    longest = max(p.get("seconds", 0) for p in phases)
    rows = []
    for p in phases:
        seconds = "%.1f" % p.get("seconds", 0)
        rows.append((md(p.get("name")), "%.1f" % p.get("start_s", 0), "**%s**" % seconds if p.get("seconds") == longest else seconds))
    return ["## Time line", table(("phase", "start s", "seconds"), rows)]


def _cell(row: Mapping[str, Any], key: str, form: str) -> str:
    value = row.get(key)
    return form % value if isinstance(value, (int, float)) and not isinstance(value, bool) else "-"


def points(summary: Mapping[str, Any]) -> List[str]:
    """The measured points; what is invalid says why below the table."""
    records = [r for r in summary.get("points") or [] if isinstance(r, dict) and isinstance(r.get("row"), dict)]
    if not records:
        return []
    rows = [[_cell(r["row"], key, form) for _, key, form in COLUMNS] + ["yes" if r["row"].get("valid") else "**NO**"] for r in records]
    first = records[0]["row"]
    parts = ["## Points", "%s in / %s out tokens, range ratio %s, request rate %s, client %s." % (
        md(first.get("isl")), md(first.get("osl")), md(first.get("random_range_ratio")),
        md(summary.get("client", {}).get("request_rate")), md(summary.get("client", {}).get("name")))]
    parts.append(table([name for name, _, _ in COLUMNS] + ["valid"], rows))
    wrong = ["concurrency %s: %s" % (md(r["row"].get("concurrency")), md(r["row"].get("reason"))) for r in records if not r["row"].get("valid")]
    if wrong:
        parts.append("\n".join("- " + line for line in wrong))
    return parts


def evaluation(result: Mapping[str, Any]) -> List[str]:
    """What the evaluation says of itself, key by key."""
    found = result.get("eval")
    if not isinstance(found, dict):
        return []
    return section("Evaluation", ("%s: %s" % (md(key), md(json.dumps(value, ensure_ascii=False))) for key, value in found.items()))


def warnings(result: Mapping[str, Any], summary: Mapping[str, Any]) -> List[str]:
    said = [md(w) for w in result.get("warnings") or []]
    for record in summary.get("points") or []:
        if isinstance(record, dict):
            said += ["%s: %s" % (md(record.get("name")), md(w)) for w in record.get("warnings") or []]
    return section("Warnings", said)


def departures(result: Mapping[str, Any], manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> List[str]:
    """What did not run as the recipe's text says."""
    said = ["generated with %s" % md(text) for text in manifest.get("overrides") or []]
    said += ["edited since generation: %s" % md(path) for path in result.get("bundle_modified") or []]
    said += ["check skipped: %s" % md(name) for name in result.get("checks_skipped") or []]
    if summary.get("subset"):
        said.append("measured %s of the planned concurrencies %s" % (md(summary.get("chosen")), md(summary.get("planned"))))
    if isinstance(result.get("attempt"), int) and result["attempt"] > 1:
        said.append("attempt %d: results of earlier ones are in folders of their own" % result["attempt"])
    return section("What differs from the recipe", said or ["nothing"])


def software(result: Mapping[str, Any], manifest: Mapping[str, Any]) -> List[str]:
    """Versions against the recipe's identity, transport, images, nodes."""
    rows = []
    for name, entry in sorted((result.get("versions") or {}).items()):
        if isinstance(entry, dict):
            rows.append((md(name), md(entry.get("expected") or "-"), md(", ".join(map(str, entry.get("seen") or [])) or "-"), md(entry.get("status"))))
    parts = ["## Versions", table(("software", "recipe", "seen", ""), rows)] if rows else []
    lines = ["image of %s: %s" % (md(role), md(image)) for role, image in sorted(_images(manifest).items())]
    transport = result.get("transport") or {}
    for step, entry in sorted((transport.get("steps") or {}).items()):
        lines.append("KV transport of %s: planned %s, seen %s (%s)" % (
            md(step), md(transport.get("expected")), md(" ".join(entry.get("seen") or []) or "nothing"), md(entry.get("status"))))
    lines += ["node %s: %s, %s" % (md(n.get("index")), md(n.get("host")), md(n.get("address"))) for n in result.get("nodes") or []]
    return parts + section("Where and with what", lines)


def _images(manifest: Mapping[str, Any]) -> Dict[str, str]:
    return {str(p.get("role")): str(p.get("image")) for p in manifest.get("processes") or [] if isinstance(p, dict)}


def findings(manifest: Mapping[str, Any]) -> List[str]:
    found = [f for f in manifest.get("findings") or [] if isinstance(f, dict)]
    return section("Findings at generation", (
        "%s: %s:%s: %s" % (md(f.get("severity")), md(f.get("file")), md(f.get("line")), md(f.get("message"))) for f in found))


def report(folder: Path) -> str:
    """The whole text."""
    result, manifest = load(folder / "result.json"), load(folder / "manifest.json")
    summary = load(folder / "bench" / "summary.json")
    parts = verdict(result) + points(summary) + evaluation(result) + warnings(result, summary)
    parts += departures(result, manifest, summary) + time_line(result) + software(result, manifest) + findings(manifest)
    return "\n\n".join(part for part in parts if part) + "\n"


def main(words: Sequence[str]) -> int:
    """Entry point; 2 on wrong usage."""
    if len(words) != 1:
        print("usage: report.py JOB_FOLDER", file=sys.stderr)
        return 2
    folder = Path(words[0])
    target, temporary = folder / "report.md", folder / "report.md.new"
    temporary.write_text(report(folder), encoding="utf-8")
    os.replace(str(temporary), str(target))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
