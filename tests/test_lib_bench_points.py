"""point and summary: what becomes of one point and of all of them, function by function."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_rig import Counters
from jobs.measured import counting, in_environment, plan, result, served
from jobs.shell import LIB, stub

sys.path.insert(0, str(LIB))
import bench_plan  # noqa: E402  (found only by the path above)
import bench_run  # noqa: E402
import bench_watch  # noqa: E402
import point  # noqa: E402
import summary  # noqa: E402
from bench_metrics import RouterStats, Snapshot, WorkerStats  # noqa: E402


@pytest.fixture
def counters() -> Iterator[dict[str, Counters]]:
    with counting() as servers:
        yield servers


# ---- point -----------------------------------------------------------------------------------------------------------


OUTCOME = bench_run.Outcome(0, 11.0, 0.0, True)


@pytest.mark.parametrize(("started", "count", "said"), [(True, 3.0, "no finished request for 60 s (3 of 40 done): the client was stopped"),
                                                        (False, None, "not one request finished for 60 s: the client was stopped")])
def test_stall_reason(started: bool, count: float | None, said: str, tmp_path: Path) -> None:
    outcome = dataclasses.replace(OUTCOME, stalled_s=60.2, started=started)
    assert point.stall_reason(outcome, plan(tmp_path).points[0], count) == said


def test_client_problems(tmp_path: Path) -> None:
    made = plan(tmp_path)
    observer = bench_watch.Observer(made, made.points[0], Snapshot())
    (tmp_path / "bench" / "c4.log").write_text("5/40 [")
    assert point.client_problems(OUTCOME, made.points[0], observer) == []
    assert point.client_problems(dataclasses.replace(OUTCOME, exit_code=9), made.points[0], observer) == ["the client ended with exit code 9"]
    stalled = point.client_problems(dataclasses.replace(OUTCOME, exit_code=143, stalled_s=5.0), made.points[0], observer)
    assert stalled == ["no finished request for 5 s (5 of 40 done): the client was stopped"]


# the client's file, outcome, early problems -> valid, reason, fatal
EVALUATED: dict[str, tuple[Any, bench_run.Outcome, list[str], bool, str, bool]] = {
    "good": (result(), OUTCOME, [], True, "", False), "half": (result(completed=20), OUTCOME, [], False, "20 of 40 requests failed", False),
    "no file": (None, OUTCOME, [], False, "the client wrote no result file", True),
    "failed with a result": (result(), dataclasses.replace(OUTCOME, exit_code=1), ["code 1"], False, "code 1", False),
    "failed without": (None, dataclasses.replace(OUTCOME, exit_code=1), ["code 1"], False, "code 1; the client wrote no result file", True),
    "stalled": (result(), dataclasses.replace(OUTCOME, stalled_s=9.0), ["stalled"], False, "stalled", True),
    "nothing completed": (result(completed=0), OUTCOME, [], False, "40 of 40 requests failed", True)}


@pytest.mark.parametrize("case", EVALUATED)
def test_evaluate(case: str, tmp_path: Path) -> None:
    content, outcome, early, valid, reason, fatal = EVALUATED[case]
    made = plan(tmp_path)
    if content is not None:
        (tmp_path / "bench" / "c4.json").write_text(json.dumps(content))
    (tmp_path / "bench" / "c4.log").write_text("Connection refused\n")
    observer = bench_watch.Observer(made, made.points[0], Snapshot())
    record = point.evaluate(made, made.points[0], outcome, observer, Snapshot(), early)
    row = record["row"]
    assert (row["valid"], row["reason"], record["fatal"], row["raw"]) == (valid, reason, fatal, "c4.json" if content else "")
    assert record["error_sides"] == ({} if valid else {"client": 0, "server": 1, "unknown": 0})
    assert (record["name"], record["wall_s"], record["stalled"]) == ("c4", 11.0, case == "stalled")
    assert record["warnings"] == ["the router's metrics port does not answer: retries are unknown"]


@pytest.mark.parametrize(("allowed", "retries", "valid"), [("0", 0, True), ("0", 1, False), ("0.025", 1, True), ("0.025", 2, False)])
def test_retried_requests_count_as_failed_ones(allowed: str, retries: int, valid: bool, tmp_path: Path) -> None:
    made = plan(tmp_path, BENCH_MAX_FAILED_RATIO=allowed)
    (tmp_path / "bench" / "c4.json").write_text(json.dumps(result()))
    before, after = (Snapshot({}, RouterStats(count, 0, 0)) for count in (5, 5 + retries))
    record = point.evaluate(made, made.points[0], OUTCOME, bench_watch.Observer(made, made.points[0], before), after, [])
    assert (record["row"]["valid"], record["row"]["retried"]) == (valid, retries)
    assert valid or record["row"]["reason"].startswith(f"{retries} requests were retried")


def test_refused_ends_the_sweep_without_a_fault_of_the_client(tmp_path: Path) -> None:
    made = plan(tmp_path)
    record = point.refused(made, made.points[1], "so it is")
    assert (record["name"], record["row"]["valid"], record["row"]["reason"], record["fatal"], record["client_exit_code"]) == ("c8", False,
                                                                                                                              "so it is", True, 0)
    keep(made, record)
    assert summary.verdict(made)["code"] == 21


def test_warnings_of_a_point(tmp_path: Path) -> None:
    made = plan(tmp_path, SRT_DECODE_ENDPOINTS="http://d:1,http://d:2")
    before, after = (Snapshot({"decode_0": WorkerStats({"requests": count}, None)}, RouterStats(0, 0, errors)) for count,
                     errors in ((0.0, 1), (90.0, 3)))
    workers = {"decode_0": {"requests": 90}, "decode_1": {"requests": 0}}
    found = point.warnings(made, made.points[0], {"retried": 4, "valid": True}, before, after, workers)
    assert [text.split(" ")[0] + " " + text.split(" ")[1] for text in found] == ["uneven load", "the workers", "4 requests", "the router"]
    assert found[3] == "the router counts 2 requests that ended in an error"
    quiet = {"decode_0": {"requests": 20}, "decode_1": {"requests": 20}}
    for row in ({"retried": 0, "valid": True}, {"retried": 4, "valid": False}):  # of an invalid point the reason tells
        assert point.warnings(made, made.points[0], row, before, before, quiet) == []


def client_argv(tmp_path: Path, content: dict[str, Any], name: str = "c4", code: int = 0) -> list[str]:
    """A client that leaves this result."""
    (tmp_path / f"{name}.src").write_text(json.dumps(content))
    return ["bash", "-c", f"sleep 0.1; cp {tmp_path}/{name}.src {tmp_path}/bench/{name}.json; exit {code}"]


GOOD = result(duration=0.1, output_throughput=3600.0, total_token_throughput=39600.0)


def test_measure_runs_the_client_once(tmp_path: Path, counters: dict[str, Counters], handlers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_watch, "SETTLE_S", 0.1)
    made = served(tmp_path, counters)
    record = point.measure(made, made.points[0], client_argv(tmp_path, GOOD))
    assert (record["row"]["valid"], record["row"]["retried"], record["workers"]["decode_0"]["requests"]) == (True, 0, 0)
    again = point.measure(made, made.points[0], ["touch", str(tmp_path / "ran")])
    assert again["row"]["reason"] == "c4.json exists before the point ran" and not (tmp_path / "ran").exists()
    missing = point.measure(made, made.points[1], ["/no/such"])
    assert missing["client_exit_code"] == 127 and missing["fatal"] and missing["row"]["reason"].startswith("/no/such can't be started: No such file")


def test_append_keeps_records_and_renews_the_summary(tmp_path: Path) -> None:
    made = plan(tmp_path, BENCH_CONCURRENCIES="", BENCH_PROMPTS="", BENCH_WARMUPS="")
    for name in ("a", "b"):
        point.append(made, {"name": name, "fatal": False})
    assert [record["name"] for record in summary.records(made)] == ["a", "b"]
    assert len(json.loads((tmp_path / "bench" / "summary.json").read_text())["points"]) == 2


def test_run_point(tmp_path: Path, handlers: None, capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(tmp_path, SRTGEN_CONCURRENCIES="8")
    for name, concurrency, prompts in (("c5", 4, 40), ("c4", 5, 40), ("c4", 4, 41)):
        with pytest.raises(bench_plan.PlanError, match=f"point {name} .* is not in the plan"):
            point.run_point(made, name, concurrency, prompts, ["true"])
    assert point.run_point(made, "c4", 4, 40, ["/no/such"]) == 0 and summary.records(made) == []  # not chosen
    argv = client_argv(tmp_path, GOOD | {"num_prompts": 80, "max_concurrency": 8}, "c8")
    assert point.run_point(made, "c8", 8, 80, argv) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[3] == "started," and out[1].endswith("NO") and out[2].startswith("  warning: ")
    assert out[3] == "  invalid: 40 of 80 requests failed"
    made = plan(tmp_path)
    assert point.run_point(made, "c4", 4, 40, ["/no/such"]) == 0 and summary.records(made)[-1]["fatal"]
    capsys.readouterr()
    assert point.run_point(made, "c8", 8, 80, ["true"]) == 0 and len(summary.records(made)) == 2 and capsys.readouterr().out == ""


CUSTOMS = [(["bash", "-c", "exit 3"], 3, "the command ended with exit code 3"), (["bash", "-c", "[[ $PWD == / ]]"], 0, ""),
           (["/no/such"], 127, "/no/such can't be started: No such file or directory")]


@pytest.mark.parametrize(("argv", "code", "problem"), CUSTOMS)
def test_run_custom(argv: list[str], code: int, problem: str, tmp_path: Path, handlers: None) -> None:
    made = plan(tmp_path, BENCH_TYPE="custom", BENCH_CONCURRENCIES="", BENCH_PROMPTS="", BENCH_WARMUPS="")
    assert point.run_custom(made, argv, "/") == 0
    (record,) = summary.records(made)
    assert (record["client_exit_code"], record["problem"], record["fatal"], record["stalled"]) == (code, problem, bool(problem), False)


MAINS = [(["run", "c9", "1", "2", "true"], {}, 2, "point c9"), (["run", "c4", "4", "40", "true"], {"BENCH_ISL": "x"}, 2, "BENCH_ISL is not a number"),
         (["custom", "", "bash", "-c", "exit 3"], {"BENCH_CONCURRENCIES": "", "BENCH_PROMPTS": "", "BENCH_WARMUPS": ""}, 0, "")]


@pytest.mark.parametrize(("words", "env", "code", "said"), MAINS)
def test_main_of_point(words: list[str], env: dict[str, str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                       capsys: pytest.CaptureFixture[str], handlers: None) -> None:
    in_environment(monkeypatch, tmp_path, **env)
    assert point.main(words) == code and said in capsys.readouterr().err


def test_main_of_point_ends_with_the_signals_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handlers: None) -> None:
    in_environment(monkeypatch, tmp_path, BENCH_CONCURRENCIES="", BENCH_PROMPTS="", BENCH_WARMUPS="")
    stub(tmp_path / "bin", "ends_us", f"kill -INT {os.getpid()}; sleep 60")
    assert point.main(["custom", "", str(tmp_path / "bin" / "ends_us")]) == 130
    assert not (tmp_path / "bench" / "points.jsonl").exists()


# ---- summary ---------------------------------------------------------------------------------------------------------


def test_write_atomic_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old and long")
    summary.write_atomic(tmp_path / "f", "é")
    assert [path.name for path in tmp_path.iterdir()] == ["f"] and (tmp_path / "f").read_text(encoding="utf-8") == "é"


def record(made: bench_plan.Plan, index: int, valid: bool = True, reason: str = "", **more: Any) -> dict[str, Any]:
    row = {**summary.figures(made, made.points[index], result()), "valid": valid, "reason": reason, "raw": ""}
    return {"name": made.points[index].name, "row": row, "warnings": [], "client_exit_code": 0, "fatal": False, "stalled": False, **more}


def keep(made: bench_plan.Plan, *rows: dict[str, Any]) -> None:
    (made.folder / "points.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_complete_has_every_chosen_point(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert summary.records(made) == []
    assert [(row["name"], row["row"]["valid"], row["row"]["reason"]) for row in summary.complete(made)] == [
        ("c4", False, "not run, or not finished"), ("c8", False, "not run, or not finished")]
    keep(made, record(made, 0, False, "it hung", fatal=True))
    assert [row["row"]["reason"] for row in summary.complete(made)] == ["it hung", "not run: point c4 ended the sweep"]
    assert [row["name"] for row in summary.complete(plan(tmp_path, SRTGEN_CONCURRENCIES="8"))] == ["c8"]


@pytest.mark.parametrize(("value", "cell"), [(None, ""), (True, "true"), (False, "false"), (1.23456789, "1.23457"), (12345678.9, "12345678.9"),
                                             (7, "7"), ("a,b", "a,b"), (0.0, "0")])
def test_cells_of_the_table(value: Any, cell: str) -> None:
    rows = [dict.fromkeys(summary.COLUMNS) | {"reason": value}]
    (row,) = csv.DictReader(io.StringIO(summary.to_csv(rows)))
    assert row["reason"] == cell and row["completed"] == "" and tuple(row) == summary.COLUMNS


def test_parts_of_a_summary(tmp_path: Path) -> None:
    assert [summary._cell(value) for value in (None, True, 2.0, 3, "x")] == ["", "true", "2", "3", "x"]
    assert [summary._code(found) for found in ({"stalled": True}, {"client_exit_code": 3}, {"client_exit_code": 0}, {})] == [20, 20, 21, 21]
    made = plan(tmp_path)
    assert summary._absent(made, made.points[0], {"name": "c1"})["row"]["reason"] == "not run: point c1 ended the sweep"
    absent = summary._absent(made, made.points[0], None)
    assert (absent["row"]["valid"], absent["row"]["completed"], absent["client_exit_code"]) == (False, None, None)
    assert summary._custom_verdict([])["client_exit_code"] is None


def test_document(tmp_path: Path) -> None:
    made = plan(tmp_path, SRTGEN_CONCURRENCIES="8", BENCH_TOKENIZER="", SRT_ENDPOINT="http://r:1")
    document = summary.document(made, [record(made, 1), record(made, 1, False), {"name": "custom"}], {"job_id": "7"})
    assert (document["planned"], document["chosen"], document["subset"], document["valid"]) == ([4, 8], [8], True, 1)
    assert document["client"]["tokenizer"] == "org/m" and document["client"]["endpoint"] == "http://r:1"
    assert document["gpus"] == {"prefill": 4, "decode": 8, "agg": 0, "allocated": 16} and document["identity"] == {"job_id": "7"}


def test_write_summary_writes_all_files_and_other_names_of_valid_points_only(tmp_path: Path) -> None:
    made = plan(tmp_path)
    keep(made, record(made, 0), record(made, 1, False, "bad"))
    for name, valid in (("c4", True), ("c8", False)):
        (made.folder / f"{name}.json").write_text(json.dumps(result()))
        lines = [json.loads(line) for line in (made.folder / "points.jsonl").read_text().splitlines()]
        next(line for line in lines if line["name"] == name)["row"].update(raw=f"{name}.json", valid=valid)
        keep(made, *lines)
    summary.write_summary(made)
    names = sorted(path.name for path in made.folder.rglob("*") if path.is_file())
    stem = "concurrency_4_req_rate_inf_gpus_12_ctx_4_gen_8.json"
    assert names == sorted(["points.jsonl", "summary.json", "summary.csv", "curve.svg", "c4.json", "c8.json", stem, f"agg_{stem}"])


VERDICTS: dict[str, tuple[list[tuple[int, bool, str, dict[str, Any]]], int, str, int]] = {
    "good": ([(0, True, "", {}), (1, True, "", {})], 0, "", 2), "nothing ran": ([], 21, "point c4 (1 of 2): not run, or not finished", 0),
    "second invalid": ([(0, True, "", {}), (1, False, "bad", {})], 21, "point c8 (2 of 2): bad", 1),
    "client failed": ([(0, False, "code 7", {"client_exit_code": 7}), (1, False, "bad", {})], 20, "point c4 (1 of 2): code 7", 0),
    "stalled": ([(0, True, "", {}), (1, False, "hung", {"stalled": True})], 20, "point c8 (2 of 2): hung", 1)}


@pytest.mark.parametrize("case", VERDICTS)
def test_verdict_and_main_of_summary(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows, code, reason, valid = VERDICTS[case]
    made = plan(tmp_path)
    keep(made, *(record(made, index, good, why, **more) for index, good, why, more in rows))
    found = summary.verdict(made)
    assert (found["code"], found["reason"], found["valid"], found["points"]) == (code, reason, valid, 2)
    in_environment(monkeypatch, tmp_path)
    assert summary.main(["update"]) == 0 and not (made.folder / "verdict.json").exists()
    assert summary.main(["finish"]) == code and json.loads((made.folder / "verdict.json").read_text()) == found
    assert capsys.readouterr().out == ("benchmark passed\n" if code == 0 else f"benchmark failed ({code}): {reason}\n")


CUSTOM_VERDICTS = [([], 20, "the command did not run", None), ([{"problem": "", "client_exit_code": 0}], 0, "", 0),
                   ([{"problem": "", "client_exit_code": 0}, {"problem": "so", "client_exit_code": 3}], 20, "so", 3)]


@pytest.mark.parametrize(("rows", "code", "reason", "client"), CUSTOM_VERDICTS)
def test_verdict_of_a_custom_command(rows: list[dict[str, Any]], code: int, reason: str, client: int | None, tmp_path: Path) -> None:
    made = plan(tmp_path, BENCH_TYPE="custom")
    keep(made, *rows)
    assert summary.verdict(made) == {"code": code, "reason": reason, "points": None, "valid": None, "client_exit_code": client}


def test_a_plan_without_points_is_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    env = {"BENCH_CONCURRENCIES": "", "BENCH_PROMPTS": "", "BENCH_WARMUPS": ""}
    assert summary.verdict(plan(tmp_path, **env))["reason"] == "no point was planned"
    in_environment(monkeypatch, tmp_path, BENCH_ISL="x")
    assert summary.main(["finish"]) == 2 and "BENCH_ISL" in capsys.readouterr().err


def test_main_of_summary_begins_with_the_tables_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    in_environment(monkeypatch, tmp_path)
    assert summary.main(["begin"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("point ") and not (tmp_path / "bench" / "summary.json").exists()
