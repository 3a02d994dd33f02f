"""What is special to a container runtime: options, mounts, containers that start late or not at all; and a full disk."""

from __future__ import annotations

import json
import os

import pytest
from jobs_rig import PAIR, Live, Outcome, Scenario, calls, engine
from jobs_runner import check, on
from slurm_cluster import write_image
from test_jobs_green import GREEN

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("jobs")]

IMAGE = "rocm/atom-dev:nightly_202607231538"


def row(name: str) -> Scenario:
    return next(scenario for scenario in GREEN if scenario.name == name)


def pyxis_rows(outcome: Outcome) -> list[dict[str, object]]:
    """What the plugin recorded of the job's steps that have a container."""
    lines = (outcome.live.cluster.dir / "log" / "fakepyxis.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["container"] and str(line["job"]) == outcome.live.job]


@on(row("green-1p1d-pyxis"))
def test_options_of_pyxis(outcome: Outcome) -> None:
    rows = pyxis_rows(outcome)
    assert len(rows) == 4
    bundle, results = outcome.live.bundle, outcome.live.results
    for line in rows:
        assert line["options"] == {
            "container-image": IMAGE, "no-container-mount-home": True, "no-container-entrypoint": True,
            "container-writable": True,
            "container-mounts": f"{bundle}:/srtgen:ro,{results}:/srtgen-results,{results}/logs:/logs"}
        assert line["tasks"] == 1
    hosts = sorted(str(line["node"]) for line in rows)
    assert hosts == sorted([outcome.live.nodes[0]] * 3 + [outcome.live.nodes[1]])


@on(row("green-shared-node-docker"))
def test_options_of_docker(outcome: Outcome) -> None:
    """The stand-in refuses what docker would; here is what it must have been given."""
    runs = calls(outcome.live, "run")
    assert len(runs) == 4
    bundle, results = outcome.live.bundle, outcome.live.results
    for argv in runs:
        given = set(zip(argv, argv[1:]))
        assert {("--network", "host"), ("--ipc", "host"), ("--ulimit", "memlock=-1:-1"), ("--entrypoint", ""),
                ("--volume", f"{bundle}:/srtgen:ro"), ("--volume", f"{results}:/srtgen-results"),
                ("--volume", f"{results}/logs:/logs"), ("--label", f"srtgen.job={outcome.live.job}"),
                ("--user", f"{os.getuid()}:{os.getgid()}")} <= given
        assert "--init" in argv and "--shm-size=16g" in argv and IMAGE in argv
        # Names only: values, secrets above all, never stand on a command line.
        assert not any("=" in value for name, value in given if name == "--env" and not value.startswith("TMPDIR="))


@on(row("green-1p1d-podman"))
def test_options_of_podman(outcome: Outcome) -> None:
    bundle, results = outcome.live.bundle, outcome.live.results
    for argv in calls(outcome.live, "run"):
        given = set(zip(argv, argv[1:]))
        assert {("--network", "host"), ("--ipc", "host"), ("--ulimit", "host"), ("--entrypoint", ""), ("--cgroups", "disabled"),
                ("--volume", f"{bundle}:/srtgen:ro"), ("--volume", f"{results}:/srtgen-results"),
                ("--label", f"srtgen.job={outcome.live.job}"), ("--pull", "never")} <= given
        assert "--init" in argv and "--shm-size=16g" in argv and f"docker.io/{IMAGE}" in argv


@on(row("green-1p1d-apptainer"))
def test_options_of_apptainer(outcome: Outcome) -> None:
    runs = calls(outcome.live, "exec")
    assert len(runs) == 4  # the image is no file yet: nothing to try before
    bundle, results = outcome.live.bundle, outcome.live.results
    for argv in runs:
        given = set(zip(argv, argv[1:]))
        assert {("--mount", f'type=bind,"source={source}","destination={target}') for source, target in (
            (bundle, '/srtgen",ro'), (results, '/srtgen-results"'), (f"{results}/logs", '/logs"'))} <= given
        assert {"--contain", "--cleanenv", "--no-eval", "--no-home", "--pid", "--writable-tmpfs", f"docker://{IMAGE}"} <= set(argv)
        assert not any(outcome.live.cluster.address(node) in word for node in outcome.live.nodes for word in argv)


def sif_file(live: Live) -> None:
    """What the recipe names, on the disk of every node (they share it)."""
    write_image(SIF, "sif")


def cancel_in_bench(live: Live) -> None:
    live.phase("bench")
    live.scancel()


def beside_leftovers(live: Live) -> None:
    """A container of ours whose job is over, and one of another user."""
    for name, uid in (("left", os.getuid()), ("stranger", os.getuid() + 1)):
        live.cluster.node(*engine(live), "run", "--detach", "--name", name, "--label", "srtgen.job=1", "--label", f"srtgen.uid={uid}",
                          "docker.io/some/image", "sleep", "600")


def look_and_tidy(live: Live) -> None:
    live.phase("bench")
    live.notes["names"] = live.cluster.node(*engine(live), "ps", "--all", "--format", "{{.Names}}").split()
    live.cluster.node(*engine(live), "rm", "--force", "stranger")


SIF = "/tmp/standin-atom.sif"
LEFTOVERS = [Scenario(f"leftovers-{name}", profile=name, prepare=beside_leftovers, act=look_and_tidy) for name in ("docker", "podman")]
STARTS = [
    Scenario("missing-podman-image", 10, "is not here and podman pull failed", "preflight", profile="podman",
             env={"CONTAINERS_STANDIN_IMAGES": "some/other:image"}),
    Scenario("podman-broken", 10, "preflight: tools on {node}: podman ps fails: Error: creating lock", "preflight", profile="podman",
             env={"CONTAINERS_STANDIN_DOWN": "1"}),
    Scenario("missing-sif", 10, "preflight: image on {node}: image file /nowhere/atom.sif is missing", "preflight",
             profile="apptainer", sets=("model.container=/nowhere/atom.sif",)),
    Scenario("no-podman-container-starts", 10, "preflight: containers on {node}: no container starts: podman: Error", "preflight",
             profile="podman", env={"CONTAINERS_STANDIN_FAIL": "*-probe"}),
    Scenario("no-apptainer-container-starts", 10, "preflight: containers on {node}: no container starts: FATAL: container creation",
             "preflight", profile="apptainer", sets=(f"model.container={SIF}",), env={"APPTAINER_STANDIN_FAIL": "probe"},
             prepare=sif_file),
    Scenario("apptainer-file", profile="apptainer", sets=(f"model.container={SIF}",), prepare=sif_file),
    Scenario("container-fails-podman", 11, "decode_0 on {node} ended with exit code 125", "load", "decode_0", profile="podman",
             env={"CONTAINERS_STANDIN_FAIL": "*-decode_0"}),
    Scenario("container-fails-apptainer", 11, "decode_0 on {node} ended with exit code 255", "load", "decode_0",
             profile="apptainer", env={"APPTAINER_STANDIN_FAIL": "decode_0"}),
    Scenario("cancel-apptainer", 143, "cancelled in phase bench", "bench", state="CANCELLED", profile="apptainer",
             fault="bench:hang", act=cancel_in_bench, waits=True),
    Scenario("apptainer-ignores-term", 143, "cancelled in phase bench", "bench", state="CANCELLED", profile="apptainer",
             fault="*_0:ignore_term;bench:hang,ignore_term", act=cancel_in_bench, waits=True),
    Scenario("container-fails-pyxis", 11, "on {node1} ended with exit code", "load", recipe=PAIR, nodes=2, profile="pyxis",
             sets=("roles.decode.container=rocm/other:broken",), env={"FAKEPYXIS_FAIL": "*broken*"}),
    Scenario("container-fails-docker", 11, "decode_0 on {node} ended with exit code 125", "load", "decode_0", profile="docker",
             env={"DOCKER_STANDIN_FAIL": "*-decode_0"}),
    Scenario("client-container-fails", 20, "benchmark client on {node}: ended with exit code 125 before its turn", "load", "bench",
             profile="docker", env={"DOCKER_STANDIN_FAIL": "*-bench"}, fault="*_0:load_s=5"),
    Scenario("router-container-fails", 13, "atomesh_0 on {node} ended with exit code 125", "load", "atomesh_0",
             profile="docker", env={"DOCKER_STANDIN_FAIL": "*-atomesh_0"}, fault="*_0:load_s=5"),
    Scenario("slow-containers-pyxis", profile="pyxis", env={"FAKEPYXIS_DELAY": "5"}, waits=True),
    Scenario("slow-containers-docker", profile="docker", env={"DOCKER_STANDIN_DELAY": "5"}, waits=True),
]


@on(*STARTS)
def test_container_starts(outcome: Outcome) -> None:
    check(outcome)


@on(*LEFTOVERS)
def test_leftovers(outcome: Outcome) -> None:
    """Our own of a job that is over go before the job starts, whatever belongs to others stays."""
    check(outcome)
    names = outcome.live.notes["names"]
    assert "stranger" in names and "left" not in names
    assert "removed containers of ended jobs: " in outcome.output


@on(*STARTS[-2:])
def test_slow_containers_are_paid_for_once(outcome: Outcome) -> None:
    """Router and client are unpacked beside the workers: nothing of 5 s waits behind the load."""
    rows = {entry["name"]: entry["start_s"] for entry in outcome.result["phases"]}
    assert rows["bench"] - rows["router"] < 5 * 3
    assert outcome.lasted("load") > 5


def small_disk(live: Live) -> None:
    live.small_results("6m")


def fill(live: Live) -> None:
    live.phase("bench")
    path = str(live.folder / "results" / "ballast")
    live.cluster.node("exec", live.nodes[0], "sh", "-c", f"cat /dev/zero >{path!r} 2>/dev/null || true")
    live.notes["full"] = True


FULL = [
    Scenario("disk-full-benchmarking", 20, prepare=small_disk, act=fill, env={"SRTGEN_SKIP_CHECKS": "disk"},
             fault="decode_0:tpot_s=0.15", seconds=90),
]


@on(*FULL)
def test_the_disk_fills_up_under_the_results(outcome: Outcome) -> None:
    """result.json cannot be written any more: the job's output and its code still say what happened."""
    assert outcome.live.notes["full"]
    assert outcome.state == "FAILED", outcome.output
    assert outcome.exit_code in (11, 20, 21)
    assert f"verdict: failed ({outcome.exit_code})" in outcome.output
    assert "No space left on device" in outcome.output or "cannot write" in outcome.output
    assert outcome.result["verdict"] in ("running", "failed")  # whole, if old
    assert (outcome.left, outcome.files) == ({}, [])
