"""Cases of parts F and H that are about what the generator writes, and what a debug trace shows, by number."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from command_line import run_here
from jobs.shell import LIB, bash
from shipped import ROOT

from srtgen import generate
from srtgen.console import read

sys.path.insert(0, str(LIB))
import bench_gate  # noqa: E402  (found only by the path above)
import bench_plan  # noqa: E402

RECIPE = ROOT / "recipes" / "atom" / "qwen3-0.6b-1p1d-tp1.yaml"
SECRET = "hf_thisvaluemustneverbeprinted000000000"


def made(*sets: str) -> dict[str, str]:
    """The bundle's text files."""
    files = generate.bundle(read(RECIPE), None, [("set", text) for text in sets]).files
    return {path: file.content.decode() for path, file in files.items()}


@pytest.mark.parametrize(("sets", "ratio"), [((), "0.8"), (("benchmark.random_range_ratio=1",), "1")])
def test_case_093_the_range_ratio_is_always_written_out(sets: tuple[str, ...], ratio: str) -> None:
    script = made(*sets)["bench.sh"]
    assert re.findall(r"--random-range-ratio (\S+)", script) == [ratio, ratio]
    assert f"BENCH_RATIO={ratio}\n" in script


@pytest.mark.parametrize("ratio", ["1.5", "-0.1", "text"])
def test_case_093_a_ratio_that_means_nothing_is_refused(
    ratio: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(RECIPE), "-o", str(tmp_path / "job"), "--set", f"benchmark.random_range_ratio={ratio}"]
    code, printed = run_here(words, monkeypatch, capsys)
    assert code == 1 and "benchmark.random_range_ratio" in printed.err


def plan(tmp_path: Path) -> bench_plan.Plan:
    point = bench_plan.Point(1, "c4", 4, 40, 8)
    return bench_plan.Plan(
        name="x", kind="sa-bench", client="atom", client_path="", model="m", tokenizer="", offline=False, isl=1024,
        osl=1024, ratio="0.8", request_rate="inf", chat_template=False, max_failed_ratio=0, stall_timeout_s=0,
        points=(point,), chosen=(point,), gpus={}, gpus_allocated=8, router_metrics_url="", workers=(), meta={},
        results=tmp_path, endpoint="",
    )  # fmt: skip


def result(tokens_in: int, tokens_out: int) -> dict[str, float]:
    """A client's figures of 40 requests in 10 s."""
    statistics = {
        bench_gate.metric_key(metric, s): 5.0
        for metric in bench_gate.METRICS
        for s in ("mean", "p50", "p90", "p99")
    }
    return {
        "completed": 40, "total_input_tokens": tokens_in, "total_output_tokens": tokens_out, "duration": 10.0,
        "output_throughput": tokens_out / 10, "total_token_throughput": (tokens_in + tokens_out) / 10, **statistics,
    }  # fmt: skip


def judged(tmp_path: Path, tokens_in: int, tokens_out: int) -> bench_gate.Judgement:
    made_plan = plan(tmp_path)
    return bench_gate.judge(made_plan, made_plan.points[0], result(tokens_in, tokens_out), 11.0)


def test_case_093_mean_lengths_are_compared_with_the_plan(tmp_path: Path) -> None:
    mean = (int(0.8 * 1024) + 1024) // 2
    assert judged(tmp_path, 40 * mean, 40 * mean) == ([], [])
    other = judged(tmp_path, 40 * 1024, 40 * mean)  # what a client with another meaning of the ratio sends
    assert not other.problems and "mean of total_input_tokens" in other.warnings[0]


def test_case_095_the_completions_endpoint_is_explicit() -> None:
    assert set(re.findall(r"--endpoint (\S+)", made()["bench.sh"])) == {"/v1/completions"}
    manifest = json.loads(made()["manifest.json"])
    assert all("/v1/completions" in p["argv"] for p in manifest["processes"] if p["role"] == "bench")


@pytest.mark.parametrize("each", [16, 0, 2048])
def test_case_095_answers_of_another_length_are_invalid(tmp_path: Path, each: int) -> None:
    problems = judged(tmp_path, 40 * 921, 40 * each).problems
    assert any("output tokens" in problem for problem in problems)


def test_case_110_tracing_never_shows_a_secret(tmp_path: Path) -> None:
    text = (
        "job_folder=.; node_hosts=(n1)\nset -x\ncheck_required_environment\ncollect_export_names\nsrun_argv prefill_0 prefill n1\nset +x\n"
        'printf "%s\\n" "${export_names[*]}"'
    )
    done = bash(text, tmp_path, ("log", "result", "events", "steps", "preflight"), env={"HF_TOKEN": SECRET},
                plan="PLAN_REQUIRE_ENV=(HF_TOKEN)\nPLAN_PASS_ENV=(HF_TOKEN)\nPLAN_RUNTIME=pyxis\n")
    assert "HF_TOKEN" in done.stdout and "+ " in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_case_110_nothing_traces_but_the_debug_switch() -> None:
    tracing = [(path.name, line) for path in LIB.parent.rglob("*.sh") for line in path.read_text().splitlines()
               if re.search(r"set -\w*x|xtrace", line)]
    assert [(name, line.strip()) for name, line in tracing] == [("srtgen.sh", "set -x")]
    assert 'SRTGEN_DEBUG' in (LIB / "srtgen.sh").read_text()


def test_case_113_a_setting_of_one_role_only_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = read(RECIPE)
    one_sided = source._replace(
        content=source.content.replace(b"  decode:\n    nodes: 1\n", b'  decode:\n    nodes: 1\n    env: {ATOM_MOE_GU_ITLV: "1"}\n')
    )
    found = generate.bundle(one_sided, None, []).findings
    assert any("ATOM_MOE_GU_ITLV" in finding.message for finding in found)
    code, printed = run_here(["diff", "--roles", str(RECIPE)], monkeypatch, capsys)
    assert code == 0 and "prefill" in printed.out + printed.err
