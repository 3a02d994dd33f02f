"""Jobs whose recipe has model.stage_dir: each node loads from its own disk, and what may go wrong before that."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs_rig import PAIR, SMALL, Live, Outcome, Scenario, generate
from jobs_runner import check, on
from model_rig import contents, model_folder

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("jobs")]

BIG = "model-00009.safetensors"


def disk(live: Live, node: str) -> Path:
    """A node's own disk, seen from here."""
    return Path(f"/proc/{live.cluster._space(node)}/root{live.folder}/nvme")


def copies(live: Live) -> list[Path]:
    """The staged folder of each node."""
    return [path for node in live.nodes for path in disk(live, node).glob("m-*")]


def copiers(live: Live) -> list[int]:
    """The copying processes of the first node, which is where srun is too."""
    rows = live.cluster.processes(live.nodes[0]).items()
    return [pid for pid, line in rows if line.split()[0].endswith("python3") and "stage_model.py" in line]


def staged(size: str = "64m", big: int = 0) -> Callable[[Live], None]:
    """The bundle of a model that is staged to a disk which each node has for itself."""
    def prepare(live: Live) -> None:
        source = model_folder(live.folder / "shared" / "m")
        if big:
            with (source / BIG).open("wb") as stream:
                stream.truncate(big)
        (live.folder / "nvme").mkdir()
        for node in live.nodes:
            live.mount_tmpfs(node, live.folder / "nvme", size)
        regenerate(live, *live.scenario.sets)

    return prepare


def regenerate(live: Live, *sets: str, out: str = "") -> Path:
    scenario = live.scenario
    where = (f"model.path={live.folder}/shared/m", f"model.stage_dir={live.folder}/nvme")
    return generate(scenario.recipe, scenario.profile, (*SMALL, *where, *sets), live.folder / out if out else live.bundle, True)


def hold(live: Live) -> Callable[[], None]:
    """Keeps the copies of the first node waiting, as another job does; returns what lets them go on."""
    target = re.search(r"^readonly PLAN_MODEL_STAGED=(\S+)$", (live.bundle / "run.sbatch").read_text(), re.MULTILINE)
    assert target
    place = disk(live, live.nodes[0]) / f".{Path(target[1]).name}.lock"
    handle = os.open(place, os.O_RDONLY | os.O_CREAT, 0o644)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return lambda: os.close(handle)


def held(live: Live) -> None:
    """The model's bundle, and a copy on the node that is not over before the scenario says so."""
    staged("600m", 400 << 20)(live)
    live.notes["go on"] = hold(live)


def waiting(live: Live, bundle: Path, job: str) -> None:
    log = bundle / "results" / job / "logs" / "stage_model.log"
    live.until("a copy that waits", lambda: log.exists() and "waiting for another job" in log.read_text())


def kill_half_way(live: Live) -> None:
    """SIGKILL between the first byte and the last, then the same job once more."""
    waiting(live, live.bundle, live.job)
    (copier,) = copiers(live)
    live.notes["go on"]()
    end = time.monotonic() + 60
    while not any(part.stat().st_size for part in disk(live, live.nodes[0]).glob(f"m-*/.{BIG}.*")):
        assert time.monotonic() < end
    os.kill(copier, signal.SIGKILL)
    live.cluster.wait(live.job, 60)
    live.notes["halves"] = [path.name for path in copies(live)[0].glob(f".{BIG}.*")]
    job = live.cluster.sbatch(live.script, env=live.env, cwd=live.cwd, args=live.args)
    live.notes["again"] = live.cluster.wait(job, 120)
    live.notes["log"] = (live.bundle / "results" / job / "logs" / "stage_model.log").read_text()


def two_at_once(live: Live) -> None:
    """Two jobs come to the same node for the same model."""
    moved = ("ports.router=8100", "ports.router_metrics=29100", "ports.worker_http=7100", "ports.handshake=5900",
             "ports.dp_master=30500", "ports.dp_base=30700")
    bundle = regenerate(live, *moved, out="moved")
    job = live.cluster.sbatch(bundle / "run.sbatch", env=live.env, cwd=live.cwd, args=live.args)
    waiting(live, live.bundle, live.job)
    waiting(live, bundle, job)
    live.notes["go on"]()
    live.notes["second"] = live.cluster.wait(job, 120)
    live.notes["log"] = (bundle / "results" / job / "logs" / "stage_model.log").read_text()


GREEN = [
    Scenario("stage-none", recipe=PAIR, nodes=2, own_bundle=True, prepare=staged()),
    Scenario("stage-pyxis", recipe=PAIR, nodes=2, own_bundle=True, profile="pyxis", prepare=staged()),
]
FAULTS = [
    Scenario("stage-no-room", 10, "preflight: disk on {node}: ", "preflight", "preflight", own_bundle=True, prepare=staged("2m")),
    Scenario("stage-disk-full", 10, "stage_model on {node}: ", "preflight", "stage_model", own_bundle=True,
             prepare=staged("64m,nr_inodes=6")),
    Scenario("stage-source-dangles", 10, "more.json (a link to nowhere): No such file or directory", "preflight", "preflight",
             own_bundle=True, prepare=lambda live: (staged()(live), (live.folder / "shared/m/more.json").symlink_to("nowhere"))),
    Scenario("stage-killed", 10, "stage_model on {node}: Killed", "preflight", "stage_model", own_bundle=True,
             prepare=held, act=kill_half_way),
]
TWO = Scenario("stage-two-at-once", profile="shared", own_bundle=True, prepare=held, act=two_at_once, seconds=120)


@on(*GREEN)
def test_each_node_has_its_copy(outcome: Outcome) -> None:
    check(outcome)
    live = outcome.live
    source = contents(live.folder / "shared" / "m")
    assert len(copies(live)) == 2
    assert [contents(path) for path in copies(live)] == [source, source]
    assert [copies(live)[0].name] == [copies(live)[1].name]
    log = outcome.log("stage_model")
    assert log.count(": complete: 7 files, ") == 2 and log.count(" 7 of them copied now") == 2
    before, after = outcome.output.split("phase load")
    assert "stage_model: done after " in before and "started 2 workers" in after


@on(*GREEN)
def test_the_served_name_follows_the_rule(outcome: Outcome) -> None:
    live = outcome.live
    place = f"{live.folder}/nvme/{copies(live)[0].name}"
    wanted = place if live.scenario.profile == "none" else "/model"
    assert live.manifest()["served_model"] == wanted
    servers = [row["argv"] for row in live.manifest()["processes"] if "--model" in row["argv"] and row["role"] in ("prefill", "decode")]
    assert [argv[argv.index("--model") + 1] for argv in servers] == [wanted, wanted]
    assert live.manifest()["recipe"]["model"]["stage_dir"] == f"{live.folder}/nvme"
    script = (live.bundle / "run.sbatch").read_text()
    assert (f"{place}:/model:ro" in script) == (wanted == "/model")
    assert place in (live.bundle / "README.md").read_text()


@on(*FAULTS)
def test_faults(outcome: Outcome) -> None:
    check(outcome)


@on(FAULTS[1])
def test_a_full_disk_says_so(outcome: Outcome) -> None:
    assert outcome.result["reason"].endswith(": No space left on device")


@on(FAULTS[-1])
def test_the_next_job_goes_on_where_the_killed_one_was(outcome: Outcome) -> None:
    notes = outcome.live.notes
    assert len(notes["halves"]) == 1
    assert notes["again"] == ("COMPLETED", "0:0")
    assert ": complete: 8 files, " in notes["log"]
    assert not list(copies(outcome.live)[0].glob(".*"))


@on(TWO)
def test_two_jobs_share_one_copy(outcome: Outcome) -> None:
    check(outcome)
    notes = outcome.live.notes
    assert notes["second"] == ("COMPLETED", "0:0")
    logs = [notes["log"], outcome.log("stage_model")]
    assert sorted(int(log.split(" of them copied now")[0].rsplit(" ", 1)[-1]) for log in logs) == [0, 8]
