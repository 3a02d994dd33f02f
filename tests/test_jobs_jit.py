"""Compiled kernels kept between jobs: two jobs after each other, under every runtime; and a store that is no use."""

from __future__ import annotations

import os
import re

import pytest
from jobs_rig import PAIR, PROFILES, SMALL, Live, Outcome, Scenario, generate, submit
from jobs_runner import check, on

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("jit")]

KERNELS = {"STANDIN_COMPILE": "5"}


def with_store(live: Live) -> None:
    """The scenario's profile with a store of its own."""
    store = live.folder / "store"
    store.mkdir()
    profile = live.folder / "site.yaml"
    text = (PROFILES / f"{live.scenario.profile}.yaml").read_text()
    profile.write_text(f"{text}jit_cache:\n  dir: {store}\n")
    live.bundle = generate(live.scenario.recipe, str(profile), SMALL, live.folder / "bundle")
    live.script = live.bundle / "run.sbatch"


def twice(live: Live) -> str:
    """Two jobs; the first one's words are kept."""
    first = live.job = submit(live)
    assert live.cluster.wait(first, 150)[0] == "COMPLETED", live.output()
    live.notes["first"] = live.output()
    live.notes["kernels"] = [live.log(step) for step in ("prefill_0", "decode_0")]
    return submit(live)


def after_a_failure(live: Live) -> str:
    """A job that fails stores nothing."""
    first = live.job = submit(live)
    live.phase("bench")
    live.scancel()
    live.cluster.wait(first, 150)
    live.notes["first"] = live.output()
    live.env["STANDIN_FAULT"] = ""
    return submit(live)


def of_nobody(live: Live) -> None:
    with_store(live)
    (live.folder / "store").rmdir()


KEPT = [Scenario(f"kept-{profile}", profile=profile, prepare=with_store, submit=twice, env=KERNELS, nodes=nodes, recipe=recipe,
                 fault="decode_0:tpot_s=0.1")  # what was written a moment ago is not stored
        for profile, recipe, nodes in (("none", "qwen3-0.6b-1p1d-shared-node", 1), ("pyxis", PAIR, 2),
                                       ("docker", "qwen3-0.6b-1p1d-shared-node", 1))]
OTHERS = [
    Scenario("not-of-a-cancelled-job", prepare=with_store, submit=after_a_failure, env=KERNELS, fault="decode_0:tpot_s=0.5"),
    Scenario("unknown-gpus", prepare=with_store, env={**KERNELS, "STANDIN_ROCM_SMI": "fail",
                                                     "SRTGEN_SKIP_CHECKS": "gpu_count gpu_memory"}),
]
MISSING = Scenario("missing", 10, "mounts on {node}: cannot write into", "preflight", prepare=of_nobody)


@on(*KEPT)
def test_the_second_job_finds_what_the_first_compiled(outcome: Outcome) -> None:
    check(outcome)
    live = outcome.live
    assert all("compiled 6, found 0" in log for log in live.notes["kernels"])
    for step in ("prefill_0", "decode_0"):
        assert re.search(rf"jit cache: {step} loaded 0 files .* from {live.folder}|jit cache: {step} loaded 0 files .* from /srtgen-jit/",
                         live.notes["first"])
        assert f"jit cache: {step} stored " in live.notes["first"]
        assert re.search(rf"jit cache: {step} loaded [1-9][0-9]* files", outcome.output)
        assert re.search(rf"jit cache: {step} stored ", outcome.output)
    # What both compiled is stored by the first that comes, so the other may store nothing.
    assert re.search(r"jit cache: \w+ stored [1-9][0-9]* files", live.notes["first"]), live.notes["first"]
    # Without containers the folders' paths hold the job's number, and what names its parts by path is not found.
    found = 1 if live.scenario.profile == "none" else 6
    for step in ("prefill_0", "decode_0"):
        assert f"compiled {6 - found}, found {found}" in outcome.log(step)
    stored = [path for path in (live.folder / "store").rglob("*") if path.is_file()]
    assert stored and not [path for path in stored if path.parent.name == "new"]
    assert {path.stat().st_uid for path in stored} == {os.getuid()}


@on(OTHERS[0])
def test_a_job_that_did_not_pass_stores_nothing(outcome: Outcome) -> None:
    check(outcome)
    assert "stored" not in outcome.live.notes["first"]
    assert "compiled 6, found 0" in outcome.log("decode_0")


@on(OTHERS[1])
def test_a_store_that_is_no_use_is_a_warning(outcome: Outcome) -> None:
    check(outcome)
    assert "compiled 6, found 0" in outcome.log("decode_0")
    said = "decode_0 compiled everything anew: the type of the GPUs is not known here"
    assert any(said in text for text in outcome.result["warnings"]), outcome.result["warnings"]


@on(MISSING)
def test_a_missing_store_is_known_before_the_load(outcome: Outcome) -> None:
    check(outcome)
