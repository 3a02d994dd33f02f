"""How people submit: from anywhere, with whatever environment, twice, again after a restart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from jobs_rig import PAIR, SHARED, SMALL, Live, Outcome, Scenario, generate, submit
from jobs_runner import check, on

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("jobs")]

FOREIGN = {"SLURM_NTASKS": "6", "SLURM_NNODES": "3", "SLURM_CPUS_PER_TASK": "1", "SLURM_CPU_BIND": "mask_cpu:0x1",
           "SLURM_MEM_PER_NODE": "1", "SLURM_DISTRIBUTION": "cyclic", "SLURM_HINT": "nomultithread"}
EVIL = {"LD_LIBRARY_PATH": "/evil", "ROCR_VISIBLE_DEVICES": "3", "HIP_VISIBLE_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "3",
        "GPU_DEVICE_ORDINAL": "3", "USE_ATOMESH_ENTRYPOINTS": "1", "HF_HOME": "/home/user1/x",
        "http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}


def move(live: Live, name: str) -> None:
    """The bundle lies in another folder of its own."""
    target = live.folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(str(live.bundle), target)
    live.bundle = target
    live.script = target / "run.sbatch"


def with_blanks(live: Live) -> None:
    move(live, "my results, 2026/the bundle")


def behind_link(live: Live) -> None:
    link = live.folder / "latest"
    link.symlink_to(live.bundle)
    live.script = link / "run.sbatch"


def relative(live: Live) -> None:
    live.cwd = live.folder / "elsewhere" / "deep"
    live.cwd.mkdir(parents=True)
    live.script = os.path.relpath(live.bundle / "run.sbatch", live.cwd)


def in_bundle(live: Live) -> None:
    live.cwd = live.bundle
    live.script = "run.sbatch"


def told_where(live: Live) -> None:
    """A copy of run.sbatch alone, and the variable that says where the rest is."""
    copy = live.folder / "copy.sbatch"
    shutil.copy(live.bundle / "run.sbatch", copy)
    live.script = copy
    live.env["SRTGEN_BUNDLE_DIR"] = str(live.bundle)


def elsewhere(live: Live) -> None:
    live.results_root = live.folder / "my results"
    live.env["SRTGEN_RESULTS_DIR"] = str(live.results_root)


def by_submit_sh(live: Live) -> str:
    """submit.sh from another folder; its options go to sbatch, its warnings to the user."""
    done = live.cluster.run([live.bundle / "submit.sh", "--parsable", *live.args], env=live.env, cwd=live.folder)
    live.notes["said"] = done.stderr
    live.cwd = live.bundle
    return done.stdout.strip()


def by_stdin(live: Live) -> str:
    text = (live.bundle / "run.sbatch").read_text()
    done = live.cluster.run(["sbatch", "--parsable", *live.args], env=live.env, cwd=live.cwd, input=text)
    return done.stdout.strip()


def from_a_batch_job(live: Live) -> str:
    """sbatch called by a running batch job, whose SLURM_* settings it hands on. That job is on the other node."""
    wrapper = live.folder / "outer.sh"
    answer = live.folder / "inner"
    wrapper.write_text("#!/bin/bash\n#SBATCH --ntasks=3 --cpus-per-task=2 --mem=1000 --distribution=cyclic\n"
                       f"cd {live.folder} && sbatch --parsable --nodelist={live.nodes[0]} {live.script} >{answer}.new\n"
                       f"mv {answer}.new {answer}\nsleep 2\n")
    outer = live.cluster.sbatch(wrapper, env=live.env, cwd=live.folder, args=[f"--nodelist={live.nodes[1]}", "--output=/dev/null"])
    live.undo.append(lambda: live.cluster.run(["scancel", outer]))
    end = time.monotonic() + 30
    while not answer.exists():
        assert time.monotonic() < end
        time.sleep(0.1)
    return answer.read_text().strip()


def export_none(live: Live) -> None:
    """Nothing of the submit environment arrives: where the stand-ins are must come from the profile's preamble."""
    lines = [f"export {name}={value!r}" for name, value in live.env.items() if name in ("PATH", "PYTHONPATH") or
             name.startswith("STANDIN_")]
    profile = live.folder / "site.yaml"
    text = (Path(__file__).parent / "profiles" / "none.yaml").read_text()
    profile.write_text(text + "default_bash_preamble: |\n" + "".join(f"  {line}\n" for line in lines))
    generate(SHARED, str(profile), SMALL, live.bundle, force=True)


SUBMITTED = [
    Scenario("blanks-in-the-path", own_bundle=True, prepare=with_blanks),
    *(Scenario(f"blanks-in-the-path-{name}", own_bundle=True, prepare=with_blanks, profile=name)
      for name in ("docker", "podman", "apptainer")),
    Scenario("symlinked-bundle", own_bundle=True, prepare=behind_link),
    Scenario("relative-path", own_bundle=True, prepare=relative),
    Scenario("in-the-bundle", own_bundle=True, prepare=in_bundle),
    Scenario("bundle-dir-variable", own_bundle=True, prepare=told_where),
    Scenario("submit-sh", own_bundle=True, submit=by_submit_sh, env={"SBATCH_COMMENT": "from the caller"}),
    Scenario("export-none", args=("--export=NONE",), own_bundle=True, prepare=export_none),
    Scenario("slurm-export-env", env={"SLURM_EXPORT_ENV": "NONE"}),
    Scenario("slurm-variables-of-the-caller", env=FOREIGN),
    Scenario("from-a-batch-job", nodes=2, submit=from_a_batch_job),
    Scenario("login-shell-none", env=EVIL),
    Scenario("login-shell-pyxis", env=EVIL, profile="pyxis"),
    Scenario("commas-in-values", profile="pyxis",
             sets=("environment.SITE_LIST='nic0,nic1;{\"j\": [1, 2]}'", "environment.SITE_LINES=\"one\\ntwo, three\"")),
    Scenario("results-dir", prepare=elsewhere),
    Scenario("gpus-per-node-directive", profile="none", args=("--gpus-per-node=8",)),
]


WARNED = [
    Scenario("sbatch-variables", env={"SBATCH_TIMELIMIT": "7", "SBATCH_COMMENT": "x"}),
]
NOT_A_JOB = [
    Scenario("sbatch-from-stdin", 10, submit=by_stdin),
]
TOO_FEW = [
    Scenario("sbatch-one-node", 10, "nodes: the job has 1 nodes, the plan needs 2", recipe=PAIR, args=("-N1",)),
]


@on(*SUBMITTED)
def test_submitted(outcome: Outcome) -> None:
    check(outcome)
    assert outcome.result["bench"] == {"points": 1, "valid": 1}


@on(*TOO_FEW)
def test_too_few_nodes(outcome: Outcome) -> None:
    check(outcome)


@on(*WARNED)
def test_variables_that_override_directives_are_named(outcome: Outcome) -> None:
    check(outcome)
    assert any("SBATCH_TIMELIMIT=7 was set at submission" in text for text in outcome.result["warnings"])


@on(*NOT_A_JOB)
def test_text_on_stdin_has_no_bundle(outcome: Outcome) -> None:
    assert (outcome.state, outcome.exit_code) == ("FAILED", 10)
    assert 'no "sbatch < run.sbatch"' in outcome.output
    assert (outcome.left, outcome.files) == ({}, [])


@on(*(row for row in SUBMITTED if row.name == "submit-sh"))
def test_submit_sh_warns_of_variables(outcome: Outcome) -> None:
    assert "warning: SBATCH_COMMENT=from the caller in the environment overrides run.sbatch" in outcome.live.notes["said"]


def test_outside_of_slurm(tmp_path: Path) -> None:
    """bash run.sbatch, by mistake: one clear line, and nothing is written."""
    bundle = generate(SHARED, "none", SMALL, tmp_path / "bundle")
    before = sorted(bundle.rglob("*"))
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    done = subprocess.run(["bash", "run.sbatch"], cwd=bundle, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 10
    assert done.stderr == "run.sbatch: this is a Slurm batch script: start it with sbatch run.sbatch (or submit.sh)\n"
    assert sorted(bundle.rglob("*")) == before


# -- two jobs of one bundle, and one job twice ------------------------------


def second_job(live: Live, *args: str, **env: str) -> dict[str, object]:
    """Another job of the same bundle; waits for its end."""
    job = live.cluster.sbatch(live.script, env={**live.env, **env}, cwd=live.cwd, args=args)
    state, code = live.cluster.wait(job, 120)
    folder = live.bundle / "results" / job
    return {"state": state, "code": code, "result": json.loads((folder / "result.json").read_text()),
            "output": (live.cwd / f"slurm-{job}.out").read_text()}


def beside(live: Live) -> None:
    """Each on a node of its own; the scenario took two."""
    live.notes["second"] = second_job(live, f"--nodelist={live.nodes[1]}")


def on_first_node(live: Live) -> str:
    live.args = [f"--nodelist={live.nodes[0]}"]
    return submit(live)


def same_node(live: Live) -> None:
    live.phase("bench")
    live.notes["second"] = second_job(live, f"--nodelist={live.nodes[0]}")


def same_node_other_ports(live: Live) -> None:
    live.phase("bench")
    moved = ("ports.router=8100", "ports.router_metrics=29100", "ports.worker_http=7100", "ports.handshake=5900",
             "ports.dp_master=30500", "ports.dp_base=30700")
    live.notes["first bundle"] = live.bundle
    first, live.script = live.script, generate(SHARED, "shared", (*SMALL, *moved), live.folder / "moved") / "run.sbatch"
    job = live.cluster.sbatch(live.script, env={**live.env, "STANDIN_FAULT": ""}, cwd=live.cwd,
                              args=[f"--nodelist={live.nodes[0]}"])
    live.notes["second"] = live.cluster.wait(job, 120)
    live.notes["both"] = live.result()["phase"]
    live.script = first


LONG = "decode_0:tpot_s=0.12"
TWO = [
    Scenario("two-jobs-two-nodes", nodes=2, submit=on_first_node, act=beside, fault="decode_0:tpot_s=0.02"),
    Scenario("two-jobs-one-node", profile="shared", act=same_node, fault=LONG, seconds=90),
    Scenario("two-jobs-one-node-other-ports", profile="shared", act=same_node_other_ports, fault="decode_0:tpot_s=0.3",
             seconds=120),
]


@on(TWO[0])
def test_two_jobs_of_a_bundle_beside_each_other(outcome: Outcome) -> None:
    check(outcome)
    second = outcome.live.notes["second"]
    assert (second["state"], second["code"]) == ("COMPLETED", "0:0"), second["output"]
    assert second["result"]["bench"] == {"points": 1, "valid": 1}


@on(TWO[1])
def test_the_second_job_on_a_node_is_told_who_has_the_port(outcome: Outcome) -> None:
    check(outcome)
    second = outcome.live.notes["second"]
    assert (second["state"], second["code"]) == ("FAILED", "10:0"), second["output"]
    reason = second["result"]["reason"]
    assert f"preflight: ports on {outcome.live.nodes[0]}: port 8000 of atomesh_0 is in use by pid " in reason
    assert f"of job {outcome.live.job}" in reason


@on(TWO[2])
def test_moved_ports_let_both_run(outcome: Outcome) -> None:
    check(outcome)
    assert outcome.live.notes["second"] == ("COMPLETED", "0:0")


def requeued(live: Live) -> None:
    live.phase("load")
    live.logged("decode_0", "Loading")
    (live.results / "mark").write_text("of the first run")
    live.cluster.run(["scontrol", "requeue", live.job])
    live.until("PENDING", lambda: live.cluster.job(live.job).state == "PENDING")
    live.notes["first"] = live.result()
    live.cluster.run(["scontrol", "update", f"jobid={live.job}", "StartTime=now"])
    first = live.results
    live.cluster.wait(live.job, 120)
    live.notes["folder"] = first
    live.results_root = None


RESTARTED = [Scenario("restarted", args=("--requeue",), act=requeued, fault="decode_0:load_s=6", own_bundle=True, waits=True)]


@on(*RESTARTED)
def test_a_restart_keeps_the_first_run(outcome: Outcome) -> None:
    first = outcome.live.results
    again = first.with_name(first.name + ".r1")
    assert (outcome.state, outcome.exit_code) == ("COMPLETED", 0), outcome.output
    assert (first / "mark").read_text() == "of the first run"
    assert json.loads((first / "result.json").read_text()) == outcome.live.notes["first"]
    second = json.loads((again / "result.json").read_text())
    assert (second["attempt"], second["verdict"], second["bench"]) == (2, "passed", {"points": 1, "valid": 1})
    assert not (again / "mark").exists()
    assert "attempt 1" in outcome.output and "attempt 2" in outcome.output  # one output file, nothing of it lost
    assert (outcome.left, outcome.files) == ({}, [])


def waited_for(live: Live) -> None:
    done = live.cluster.run(["bash", live.bundle / "wait.sh", live.job], env={"SRTGEN_WAIT_POLL_S": "0.5"}, check=False,
                            timeout=120)
    live.notes["wait"] = (done.returncode, done.stdout)


WAITED = [
    Scenario("wait-sh-passed", act=waited_for),
    Scenario("wait-sh-failed", 11, "decode_0", act=waited_for, fault="decode_0:exit_loading=1"),
]


@on(*WAITED)
def test_wait_sh_ends_with_the_jobs_code(outcome: Outcome) -> None:
    check(outcome)
    code, text = outcome.live.notes["wait"]
    assert code == outcome.live.scenario.code
    assert "RUNNING" in text and outcome.state in text
