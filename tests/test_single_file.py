"""srtgen --single-file: one run.sbatch, nodes that share neither the submit folder nor /tmp, results in one archive."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jobs_rig import FAST, PAIR, PROFILES, RECIPES, SMALL
from slurm_cluster import STANDINS, SlurmCluster, cluster, rootfs_env, standins_env

LIMIT_S = 120.0
FAR = ("frontend.placement.node=first_decode", "benchmark.placement.node=last_decode")
HANG = {"STANDIN_FAULT": "bench:hang"}


def single(out: Path, profile: str = "none", *sets: str, options: tuple[str, ...] = ("--single-file",)) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "srtgen", str(RECIPES / f"{PAIR}.yaml"), "-o", str(out), "--cluster", str(PROFILES / f"{profile}.yaml")]
    for text in (*SMALL, *sets):
        argv += ["--set", text]
    return subprocess.run([*argv, *options], capture_output=True, text=True, check=False)


# -- the folder ---------------------------------------------------------------


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "srtgen", *map(str, words)], capture_output=True, text=True, check=False)


def test_the_folder_holds_one_script(tmp_path: Path) -> None:
    out = tmp_path / "job"
    assert single(out).returncode == 0
    assert sorted(path.name for path in out.iterdir()) == [
        ".gitignore", "README.md", "cluster.yaml", "manifest.json", "recipe.yaml", "run.sbatch"]
    text = (out / "run.sbatch").read_text()
    assert text.index("#SBATCH --nodes=2") < text.index("readonly PLAN_WORKERS=(") < text.index("# ---- The carried bundle")
    assert subprocess.run(["bash", "-n", out / "run.sbatch"], check=False).returncode == 0
    checker = Path(sys.executable).with_name("shellcheck")
    checked = subprocess.run([checker if checker.exists() else "shellcheck", "-e", "SC1091,SC2154", "-S", "style", out / "run.sbatch"],
                             capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert "wait.sh" not in (out / "README.md").read_text()


def test_the_same_bytes_whenever_and_wherever_it_is_generated(tmp_path: Path) -> None:
    assert single(tmp_path / "one").returncode == 0
    time.sleep(1.1)
    assert single(tmp_path / "two").returncode == 0
    assert (tmp_path / "one" / "run.sbatch").read_bytes() == (tmp_path / "two" / "run.sbatch").read_bytes()
    assert str(tmp_path) not in (tmp_path / "one" / "run.sbatch").read_text()


def test_it_carries_the_bundle_of_many_files(tmp_path: Path) -> None:
    assert single(tmp_path / "one").returncode == 0
    assert single(tmp_path / "many", options=()).returncode == 0
    (tmp_path / "unpacked").mkdir()
    text = (tmp_path / "one" / "run.sbatch").read_text()
    program = re.search(r"readonly UNPACK='\n(.*?)'\n", text, re.DOTALL)
    digest = re.search(r"readonly BUNDLE_SHA256=(\w+)", text)
    assert program is not None and digest is not None
    argv = [sys.executable, "-c", program[1], tmp_path / "one" / "run.sbatch", digest[1], tmp_path / "unpacked"]
    assert subprocess.run(argv, check=False).returncode == 0
    trees = [{str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode & 0o111 != 0)
              for path in root.rglob("*") if path.is_file()} for root in (tmp_path / "many", tmp_path / "unpacked")]
    assert trees[0] == trees[1]


def test_the_commands_know_such_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "job"
    assert single(out).returncode == 0
    assert command("verify", out).returncode == 0
    assert single(out, options=("--single-file", "--check")).returncode == 0
    assert single(out, options=("--check",)).returncode == 1
    words = [str(RECIPES / f"{PAIR}.yaml"), str(out), "--cluster", str(PROFILES / "none.yaml")]
    for text in SMALL:
        words += ["--set", text]
    assert command("diff", *words).stdout == "no difference\n"
    script = out / "run.sbatch"
    script.write_text(script.read_text().replace("#SBATCH --nodes=2", "#SBATCH --nodes=3"))
    assert command("verify", out).returncode == 1
    refused = single(out)
    assert refused.returncode == 1 and "were edited: run.sbatch" in refused.stderr
    assert single(out, options=("--single-file", "--force")).returncode == 0
    assert single(out, options=()).returncode == 0 and (out / "lib").is_dir()
    assert single(out).returncode == 0 and not (out / "lib").exists()


def test_of_many_recipes_there_is_no_single_file(tmp_path: Path) -> None:
    recipe = RECIPES / f"{PAIR}.yaml"
    done = command(recipe, recipe, "-o", tmp_path / "jobs", "--single-file")
    assert done.returncode == 2 and "--single-file takes one recipe" in done.stderr


def test_outside_of_slurm(tmp_path: Path) -> None:
    assert single(tmp_path / "job").returncode == 0
    done = subprocess.run(["bash", tmp_path / "job" / "run.sbatch"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (10, "run.sbatch: this is a Slurm batch script: start it with sbatch run.sbatch\n")


# -- jobs ---------------------------------------------------------------------


@dataclass
class Place:
    """A cluster whose nodes have /tmp to themselves, so that they see neither bundle nor submit folder."""

    slurm: SlurmCluster
    shared: Path  # the one folder that all see: the stand-ins, and Slurm's output
    scripts: Path
    jobs: dict[str, str] = field(default_factory=dict)

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        stand_ins = str(self.shared / "standins")
        names = {name: value.replace(str(STANDINS), stand_ins) for name, value in given.items()}
        return {**names, "PATH": f"{stand_ins}/bin:/usr/bin:{names['PATH']}"}

    def submit(self, name: str, script: str, first: int, fault: Mapping[str, str] | None = None,
               environment: Callable[..., dict[str, str]] = standins_env) -> str:
        """Two nodes from `first` on."""
        nodes = ",".join(self.node(number) for number in (first, first + 1))
        env = self.environment(environment(**FAST, **(fault or {})))
        self.jobs[name] = self.slurm.sbatch(self.scripts / script, env=env, cwd=self.scripts,
                                            args=[f"--output={self.shared}/%j.out", f"--nodelist={nodes}"])
        return self.jobs[name]

    def node(self, number: int) -> str:
        return self.slurm.nodes[number - 1]

    def tmp(self, number: int) -> Path:
        return Path(f"/proc/{self.slurm._space(self.node(number))}/root/tmp")

    def output(self, name: str) -> str:
        return (self.shared / f"{self.jobs[name]}.out").read_text()

    def ended(self, name: str) -> tuple[str, str]:
        return self.slurm.wait(self.jobs[name], LIMIT_S)

    def until(self, check: Callable[[], object]) -> None:
        end = time.monotonic() + LIMIT_S
        while not check():
            assert time.monotonic() < end
            time.sleep(0.2)

    def in_phase(self, name: str, phase: str) -> None:
        path = self.shared / f"{self.jobs[name]}.out"
        self.until(lambda: path.exists() and f"phase {phase}" in path.read_text())

    def fetched(self, name: str, folder: Path) -> Path:
        """The results, by the command that the job's last line gives."""
        found = re.search(r"fetch them: (srun .* >\S+) ", self.output(name))
        assert found is not None, self.output(name)
        self.slurm.run(["bash", "-c", found[1]], cwd=folder)
        with tarfile.open(folder / f"{self.jobs[name]}.tar.gz") as archive:
            archive.extractall(folder)
        return folder / self.jobs[name]

    def left(self, first: int) -> list[str]:
        """What a job left on its two nodes, but for its results."""
        return [f"{number}: {path.name}" for number in (first, first + 1) for path in self.tmp(number).glob("srtgen-*")
                if not path.name.startswith("srtgen-results-")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with cluster(16, private=["/tmp"]) as slurm, tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        shared, scripts = Path(name), tmp_path_factory.mktemp("submit")
        shared.chmod(0o755)
        shutil.copytree(STANDINS, shared / "standins")
        (shared / "slow").mkdir()
        for script, profile, sets in (("plain", "none", FAR[:1]), ("far", "none", FAR), ("pyxis", "pyxis", FAR[:1])):
            assert single(scripts / "folder", profile, *sets, options=("--single-file", "--force")).returncode == 0
            shutil.copy(scripts / "folder" / "run.sbatch", scripts / f"{script}.sbatch")
        text = (scripts / "plain.sbatch").read_text()
        (scripts / "damaged.sbatch").write_text(text[:-2000] + ("A" if text[-2000] != "A" else "B") + text[-1999:])
        yield Place(slurm, shared, scripts)


@pytest.fixture(scope="module")
def started(place: Place) -> Place:
    """Jobs on nodes of their own, all submitted at once."""
    for number in (1, 2):  # of a job that is not there any more, and of somebody else's
        for owner in ("mine", "other"):
            folder = place.tmp(number) / f"srtgen-bundle-1.{owner}"
            folder.mkdir()
            (folder / "x").touch()
        shutil.chown(place.tmp(number) / "srtgen-bundle-1.other", 4711)
    for number, size in ((6, "64k"), (8, "256k"), (10, "2m"), (15, "64k")):
        space = f"--target={place.slurm._space(place.node(number))}"
        subprocess.run(["nsenter", space, "--mount", "--", "mount", "-t", "tmpfs", "-o", f"size={size}", "none", "/tmp"], check=True)
    slow = place.shared / "slow" / "sbcast"
    slow.write_text(f'#!/bin/sh\n{shutil.which("sbcast")} "$@"\nsleep 60\n')
    slow.chmod(0o755)
    place.submit("green", "plain.sbatch", 1)
    place.submit("far", "far.sbatch", 3)
    for name, first in (("no room for the script", 5), ("no room to unpack", 7), ("hardly room", 9)):
        place.submit(name, "plain.sbatch", first)
    place.submit("cancelled", "plain.sbatch", 11, HANG)
    place.submit("no room on the first", "plain.sbatch", 15)
    return place


def results_of(place: Place, name: str, folder: Path) -> dict[str, Any]:
    state, code = place.ended(name)
    assert (state, code) == ("COMPLETED", "0:0"), place.output(name)
    results = place.fetched(name, folder)
    result: dict[str, Any] = json.loads((results / "result.json").read_text())
    assert (result["verdict"], result["bench"]) == ("passed", {"points": 1, "valid": 1})
    for log in ("prefill_0", "decode_0", "atomesh_0", "bench"):
        assert (results / "logs" / f"{log}.log").stat().st_size
    assert (results / "bench" / "summary.csv").read_text().count("\n") == 2
    assert json.loads((results / "bench" / "summary.json").read_text())
    assert "verdict: passed (0)" in (results / "job.log").read_text() and (results / "report.md").exists()
    return result


@pytest.mark.slurm
@pytest.mark.xdist_group("single")
def test_router_on_the_other_node(started: Place, tmp_path: Path) -> None:
    results_of(started, "green", tmp_path)
    assert started.left(1) == ["1: srtgen-bundle-1.other", "2: srtgen-bundle-1.other"]
    assert not any(started.tmp(2).glob("srtgen-results-*"))


@pytest.mark.slurm
@pytest.mark.xdist_group("single")
def test_client_on_the_other_node(started: Place, tmp_path: Path) -> None:
    """Beside the first job; what it says of the nodes stands in its summary."""
    results_of(started, "far", tmp_path)
    summary = (tmp_path / started.jobs["far"] / "bench" / "summary.json").read_text()
    assert started.node(3) in summary and started.left(3) == []


@pytest.mark.slurm
@pytest.mark.xdist_group("single")
@pytest.mark.parametrize(("name", "first", "said"), [
    ("no room for the script", 5, "bundle: it cannot be copied to {node}: "), ("no room to unpack", 7, "bundle: on {node}: "),
    ("hardly room", 9, "preflight: disk on {node}: /tmp/srtgen-bundle-")])
def test_a_full_disk_is_told_with_its_node(name: str, first: int, said: str, started: Place) -> None:
    assert started.ended(name) == ("FAILED", "10:0")
    assert "verdict: failed (10) after " in started.output(name)
    assert said.format(node=started.node(first + 1)) in started.output(name)
    assert started.left(first) == []


@pytest.mark.slurm
@pytest.mark.xdist_group("single")
def test_a_full_disk_of_the_first_node(started: Place) -> None:
    """Before there is anything to write results with."""
    assert started.ended("no room on the first") == ("FAILED", "10:0")
    assert "run.sbatch: [Errno 28] No space left on device" in started.output("no room on the first")
    assert f"(on {started.node(15)})" in started.output("no room on the first") and started.left(15) == []


@pytest.mark.slurm
@pytest.mark.xdist_group("single")
def test_cancelled_in_the_benchmark(started: Place, tmp_path: Path) -> None:
    started.in_phase("cancelled", "bench")
    started.slurm.run(["scancel", started.jobs["cancelled"]])
    assert started.ended("cancelled")[0] == "CANCELLED"
    assert "cancelled in phase bench" in started.output("cancelled")
    started.until(lambda: started.left(11) == [])
    assert json.loads((started.fetched("cancelled", tmp_path) / "result.json").read_text())["exit_code"] == 143


@pytest.mark.slurm
@pytest.mark.xdist_group("single")
def test_cancelled_while_it_is_handed_over(started: Place) -> None:
    """The node has the script then, and nobody to remove it: the user's next job there does."""
    script = started.scripts / "slow.sbatch"
    text = (started.scripts / "plain.sbatch").read_text()
    script.write_text(text.replace("set -Eeuo pipefail\n", f"set -Eeuo pipefail\nPATH={started.shared}/slow:${{PATH}}\n", 1))
    job = started.submit("slow", "slow.sbatch", 13)
    copies = lambda: list(started.tmp(14).glob(f"srtgen-bundle-{job}.*"))  # noqa: E731
    started.until(copies)
    time.sleep(1)
    started.slurm.run(["scancel", job])
    assert started.ended("slow")[0] == "CANCELLED"
    assert "cancelled in phase preflight" in started.output("slow") and not list(started.tmp(13).glob(f"srtgen-bundle-{job}.*"))
    started.submit("pyxis", "pyxis.sbatch", 13, environment=rootfs_env)
    assert started.ended("pyxis") == ("COMPLETED", "0:0"), started.output("pyxis")
    assert started.left(13) == []


@pytest.mark.slurm
@pytest.mark.xdist_group("single")
def test_a_damaged_script_is_refused(started: Place) -> None:
    started.submit("damaged", "damaged.sbatch", 1)
    assert started.ended("damaged") == ("FAILED", "10:0")
    assert "run.sbatch: the bundle that run.sbatch carries is not the one that it was generated with" in started.output("damaged")
    assert "phase" not in started.output("damaged") and len(started.left(1)) == 2


@pytest.mark.slurm
@pytest.mark.xdist_group("single")
def test_in_an_allocation(started: Place, tmp_path: Path) -> None:
    env = started.environment(standins_env(**FAST))
    done = started.slurm.run(["salloc", "-N2", "-t10", "--exclusive", "--mem=0", "--gres=gpu:8", f"--nodelist={started.node(3)}",
                              "bash", "plain.sbatch"], env=env, cwd=started.scripts, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: passed (0)" in done.stdout and "fetch them: srun" in done.stdout
    assert [left for number in range(1, 13, 2) for left in started.left(number) if "other" not in left] == []


def test_results_archives(tmp_path: Path) -> None:
    """results_tar.py: only regular files, only inside the folder."""
    program = Path(__file__).resolve().parent.parent / "templates" / "lib" / "results_tar.py"
    (tmp_path / "from" / "logs").mkdir(parents=True)
    (tmp_path / "from" / "logs" / ".bench.alive").touch()
    (tmp_path / "from" / "logs" / "a b").write_text("x")
    (tmp_path / "from" / "result.json").write_text("{}")
    (tmp_path / "from" / "profile.json").write_text("{}")
    packed = subprocess.run([sys.executable, program, "pack", tmp_path / "from"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert sorted(archive.getnames()) == ["logs/a b", "profile.json"]  # result.json is the job's own
    some = subprocess.run([sys.executable, program, "pack", tmp_path / "from", "result.json", "absent"], capture_output=True, check=True)
    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode="w") as archive:
        for name in ("../out", "/tmp/srtgen-test-out", "in/x"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    for given in (packed, some.stdout, evil.getvalue()):
        subprocess.run([sys.executable, program, "unpack", tmp_path / "to"], input=given, check=True)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == [
        "from/logs/.bench.alive", "from/logs/a b", "from/profile.json", "from/result.json", "to/in/x", "to/logs/a b",
        "to/profile.json", "to/result.json"]
    subprocess.run([sys.executable, program, "save", tmp_path / "from", tmp_path / "x.tar.gz"], check=True)
    with tarfile.open(tmp_path / "x.tar.gz") as archive:
        assert "from/result.json" in archive.getnames()
    failed = subprocess.run([sys.executable, program, "save", tmp_path / "absent", tmp_path / "y.tar.gz"], capture_output=True, check=False)
    assert failed.returncode and not list(tmp_path.glob("y.tar.gz*"))
