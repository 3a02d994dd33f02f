"""What the benchmark makes of a client's figures, function by function: plan, gate, row, table, curve, identity, other names."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest
from jobs.measured import plan, result
from jobs.shell import LIB

sys.path.insert(0, str(LIB))
import bench_curve  # noqa: E402  (found only by the path above)
import bench_gate  # noqa: E402
import bench_identity  # noqa: E402
import bench_inferencex  # noqa: E402
import bench_plan  # noqa: E402
import bench_row  # noqa: E402
import bench_table  # noqa: E402
from bench_metrics import RouterStats, Snapshot, WorkerStats  # noqa: E402

NAN = float("nan")

# ---- bench_plan ------------------------------------------------------------------------------------------------------


def test_point_names_are_unique() -> None:
    assert bench_plan.point_names([8, 4, 8, 8]) == ["c8", "c4", "c8_2", "c8_3"] and bench_plan.point_names([]) == []


def test_load_reads_points_workers_and_defaults(tmp_path: Path) -> None:
    made = plan(tmp_path, SRT_PREFILL_ENDPOINTS="http://p:1/,http://p:2", SRT_AGG_ENDPOINTS=",", SRT_DECODE_ENDPOINTS="http://d:1",
                SRT_FRONTEND_HOST="h", BENCH_ROUTER_METRICS_PORT="29000", BENCH_META='{"hw": "x"}')
    assert made.points == made.chosen == (bench_plan.Point(1, "c4", 4, 40, 8), bench_plan.Point(2, "c8", 8, 80, 16))
    assert [tuple(vars(worker).values()) for worker in made.workers] == [
        ("prefill_0", "prefill", "http://p:1"), ("prefill_1", "prefill", "http://p:2"), ("decode_0", "decode", "http://d:1")]
    assert (made.kind, made.ratio, made.request_rate, made.offline, made.stall_timeout_s) == ("sa-bench", "0.8", "inf", False, 0)
    assert (made.router_metrics_url, made.meta, made.folder) == ("http://h:29000/metrics", {"hw": "x"}, tmp_path / "bench")
    assert plan(tmp_path, SRT_FRONTEND_HOST="h").router_metrics_url == ""
    assert [point.warmups for point in plan(tmp_path, BENCH_WARMUPS="").points] == [0, 0]


GPUS = [({}, (12, 4, 8)), ({"BENCH_GPUS_PREFILL": "", "BENCH_GPUS_DECODE": "0", "BENCH_GPUS_AGG": "16"}, (16, 16, 16))]


@pytest.mark.parametrize(("env", "expected"), GPUS)
def test_gpus_of_the_roles(env: dict[str, str], expected: tuple[int, int, int], tmp_path: Path) -> None:
    made = plan(tmp_path, **env)
    assert (made.worker_gpus, made.prefill_gpus, made.decode_gpus) == expected


WRONG = [({"SRTGEN_RESULTS": ""}, "SRTGEN_RESULTS is not set"), ({"BENCH_PROMPTS": "40"}, "differ in length"),
         ({"BENCH_WARMUPS": "1 2 3"}, "differ in length"),
         ({"BENCH_CONCURRENCIES": "4 x"}, "BENCH_CONCURRENCIES is not a list of whole numbers: '4 x'"),
         ({"BENCH_ISL": "many"}, "BENCH_ISL is not a number: 'many'"),
         ({"SRTGEN_CONCURRENCIES": "4 5,6"}, "SRTGEN_CONCURRENCIES names 5 6; the plan has 4 8")]


@pytest.mark.parametrize(("env", "said"), WRONG)
def test_a_plan_that_cannot_be(env: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(bench_plan.PlanError, match=said):
        plan(tmp_path, **env)


def test_parts_of_a_plan() -> None:
    assert bench_plan._integers({"X": " 4\t8 "}, "X") == [4, 8] and bench_plan._integers({}, "X") == []
    assert (bench_plan._number({"X": "1e-3"}, "X", "9"), bench_plan._number({"X": ""}, "X", "9")) == (0.001, 9.0)
    assert bench_plan._workers({"SRT_AGG_ENDPOINTS": "http://a:1/,,http://b:2"}) == (
        bench_plan.Worker("agg_0", "agg", "http://a:1"), bench_plan.Worker("agg_1", "agg", "http://b:2"))
    points = bench_plan._points({"BENCH_CONCURRENCIES": "8 8", "BENCH_PROMPTS": "1 2"})
    assert points == (bench_plan.Point(1, "c8", 8, 1, 0), bench_plan.Point(2, "c8_2", 8, 2, 0))
    with pytest.raises(bench_plan.PlanError, match="SRTGEN_RESULTS is not set"):
        bench_plan.load({})


@pytest.mark.parametrize(("wanted", "names"), [(None, "c4 c8 c8_2"), (" , ", "c4 c8 c8_2"), ("8", "c8 c8_2"), ("8,4", "c4 c8 c8_2"), ("4 4", "c4")])
def test_choose(wanted: str | None, names: str, tmp_path: Path) -> None:
    points = plan(tmp_path, BENCH_CONCURRENCIES="4 8 8", BENCH_PROMPTS="1 2 3", BENCH_WARMUPS="").points
    assert " ".join(point.name for point in bench_plan.choose(points, wanted)) == names


# ---- bench_gate ------------------------------------------------------------------------------------------------------


FILES = [('{"a": 1}', {"a": 1}, ""), ("[1]", {}, "the client's result file holds no JSON object"),
         ("{", {}, "the client's result file can't be read: "),
         (None, {}, "the client wrote no result file"), ("\udcff", {}, "the client's result file can't be read: ")]


@pytest.mark.parametrize(("text", "expected", "wrong"), FILES)
def test_read_result(text: str | None, expected: dict[str, Any], wrong: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "f").write_bytes(text.encode("utf-8", "surrogateescape"))
    found, said = bench_gate.read_result(tmp_path / "f")
    assert found == expected and said.startswith(wrong) and bool(said) == bool(wrong)


@pytest.mark.parametrize(("value", "expected"), [(1, 1.0), (0.5, 0.5), (0, 0.0), (True, None), ("1", None), (NAN, None), (float("inf"), None),
                                                 (None, None)])
def test_number(value: Any, expected: float | None) -> None:
    assert bench_gate.number({"x": value}, "x") == expected and bench_gate.number({}, "x") is None


def test_metric_key() -> None:
    assert [bench_gate.metric_key("tpot", name) for name in ("p50", "mean", "p99")] == ["median_tpot_ms", "mean_tpot_ms", "p99_tpot_ms"]


# changes of a good result of 40 requests, the plan's variables -> how the problems begin, how the warnings begin
JUDGED: dict[str, tuple[dict[str, Any], dict[str, str], list[str], list[str]]] = {
    "good": ({}, {}, [], []),
    "fields missing": ({"completed": "40", "p99_itl_ms": NAN}, {}, ["no usable completed, p99_itl_ms in the result"], []),
    "one token has no gaps": ({"mean_tpot_ms": None, "median_tpot_ms": NAN, "p99_itl_ms": None, "total_output_tokens": 40, "output_throughput": 4.0,
                              "total_input_tokens": 4000},
                              {"BENCH_OSL": "1", "BENCH_RATIO": "1"}, [], []),
    "too many": (result(completed=41), {}, ["41 requests completed, only 40 were asked for"], []),
    "one failed": (result(completed=39), {}, ["1 of 40 requests failed"], []),
    "one failed, allowed": (result(completed=39), {"BENCH_MAX_FAILED_RATIO": "0.025"}, [], []),
    "two failed, one allowed": (result(completed=38), {"BENCH_MAX_FAILED_RATIO": "0.025"}, ["2 of 40 requests failed"], []),
    "none": (result(completed=0), {}, ["40 of 40 requests failed"], []),
    "none, allowed": (result(completed=0), {"BENCH_MAX_FAILED_RATIO": "1"}, ["no request completed"], []),
    "outputs at the bounds": (result(tokens_out=7), {}, [], ["mean of total_output_tokens is 7 a request, planned 9"]),
    "outputs too short": (result(tokens_out=6), {}, ["240 output tokens, expected 280 to 440"], ["mean of"]),
    "outputs too long": (result(tokens_out=12), {}, ["480 output tokens, expected 280 to 440"], ["mean of"]),
    "inputs too long": (result(tokens_in=109), {}, ["4360 input tokens, expected 2880 to 4320"], ["mean of total_input_tokens is 109"]),
    "inputs of a template": (result(tokens_in=500), {"BENCH_CHAT_TEMPLATE": "1"}, [], []),
    "no inputs of a template": (result(tokens_in=0), {"BENCH_CHAT_TEMPLATE": "1"}, ["no input tokens"], []),
    "for other prompts": ({"num_prompts": 41}, {}, ["result is for 41 prompts, 40 were asked for"], []),
    "for another concurrency": ({"max_concurrency": 8}, {}, ["result is for concurrency 8, not 4"], []),
    "no time": ({"duration": 0}, {}, ["duration 0 s and 36 output tokens/s"], []),
    "longer than it ran": ({"duration": 13, "output_throughput": 360 / 13}, {}, ["result claims 13 s, the client ran for 11 s"], []),
    "a rate of its own": ({"output_throughput": 37.0}, {}, ["37.0 output tokens/s is not 360 tokens in 10.0 s"], []),
    "no time per token": ({"median_tpot_ms": 0}, {}, ["median time per output token is not positive"], []),
}


@pytest.mark.parametrize("case", JUDGED)
def test_judge(case: str, tmp_path: Path) -> None:
    changes, env, problems, warnings = JUDGED[case]
    made = plan(tmp_path, **env)
    found = bench_gate.judge(made, made.points[0], {**result(), **changes}, 11.0)
    assert len(found.problems) == len(problems) and all(said.startswith(begin) for said, begin in zip(found.problems, problems)), found
    assert len(found.warnings) == len(warnings) and all(said.startswith(begin) for said, begin in zip(found.warnings, warnings)), found


def test_parts_of_the_judgement(tmp_path: Path) -> None:
    made = plan(tmp_path, BENCH_OSL="1")
    assert bench_gate._missing(made, {}) == list(bench_gate.COUNTS + bench_gate.RATES) + [
        f"{statistic}_{metric}_ms" for metric in ("ttft", "e2el") for statistic in ("mean", "median", "p90", "p99")]
    made = plan(tmp_path)
    assert bench_gate._missing(made, result()) == [] == bench_gate._bounds(made, result(), 40)
    assert bench_gate._bounds(made, {"total_output_tokens": 27, "total_input_tokens": 9999}, 4) == [
        "27 output tokens, expected 28 to 44", "9999 input tokens, expected 288 to 432"]
    assert bench_gate._consistency(made, made.points[0], result(), 9.0) == [] != bench_gate._consistency(made, made.points[0], result(), 8.9)
    assert bench_gate._means(made, result(), 40) == [] and len(bench_gate._means(made, result(tokens_in=80, tokens_out=8), 40)) == 2
    assert bench_gate._means(made, {"total_input_tokens": 85, "total_output_tokens": 8}, 1) == []  # few draws scatter


SIDES: list[tuple[dict[str, Any], str, tuple[int, int, int]]] = [
    ({"errors": ["", "Too many open files", "Connection reset by peer", "odd", None]}, "ignored Bad Gateway", (1, 1, 1)),
    ({}, "[Errno 99] Cannot assign requested address\nfine\nServer disconnected\n504 Gateway Time-out", (1, 2, 0)),
    ({"errors": "x"}, "EMFILE", (1, 0, 0)), ({"errors": []}, "EMFILE", (0, 0, 0)), ({"errors": [5]}, "", (0, 0, 1))]


@pytest.mark.parametrize(("found", "log", "counts"), SIDES)
def test_error_sides(found: dict[str, Any], log: str, counts: tuple[int, int, int]) -> None:
    assert tuple(bench_gate.error_sides(found, log).values()) == counts


# ---- bench_row -------------------------------------------------------------------------------------------------------


def test_figures_of_a_result_and_of_none(tmp_path: Path) -> None:
    made = plan(tmp_path)
    row = bench_row.figures(made, made.points[0], result(completed=38))
    assert (row["completed"], row["failed"], row["gpus_allocated"], row["interactivity"]) == (38, 2, 16, 50.0)
    assert row["total_tok_s_per_gpu"] == pytest.approx(38 * 99 / 10 / 12)
    assert row["input_tok_s_per_prefill_gpu"] == pytest.approx(38 * 90 / 10 / 4)
    assert row["output_tok_s_per_decode_gpu"] == pytest.approx(38 * 9 / 10 / 8)
    assert (row["ttft_ms_p50"], row["e2el_ms_p99"]) == (20.0, 20.0)
    assert set(row) == set(bench_row.COLUMNS) - {"valid", "reason", "raw"}
    empty = bench_row.figures(made, made.points[0], {})
    known = {"concurrency", "isl", "osl", "random_range_ratio", "num_prompts", "gpus_allocated"}
    assert {name for name, value in empty.items() if value is not None} == known
    assert bench_row.figures(made, made.points[0], {"duration": 0, "total_input_tokens": 5, "median_tpot_ms": 0})["interactivity"] is None


@pytest.mark.parametrize(("value", "gpus", "share"), [(8.0, 4, 2.0), (0.0, 4, 0.0), (None, 4, None), (8.0, 0, None)])
def test_a_share_is_none_where_there_is_nothing_to_share(value: float | None, gpus: int, share: float | None) -> None:
    assert bench_row._share(value, gpus) == share


def snap(retries: float | None = None, **requests: float | None) -> Snapshot:
    """A snapshot of a router and of workers with their finished requests."""
    workers = {step: None if count is None else WorkerStats({"requests": count}, None) for step, count in requests.items()}
    return Snapshot(workers, None if retries is None else RouterStats(retries, 0, 0))


RETRIES = [({}, snap(2), snap(5), 3), ({"retried": 2, "num_retries": 1}, snap(2), snap(5), 5), ({}, snap(), snap(5), None),
           ({}, snap(2), snap(), None),
           ({}, snap(5), snap(2), 0), ({"retries": NAN}, snap(0), snap(0), 0)]


@pytest.mark.parametrize(("found", "before", "after", "expected"), RETRIES)
def test_retried_and_client_retries(found: dict[str, Any], before: Snapshot, after: Snapshot, expected: int | None) -> None:
    assert bench_row.retried(found, before, after) == expected
    assert bench_row.client_retries(found) == (2.0 if "retried" in found else 0.0)


@pytest.mark.parametrize(("before", "after", "more"), [(0.0, 49.0, False), (0.0, 50.0, True), (10.0, 59.0, False), (10.0, 60.0, True),
                                                       (None, 99.0, False), (0.0, None, False)])
def test_surplus_counts_warm_ups_and_one_try(before: float | None, after: float | None, more: bool, tmp_path: Path) -> None:
    made = plan(tmp_path, SRT_DECODE_ENDPOINTS="http://d:1", SRT_PREFILL_ENDPOINTS="http://p:1")
    found = bench_row.surplus(made, made.points[0], snap(decode_0=before, prefill_0=0.0), snap(decode_0=after, prefill_0=999.0))
    assert bool(found) == more
    assert not more or f"the workers finished {50} requests, the client was to send 49" in found[0]


def stats(mtp: dict[str, Any] | None = None, **values: float) -> WorkerStats:
    return WorkerStats(values, mtp)


def test_worker_record() -> None:
    assert bench_row.worker_record(stats(), None, 0.5) == {"reached": False}
    before = stats({"total_draft_tokens": 100, "total_accepted_tokens": 60, "distribution": {"0": 5, "1": 5}}, requests=5, prompt_tokens=10)
    after = stats({"total_draft_tokens": 200, "total_accepted_tokens": 110, "distribution": {"0": 25, "1": 10}}, requests=9, generation_tokens=7)
    assert bench_row.worker_record(before, after, 0.25) == {
        "reached": True, "kv_usage_peak": 0.25, "requests": 4, "prompt_tokens": None, "generation_tokens": None, "preemptions": None,
        "acceptance_rate": 0.5, "tokens_per_forward": 3.0}
    new = bench_row.worker_record(None, after, None)
    assert (new["requests"], new["acceptance_rate"], new["tokens_per_forward"]) == (None, 0.55, 1 + 110 / 35)


@pytest.mark.parametrize("mtp", [None, {}, {"total_draft_tokens": 0}, {"total_draft_tokens": NAN, "distribution": [1]}])
def test_acceptance_is_none_without_drafts(mtp: dict[str, Any] | None) -> None:
    assert bench_row._acceptance(None, stats(mtp)) == {"acceptance_rate": None, "tokens_per_forward": None}
    drafted = {"total_draft_tokens": 10, "total_accepted_tokens": 5}
    assert bench_row._acceptance(stats(mtp), stats(drafted)) == {"acceptance_rate": 0.5, "tokens_per_forward": None}


def test_differences_of_counters_and_steps_of_the_drafts() -> None:
    assert bench_row._delta(stats(x=2.0), stats(x=5.0), "x") == 3.0
    untold = ((None, stats(x=5.0)), (stats(y=1.0), stats(x=5.0)), (stats(x=1.0), stats()))
    assert [bench_row._delta(before, after, "x") for before, after in untold] == [None, None, None]
    assert [bench_row._steps(found) for found in ({"distribution": {"0": 3, "2": 4}}, {"distribution": [3]}, {})] == [7.0, 0.0, 0.0]


LOADS = [((10, 10), ""), ((15, 5), ""), ((16, 4), "uneven load on decode workers: decode_0 16, decode_1 4 requests"), ((9, 4), ""), ((None, 40), ""),
         ((40,), ""),
         ((20, 20, 8), ""), ((20, 20, 7), "uneven load on decode workers: decode_0 20, decode_1 20, decode_2 7"), ((9, 9, 1), ""), ((0, 0), "")]


@pytest.mark.parametrize(("counts", "said"), LOADS)
def test_imbalance(counts: tuple[int | None, ...], said: str) -> None:
    workers = tuple(bench_plan.Worker(f"decode_{index}", "decode", "u") for index in range(len(counts)))
    found = bench_row.imbalance(workers, {f"decode_{index}": {"requests": count} for index, count in enumerate(counts)})
    assert len(found) == bool(said) and "".join(found).startswith(said)
    assert bench_row.imbalance(workers, {}) == []


# ---- bench_table -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.4, "0:59"), (59.5, "1:00"), (3599.6, "1:00:00"), (36061, "10:01:01")])
def test_clock(seconds: float, text: str) -> None:
    assert bench_table.clock(seconds) == text


def words(line: str) -> list[str]:
    return line.split()


def test_lines_of_a_point(tmp_path: Path) -> None:
    made = plan(tmp_path)
    first, last = made.points
    assert words(bench_table.started_line(made, first)) == ["1/2", "4", "40", "started,", "8", "warm-up", "requests", "first"]
    assert words(bench_table.running_line(made, first, 10.0, 20)) == ["1/2", "4", "40", "0:20", "~3:40", "10"]  # 30 + 80 at 2 s each
    assert words(bench_table.running_line(made, last, None, 20)) == ["2/2", "8", "80", "0:20", "?", "?"]
    assert words(bench_table.running_line(made, last, 0.0, 20)) == ["2/2", "8", "80", "0:20", "?", "0"]
    good = {"wall_s": 40.0, "row": {"completed": 40, "total_tok_s_per_gpu": 1.25, "interactivity": None, "ttft_ms_p50": 3.14, "valid": True}}
    assert words(bench_table.finished_line(made, first, good, [good])) == ["1/2", "4", "40", "0:40", "~1:20", "40", "1.2", "-", "3.1", "ms", "yes"]
    bad = {"wall_s": 5.0, "row": {**good["row"], "completed": None, "valid": False}}  # type: ignore[dict-item]
    assert words(bench_table.finished_line(made, last, bad, [good, bad]))[:6] == ["2/2", "8", "80", "0:45", "0:00", "-"]
    assert bench_table.finished_line(made, last, bad, [bad]).endswith(" NO")
    assert bench_table.HEAD.index("left") + len("left") == bench_table.running_line(made, first, 10.0, 20).index("~3:40") + len("~3:40")


def test_parts_of_a_line(tmp_path: Path) -> None:
    made = plan(tmp_path, SRTGEN_CONCURRENCIES="8")
    assert bench_table._place(made, made.chosen[0]) == "1/1"
    made = plan(tmp_path)
    assert bench_table._left(made, made.points[0], 40, 60) == "~2:00" and bench_table._left(made, made.points[1], 40, 60) == "~1:00"
    assert bench_table._left(made, made.points[0], 0, 60) == "?"
    assert (bench_table._figure(None, "%d"), bench_table._figure(0.0, "%.1f")) == ("-", "0.0")


def test_opening(tmp_path: Path) -> None:
    lines = bench_table.opening(plan(tmp_path), {"recipe_sha256": "a" * 64, "images": {"bench": "img:1"}})
    assert lines[0] == "benchmark org/m: 2 points, 120 requests, 100 in / 10 out tokens, range ratio 0.8, rate inf, client atom"
    assert lines[1:] == [f"serving on 12 GPUs (4 prefill, 8 decode), 16 allocated; recipe {'a' * 12}, image img:1", bench_table.HEAD]
    subset = bench_table.opening(plan(tmp_path, SRTGEN_CONCURRENCIES="8"), {})
    assert subset[1].endswith("recipe ?, image ?") and subset[2] == "SRTGEN_CONCURRENCIES: 1 of 2 planned points"


# ---- bench_curve -----------------------------------------------------------------------------------------------------


TICKS = [(0, [0.0, 1.0]), (-1, [0.0, 1.0]), (5, [0, 1, 2, 3, 4, 5]), (5.1, [0, 2, 4, 6]), (12, [0, 2.5, 5, 7.5, 10, 12.5]),
         (0.03, [0, 0.01, 0.02, 0.03])]


@pytest.mark.parametrize(("largest", "ticks"), TICKS)
def test_steps_are_round_and_reach_the_largest(largest: float, ticks: list[float]) -> None:
    assert bench_curve.steps(largest) == pytest.approx(ticks)


@pytest.mark.parametrize("largest", [1e-6, 0.7, 9.99, 1234.5, 98765.4])
def test_steps_are_few(largest: float) -> None:
    ticks = bench_curve.steps(largest)
    assert ticks[-1] >= largest * (1 - 1e-9) > ticks[-2] * (1 - 1e-6) and 3 <= len(ticks) <= 7


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (2.5, "2.5"), (9999, "9999"), (10000, "10,000"), (0.30000000000000004, "0.3")])
def test_plain_numbers(value: float, text: str) -> None:
    assert bench_curve._plain(value) == text


def texts(picture: str) -> list[str]:
    root = xml.etree.ElementTree.fromstring(picture)
    return [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]


def test_svg_escapes_places_and_joins() -> None:
    marks = [bench_curve.Mark(10, 5, "c4"), bench_curve.Mark(5, 10, "c8")]
    picture = bench_curve.svg("a <b> & 'c'", "note", marks)
    root = xml.etree.ElementTree.fromstring(picture)
    circles = [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert circles[0][0] > circles[1][0] and circles[0][1] > circles[1][1]
    line = root.find("{http://www.w3.org/2000/svg}polyline")
    assert line is not None and line.get("points") == " ".join("%.1f,%.1f" % circle for circle in circles)
    assert {"a <b> & 'c'", "note", "c4", "c8"} <= set(texts(picture))
    right, bottom = bench_curve.WIDTH - bench_curve.RIGHT, bench_curve.HEIGHT - bench_curve.BOTTOM
    inside = all(bench_curve.LEFT <= x <= right and bench_curve.TOP <= y <= bottom for x, y in circles)
    assert inside and "no valid point" in texts(bench_curve.svg("t", "n", []))
    assert "polyline" not in bench_curve.svg("t", "n", marks[:1])


def test_parts_of_a_picture() -> None:
    assert "text-anchor='end' fill='red'" in bench_curve._text(1, 2.25, 12, "end", "a<b", "red") and ">a&lt;b</text>" in bench_curve._text(1, 2, 12,
                                                                                                                                           "end",
                                                                                                                                           "a<b")
    xs, ys = [0.0, 5.0, 10.0], [0.0, 1.0]
    assert bench_curve._place(bench_curve.Mark(0, 0, ""), xs, ys) == (bench_curve.LEFT, bench_curve.HEIGHT - bench_curve.BOTTOM)
    assert bench_curve._place(bench_curve.Mark(10, 1, ""), xs, ys) == (bench_curve.WIDTH - bench_curve.RIGHT, bench_curve.TOP)
    axes = "\n".join(bench_curve._axes(xs, ys))
    assert axes.count("<line") == 5 and all(f">{tick}</text>" in axes for tick in (0, 5, 10, 1))


def test_labels_keep_clear_of_each_other() -> None:
    taken: list[tuple[float, float]] = []
    for _ in range(4):
        taken.append(bench_curve._clear_of((100, 100), taken))
    assert len(set(taken)) == 4
    full = [(100 + dx, 100 + dy) for dx in (8, -36) for dy in (-8, 18, -22, 32)]
    assert bench_curve._clear_of((100, 100), full) == (108, 92)


def test_draw_takes_valid_rows_in_the_order_of_concurrency(tmp_path: Path) -> None:
    def row(concurrency: int, valid: bool = True, **more: float | None) -> dict[str, Any]:
        return {"concurrency": concurrency, "valid": valid, "interactivity": 10.0 * concurrency, "total_tok_s_per_gpu": 5.0, **more}

    picture = bench_curve.draw(plan(tmp_path), [row(8), row(4), row(16, False), row(32, interactivity=None), row(64, total_tok_s_per_gpu=0.0)])
    seen = texts(picture)
    assert [text for text in seen if text.startswith("c") and text[1:].isdigit()] == ["c4", "c8"]
    assert "org/m, a job" in seen and any("12 serving GPUs; 2 of 5 points valid" in text for text in seen)


# ---- bench_identity --------------------------------------------------------------------------------------------------


def test_gather_what_is_there(tmp_path: Path) -> None:
    nothing = bench_identity.gather(tmp_path)
    assert (nothing["recipe_sha256"], nothing["images"], nothing["nodes"], nothing["machine"], nothing["overrides"]) == (None, {}, [], {}, [])
    processes: list[Any] = [{"step": "prefill_0", "image": "a", "argv": ["x"]}, {"step": "prefill_1", "image": "a"},
                            {"step": "bench", "image": None}, "odd"]
    manifest = {"id": "i", "srtgen": "1", "inputs": [{"sha256": "s"}, {"sha256": "t"}], "processes": processes, "overrides": ["a=b"]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "result.json").write_text(json.dumps({"job_id": "7", "nodes": [{"host": "n"}], "checks_skipped": ["disk"]}))
    (tmp_path / "identity.json").write_text('{"nodes": {}}')
    found = bench_identity.gather(tmp_path)
    assert (found["bundle_id"], found["recipe_sha256"], found["job_id"], found["overrides"], found["checks_skipped"]) == ("i", "s", "7", ["a=b"],
                                                                                                                          ["disk"])
    assert found["images"] == {"prefill": "a", "bench": None} and found["argv"] == {"prefill_0": ["x"], "prefill_1": None, "bench": None}
    assert (found["nodes"], found["machine"]) == ([{"host": "n"}], {"nodes": {}})
    (tmp_path / "nodes.tsv").write_text("index\thost\n0\tn 0\n")
    assert bench_identity.gather(tmp_path)["nodes"] == [{"index": "0", "host": "n 0"}]


def test_parts_of_an_identity(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a\tb\n1\tx y\n2\n")
    assert bench_identity._table(tmp_path / "t") == [{"a": "1", "b": "x y"}, {"a": "2", "b": None}] and bench_identity._table(tmp_path / "no") == []
    (tmp_path / "o").write_text('{"a": 1}')
    assert bench_identity._object(tmp_path / "o") == {"a": 1} and bench_identity._object(tmp_path / "no") == {}
    assert bench_identity._images([{"step": "agg_10", "image": "i"}, {"image": "j"}]) == {"agg": "i", "": "j"}
    assert (bench_identity._recipe({"inputs": [{"sha256": "s"}]}), bench_identity._recipe({"inputs": []}), bench_identity._recipe({})) == ("s", None,
                                                                                                                                           None)


@pytest.mark.parametrize("content", ["{", "[]", "5", ""])
def test_a_broken_file_is_an_empty_object(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)
    assert bench_identity.gather(tmp_path)["bundle_id"] is None


# ---- bench_inferencex ------------------------------------------------------------------------------------------------


STEMS = [({}, 0, "concurrency_4_req_rate_inf_gpus_12_ctx_4_gen_8"),
         ({"BENCH_REQUEST_RATE": "5"}, 1, "concurrency_4_req_rate_5_gpus_12_ctx_4_gen_8_2"),
         ({"BENCH_GPUS_PREFILL": "0", "BENCH_GPUS_DECODE": "0", "BENCH_GPUS_AGG": "8"}, 0, "concurrency_4_req_rate_inf_gpus_8")]


@pytest.mark.parametrize(("env", "index", "stem"), STEMS)
def test_stem(env: dict[str, str], index: int, stem: str, tmp_path: Path) -> None:
    made = plan(tmp_path, BENCH_CONCURRENCIES="4 4", **env)
    assert bench_inferencex.stem(made, made.points[index]) == stem


META = {"hw": "mi355x", "framework": None, "model_prefix": "dsr1", "image": "i", "agg": {"tp": 8}, "prefill": {"tp": 4, "ep": 1, "x": 9}}


def test_aggregate_in_the_other_tools_keys(tmp_path: Path) -> None:
    made = plan(tmp_path, BENCH_META=json.dumps(META))
    row = {"total_tok_s_per_gpu": 1.0, "output_tok_s_per_decode_gpu": 2.0, "input_tok_s_per_prefill_gpu": 3.0}
    content = {"median_tpot_ms": 20.0, "mean_tpot_ms": 0, "p99_ttft_ms": 5, "odd_ms": "x", "flag_ms": True, "completed": 40}
    data = bench_inferencex.aggregate(made, made.points[0], content, row, {"recipe_sha256": "s"})
    assert data == {
        "hw": "mi355x", "conc": 4, "model": "org/m", "image": "i", "infmax_model_prefix": "dsr1", "disagg": True, "isl": 100, "osl": 10,
        "recipe_fingerprint": "s", "num_prefill_gpu": 4, "num_decode_gpu": 8, "tput_per_gpu": 1.0, "output_tput_per_gpu": 2.0,
        "input_tput_per_gpu": 3.0, "prefill_tp": 4, "prefill_ep": 1, "decode_tp": 8, "median_tpot": 0.02, "median_intvty": 50.0,
        "mean_tpot": 0.0, "p99_ttft": 0.005}


def test_times_are_seconds_and_times_per_token_rates_too() -> None:
    assert bench_inferencex._times({"p99_tpot_ms": 4, "mean_tpot_ms": 0, "x_ms": None, "b_ms": True, "ms": 1}) == {"p99_tpot": 0.004,
                                                                                                                   "p99_intvty": 250.0,
                                                                                                                   "mean_tpot": 0.0}


def test_write_copies_the_raw_file_byte_for_byte(tmp_path: Path) -> None:
    made = plan(tmp_path, BENCH_META='{"framework": "sglang"}')
    point, row = made.points[0], bench_row.figures(made, made.points[0], result())
    (tmp_path / "bench" / "c4.json").write_text(json.dumps(result()) + "  \n")
    bench_inferencex.write(made, point, {**row, "raw": "absent.json"}, {})
    assert not (tmp_path / "bench" / "inferencex").exists()
    bench_inferencex.write(made, point, {**row, "raw": "c4.json"}, {})
    folder = tmp_path / "bench" / "inferencex" / "sglang_isl_100_osl_10"
    stem = bench_inferencex.stem(made, point)
    assert (folder / f"{stem}.json").read_text() == json.dumps(result()) + "  \n"
    assert json.loads((folder / f"agg_{stem}.json").read_text())["median_intvty"] == 50.0
