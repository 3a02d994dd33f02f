"""Jobs with a model of the Hugging Face hub: fetched before the load by one node or by each, or looked for offline."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from jobs_rig import PAIR, PROFILES, SMALL, Live, Outcome, Scenario, generate
from jobs_runner import check, on
from model_rig import contents, model_folder

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("jobs")]

MODEL = "models--Qwen--Qwen3-0.6B"
BIG = "model-00002-of-00002.safetensors"
HUB = {"STANDIN_HUB": "{folder}/server"}
NO_HOME = "-environment.HF_HOME"  # the shipped recipes name a folder of containers


def hub(live: Live, size: int = 1 << 20, gate: str = "") -> Path:
    """The hub's own copy of the model."""
    model = model_folder(live.folder / "server" / "Qwen" / "Qwen3-0.6B", 2, size)
    (model / "original").mkdir()
    (model / "original" / "params.pth").write_text("the same once more")
    if gate:
        (model / ".gated").write_text(gate)
    return model


def profile(live: Live, text: str) -> str:
    """The scenario's profile with more in it."""
    path = live.folder / "cluster.yaml"
    path.write_text((PROFILES / f"{live.scenario.profile}.yaml").read_text() + text.format(folder=live.folder))
    return str(path)


def prefetching(how: str, size: int = 1 << 20, gate: str = "", disk: str = "") -> Callable[[Live], None]:
    """A bundle whose site fetches: shared or local; `disk` is the size of each node's own cache folder."""
    def prepare(live: Live) -> None:
        hub(live, size, gate)
        (live.folder / "cache").mkdir()
        for node in live.nodes if disk else ():
            live.mount_tmpfs(node, live.folder / "cache", disk)
        text = "hf_cache: {folder}/cache\n" + f"model_prefetch: {how}\n"
        if live.scenario.profile != "none":
            text += "default_mounts:\n  {folder}/server: /server:ro\n"
        generate(live.scenario.recipe, profile(live, text), (*SMALL, *live.scenario.sets), live.bundle, True)

    return prepare


def cache(live: Live, node: str) -> Path:
    """A node's cache of the model, seen from here."""
    return Path(f"/proc/{live.cluster._space(node)}/root{live.folder}/cache/hub/{MODEL}")


def snapshot(folder: Path) -> dict[str, bytes]:
    """What the cache's snapshot holds, as its workers read it."""
    return contents(folder / "snapshots" / (folder / "refs" / "main").read_text())


def wanted(live: Live) -> dict[str, bytes]:
    names = contents(live.folder / "server" / "Qwen" / "Qwen3-0.6B")
    return {name: text for name, text in names.items() if not name.startswith("original/")}


def kill_half_way(live: Live) -> None:
    """SIGKILL in the middle of a file, then the same job once more."""
    blobs = live.folder / "cache" / "hub" / MODEL / "blobs"
    live.until("half a file", lambda: [p for p in blobs.glob("*.incomplete") if p.stat().st_size > 1 << 20])
    rows = live.cluster.processes(live.nodes[0]).items()
    for pid in [pid for pid, line in rows if line.split()[0].endswith("python3") and "prefetch_model.py" in line]:
        os.kill(pid, signal.SIGKILL)
    live.cluster.wait(live.job, 60)
    live.notes["half"] = sum(path.stat().st_size for path in blobs.glob("*.incomplete"))
    job = live.cluster.sbatch(live.script, env={**live.env, "STANDIN_FAULT": ""}, cwd=live.cwd, args=live.args)
    live.notes["again"] = live.cluster.wait(job, 120)


def hold_cache(live: Live) -> None:
    """A bundle whose fetching waits until the scenario lets it go on."""
    prefetching("shared", 2 << 20)(live)
    (live.folder / "cache" / "hub").mkdir()
    handle = os.open(live.folder / "cache" / "hub" / f".{MODEL}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    live.notes["go on"] = lambda: os.close(handle)


def two_at_once(live: Live) -> None:
    """Two jobs on a node each come to the same cache."""
    def log(job: str) -> str:
        path = live.bundle / "results" / job / "logs" / "prefetch_0.log"
        return path.read_text() if path.exists() else ""

    second = live.cluster.sbatch(live.script, env=live.env, cwd=live.cwd, args=[f"--nodelist={live.nodes[1]}"])
    for job in (live.job, second):
        live.until("a job that waits", lambda job=job: "waiting for another job that fetches this model" in log(job))
    live.notes["go on"]()
    live.notes["second"] = live.cluster.wait(second, 120)


def on_first_node(live: Live) -> str:
    return live.cluster.sbatch(live.script, env=live.env, cwd=live.cwd, args=[f"--nodelist={live.nodes[0]}"])


TWO = Scenario("prefetch-two-at-once", nodes=2, own_bundle=True, sets=(NO_HOME,), env=HUB, fault="prefetch_0:chunk_s=0.01",
               prepare=hold_cache, submit=on_first_node, act=two_at_once)
GREEN = [
    Scenario("prefetch-shared-none", recipe=PAIR, nodes=2, own_bundle=True, sets=(NO_HOME,), env=HUB, prepare=prefetching("shared")),
    Scenario("prefetch-local-pyxis", recipe=PAIR, nodes=2, own_bundle=True, profile="pyxis", env={"STANDIN_HUB": "/server"},
             prepare=prefetching("local", disk="32m")),
    Scenario("prefetch-shared-docker", own_bundle=True, profile="docker", env={"STANDIN_HUB": "/server"}, prepare=prefetching("shared")),
    Scenario("prefetch-with-token", own_bundle=True, env={**HUB, "HF_TOKEN": "of-the-submitter"},
             sets=(NO_HOME, "environment.HF_TOKEN={from_submit: HF_TOKEN}"), prepare=prefetching("shared", gate="of-the-submitter")),
]


def failing(name: str, reason: str, how: Callable[[Live], None], fault: str = "", env: Mapping[str, str] = HUB,
            act: Callable[[Live], None] | None = None) -> Scenario:
    return Scenario(f"prefetch-{name}", 10, f"prefetch_0 on {{node}}: {reason}", "preflight", "prefetch_0", own_bundle=True,
                    sets=(NO_HOME,), env=env, prepare=how, fault=fault, act=act)


FAULTS = [
    failing("denied", "prefetch: HfHubHTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/api/models/Qwen/Qwen3-0.6B"
            "/revision/main: is HF_TOKEN given", prefetching("shared"), "prefetch_0:denied"),
    failing("gated", "prefetch: GatedRepoError: 401 Client Error. (Request ID: Root=1) Cannot access gated repo", prefetching("shared", gate="x")),
    failing("no-network", "prefetch: LocalEntryNotFoundError: ", prefetching("shared"), "prefetch_0:no_network"),
    failing("disk-full", "prefetch: OSError: [Errno 28] No space left on device", prefetching("local", 3 << 20, disk="4m")),
    failing("killed", 'Exited with exit code 137 after "prefetch: ', prefetching("shared", 8 << 20), "prefetch_0:chunk_s=0.02", act=kill_half_way),
]


@on(*GREEN)
def test_the_model_is_there_before_the_load(outcome: Outcome) -> None:
    check(outcome)
    live = outcome.live
    local = live.scenario.name == "prefetch-local-pyxis"
    assert [snapshot(cache(live, node)) for node in live.nodes] == [wanted(live)] * len(live.nodes)
    done = [line for line in outcome.log("prefetch_0").splitlines() if ": prefetch: complete: " in line]
    assert len(done) == (len(live.nodes) if local else 1)
    assert outcome.log("prefetch_check").count(": complete: Qwen/Qwen3-0.6B in ") == len(live.nodes)
    before = outcome.output.split("phase load")[0]
    assert "prefetch_0: done after " in before and "prefetch_check: done after " in before


@on(*GREEN[:2])
def test_all_processes_have_the_cache(outcome: Outcome) -> None:
    live = outcome.live
    home = f"{live.folder}/cache" if live.scenario.profile == "none" else "/hf_hub_cache"
    rows = live.manifest()["processes"]
    assert {row["env"]["HF_HOME"] for row in rows} == {home}
    assert rows[0]["step"] == "prefetch_0" and rows[0]["image"] == rows[1]["image"]
    assert "/hf_hub_cache" not in (live.bundle / "run.sbatch").read_text() or f"{live.folder}/cache:/hf_hub_cache" in (live.bundle / "run.sbatch").read_text()
    if live.scenario.profile == "none":
        for process in rows:
            assert process["env"]["HF_HUB_CACHE"] == process["env"]["HUGGINGFACE_HUB_CACHE"] == f"{home}/hub"


@on(*FAULTS)
def test_faults(outcome: Outcome) -> None:
    check(outcome)
    assert "signature" not in outcome.output  # of an address that may hold a secret
    assert "phase load" not in outcome.output


@on(FAULTS[-1])
def test_the_next_job_goes_on_where_the_killed_one_was(outcome: Outcome) -> None:
    live = outcome.live
    assert live.notes["half"] > 1 << 20
    assert live.notes["again"] == ("COMPLETED", "0:0")
    assert snapshot(live.folder / "cache" / "hub" / MODEL) == wanted(live)


@on(TWO)
def test_two_jobs_share_one_cache(outcome: Outcome) -> None:
    check(outcome)
    live = outcome.live
    assert live.notes["second"] == ("COMPLETED", "0:0")
    assert snapshot(live.folder / "cache" / "hub" / MODEL) == wanted(live)


def offline(spoil: Callable[[Path], object] | None = None, mounted: bool = True) -> Callable[[Live], None]:
    """A bundle that may not use the network, and a cache that an earlier job has filled, then spoilt."""
    def prepare(live: Live) -> None:
        model = hub(live)
        snapshots = live.folder / "cache" / "hub" / MODEL / "snapshots"
        snapshots.mkdir(parents=True)
        shutil.copytree(model, snapshots / "abc", ignore=shutil.ignore_patterns(".*"))
        (snapshots.parent / "refs").mkdir()
        (snapshots.parent / "blobs").mkdir()
        (snapshots.parent / "refs" / "main").write_text("abc")
        if spoil:
            spoil(snapshots / "abc")
        text = "default_mounts:\n  {folder}/cache: /hf_hub_cache\n" if mounted else ""
        more = (NO_HOME, f"environment.HF_HOME={live.folder}/cache") if live.scenario.profile == "none" else ()
        generate(live.scenario.recipe, profile(live, text), (*SMALL, "model.offline=true", *more), live.bundle, True)

    return prepare


def drop(name: str) -> Callable[[Path], object]:
    return lambda snapshot: (snapshot / name).unlink()


def cut_short(snapshot: Path) -> None:
    (snapshot / BIG).unlink()
    (snapshot / BIG).symlink_to("../../blobs/b2")
    (snapshot.parents[1] / "blobs" / "b2.incomplete").write_text("x")


def lost(name: str, reason: str, how: Callable[[Live], None], site: str = "pyxis") -> Scenario:
    return Scenario(f"offline-{name}", 10, f"preflight: model on {{node}}: offline, and {reason}", "preflight", "preflight",
                    profile=site, own_bundle=True, prepare=how)


OFFLINE = [
    Scenario("offline-pyxis", profile="pyxis", own_bundle=True, prepare=offline()),
    lost("no-mount", "the recipe's Hugging Face cache lies in no mount", offline(mounted=False)),
    lost("no-model", "Qwen/Qwen3-0.6B is not in /", offline(lambda snapshot: shutil.rmtree(snapshot.parents[1]))),
    lost("no-revision", "/", offline(lambda snapshot: (snapshot.parents[1] / "refs" / "main").unlink())),
    lost("half", "1 of 3 files of /", offline(cut_short)),
    lost("no-tokenizer", "/", offline(drop("tokenizer.json")), "none"),
]


@on(*OFFLINE)
def test_offline(outcome: Outcome) -> None:
    check(outcome)


@on(OFFLINE[3], OFFLINE[4], OFFLINE[5])
def test_offline_says_what_is_missing(outcome: Outcome) -> None:
    ends = {"offline-no-revision": "/refs/main: No such file or directory", "offline-no-tokenizer": "holds no tokenizer (",
            "offline-half": f"are missing or empty: {BIG}; 1 downloads were cut short (blobs/*.incomplete)"}
    assert ends[outcome.live.scenario.name] in outcome.result["reason"]
