"""Many bundles in one folder: what is written, and submit.sh, which submits each exactly once whenever it is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster, cluster

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "recipes" / "atom" / "qwen3-0.6b-1p1d-shared-node.yaml"
PROFILE = ROOT / "tests" / "profiles" / "none.yaml"
FAST = {"SRTGEN_SUBMIT_SETTLE_S": "1", "SRTGEN_SUBMIT_POLL_S": "0.2", "SRTGEN_SUBMIT_LOCK_S": "20"}


def generate(*words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "srtgen", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "gen")}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def swept(folder: Path, count: int, extra: str = "") -> Path:
    """A recipe with `count` points, named p0, p1, …"""
    text = RECIPE.read_text(encoding="utf-8")
    text = text.replace(f"name: {RECIPE.stem}", 'name: "p{n}"').replace("isl: 128", 'isl: "{isl}"')
    file = folder / "swept.yaml"
    values = ", ".join(str(n) for n in range(count))
    file.write_text(f"sweep:\n  n: [{values}]\n  isl: [128]\n{extra}{text}", encoding="utf-8")
    return file


def jobs(folder: Path, count: int) -> Path:
    out = folder / "jobs"
    done = generate(swept(folder, count), "-o", out, "--cluster", PROFILE)
    assert done.returncode == 0, done.stderr
    return out


def test_folder_holds_whole_bundles_and_an_index(tmp_path: Path) -> None:
    out = jobs(tmp_path, 3)
    index = json.loads((out / "index.json").read_text())
    assert [job["folder"] for job in index["jobs"]] == ["p0", "p1", "p2"]
    assert index["jobs"][1]["said"] == ["sweep n=1", "sweep isl=128"]
    for job in index["jobs"]:
        assert job["id"] in (out / job["folder"] / "run.sbatch").read_text()
        assert generate("verify", out / job["folder"]).returncode == 0
    assert "[p2](p2/README.md)" in (out / "index.md").read_text()
    assert os.access(out / "submit.sh", os.X_OK)
    assert generate("verify", out).returncode == 0


def test_again_changes_nothing_and_keeps_results(tmp_path: Path) -> None:
    out = jobs(tmp_path, 2)
    (out / "p0" / "results").mkdir()
    (out / "submitted.tsv").write_text("job\tp0\tt\t1\n")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert generate(swept(tmp_path, 2), "-o", out, "--cluster", PROFILE).returncode == 0
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_point_that_goes_is_named_and_left(tmp_path: Path) -> None:
    out = jobs(tmp_path, 2)
    done = generate(swept(tmp_path, 1), "-o", out, "--cluster", PROFILE)
    assert done.returncode == 0 and "p1 is no longer in the index" in done.stderr
    assert (out / "p1" / "run.sbatch").exists()


def test_wrong_point_leaves_everything_as_it_was(tmp_path: Path) -> None:
    out = jobs(tmp_path, 2)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    file = swept(tmp_path, 2)
    file.write_text(file.read_text().replace("isl: [128]", "isl: [256, -1]"))
    done = generate(file, "-o", out, "--cluster", PROFILE)
    line = file.read_text().splitlines().index('  isl: "{isl}"') + 1
    assert done.returncode == 1 and f"swept.yaml:{line}:8: error: benchmark.isl" in done.stderr, done.stderr
    assert "(in p0-isl_1 and 1 more)" in done.stderr
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_hand_edit_in_one_bundle_stops_before_anything_is_written(tmp_path: Path) -> None:
    out = jobs(tmp_path, 2)
    with open(out / "p1" / "bench.sh", "a", encoding="utf-8") as stream:
        stream.write("# mine\n")
    file = swept(tmp_path, 2)
    file.write_text(file.read_text().replace("isl: [128]", "isl: [256]"))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    done = generate(file, "-o", out, "--cluster", PROFILE)
    assert done.returncode == 1 and "bench.sh" in done.stderr
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert generate(file, "-o", out, "--cluster", PROFILE, "--force").returncode == 0
    assert generate(file, "-o", out, "--cluster", PROFILE, "--check").returncode == 0


def test_two_recipes_of_one_name(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_bytes(RECIPE.read_bytes())
    done = generate(RECIPE, other, "-o", tmp_path / "jobs")
    assert done.returncode == 1 and "two points have the name" in done.stderr
    assert not (tmp_path / "jobs").exists()


def test_check_names_what_differs(tmp_path: Path) -> None:
    out = jobs(tmp_path, 2)
    (out / "p0" / "wait.sh").unlink()
    (out / "p1" / "bench.sh").write_text("x")
    done = generate(swept(tmp_path, 2), "-o", out, "--cluster", PROFILE, "--check")
    assert done.returncode == 1
    assert "p0/wait.sh: is missing" in done.stderr and "p1/bench.sh: differs" in done.stderr


# ---- submit.sh on a real Slurm ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with cluster(1) as started:
        yield started


class Submitter:
    """submit.sh of one folder against the cluster; jobs are held, so that they stay in the queue."""

    def __init__(self, slurm: SlurmCluster, out: Path) -> None:
        self.slurm, self.out = slurm, out
        self.mark = f"m{random.randrange(10**9)}"

    def argv(self, *words: str, hold: bool = True) -> list[str]:
        options = ["--", f"--wckey={self.mark}", *(["--hold"] if hold else [])]
        return [str(self.out / "submit.sh"), *words, *options]

    def run(self, *words: str, hold: bool = True, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return self.slurm.run(self.argv(*words, hold=hold), env=FAST | dict(env or {}), check=False)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return self.slurm.popen(self.argv(*words), env=FAST, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                start_new_session=True)

    def submitted(self) -> Counter[str]:
        text = self.slurm.run(["squeue", "-h", "--all", "--states=all", "-o", "%j %w"]).stdout
        return Counter(line.split()[0] for line in text.splitlines() if line.split()[-1].lstrip("*") == self.mark)

    def cancel(self) -> None:
        self.slurm.run(["scancel", f"--wckey={self.mark}"], check=False)


@pytest.fixture
def submitter(slurm: SlurmCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Submitter]:
    made = Submitter(slurm, jobs(tmp_path, getattr(request, "param", 3)))
    yield made
    made.cancel()


@pytest.mark.slurm
def test_submits_in_order_and_only_once(submitter: Submitter) -> None:
    first = submitter.run()
    assert first.returncode == 0, first.stderr
    ids = [line.split("\t")[3] for line in (submitter.out / "submitted.tsv").read_text().splitlines() if line.startswith("job")]
    assert ids == sorted(ids, key=int) and len(ids) == 3
    again = submitter.run()
    assert again.returncode == 0 and submitter.submitted() == Counter(p0=1, p1=1, p2=1)
    status = submitter.run("--status").stdout
    assert [line.split("\t") for line in status.splitlines()] == [[f"p{n}", ids[n], "PENDING"] for n in range(3)]


@pytest.mark.slurm
@pytest.mark.parametrize("submitter", [8], indirect=True)
def test_killed_at_any_moment(submitter: Submitter) -> None:
    """SIGKILL of submit.sh alone or with its sbatch, after random times, until all is submitted."""
    chance, kills = random.Random(7), 0
    for attempt in range(60):
        process = submitter.start()
        try:
            process.wait(timeout=chance.uniform(0.01, 0.2))
        except subprocess.TimeoutExpired:
            kills += 1
            if attempt % 2:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            process.wait()
        else:
            if process.returncode == 0:
                break
    assert submitter.run().returncode == 0
    assert kills >= 2, "nothing was interrupted"
    assert submitter.submitted() == Counter({f"p{n}": 1 for n in range(8)})
    recorded = [line.split("\t")[1] for line in (submitter.out / "submitted.tsv").read_text().splitlines()
                if line.startswith("job\t")]
    assert sorted(recorded) == [f"p{n}" for n in range(8)]


@pytest.mark.slurm
def test_interrupted_between_sbatch_and_journal(submitter: Submitter) -> None:
    """The job is there, the journal has only the intent: nothing is submitted again."""
    assert submitter.run().returncode == 0
    journal = submitter.out / "submitted.tsv"
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(line for line in lines if not line.startswith("job\tp2")) + "\njob\tp2\ttorn")
    done = submitter.run()
    assert done.returncode == 0 and "found by its comment" in done.stderr, done.stderr
    assert submitter.submitted() == Counter(p0=1, p1=1, p2=1)


@pytest.mark.slurm
def test_interrupted_before_sbatch(submitter: Submitter) -> None:
    """Only the intent is there, and Slurm has no such job: it is submitted."""
    manifest = json.loads((submitter.out / "p0" / "manifest.json").read_text())
    (submitter.out / "submitted.tsv").write_text(f"intent\tp0\tsrtgen-00\t{manifest['id']}\t{int(time.time())}\n")
    done = submitter.run()
    assert done.returncode == 0, done.stderr
    assert submitter.submitted() == Counter(p0=1, p1=1, p2=1)


@pytest.mark.slurm
def test_old_intent_that_nobody_can_tell_about(submitter: Submitter) -> None:
    """Older than Slurm's memory, and no accounting: it stops and says what to do."""
    manifest = json.loads((submitter.out / "p0" / "manifest.json").read_text())
    (submitter.out / "submitted.tsv").write_text(f"intent\tp0\tsrtgen-00\t{manifest['id']}\t1000000\n")
    done = submitter.run(env={"PATH": without_sacct(submitter)})
    assert done.returncode == 1 and "--resolve p0 JOBID|none" in done.stderr, done.stderr
    assert submitter.submitted() == Counter()
    resolved = submitter.slurm.run([submitter.out / "submit.sh", "--resolve", "p0", "none"], check=False)
    assert resolved.returncode == 0, resolved.stderr
    assert submitter.run().returncode == 0 and submitter.submitted() == Counter(p0=1, p1=1, p2=1)


def without_sacct(submitter: Submitter) -> str:
    folder = submitter.out.parent / "bin"
    folder.mkdir()
    (folder / "sacct").write_text("#!/bin/sh\nexit 1\n")
    (folder / "sacct").chmod(0o755)
    return f"{folder}:{submitter.slurm.env['PATH']}"


@pytest.mark.slurm
def test_refused_by_slurm_stops_and_goes_on_later(submitter: Submitter) -> None:
    argv = [submitter.out / "submit.sh", "--", "--partition=nowhere"]
    done = submitter.slurm.run(argv, env=FAST, check=False)
    assert done.returncode == 1 and "p0: not submitted" in done.stderr
    assert submitter.run().returncode == 0 and submitter.submitted() == Counter(p0=1, p1=1, p2=1)


@pytest.mark.slurm
def test_at_most_n_in_the_queue(submitter: Submitter) -> None:
    process = submitter.start("--at-most", "1")
    try:
        for number in range(3):
            end = time.monotonic() + 20
            while submitter.submitted()[f"p{number}"] == 0 and time.monotonic() < end:
                time.sleep(0.1)
            text = submitter.slurm.run(["squeue", "-h", "-o", "%A %j %w"]).stdout
            waiting = [line.split()[:2] for line in text.splitlines() if line.split()[-1].lstrip("*") == submitter.mark]
            assert [name for _, name in waiting] == [f"p{number}"]
            submitter.slurm.run(["scancel", waiting[0][0]])
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()


@pytest.mark.slurm
def test_two_at_once(submitter: Submitter) -> None:
    both = [submitter.start() for _ in range(2)]
    assert [process.wait(timeout=40) for process in both] == [0, 0]
    assert submitter.submitted() == Counter(p0=1, p1=1, p2=1)


@pytest.mark.slurm
def test_changed_bundles_are_not_submitted_again_unasked(submitter: Submitter) -> None:
    assert submitter.run().returncode == 0
    file = submitter.out.parent / "swept.yaml"
    file.write_text(file.read_text().replace("isl: [128]", "isl: [256]"))
    assert generate(file, "-o", submitter.out, "--cluster", PROFILE).returncode == 0
    done = submitter.run()
    assert done.returncode == 0 and "earlier version" in done.stderr
    assert submitter.submitted() == Counter(p0=1, p1=1, p2=1)
    assert submitter.run("--changed").returncode == 0
    assert submitter.submitted() == Counter(p0=2, p1=2, p2=2)
