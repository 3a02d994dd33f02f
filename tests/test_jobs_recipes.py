"""Recipes that people have, as real jobs: unchanged, one with a custom client that reads the submitting shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs_rig import FAST
from slurm_cluster import STANDINS, SlurmCluster, require_slurm, rootfs_env

TESTS = Path(__file__).resolve().parent
RECIPES = TESTS.parents[1] / "shared" / "data" / "recipes"
REAL = RECIPES / "dsv4-2p1d-layout1.yaml"
PLAIN = RECIPES / "atomesh-disagg.yaml"
OURS = TESTS / "layout1" / "pd-dpa-custom.1.yaml"
# A client of the same name lies where the recipe's command calls it, with what it imports; results go where it writes.
PROFILE = """\
cluster: local
gpus_per_node: 8
gpu_directive: gres
default_mounts:
  {standins}/inferencex: /infmax-workspace
  {standins}/python: /python
  {standins}/data: /data
  {results}: /results
"""
pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("layout1")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """Three nodes with the CPUs that the recipes ask for."""
    require_slurm()
    with SlurmCluster(3, settings={"SLURM_LOCAL_CPUS": "128"}) as started:
        yield started


def run(cluster: SlurmCluster, recipe: Path, folder: Path) -> dict[str, object]:
    """The result of the recipe's job, whose nodes have neither RDMA nor GPUs in use."""
    results, profile, bundle = folder / "results", folder / "site.yaml", folder / "job"
    results.mkdir()
    profile.write_text(PROFILE.format(standins=STANDINS, results=results))
    argv = [sys.executable, "-m", "srtgen", str(recipe), "-o", str(bundle), "--cluster", str(profile)]
    env = {**os.environ, "PYTHONPATH": str(TESTS.parent / "gen")}
    made = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert (bundle / "recipe.yaml").read_bytes() == recipe.read_bytes()
    path = f"{STANDINS}/bin:/usr/bin:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    own = {"CONC_LIST": "1 2", "RANDOM_RANGE_RATIO": "0.8", "SRTGEN_SKIP_CHECKS": "rdma limits", "PATH": path}
    job = cluster.sbatch(bundle / "run.sbatch", env=rootfs_env(**FAST, **own), cwd=folder)
    state, _ = cluster.wait(job, 240)
    output = (folder / f"slurm-{job}.out").read_text()
    assert state == "COMPLETED", output[-3000:]
    return dict(json.loads((bundle / "results" / job / "result.json").read_text())) | {"job": job}


def test_custom_client_reads_the_submitting_shell(cluster: SlurmCluster, tmp_path: Path) -> None:
    result = run(cluster, OURS, tmp_path)
    assert result["verdict"] == "passed"
    said = (tmp_path / "results" / f"{result['job']}.txt").read_text()
    assert said == f"{{level}} of {result['job']}, ratio 0.8\n"


@pytest.mark.skipif(not REAL.exists(), reason="the recipes of srt-slurm's users are not here")
def test_real_recipe_runs_unchanged(cluster: SlurmCluster, tmp_path: Path) -> None:
    result = run(cluster, REAL, tmp_path)
    assert result["verdict"] == "passed"
    folder = tmp_path / "results" / str(result["job"])
    points = sorted((folder / "fixed-seq").glob("*.json"))
    assert [json.loads(point.read_text())["completed"] for point in points] == [10, 20]
    assert (folder / "runtime-logs.tar.gz").stat().st_size > 0


@pytest.mark.skipif(not PLAIN.exists(), reason="the recipes of srt-slurm's users are not here")
def test_real_recipe_with_our_client_runs_unchanged(cluster: SlurmCluster, tmp_path: Path) -> None:
    result = run(cluster, PLAIN, tmp_path)
    assert result["verdict"] == "passed"
    assert result["bench"] == {"points": 2, "valid": 2}
