"""What is wrong before anything loads: exit code 10 within seconds, the check and the node named."""

from __future__ import annotations

import json
import time

import pytest
from jobs_rig import PAIR, SHARED, SMALL, Live, Outcome, Scenario, generate
from jobs_runner import check, on

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("jobs")]

HTTP = 6100


def busy_port(live: Live) -> None:
    live.occupy(live.nodes[-1], HTTP)


def full_disk(live: Live) -> None:
    live.small_results("4m")


def hide_bundle(live: Live) -> None:
    """The second node does not mount the shared file system that the bundle is on."""
    live.mount_tmpfs(live.nodes[1], live.bundle)


def read_only_results(live: Live) -> None:
    live.results_root = live.folder / "results"
    live.results_root.mkdir()
    live.env["SRTGEN_RESULTS_DIR"] = str(live.results_root)
    node = live.nodes[1]
    live.cluster.node("exec", node, "mount", "--bind", str(live.results_root), str(live.results_root))
    live.undo.append(lambda: live.cluster.node("exec", node, "umount", "-l", str(live.results_root)))
    live.cluster.node("exec", node, "mount", "-o", "remount,bind,ro", str(live.results_root))


def edit_bundle(live: Live) -> None:
    """As people do: by hand, in the generated script, after the generation."""
    path = live.bundle / "roles" / "decode.sh"
    path.write_text(path.read_text() + "\n# tuned by hand\n")


def regenerate_while_queued(live: Live) -> None:
    generate(SHARED, "none", (*SMALL, "benchmark.osl=16"), live.bundle)
    live.cluster.run(["scontrol", "release", live.job])


def crash_while_regenerating(live: Live) -> None:
    (live.bundle / "manifest.json").rename(live.bundle / ".srtgen-writing")
    live.cluster.run(["scontrol", "release", live.job])


def model_folder(live: Live) -> None:
    """Weights by an index, one file of which is not there."""
    folder = live.folder / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model-00001.safetensors").write_text("x")
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"weight_map": {"a": "model-00001.safetensors", "b": "model-00002.safetensors"}}))
    generate(SHARED, "none", (*SMALL, f"model.path={folder}"), live.bundle, force=True)


def snapshot_folder(live: Live) -> None:
    """As a hub cache keeps it: links into a sibling folder, which containers would not see."""
    blobs, folder = live.folder / "hub" / "blobs", live.folder / "hub" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    folder.mkdir(parents=True)
    for name, text in (("config.json", "{}"), ("model.safetensors", "x")):
        (blobs / name).write_text(text)
        (folder / name).symlink_to(f"../../blobs/{name}")
    generate(SHARED, "pyxis", (*SMALL, f"model.path={folder}"), live.bundle, force=True)


def fill_gpus(live: Live) -> None:
    (live.folder / "gpu").write_text("50")


def drain_gpus(live: Live) -> None:
    """An earlier job gives its memory back."""
    live.phase("preflight")
    time.sleep(4)
    (live.folder / "gpu").write_text("1")


REFUSED = [
    Scenario("missing-model", 10, "preflight: model on {node}: model folder /nowhere/model is missing",
             sets=("model.path=/nowhere/model",)),
    Scenario("incomplete-model", 10, "preflight: model on {node}: 1 of 3 files of ", own_bundle=True, prepare=model_folder),
    Scenario("dangling-model", 10, "preflight: model on {node}: links of ", profile="pyxis", own_bundle=True,
             prepare=snapshot_folder),
    Scenario("missing-image-file", 10, "preflight: image on {node}: image file /nowhere/atom.sqsh is missing",
             profile="pyxis", sets=("model.container=/nowhere/atom.sqsh",)),
    Scenario("missing-docker-image", 10, "is not here and docker pull failed", profile="docker",
             env={"DOCKER_STANDIN_IMAGES": "some/other:image"}),
    Scenario("docker-daemon-down", 10, "preflight: tools on {node}: docker ps fails", profile="docker",
             env={"DOCKER_STANDIN_DOWN": "1"}),
    Scenario("busy-port", 10, "preflight: ports on {node1}: port 6100 of decode_0 is in use by pid ", recipe=PAIR, nodes=2,
             prepare=busy_port),
    Scenario("busy-gpu", 10, "preflight: gpu_memory on {node}: GPU memory is in use, also after 2 s: GPU 3: 40.0 GiB",
             env={"STANDIN_GPU_USED_GIB": "0.3,0.3,0.3,40"}),
    Scenario("unknown-gpu-memory", 10, "on {node}: ", env={"STANDIN_ROCM_SMI": "fail"}),
    Scenario("too-few-gpus", 10, "preflight: gpu_count on {node}: 4 GPUs here, the plan needs 8", env={"STANDIN_GPUS": "4"}),
    Scenario("one-cpu", 10, "preflight: cpus on {node}: 1 of the node's 16 CPUs", profile="one-cpu"),
    Scenario("full-disk", 10, "preflight: disk on {node}: ", prepare=full_disk),
    Scenario("read-only-results", 10, "preflight: mounts on {node1}: cannot write into ", recipe=PAIR, nodes=2,
             prepare=read_only_results),
    Scenario("bundle-not-visible", 10, "preflight: bundle on {node1}: ", recipe=PAIR, nodes=2, own_bundle=True,
             prepare=hide_bundle),
    Scenario("bundle-edited-strict", 10, "preflight: bundle on {node}: edited since generation: roles/decode.sh",
             own_bundle=True, prepare=edit_bundle, env={"SRTGEN_STRICT": "1"}),
    Scenario("rdma-missing", 10, "preflight: ", sets=("-engine.mooncake_protocol",), recipe=PAIR, nodes=2),
    Scenario("site-check", 10, "preflight: site_disk on {node}: exit code 3: no scratch disk here", profile="site",
             env={"SITE_BROKEN_NODE": "{node}"}),
    Scenario("missing-require-env", 10, "CONC_LIST",
             sets=("benchmark={type: custom, command: 'true', require_env: [CONC_LIST]}",)),
]
PASSED = [
    Scenario("bundle-edited", own_bundle=True, prepare=edit_bundle),
    Scenario("skipped-check", env={"SRTGEN_SKIP_CHECKS": "gpu_memory ports", "STANDIN_GPU_USED_GIB": "100"}),
    Scenario("gpu-drains", sets=("gpu_drain_timeout_s=40",), env={"STANDIN_GPU_FILE": "{folder}/gpu"}, waits=True,
             prepare=fill_gpus, act=drain_gpus),
]
MISSPELT = Scenario("skipped-check-misspelt", 10, "SRTGEN_SKIP_CHECKS: gpu_memroy is no check; give some of these", "start",
                    env={"SRTGEN_SKIP_CHECKS": "ports gpu_memroy"})


@on(*REFUSED)
def test_refused(outcome: Outcome) -> None:
    check(outcome)
    assert outcome.result["phases"][-3]["name"] == "preflight"
    # Nothing was started: no log of any step but the checks' own.
    assert {path.name for path in (outcome.live.results / "logs").iterdir()} <= {"preflight.log"}


@on(*(row for row in REFUSED if " on {" in row.reason and "site" not in row.name))
def test_a_table_shows_every_node_and_check(outcome: Outcome) -> None:
    rows = [line.split("preflight: ", 1)[1].split() for line in outcome.output.splitlines() if "preflight: node" in line]
    head, *nodes = rows
    assert head[1:] == "bundle tools image model mounts disk ports gpu_count gpu_memory cpus limits rdma containers".split()
    assert [row[0] for row in nodes] == outcome.live.nodes
    assert any("fail" in row for row in nodes)


@on(*PASSED)
def test_passed(outcome: Outcome) -> None:
    check(outcome)


@on(MISSPELT)
def test_a_misspelt_check_is_not_skipped_silently(outcome: Outcome) -> None:
    check(outcome)
    assert outcome.result["checks_skipped"] == []


@on(PASSED[0])
def test_an_edit_is_recorded(outcome: Outcome) -> None:
    assert outcome.result["bundle_modified"] == ["roles/decode.sh"]
    assert "edited since generation: roles/decode.sh" in " ".join(outcome.result["warnings"])


@on(PASSED[1])
def test_skipped_checks_are_recorded(outcome: Outcome) -> None:
    assert outcome.result["checks_skipped"] == ["gpu_memory", "ports"]


@on(PASSED[2])
def test_busy_gpus_are_waited_for(outcome: Outcome) -> None:
    assert 1 < outcome.lasted("preflight") < 30


QUEUED = [
    Scenario("regenerated-while-queued", 10, own_bundle=True, args=("--hold",), act=regenerate_while_queued),
    Scenario("half-written-bundle", 10, own_bundle=True, args=("--hold",), act=crash_while_regenerating),
]


@on(*QUEUED)
def test_the_bundle_changed_while_the_job_was_queued(outcome: Outcome) -> None:
    """There is no results folder to write into: the job's output says it."""
    assert (outcome.state, outcome.exit_code) == ("FAILED", 10)
    words = {"regenerated-while-queued": "was regenerated since submission: submit it again",
             "half-written-bundle": "is half written (.srtgen-writing is there): generate it again"}
    assert words[outcome.live.scenario.name] in outcome.output
    assert not (outcome.live.bundle / "results").exists()
    assert (outcome.left, outcome.files) == ({}, [])
