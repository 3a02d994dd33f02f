"""Images that the job imports on its nodes before the load: once, whole, and by whom."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs_rig import PAIR, Live, Outcome, Scenario, calls, submit
from jobs_runner import check, on

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("jobs")]

OTHER = "roles.decode.container=rocm/other:1"
FILE = "rocm_atom-dev_nightly_202607231538-"


def own_folder(*more: Callable[[Live], None]) -> Callable[[Live], None]:
    """The scenario's own folder for images instead of the profile's, then what else is to be prepared."""
    def edit(live: Live) -> None:
        folder = live.folder / "images"
        path = live.bundle / "run.sbatch"
        path.write_text(re.sub(r"/tmp/standin-images/\w+", str(folder), path.read_text()))
        live.notes["images"] = folder
        live.env["ENROOT_STANDIN_STATE"] = str(live.folder / "enroot")
        for step in more:
            step(live)

    return edit


def image_of(live: Live) -> Path:
    """Where the scenario's run.sbatch has the image of its workers."""
    match = re.search(rf"({re.escape(str(live.notes['images']))}/{FILE}\w+\.\w+)", (live.bundle / "run.sbatch").read_text())
    assert match
    return Path(match[1])


def imports(live: Live) -> list[list[str]]:
    """What the importing program was asked for, on all nodes."""
    if "apptainer" in live.scenario.profile:
        return calls(live, "build")
    path = live.folder / "enroot" / "calls.jsonl"
    return [json.loads(line)["argv"] for line in path.read_text().splitlines()] if path.exists() else []


def corrupt(live: Live) -> None:
    """An image that lost its second half, as after a crash of the node."""
    path = image_of(live)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"hsqs" + b"\1" * 200)


def small_disk(live: Live) -> None:
    """Less room than the image has bytes, and a check beforehand that lets it pass."""
    live.notes["images"].mkdir()
    live.mount_tmpfs(live.nodes[0], live.notes["images"])
    path = live.bundle / "lib" / "stage_image.py"
    path.write_text(path.read_text().replace("LEAST_BYTES = 4 << 30", "LEAST_BYTES = 0"))


def tiny_disk(live: Live) -> None:
    live.notes["images"].mkdir()
    live.mount_tmpfs(live.nodes[0], live.notes["images"])


def kill_and_submit_again(live: Live) -> str:
    """A job whose import is killed in the middle, then the job that counts."""
    hanging = {**live.env, "ENROOT_STANDIN_HANG": "1"}
    first = live.cluster.sbatch(live.script, env=hanging, cwd=live.cwd, args=live.args)
    folder: Path = live.notes["images"]
    end = time.monotonic() + 40
    while not list(folder.glob(".*.srtgen-part/image")):
        assert time.monotonic() < end
        time.sleep(0.2)
    live.cluster.run(["scancel", first])
    live.cluster.wait(first, 60)
    live.notes["left"] = [path.name for path in folder.glob(".*.srtgen-part/*")]
    return submit(live)


def submit_two(live: Live) -> str:
    """Another job of the same bundle at the same time, on a node of its own, which has the same disk."""
    live.args = [f"--nodelist={live.nodes[1]}"]
    live.notes["second"] = submit(live)
    live.args = [f"--nodelist={live.nodes[0]}"]
    return submit(live)


def wait_for_the_other(live: Live) -> None:
    live.notes["state"] = live.cluster.wait(live.notes["second"], 120)[0]


def staged(name: str, code: int = 0, reason: str = "", *steps: Callable[[Live], None], profile: str = "pyxis-staged", **more: object) -> Scenario:
    phase, step = ("preflight", "stage_image") if code else ("", "")
    return Scenario(name, code, reason, phase, step, profile=profile, own_bundle=True, prepare=own_folder(*steps),
                    **more)  # type: ignore[arg-type]


GOOD = [
    staged("image-pyxis", recipe=PAIR, nodes=2, sets=(OTHER,)), staged("image-apptainer", profile="apptainer-staged"),
    staged("image-corrupt", 0, "", corrupt), staged("image-import-killed", submit=kill_and_submit_again, waits=True),
    staged("image-two-jobs", env={"ENROOT_STANDIN_IMPORT_S": "6"}, submit=submit_two, act=wait_for_the_other, waits=True,
           nodes=2),
]
BAD = [
    staged("image-unknown", 10, "stage_image on {node}: cannot import docker://rocm/atom-dev:nightly_202607231538 into ",
           env={"ENROOT_STANDIN_IMAGES": "other"}),
    staged("image-no-room", 10, "stage_image on {node}: ", tiny_disk),
    staged("image-disk-full", 10, "No space left on device", small_disk, env={"ENROOT_STANDIN_SIZE": str(8 << 20)}),
]


@on(*GOOD, *BAD)
def test_images(outcome: Outcome) -> None:
    check(outcome)
    folder: Path = outcome.live.notes["images"]
    assert not list(folder.glob(".*.srtgen-part")), "what an import leaves while it runs"


@on(GOOD[0])
def test_each_image_is_imported_once_where_it_is_used(outcome: Outcome) -> None:
    """Nodes of the tests share one disk: prefill's image is the router's and the client's too, on the first node."""
    live = outcome.live
    asked = [(argv[0], argv[3]) for argv in imports(live)]
    assert sorted(asked) == [("import", "docker://rocm/atom-dev:nightly_202607231538"), ("import", "docker://rocm/other:1")]
    steps = re.findall(r"srtgen: task \d is on (\w+)", outcome.log("stage_image"))
    assert steps == live.nodes
    rows = [json.loads(line) for line in (live.cluster.dir / "log" / "fakepyxis.jsonl").read_text().splitlines()]
    used = {row["options"]["container-image"] for row in rows if row["container"] and str(row["job"]) == live.job}
    assert used == {str(path) for path in live.notes["images"].glob("*.sqsh")} and len(used) == 2


@on(GOOD[1])
def test_apptainer_runs_what_it_built(outcome: Outcome) -> None:
    live = outcome.live
    assert len(imports(live)) == 1
    runs = calls(live, "exec")
    assert len(runs) == 4 and all(str(image_of(live)) in argv for argv in runs)


@on(GOOD[2])
def test_a_damaged_file_is_imported_again(outcome: Outcome) -> None:
    assert "importing again: " in outcome.log("stage_image")
    assert len(imports(outcome.live)) == 1


@on(GOOD[3])
def test_an_import_that_was_killed_is_started_over(outcome: Outcome) -> None:
    assert "image" in outcome.live.notes["left"]
    assert "removing what an import that was cut short has left" in outcome.log("stage_image")


@on(GOOD[4])
def test_two_jobs_at_once_import_once(outcome: Outcome) -> None:
    live = outcome.live
    assert len(imports(live)) == 1
    logs = [(live.bundle / "results" / job / "logs" / "stage_image.log").read_text() for job in (live.job, live.notes["second"])]
    assert sum("waiting for another job that imports docker://" in text for text in logs) == 1
    assert sum(" is there: " in text for text in logs) == 1


@on(BAD[2])
def test_a_full_disk_is_named_with_its_room(outcome: Outcome) -> None:
    assert re.search(r"/images \([0-9.]+ \w+ free\) \[ERROR\] mksquashfs: No space left on device", outcome.result["reason"])
