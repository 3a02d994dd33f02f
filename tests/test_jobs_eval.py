"""One bundle, evaluated by the real lm-eval on the local Slurm: with a network, then after prefetch.sh without one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from eval_rig import write_questions
from jobs_rig import FAST, PAIR, SMALL, generate
from slurm_cluster import SlurmCluster, require_slurm, standins_env
from way_out import way_out

pytestmark = pytest.mark.slurm

LIMIT_S = 1200
SYSTEM = "/usr/bin/python3"  # what `python3` is on the nodes, stand-ins included
EVAL = (
    "eval.run=after_benchmark",
    "eval.thresholds={gsm8k: {strict-match: 0.9, flexible-extract: 0.9}}",
    "eval.num_fewshot=2",
    "eval.max_tokens=64",
    "eval.concurrency=4",
    f"eval.python={SYSTEM}",
)


def _version() -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([SYSTEM, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 1P1D smoke recipe."""
    require_slurm()
    folder = tmp_path_factory.mktemp("eval")
    sets = (*SMALL, *EVAL, f"eval.target_python='{_version()}'")
    return generate(PAIR, "none", sets, folder / "job")


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_questions(tmp_path_factory.mktemp("questions"))


def _run(cluster: SlurmCluster, bundle: Path, questions: Path, **more: str) -> tuple[str, dict[str, Any], Path]:
    path = f"{standins_env()['PATH'].split(':')[0]}:/usr/bin:{os.environ['PATH']}:/usr/sbin:/sbin"
    # A machine whose index has certificates of its own names them as an operator would.
    own = {"SRTGEN_CA_FILE": os.environ["PIP_CERT"]} if "PIP_CERT" in os.environ else {}
    env = standins_env(**{"PATH": path, **FAST, **own, "SRTGEN_TASK_DATA": str(questions), **more})
    job = cluster.sbatch(bundle / "run.sbatch", env=env, cwd=bundle)
    state, _ = cluster.wait(job, LIMIT_S)
    folder = bundle / "results" / job
    return state, json.loads((folder / "result.json").read_text()), folder


def _assert_green(state: str, result: dict[str, Any], folder: Path) -> None:
    assert (state, result["verdict"], result["reason"]) == ("COMPLETED", "passed", "passed"), result
    assert result["bench"]["valid"] == result["bench"]["points"] == 1
    assert result["eval"]["metrics"]["gsm8k"] == {"strict-match": 1.0, "flexible-extract": 1.0}
    for name in ("bench/summary.csv", "bench/curve.svg", "eval/meta_env.json"):
        assert (folder / name).stat().st_size > 0, name
    assert list((folder / "eval").rglob("results_*.json")) and list((folder / "eval").rglob("samples_*.jsonl"))


def test_with_a_network_then_without(bundle: Path, questions: Path, tmp_path: Path) -> None:
    with SlurmCluster(2) as cluster:
        route = cluster.node("exec", "node01", "ip", "route")
        assert "default" not in route
        with way_out(cluster) as proxy:
            _assert_green(*_run(cluster, bundle, questions, **proxy))
        done = subprocess.run(
            [bundle / "prefetch.sh"],
            env={**os.environ, "SRTGEN_TASK_DATA": str(questions), "SRTGEN_CA_FILE": os.environ.get("PIP_CERT", "")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        empty = tmp_path / "nothing"
        empty.mkdir()
        state, result, folder = _run(cluster, bundle, empty)
        _assert_green(state, result, folder)
        assert json.loads((folder / "eval" / "venv.json").read_text())["ok"] is True
        for fault, code, said in (("answer_wrong", 23, "gsm8k"), ("answer_empty", 22, "empty")):
            state, result, _ = _run(cluster, bundle, empty, STANDIN_FAULT=f"decode_0:{fault}=1", EVAL_ONLY="true")
            assert (state, result["exit_code"]) == ("FAILED", code), result
            assert said in result["reason"]
