"""status.sh, logs.sh and stop.sh of a bundle, on jobs that run, that have ended and that lost their node."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs_rig import FAST, SMALL
from slurm_cluster import SlurmCluster, cluster, standins_env

from srtgen import generate
from srtgen.bundle import write
from srtgen.console import read

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "recipes" / "atom" / "qwen3-0.6b-1p1d-shared-node.yaml"
PROFILE = ROOT / "tests" / "profiles" / "none.yaml"


def bundle(folder: Path, *sets: str, profile: Path = PROFILE) -> Path:
    out = folder / "bundle"
    made = generate.bundle(read(RECIPE), read(profile), [("set", text) for text in (*SMALL, *sets)])
    write(out, made.files, False)
    return out


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with cluster(2, settings={"SLURM_LOCAL_DOWN": "4"}) as started:
        yield started


def submit(slurm: SlurmCluster, out: Path, *args: str, **env: str) -> str:
    return slurm.sbatch("run.sbatch", env=standins_env(**{**FAST, **env}), cwd=out, args=args)


def run(slurm: SlurmCluster, out: Path, script: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return slurm.run([out / script, *words], env={"SRTGEN_LOGS_POLL_S": "0.3", **env}, check=False)


def wait_for_phase(out: Path, job: str, phase: str, limit: float = 60) -> None:
    end = time.monotonic() + limit
    file = out / "results" / job / "result.json"
    while not (file.exists() and json.loads(file.read_text())["phase"] == phase):
        assert time.monotonic() < end, file.read_text() if file.exists() else "no result.json"
        time.sleep(0.1)


def rows(text: str) -> dict[str, str]:
    """First word of each line to the rest."""
    return {line.split()[0]: line.split(None, 1)[1] for line in text.splitlines() if len(line.split()) > 1}


@pytest.mark.slurm
def test_job_that_runs_and_is_asked_to_stop(slurm: SlurmCluster, tmp_path: Path) -> None:
    out = bundle(tmp_path, "benchmark={type: manual}")
    job = submit(slurm, out)
    wait_for_phase(out, job, "bench")
    seen = rows(run(slurm, out, "status.sh").stdout)
    assert seen["job"].startswith(f"{job}, ") and seen["Slurm"].startswith("RUNNING") and seen["phase"] == "bench"
    assert seen["ready"] == "prefill 1/1, decode 1/1"
    assert seen["prefill_0"].startswith("ready") and seen["atomesh_0"].startswith("ready")
    assert seen["bench"].startswith("running")
    follower = slurm.popen([out / "logs.sh", "-f", job], env={"SRTGEN_LOGS_POLL_S": "0.3"}, stdout=subprocess.PIPE)
    stopped = run(slurm, out, "stop.sh", job)
    assert stopped.returncode == 0, stopped.stderr
    assert "passed" in stopped.stderr and slurm.job(job).state == "COMPLETED"
    followed, _ = follower.communicate(timeout=30)
    assert "phase preflight" in followed and "verdict: passed" in followed
    assert run(slurm, out, "stop.sh", job).stderr.count("has ended already") == 1


@pytest.mark.slurm
def test_job_that_loads(slurm: SlurmCluster, tmp_path: Path) -> None:
    out = bundle(tmp_path)
    job = submit(slurm, out, STANDIN_LOAD_S="60")
    wait_for_phase(out, job, "load")
    seen = rows(run(slurm, out, "status.sh", job).stdout)
    assert seen["ready"] == "prefill 0/1, decode 0/1"
    assert re.match(r"(loading|not started)", seen["decode_0"])
    assert seen["times"].startswith("start ")
    assert run(slurm, out, "logs.sh", job, "prefill").returncode == 0
    stopped = run(slurm, out, "stop.sh", job)
    assert stopped.returncode == 0 and "cancelled in phase load" in stopped.stderr, stopped.stderr
    seen = rows(run(slurm, out, "status.sh", job).stdout)
    assert seen["verdict"] == "failed (143): cancelled in phase load"


@pytest.mark.slurm
def test_job_that_waits_in_the_queue(slurm: SlurmCluster, tmp_path: Path) -> None:
    out = bundle(tmp_path)
    job = submit(slurm, out, "--hold")
    shown = rows(run(slurm, out, "status.sh", job).stdout)
    assert shown["Slurm"].startswith("PENDING") and "no results yet" in shown["job"]
    assert run(slurm, out, "stop.sh", job).returncode == 0
    assert slurm.job(job).state == "CANCELLED"


@pytest.mark.slurm
def test_jobs_of_others_are_left_alone(slurm: SlurmCluster, tmp_path: Path) -> None:
    out = bundle(tmp_path)
    script = tmp_path / "other.sh"
    script.write_text("#!/bin/sh\nsleep 60\n")
    job = slurm.sbatch(script, cwd=tmp_path)
    refused = run(slurm, out, "stop.sh", job)
    assert refused.returncode == 1 and "not one of this bundle" in refused.stderr
    assert slurm.job(job).state in ("PENDING", "RUNNING")
    assert run(slurm, out, "stop.sh", "--now", "--force", job).returncode == 0
    assert slurm.job(job).state == "CANCELLED"


@pytest.mark.slurm
def test_hard_end_of_a_job_that_ignores_the_signal(slurm: SlurmCluster, tmp_path: Path) -> None:
    out = bundle(tmp_path)
    text = "#!/usr/bin/env bash\ntrap '' TERM\nfor n in {1..600}; do sleep 1; done\n"
    (out / "run.sbatch").write_text(text)
    job = slurm.sbatch("run.sbatch", cwd=out)
    slurm.wait_for(job, {"RUNNING"})
    time.sleep(1)
    stopped = run(slurm, out, "stop.sh", job, SRTGEN_STOP_GRACE_S="2")
    assert stopped.returncode == 0 and "still there after 2 s" in stopped.stderr, stopped.stderr
    assert slurm.job(job).state == "CANCELLED"


@pytest.mark.slurm
def test_node_that_died_with_the_batch_script(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Last: it takes a node. Nobody was left to write a verdict, so Slurm's word is shown."""
    out = bundle(tmp_path, "benchmark={type: manual}")
    job = submit(slurm, out)
    wait_for_phase(out, job, "bench")
    slurm.node("crash", slurm.job(job).fields["BatchHost"])
    slurm.wait_for(job, {"NODE_FAIL"}, 60)
    seen = rows(run(slurm, out, "status.sh", job).stdout)
    assert seen["verdict"].startswith("none: the job ended as NODE_FAIL in phase bench")
    assert seen["prefill_0"].startswith("ended")


# ---- without Slurm: files alone --------------------------------------------------------------------------------------


def finished(out: Path, folder: str, **fields: object) -> Path:
    """Results as a job leaves them."""
    place = out / "results" / folder
    (place / "logs").mkdir(parents=True)
    manifest = (out / "manifest.json").read_bytes()
    (place / "manifest.json").write_bytes(manifest)
    name = json.loads(manifest)["name"]
    result = {"schema": "srtgen/result/1", "job_id": folder.split(".")[0], "attempt": 1, "name": name, "phase": "done",
              "verdict": "passed", "reason": "passed", "phases": [], "exit_code": 0, "failed": None, **fields}
    (place / "result.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")
    (place / "job.log").write_text("2026-01-01T00:00:00+0000 phase load\n")
    (place / "logs" / "prefill_0.log").write_text("loaded\n\x1b[31m50%\rready \x07now\n\n")
    return place


@pytest.fixture
def offline(tmp_path: Path) -> Path:
    return bundle(tmp_path)


def alone(out: Path, script: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a script where Slurm does not answer."""
    silent = out.parent / "bin"
    silent.mkdir(exist_ok=True)
    for name in ("scontrol", "sacct", "squeue", "scancel"):
        (silent / name).write_text("#!/bin/sh\nexit 1\n")
        (silent / name).chmod(0o755)
    return subprocess.run([str(out / script), *words], env={"PATH": f"{silent}:/usr/bin:/bin", **env}, capture_output=True,
                          text=True, cwd="/", check=False, timeout=60)


def test_files_alone(offline: Path) -> None:
    finished(offline, "41", reason='said "no" \\ twice', verdict="failed", exit_code=11,
             failed={"step": "decode_0", "node": "n1"})
    seen = rows(alone(offline, "status.sh", "41").stdout)
    assert seen["verdict"] == r"failed (11): said \"no\" \\ twice"
    assert seen["Slurm"].startswith("does not answer")
    assert seen["decode_0"].startswith("FAILED")
    assert seen["prefill_0"].split(None, 1)[1] == "ready now"
    assert "\x1b" not in alone(offline, "status.sh", "41").stdout


@pytest.mark.parametrize("variable", [False, True], ids=["in_bundle", "in_SRTGEN_RESULTS_DIR"])
def test_last_attempt_of_the_latest_job(offline: Path, tmp_path: Path, variable: bool) -> None:
    finished(offline, "9")
    finished(offline, "41.r2", attempt=3)
    finished(offline, "41.r10", attempt=11)
    env = {}
    if variable:
        (offline / "results").rename(tmp_path / "elsewhere")
        env = {"SRTGEN_RESULTS_DIR": str(tmp_path / "elsewhere")}
    assert rows(alone(offline, "status.sh", "41", **env).stdout)["job"].endswith("attempt 11")
    assert rows(alone(offline, "status.sh", **env).stdout)["job"].startswith("41, ")


def test_output_dir_of_the_profile(tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    shared = tmp_path / "it's shared"
    profile.write_text(PROFILE.read_text() + f'output_dir: "{shared}"\n')
    out = bundle(tmp_path, profile=profile)
    finished(out, "5")
    (out / "results").rename(shared)
    (shared / "6").mkdir()
    (shared / "6" / "manifest.json").write_text('{\n "name": "another",\n}\n')
    assert rows(alone(out, "status.sh").stdout)["job"].startswith("5, ")


WRONG = {
    "status_text": ("status.sh", ["x"], 2, "usage"),
    "status_unknown": ("status.sh", ["7"], 1, "no results of job 7"),
    "logs_nothing": ("logs.sh", [], 2, "usage"),
    "logs_unknown_role": ("logs.sh", ["9", "agg"], 1, "there are: prefill_0"),
    "logs_unknown_job": ("logs.sh", ["8"], 1, "no results of job 8"),
    "stop_nothing": ("stop.sh", [], 2, "usage"),
    "stop_unknown": ("stop.sh", ["9"], 1, "Slurm knows no job 9"),
}


@pytest.mark.parametrize(("script", "words", "code", "message"), WRONG.values(), ids=WRONG)
def test_wrong_words(offline: Path, script: str, words: list[str], code: int, message: str) -> None:
    finished(offline, "9")
    done = alone(offline, script, *words)
    assert done.returncode == code and message in done.stderr


def test_logs(offline: Path) -> None:
    place = finished(offline, "9")
    (place / "logs" / "prefill_1.log").write_text("second\n")
    (place / "logs" / "decode_0.log").write_text("decodes\n")
    assert alone(offline, "logs.sh", "9").stdout == (place / "job.log").read_text()
    both = alone(offline, "logs.sh", "9", "prefill").stdout
    assert "second" in both and "loaded" in both and "decodes" not in both
    assert alone(offline, "logs.sh", "9", "decode_0").stdout == "decodes\n"
