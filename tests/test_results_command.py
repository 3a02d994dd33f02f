"""`srtgen results` and a job's report.md, on results as a real job leaves them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run_here
from shipped import ROOT

from srtgen import generate
from srtgen.console import read

RECIPE = ROOT / "recipes" / "atom" / "qwen3-0.6b-1p1d-tp1.yaml"
REPORT = ROOT / "templates" / "lib" / "report.py"
STATISTICS = {f"{metric}_ms_{s}": 10.0 for metric in ("ttft", "tpot", "itl", "e2el") for s in ("mean", "p50", "p90", "p99")}


def row(concurrency: int, **fields: Any) -> dict[str, Any]:
    base = {"concurrency": concurrency, "isl": 128, "osl": 32, "random_range_ratio": "0.8", "num_prompts": 16, "completed": 16,
            "failed": 0, "total_tok_s_per_gpu": 100.0, "output_tok_s": 50.0, "interactivity": 100.0, "valid": True,
            "reason": "", **STATISTICS}
    return {**base, **fields}


def results(folder: Path, *sets: str, rows: tuple[dict[str, Any], ...] = (row(1), row(4)), client: dict[str, Any] | None = None,
            **result: Any) -> Path:
    """A job's folder with these points; `sets` change the recipe, `result` the fields of result.json."""
    manifest = generate.bundle(read(RECIPE), None, [("set", text) for text in sets]).files["manifest.json"].content
    (folder / "bench").mkdir(parents=True)
    (folder / "manifest.json").write_bytes(manifest)
    content = {"schema": "srtgen/result/1", "job_id": folder.name, "attempt": 1, "name": "x", "verdict": "passed", "reason": "passed",
               "exit_code": 0, "versions": {"atom": {"expected": None, "seen": ["0.1"], "status": "not compared"}},
               "transport": {"expected": "tcp", "steps": {"prefill_0": {"seen": ["tcp"], "status": "match"}}}, **result}
    (folder / "result.json").write_text(json.dumps(content))
    summary = {"model": "m", "type": "sa-bench", "client": {"name": "atom", "request_rate": "inf", **(client or {})},
               "points": [{"name": f"c{r['concurrency']}", "row": r, "warnings": []} for r in rows]}
    (folder / "bench" / "summary.json").write_text(json.dumps(summary))
    return folder


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def srtgen(*words: str | Path) -> tuple[int, str, str]:
        code, printed = run_here(["results", *map(str, words)], monkeypatch, capsys)
        return code, printed.out, printed.err

    return srtgen


def test_change_in_percent(run: Run, tmp_path: Path) -> None:
    one = results(tmp_path / "1")
    two = results(tmp_path / "2", rows=(row(1, total_tok_s_per_gpu=110.0, ttft_ms_p50=12.0), row(4, tpot_ms_p50=9.0)))
    code, out, _ = run(one, two)
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["1", "tok/s/GPU", "100.00", "110.00", "+10.0", "%", "better"] in lines
    assert ["TTFT", "p50", "ms", "10.00", "12.00", "+20.0", "%", "worse"] in lines
    assert ["TPOT", "p50", "ms", "10.00", "9.00", "-10.0", "%", "better"] in lines
    assert "the same versions, commands and environment" in out


def test_what_differs_in_the_setup(run: Run, tmp_path: Path) -> None:
    one = results(tmp_path / "1")
    two = results(tmp_path / "2", "roles.decode.args.max-num-seqs=16", 'environment.NEW="1"',
                  versions={"atom": {"seen": ["0.2"], "status": "match"}}, bundle_modified=["roles/decode.sh"])
    code, out, _ = run(one, two)
    assert code == 0
    for text in ("identity: versions\n  ~ atom 0.1 -> 0.2", "decode: argv\n  ~ --max-num-seqs 8 -> 16", "prefill: env\n  + NEW 1",
                 "bundle: edited files\n  + roles/decode.sh edited"):
        assert text in out


WORKLOADS: dict[str, tuple[dict[str, Any], str]] = {
    "isl": ({"rows": (row(1, isl=256),)}, "isl 128 -> 256"),
    "prompts": ({"rows": (row(1, num_prompts=32),)}, "num_prompts 16 -> 32"),
    "client": ({"client": {"name": "inferencex"}}, "client name atom -> inferencex"),
    "rate": ({"client": {"request_rate": "4"}}, "client request_rate inf -> 4"),
    "points": ({"rows": (row(8),)}, "concurrencies 1 4 -> 8"),
}


@pytest.mark.parametrize(("other", "message"), WORKLOADS.values(), ids=list(WORKLOADS))
def test_different_workloads_are_refused(run: Run, tmp_path: Path, other: dict[str, Any], message: str) -> None:
    one, two = results(tmp_path / "1"), results(tmp_path / "2", **other)
    code, out, err = run(one, two)
    assert code == 1 and out == "" and message in err and "--force" in err
    assert run(one, two, "--force")[0] == 0


def test_caveats(run: Run, tmp_path: Path) -> None:
    one = results(tmp_path / "1", verdict="failed", reason="benchmark: point c4", rows=(row(1), row(4, valid=False, reason="short")))
    _, out, _ = run(one, results(tmp_path / "2", rows=(row(1), row(8))))
    for text in ("! the first job is failed: benchmark: point c4", "! concurrency 4 of the first is invalid: short",
                 "! concurrency 8 is only in the second"):
        assert text in out


def test_missing_numbers_are_no_numbers(run: Run, tmp_path: Path) -> None:
    _, out, _ = run(results(tmp_path / "1", rows=(row(1, interactivity=None),)), results(tmp_path / "2", rows=(row(1),)))
    assert ["tok/s/user", "-", "100.00", "-"] in [line.split() for line in out.splitlines()]


def test_json(run: Run, tmp_path: Path) -> None:
    code, out, _ = run(results(tmp_path / "1"), results(tmp_path / "2"), "--format", "json")
    content = json.loads(out)
    assert code == 0 and content["schema"] == "srtgen/comparison/1" and content["points"][0]["percent"] == 0


def test_no_results(run: Run, tmp_path: Path) -> None:
    code, _, err = run(tmp_path, tmp_path)
    assert code == 1 and "result.json cannot be read" in err
    code, _, err = run(results(tmp_path / "1", rows=()), results(tmp_path / "2"))
    assert code == 1 and "no measured points" in err


# ---- report.md -------------------------------------------------------------------------------------------------------


def report(folder: Path) -> str:
    subprocess.run([sys.executable, "-BsE", str(REPORT), str(folder)], check=True, capture_output=True)
    return (folder / "report.md").read_text()


def test_report_of_a_failed_job(tmp_path: Path) -> None:
    folder = results(
        tmp_path / "7", "benchmark.concurrencies=[1, 4, 8]", verdict="failed", exit_code=21, reason="benchmark: point c4 | <b>",
        rows=(row(1), row(4, valid=False, reason="too short")), warnings=["SBATCH_TIME=1 overrides"], checks_skipped=["ports"],
        bundle_modified=["roles/decode.sh"], attempt=2, phases=[{"name": "load", "start_s": 1.0, "seconds": 60.0}],
        failed={"step": "bench", "node": "n1", "exit_code": 21, "log": "/x/bench.log", "tail": ["a ``` b"]},
    )
    text = report(folder)
    assert text.startswith("# x: failed\n\nJob 7, attempt 2, exit code 21: benchmark: point c4 \\| \\<b\\>\n")
    assert "````\na ``` b\n````" in text and "| 4 | 16 |" in text and "**NO**" in text
    for line in ("- concurrency 4: too short", "- SBATCH\\_TIME=1 overrides", "- check skipped: ports",
                 "- edited since generation: roles/decode.sh", "- generated with set benchmark.concurrencies=\\[1, 4, 8\\]",
                 "| load | 1.0 | **60.0** |"):
        assert line in text, line


def test_report_without_other_files(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{")
    assert report(tmp_path).startswith("# job: no verdict")


def test_report_of_a_plain_run(tmp_path: Path) -> None:
    text = report(results(tmp_path / "7"))
    assert "## What differs from the recipe\n\n- nothing" in text and "planned tcp, seen tcp (match)" in text
