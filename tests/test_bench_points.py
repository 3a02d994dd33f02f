"""The serving benchmark end to end: bench.sh with a client, good and in every way bad."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import xml.etree.ElementTree
from pathlib import Path

import pytest

from bench_rig import Rig, counters

SUMMARY_COLUMNS = (
    "concurrency isl osl random_range_ratio num_prompts completed failed retried duration_s output_tok_s total_tok_s "
    "gpus_allocated total_tok_s_per_gpu input_tok_s_per_prefill_gpu output_tok_s_per_decode_gpu interactivity "
    + " ".join(f"{m}_ms_{s}" for m in ("ttft", "tpot", "itl", "e2el") for s in ("mean", "p50", "p90", "p99"))
    + " valid reason raw"
).split()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_good_sweep(rig: Rig) -> None:
    with counters(rig, "prefill", "decode"):
        run = rig.run()
    assert run.code == 0, run.output
    assert run.verdict == {"code": 0, "reason": "", "points": 2, "valid": 2, "client_exit_code": None}
    row = run.rows[0]
    assert list(row) == SUMMARY_COLUMNS
    assert (row["completed"], row["failed"], row["retried"], row["valid"], row["raw"]) == ("40", "0", "0", "true", "c4.json")
    tokens_in, tokens_out, seconds = 40 * 921, 40 * 115, 0.05
    assert float(row["total_tok_s_per_gpu"]) == pytest.approx((tokens_in + tokens_out) / seconds / 16, rel=1e-4)
    assert float(row["input_tok_s_per_prefill_gpu"]) == pytest.approx(tokens_in / seconds / 8, rel=1e-4)
    assert float(row["output_tok_s_per_decode_gpu"]) == pytest.approx(tokens_out / seconds / 8, rel=1e-4)
    assert float(row["interactivity"]) == pytest.approx(1000 / 10.5, rel=1e-4)
    assert re.search(r"^1/2 +4 +40 +0:0\d +~\d:\d\d +40 ", run.output, re.M)
    assert re.search(r"^2/2 +8 +80 +0:0\d +0:00 +80 ", run.output, re.M)


def test_worker_counters_are_kept(rig: Rig) -> None:
    with counters(rig, "prefill", "decode"):
        run = rig.run()
    record = run.summary["points"][0]["workers"]["decode_0"]
    assert record["requests"] == 48
    assert record["acceptance_rate"] == 0.5
    assert record["tokens_per_forward"] == 2


def test_inferencex_files(rig: Rig) -> None:
    run = rig.run()
    folder = run.folder / "inferencex" / "atom_isl_1024_osl_128"
    stem = "concurrency_4_req_rate_inf_gpus_16_ctx_8_gen_8.json"
    assert (folder / stem).read_bytes() == (run.folder / "c4.json").read_bytes()
    agg = json.loads((folder / ("agg_" + stem)).read_text())
    assert agg["median_tpot"] == pytest.approx(0.0105)
    assert agg["median_intvty"] == pytest.approx(1000 / 10.5)
    assert (agg["disagg"], agg["prefill_tp"], agg["num_decode_gpu"], agg["conc"]) == (True, 8, 8, 4)
    assert "median_tpot_ms" not in agg


def test_curve_is_a_picture(rig: Rig) -> None:
    run = rig.run()
    root = xml.etree.ElementTree.fromstring((run.folder / "curve.svg").read_text())
    assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == 2


FAULTS = {
    "zero": (21, "0 output tokens, expected 4040 to 5160"),
    "short": (21, "2560 output tokens, expected 4040 to 5160"),
    "short_input": (21, "20480 input tokens, expected"),
    "half": (21, "20 of 40 requests failed"),
    "half_exit1": (20, "exit code 1; 20 of 40 requests failed"),
    "nothing": (21, "the client wrote no result file"),
    "exit7": (20, "the client ended with exit code 7; the client wrote no result file"),
    "nofields": (21, "no usable completed, p99_e2el_ms in the result"),
    "nan": (21, "no usable median_tpot_ms in the result"),
    "other": (21, "result is for 41 prompts, 40 were asked for"),
    "claims": (21, "result claims 500 s"),
    "list": (21, "holds no JSON object"),
    "broken": (21, "can't be read"),
}


@pytest.mark.parametrize("mode", FAULTS)
def test_fault(rig: Rig, mode: str) -> None:
    """Cases 088, 090: the gate reads the result, and the exit code is never lost."""
    code, reason = FAULTS[mode]
    rig.points = ((4, 40),)
    rig.env["BENCH_FAKE"] = mode
    run = rig.run()
    assert run.code == code, run.output
    assert reason in run.verdict["reason"]
    assert run.verdict["reason"].startswith("point c4 (1 of 1): ")
    assert (run.verdict["code"], run.verdict["valid"]) == (code, 0)
    assert run.rows[0]["valid"] == "false"
    assert reason in run.rows[0]["reason"]
    assert not (run.folder / "inferencex").exists()


def test_exit_code_of_the_client_is_kept(rig: Rig) -> None:
    rig.env["BENCH_FAKE"] = "exit7"
    run = rig.run()
    assert run.verdict["client_exit_code"] == 7
    assert "| cannot bind" in run.output


def test_invalid_point_does_not_stop_the_sweep(rig: Rig) -> None:
    rig.env |= {"BENCH_FAKE": "half", "BENCH_FAKE_AT": "4"}
    run = rig.run()
    assert [row["valid"] for row in run.rows] == ["false", "true"]
    assert (run.code, run.verdict["valid"]) == (21, 1)


def test_failed_client_stops_the_sweep(rig: Rig) -> None:
    rig.env |= {"BENCH_FAKE": "exit7", "BENCH_FAKE_AT": "4"}
    run = rig.run()
    assert run.rows[1]["reason"] == "not run: point c4 ended the sweep"
    assert not (run.folder / "c8.json").exists()


def test_share_of_failures_may_be_allowed(rig: Rig) -> None:
    rig.points = ((4, 40),)
    rig.data["MAX_FAILED_RATIO"] = "0.5"
    rig.env["BENCH_FAKE"] = "half"
    assert rig.run().code == 0


def test_result_of_an_older_job_does_not_count(rig: Rig) -> None:
    """Case 106: names collide, and only present files were counted."""
    assert rig.run().code == 0
    rig.env["BENCH_FAKE"] = "nothing"
    run = rig.run()
    assert run.code == 21
    assert (rig.results / "bench.previous-1" / "c4.json").exists()


def test_repeated_concurrency_has_names_of_its_own(rig: Rig) -> None:
    rig.points = ((8, 80), (8, 80))
    run = rig.run()
    assert [row["raw"] for row in run.rows] == ["c8.json", "c8_2.json"]
    assert len(list((run.folder / "inferencex").rglob("agg_*"))) == 2


def _gone(pattern: str) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if subprocess.run(["pgrep", "-f", pattern], stdout=subprocess.DEVNULL).returncode:
            return True
        time.sleep(0.1)
    return False


def test_hung_stream_is_stopped(rig: Rig) -> None:
    """The router's own traffic (health checks) is no progress."""
    rig.data["STALL_TIMEOUT_S"] = "1"
    rig.env["BENCH_FAKE"] = "hang"
    with counters(rig, "prefill", "decode"):
        run = rig.run()
    assert run.code == 20
    assert re.search(r"c4 \(1 of 2\): no finished request for \d+ s \(3 of 40 done\): the client was stopped", run.verdict["reason"])
    assert run.rows[1]["reason"] == "not run: point c4 ended the sweep"
    assert _gone("sleep 98765")


def test_setup_may_take_longer_but_not_for_ever(rig: Rig) -> None:
    rig.data["STALL_TIMEOUT_S"] = "0.5"
    rig.env["BENCH_FAKE"] = "hang_early"
    run = rig.run()
    assert (run.code, "not one request finished for" in run.verdict["reason"]) == (20, True)


@pytest.mark.parametrize("allowed, code, said", [
    ("0", 21, "point c4 (1 of 1): 3 requests were retried"),
    ("0.1", 0, "warning: 3 requests were retried"),
])
def test_retries_are_visible(rig: Rig, allowed: str, code: int, said: str) -> None:
    """The router counts one retry under prefill and under decode: it is one."""
    rig.points = ((4, 40),)
    rig.data["MAX_FAILED_RATIO"] = allowed
    with counters(rig, "prefill", "decode") as servers:
        rig.env["BENCH_FAKE_RETRY"] = servers["router"].url
        run = rig.run()
    assert run.rows[0]["retried"] == "3"
    assert run.code == code
    assert said in run.output


def test_requests_sent_twice_are_seen_at_the_workers(rig: Rig) -> None:
    rig.points = ((4, 40),)
    rig.env["BENCH_FAKE_TWICE"] = "5"
    with counters(rig, "prefill", "decode"):
        run = rig.run()
    assert "warning: the workers finished 53 requests, the client was to send 49" in run.output


def test_unknown_retries_are_not_zero(rig: Rig) -> None:
    run = rig.run()
    assert run.rows[0]["retried"] == ""
    assert "retries are unknown" in run.output


def test_uneven_load_is_a_warning(rig: Rig) -> None:
    rig.points = ((4, 40),)
    with counters(rig, "decode", "decode") as servers:
        rig.env["BENCH_FAKE_BUMP"] = servers["decode_1"].url
        run = rig.run()
    assert "uneven load on decode workers: decode_0 0, decode_1 48 requests" in run.output
    assert run.code == 0


def test_connection_errors_name_their_side(rig: Rig) -> None:
    """Case 092: the client out of local ports is not the server's fault."""
    rig.env["BENCH_FAKE"] = "ports"
    run = rig.run()
    assert run.summary["points"][0]["error_sides"] == {"client": 1, "server": 0, "unknown": 0}


def test_subset(rig: Rig) -> None:
    rig.env["SRTGEN_CONCURRENCIES"] = "8"
    run = rig.run()
    assert (run.summary["subset"], run.summary["planned"], run.summary["chosen"]) == (True, [4, 8], [8])
    assert [row["concurrency"] for row in run.rows] == ["8"]
    assert "SRTGEN_CONCURRENCIES: 1 of 2 planned points" in run.output


def test_terminated_job_keeps_its_points(rig: Rig) -> None:
    rig.env |= {"BENCH_FAKE": "hang", "BENCH_FAKE_AT": "8"}
    process = rig.start()
    folder = rig.results / "bench"
    deadline = time.monotonic() + 30
    while not (folder / "c8.log").exists() or not (folder / "c8.log").stat().st_size:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 143, output
    summary = json.loads((folder / "summary.json").read_text())
    assert [record["row"]["valid"] for record in summary["points"]] == [True, False]
    assert not (folder / "verdict.json").exists()
    assert _gone("sleep 98765")


def test_bundle_stays_as_it_was(rig: Rig) -> None:
    rig.write()
    before = sorted(path for path in (rig.root / "lib").rglob("*"))
    rig.run()
    assert sorted(path for path in (rig.root / "lib").rglob("*")) == before


def test_identity_stands_beside_the_numbers(rig: Rig) -> None:
    """Case 111: recipe hash, images, versions, nodes and worker commands."""
    rig.results.mkdir()
    (rig.results / "manifest.json").write_text(json.dumps({
        "id": "abc", "srtgen": "0.1.0", "inputs": [{"file": "recipe.yaml", "sha256": "5" * 64}],
        "processes": [{"step": "decode_0", "image": "rocm/atom:x", "argv": ["python3", "-m", "atom"]}]}))
    (rig.results / "result.json").write_text(json.dumps({"job_id": "77", "versions": {"atom": "0.1.4"}}))
    (rig.results / "nodes.tsv").write_text("index\thost\tgpu_model\n0\tn1\tMI355X\n")
    identity = rig.run().summary["identity"]
    assert (identity["recipe_sha256"], identity["job_id"], identity["versions"]) == ("5" * 64, "77", {"atom": "0.1.4"})
    assert identity["images"] == {"decode": "rocm/atom:x"}
    assert identity["argv"] == {"decode_0": ["python3", "-m", "atom"]}
    assert identity["nodes"] == [{"index": "0", "host": "n1", "gpu_model": "MI355X"}]


def test_environment_never_reaches_the_files(rig: Rig) -> None:
    """Case 108."""
    rig.env["HF_TOKEN"] = "secret-value-nobody-should-see"
    run = rig.run()
    files = [path for path in rig.results.rglob("*") if path.is_file()]
    assert files and not any("secret-value" in path.read_text(errors="replace") for path in files)
    assert "secret-value" not in run.output


def test_hostile_python_variables_do_not_reach_our_scripts(rig: Rig) -> None:
    (rig.root / "evil").mkdir()
    (rig.root / "evil" / "json.py").write_text("raise SystemExit(99)")
    rig.env["PYTHONSAFEPATH"] = "1"
    rig.env["PYTHONHOME"] = ""
    assert rig.run().code == 0, os.environ
