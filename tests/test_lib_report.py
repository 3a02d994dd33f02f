"""report.py, section by section: what is there is shown, what is missing or odd makes a shorter report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs.shell import LIB

sys.path.insert(0, str(LIB))
import report  # noqa: E402  (found only by the path above)

CONTENTS = [('{"a": 1}', {"a": 1}), ("[1]", {}), ("{", {}), ("", {}), (None, {}), ('{"a": "\udcff"}', {"a": "\ufffd"})]


@pytest.mark.parametrize(("text", "expected"), CONTENTS)
def test_load(text: str | None, expected: dict[str, Any], tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "f").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert report.load(tmp_path / "f") == expected


@pytest.mark.parametrize(("value", "text"), [("a\n b  c", "a b c"), ("<b>*x*_|`[y](z)", r"\<b\>\*x\*\_\|\`\[y\](z)"), ("a&lt;", "a&amp;lt;"),
                                             (None, "None"), (1.5, "1.5")])
def test_md(value: object, text: str) -> None:
    assert report.md(value) == text


def test_table_and_section() -> None:
    assert report.table(["a", "b"], [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert report.section("T", ["x", "y"]) == ["## T", "- x\n- y"] and report.section("T", []) == []


def test_verdict_with_and_without_a_failed_step() -> None:
    assert report.verdict({}) == ["# job: no verdict", "Job ?, attempt ?, exit code None: "]
    result = {"name": "a_b", "verdict": "failed", "job_id": "7", "attempt": 2, "exit_code": 11, "reason": "so\nit is",
              "failed": {"step": "decode_0", "node": "n1", "exit_code": 1, "log": "logs/decode_0.log", "tail": ["x ``` y", "z"]}}
    title, reason, where, tail = report.verdict(result)
    assert (title, reason) == ("# a\\_b: failed", "Job 7, attempt 2, exit code 11: so it is")
    assert where == "decode\\_0 on n1 ended with 1; its log is logs/decode\\_0.log" and tail == "````\nx ``` y\nz\n````"
    assert len(report.verdict({"failed": {"tail": None}})) == 3 and len(report.verdict({"failed": "odd"})) == 2


@pytest.mark.parametrize(("text", "length"), [("", 0), ("a", 0), ("`a``b`", 2), ("a````", 4)])
def test_the_longest_run_of_marks(text: str, length: int) -> None:
    assert report._longest_run(text) == length


def test_time_line_marks_the_longest() -> None:
    phases = [{"name": "start", "start_s": 0, "seconds": 0.5}, {"name": "load", "start_s": 0.5, "seconds": 12}, {"name": "odd"}, "x"]
    head, lines = report.time_line({"phases": phases})
    assert head == "## Time line" and lines.splitlines()[2:] == ["| start | 0.0 | 0.5 |", "| load | 0.5 | **12.0** |", "| odd | 0.0 | 0.0 |"]
    assert report.time_line({}) == report.time_line({"phases": None}) == report.time_line({"phases": ["x"]}) == []


@pytest.mark.parametrize(("value", "text"), [(1, "1.0"), (2.55, "2.5"), (True, "-"), (None, "-"), ("3", "-")])
def test_cells(value: object, text: str) -> None:
    assert report._cell({"x": value}, "x", "%.1f") == text and report._cell({}, "x", "%d") == "-"


def test_points_and_what_is_invalid() -> None:
    rows = [{"concurrency": 4, "completed": 40, "total_tok_s_per_gpu": 1.25, "valid": True, "isl": 100, "osl": 10, "random_range_ratio": "0.8"},
            {"concurrency": 8, "valid": False, "reason": "bad|news"}]
    head, words, table, wrong = report.points({"points": [{"row": row} for row in rows] + [{"name": "custom"}],
                                               "client": {"name": "atom", "request_rate": "inf"}})
    assert (head, words) == ("## Points", "100 in / 10 out tokens, range ratio 0.8, request rate inf, client atom.")
    assert table.splitlines()[2:] == ["| 4 | 40 | 1.2 | - | - | - | - | - | - | yes |", "| 8 | - | - | - | - | - | - | - | - | **NO** |"]
    assert wrong == "- concurrency 8: bad\\|news"
    assert len(report.points({"points": [{"row": rows[0]}]})) == 3
    assert report.points({}) == report.points({"points": None}) == report.points({"points": [{"row": 1}, 2]}) == []


def test_evaluation() -> None:
    assert report.evaluation({"eval": {"code": 0, "metrics": {"é": 1.0}}}) == ["## Evaluation", '- code: 0\n- metrics: \\{"é": 1.0\\}']
    assert report.evaluation({}) == report.evaluation({"eval": None}) == report.evaluation({"eval": {}}) == []


def test_warnings_of_the_job_and_of_its_points() -> None:
    summary = {"points": [{"name": "c4", "warnings": ["a"]}, {"name": "c8", "warnings": None}, "odd"]}
    assert report.warnings({"warnings": ["first"]}, summary) == ["## Warnings", "- first\n- c4: a"] and report.warnings({}, {}) == []


def test_departures() -> None:
    assert report.departures({"attempt": 1}, {}, {}) == ["## What differs from the recipe", "- nothing"]
    _, text = report.departures({"attempt": 3, "bundle_modified": ["a.sh"], "checks_skipped": ["disk"]}, {"overrides": ["--set a=1"]},
                                {"subset": True, "chosen": [4], "planned": [4, 8]})
    assert text.splitlines() == ["- generated with --set a=1", "- edited since generation: a.sh", "- check skipped: disk",
                                 "- measured \\[4\\] of the planned concurrencies \\[4, 8\\]",
                                 "- attempt 3: results of earlier ones are in folders of their own"]


def test_software() -> None:
    result = {"versions": {"torch": {"seen": ["2.9", "3"], "status": "not compared"}, "atom": {"expected": "1", "seen": [], "status": "unverified"},
                           "odd": 1},
              "transport": {"expected": "rdma", "steps": {"decode_0": {"seen": ["tcp"], "status": "mismatch"}, "prefill_0": {}}},
              "nodes": [{"index": 0, "host": "n0", "address": "10.0.0.1"}]}
    manifest = {"processes": [{"role": "decode", "image": "img:1"}, {"role": "bench", "image": None}, "odd"]}
    head, table, second, lines = report.software(result, manifest)
    assert (head, second) == ("## Versions", "## Where and with what")
    assert table.splitlines()[2:] == ["| atom | 1 | - | unverified |", "| torch | - | 2.9, 3 | not compared |"]
    assert lines.splitlines() == ["- image of bench: None", "- image of decode: img:1",
                                  "- KV transport of decode\\_0: planned rdma, seen tcp (mismatch)",
                                  "- KV transport of prefill\\_0: planned rdma, seen nothing (None)", "- node 0: n0, 10.0.0.1"]
    assert report.software({}, {}) == []
    assert report._images(manifest) == {"decode": "img:1", "bench": "None"} and report._images({}) == {}


def test_findings() -> None:
    found = [{"severity": "warning", "file": "r.yaml", "line": 3, "message": "a *b*"}, "odd"]
    assert report.findings({"findings": found}) == ["## Findings at generation", "- warning: r.yaml:3: a \\*b\\*"] and report.findings({}) == []


def test_report_and_main(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.report(tmp_path).startswith("# job: no verdict\n\n")
    (tmp_path / "bench").mkdir()
    (tmp_path / "result.json").write_text(json.dumps({"name": "x", "verdict": "passed", "phases": [{"name": "load", "seconds": 1}]}))
    (tmp_path / "manifest.json").write_text(json.dumps({"findings": [{"message": "m"}]}))
    (tmp_path / "bench" / "summary.json").write_text(json.dumps({"points": [{"name": "c4", "row": {"concurrency": 4, "valid": True},
                                                                             "warnings": ["w"]}]}))
    assert report.main([str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    titles = [line for line in text.splitlines() if line.startswith("#")]
    assert titles == ["# x: passed", "## Points", "## Warnings", "## What differs from the recipe", "## Time line", "## Findings at generation"]
    assert not (tmp_path / "report.md.new").exists()
    assert report.main([]) == 2 and "usage: report.py JOB_FOLDER" in capsys.readouterr().err
