"""bash run.sbatch inside an allocation that exists (salloc): the same story, and nothing else of the allocation is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jobs_rig import FAST, PAIR, SHARED, SMALL, generate
from slurm_cluster import SlurmCluster, cluster, rootfs_env, standins_env

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("allocation")]

HANG = "bench:hang"
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with cluster(7, settings={"SLURM_LOCAL_DOWN": "4"}) as started:
        yield started


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """On one node; tests share it, as each allocation has its own results."""
    return generate(SHARED, "none", SMALL, tmp_path_factory.mktemp("one") / "bundle")


def environment(**more: str) -> dict[str, str]:
    return {**standins_env(), **FAST, **more}


@dataclass
class Allocation:
    """Nodes that somebody holds, and what runs in them."""

    slurm: SlurmCluster
    bundle: Path
    id: str
    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        """What salloc gives its shell."""
        fields = self.slurm.job(self.id).fields
        return {"SLURM_JOB_ID": self.id, "SLURM_JOBID": self.id, "SLURM_JOB_NODELIST": fields["NodeList"],
                "SLURM_NNODES": fields["NumNodes"], "SLURM_JOB_NUM_NODES": fields["NumNodes"], "SLURM_SUBMIT_DIR": str(self.folder)}

    def start(self, **env: str) -> subprocess.Popen[str]:
        """run.sbatch, as a terminal starts it: a process group of its own."""
        process = self.slurm.popen(["bash", self.bundle / "run.sbatch"], env={**environment(**env), **self.variables},
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.started.append(process)
        return process

    def step(self, name: str, node: str, *command: str) -> subprocess.Popen[str]:
        """A step of the user's own."""
        process = self.slurm.popen(["srun", "--overlap", "-N1", "-n1", f"--nodelist={node}", f"--job-name={name}", *command],
                                   env={**environment(), **self.variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.started.append(process)
        return process

    def results(self, attempt: int = 0) -> Path:
        return self.bundle / "results" / (self.id + (f".r{attempt}" if attempt else ""))

    def result(self, attempt: int = 0) -> dict[str, Any]:
        return dict(json.loads((self.results(attempt) / "result.json").read_text()))

    def phase(self, name: str, attempt: int = 0) -> None:
        self.until(lambda: (self.results(attempt) / "result.json").exists() and self.result(attempt)["phase"] == name)

    def until(self, check: Callable[[], object]) -> None:
        end = time.monotonic() + LIMIT_S
        while not check():
            assert time.monotonic() < end
            time.sleep(0.2)

    def operate(self, script: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.slurm.run([self.bundle / script, *words], env={"SRTGEN_WAIT_POLL_S": "0.3", "SRTGEN_LOGS_POLL_S": "0.3"},
                              check=False, cwd=self.bundle)

    def steps(self) -> list[str]:
        return sorted(self.slurm.run(["squeue", "-h", "-s", "-j", self.id, "-o", "%j"]).stdout.split())

    def end(self) -> None:
        self.slurm.run(["scancel", "--quiet", self.id], check=False)
        for process in self.started:
            process.kill() if process.poll() is None else None
            process.communicate(timeout=30)


def hold_nodes(slurm: SlurmCluster, bundle: Path, folder: Path, *options: str) -> Allocation:
    done = slurm.run(["salloc", "--no-shell", "--exclusive", "--mem=0", "--gres=gpu:8", *options], cwd=folder)
    return Allocation(slurm, bundle, done.stderr.split("job allocation ")[1].split()[0], folder)


@pytest.fixture(scope="module", autouse=True)
def short(slurm: SlurmCluster, bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Allocation, Any]]:
    """A run in an allocation of a minute, begun before the other tests: they fill the time."""
    mine = hold_nodes(slurm, bundle, tmp_path_factory.mktemp("short"), "-N1", "-t1")
    yield mine, mine.start(STANDIN_FAULT=HANG)
    mine.end()


@pytest.fixture
def hold(slurm: SlurmCluster, bundle: Path, tmp_path: Path) -> Iterator[Callable[..., Allocation]]:
    held: list[Allocation] = []

    def make() -> Allocation:
        held.append(hold_nodes(slurm, bundle, tmp_path, "-N1", "-t10"))
        return held[-1]

    yield make
    for allocation in held:
        allocation.end()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = process.communicate(timeout=LIMIT_S)
    return process.returncode, out


def leftovers(allocation: Allocation) -> list[str]:
    return [path.name for path in Path("/tmp").glob(f"srtgen-*{allocation.id}*")]


def test_by_salloc_itself_in_more_nodes_than_planned(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The whole command as a user types it, with containers; salloc hands the code on."""
    pair = generate(PAIR, "pyxis", SMALL, tmp_path / "pair")
    done = slurm.run(["salloc", "-N3", "-t10", "--exclusive", "--mem=0", "--gres=gpu:8", "bash", "pair/run.sbatch"],
                     env={**rootfs_env(**FAST), "SLURM_EXPORT_ENV": "NONE"}, cwd=tmp_path, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    job, = (pair / "results").iterdir()
    result = json.loads((job / "result.json").read_text())
    assert (result["verdict"], result["bench"], result["attempt"]) == ("passed", {"points": 1, "valid": 1}, 1)
    assert len(result["nodes"]) == 2 and "the allocation has more than the plan needs" in done.stdout
    assert (job / "job.log").read_text().count("the directives of run.sbatch are not applied") == 1


def test_beside_steps_of_the_user(hold: Callable[..., Allocation]) -> None:
    """Two runs after each other; steps of the same name and with our variables are left alone."""
    mine = hold()
    node = mine.slurm.job(mine.id).fields["NodeList"]
    signalled = mine.folder / "signalled"
    strangers = [mine.step("prefill_0", node, "bash", "-c", f"trap 'echo >{signalled}' TERM; for i in {{1..600}}; do sleep 0.1; done"),
                 mine.step("bench", node, "env", "SRTGEN_STEP=bench", "SRTGEN_RUN=x", "sleep", "60")]
    mine.until(lambda: mine.steps() == ["bench", "prefill_0"])
    for attempt in (0, 1):
        code, out = finish(mine.start())
        assert code == 0, out
        assert mine.result(attempt)["attempt"] == attempt + 1
    assert mine.operate("wait.sh", mine.id).returncode == 0
    assert mine.steps() == ["bench", "prefill_0"] and [one.poll() for one in strangers] == [None, None]
    assert mine.slurm.job(mine.id).state == "RUNNING" and leftovers(mine) == []
    assert not signalled.exists()
    mine.slurm.run(["scancel", "--signal=TERM", mine.id])
    mine.until(signalled.exists)


def test_two_at_once_and_the_commands(hold: Callable[..., Allocation]) -> None:
    mine = hold()
    first = mine.start(STANDIN_FAULT=HANG)
    mine.phase("bench")
    code, out = finish(mine.start())
    assert code == 10 and "port 8000 of atomesh_0 is in use by pid " in mine.result(1)["reason"], out
    shown = mine.operate("status.sh").stdout
    assert f"RUNNING None (an allocation; this run is its step {mine.id}." in shown and "phase     bench" in shown
    assert "phase canary" in mine.operate("logs.sh", mine.id).stdout  # of the run that goes on
    waiter = mine.slurm.popen([mine.bundle / "wait.sh", mine.id], stdout=subprocess.PIPE, env={"SRTGEN_WAIT_POLL_S": "0.3"})
    stopped = mine.operate("stop.sh", mine.id)
    assert stopped.returncode == 0 and "cancelled in phase bench" in stopped.stderr, stopped.stderr
    assert "is left as it is" in stopped.stderr
    assert waiter.communicate(timeout=LIMIT_S)[0].count("phase bench") == 1 and waiter.returncode == 143
    assert finish(first)[0] == 143 and mine.steps() == [] and leftovers(mine) == []
    assert mine.slurm.job(mine.id).state == "RUNNING"
    assert "has ended already" in mine.operate("stop.sh", mine.id).stderr
    assert "verdict: failed (10)" in mine.operate("logs.sh", "-f", mine.id).stdout  # of the latest run


def interrupt(process: subprocess.Popen[str]) -> None:
    """Ctrl-C twice, as people do: to the whole process group."""
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)


def test_every_way_to_stop_it_ends_in_order(hold: Callable[..., Allocation]) -> None:
    """Side by side, each in an allocation of its own."""
    ways: list[tuple[Callable[[subprocess.Popen[str]], object], int]] = [
        (interrupt, 143), (lambda process: process.terminate(), 143),
        (lambda process: os.killpg(process.pid, signal.SIGHUP), 143), (lambda process: process.kill(), -signal.SIGKILL)]
    held = [hold() for _ in ways]
    started = [mine.start(STANDIN_FAULT=HANG) for mine in held]
    for mine, process, (stop, _) in zip(held, started, ways):
        mine.phase("bench")
        stop(process)
    for mine, process, (_, code) in zip(held, started, ways):
        mine.until(lambda mine=mine: mine.result()["phase"] == "done")
        mine.until(lambda mine=mine: mine.steps() == [])
        assert (process.wait(LIMIT_S), mine.result()["reason"]) == (code, "cancelled in phase bench")
        assert leftovers(mine) == []


def test_killed_runs_are_told_and_do_not_block_the_next(hold: Callable[..., Allocation]) -> None:
    mine = hold()
    process = mine.start(STANDIN_FAULT=HANG)
    mine.phase("bench")
    assert mine.operate("stop.sh", "--now", mine.id).returncode == 0
    assert finish(process)[0] != 0
    assert "none: the run ended in phase bench, before it could say why" in mine.operate("status.sh", mine.id).stdout
    assert mine.operate("wait.sh", mine.id).returncode == 70
    assert "phase bench" in mine.operate("logs.sh", "-f", mine.id).stdout
    mine.until(lambda: mine.steps() == [])
    mine.start(STANDIN_FAULT=HANG)
    mine.phase("bench", 1)
    mine.slurm.run(["scancel", (mine.results(1) / ".allocation").read_text().split()[0]])  # the servers live on
    mine.until(lambda: "srtgen" not in mine.steps())
    assert mine.steps() != []
    code, out = finish(mine.start())
    assert code == 0 and "which was killed" in out, out
    assert mine.steps() == [] and leftovers(mine) == []


def test_refusals(hold: Callable[..., Allocation], tmp_path: Path) -> None:
    mine = hold()
    pair = generate(PAIR, "none", SMALL, tmp_path / "pair")
    small = Allocation(mine.slurm, pair, mine.id, tmp_path)
    code, out = finish(small.start())
    assert code == 10 and "nodes: the allocation has 1 nodes, the plan needs 2" in out
    alone = tmp_path / "alone.sbatch"
    alone.write_bytes((mine.bundle / "run.sbatch").read_bytes())
    env = {**environment(), **mine.variables}
    done = mine.slurm.run(["bash", alone], env=env, cwd=tmp_path, check=False)
    assert done.returncode == 10 and "the bundle of this file is not beside it" in done.stderr
    done = mine.slurm.run(["bash"], env=env, cwd=tmp_path, check=False, input=alone.read_text())
    assert done.returncode == 10 and "the bundle of this file is not beside it" in done.stderr
    done = mine.operate("stop.sh", "--force", mine.id)
    assert done.returncode == 1 and "no run of this bundle is in it" in done.stderr
    assert mine.slurm.job(mine.id).state == "RUNNING"


def test_ends_before_its_allocation(short: tuple[Allocation, subprocess.Popen[str]]) -> None:
    mine, process = short
    code, _ = finish(process)
    assert (code, mine.result()["reason"]) == (124, "the time limit is near, in phase bench")
    assert leftovers(mine) == []


def test_the_allocation_is_given_up_under_it(hold: Callable[..., Allocation]) -> None:
    mine = hold()
    process = mine.start(STANDIN_FAULT=HANG)
    mine.phase("bench")
    mine.slurm.run(["scancel", mine.id])
    assert finish(process)[0] != 0
    assert mine.result()["reason"] == "cancelled in phase bench"
    node = mine.slurm.job(mine.id).fields["NodeList"]
    mine.until(lambda: not mine.slurm.processes(node) and not mine.slurm.listening(node))


def test_its_first_node_dies(hold: Callable[..., Allocation]) -> None:
    """Last: it takes a node. srun says 0, the run has no verdict."""
    mine = hold()
    process = mine.start(STANDIN_FAULT=HANG)
    mine.phase("bench")
    mine.slurm.node("crash", mine.slurm.job(mine.id).fields["NodeList"])
    assert finish(process)[0] == 11
