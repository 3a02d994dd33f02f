"""What went wrong for people with Slurm, containers, readiness, transfer and router: a test for each case, by number.

Most cases share a job with another module's table; the number is in the name of the test.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import test_jobs_faults as faults
import test_jobs_preflight as preflight
import test_jobs_signals as signals
import test_jobs_submit as submitting
from jobs_rig import (AGGREGATE, PAIR, PROFILES, RECIPES, ROOT, SHARED, SMALL, Live, Outcome, Scenario, calls, engine,
                      generate)
from jobs_runner import check, on
from test_jobs_green import GREEN

pytestmark = pytest.mark.slurm
jobs = pytest.mark.xdist_group("jobs")
failing = pytest.mark.xdist_group("faults")
STEPS = {"prefill_0": "openai_server", "decode_0": "openai_server", "atomesh_0": "atomesh", "bench": "benchmark_serving"}
SLOW = "decode_0:tpot_s=0.1"


def of(table: list[Scenario], *names: str) -> pytest.MarkDecorator:
    """The rows of a table by name."""
    found = [row for row in table if row.name in names]
    assert len(found) == len(names), names
    return on(*found)


def environ_of(pid: int) -> dict[str, str]:
    words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(word.partition("=")[::2] for word in words if "=" in word)


def record_environments(live: Live) -> None:
    """Notes the environment of each step's own program, by step, while the client is at work."""
    live.phase("bench")
    found: dict[str, dict[str, str]] = {}

    def complete() -> bool:
        for node in live.nodes:
            for pid, line in live.cluster.processes(node).items():
                step = next((name for name, text in STEPS.items() if text in line and "srun" not in line), "")
                env = environ_of(pid) if step and Path(f"/proc/{pid}").exists() else {}
                if env.get("SRTGEN_STEP") in STEPS and STEPS[env["SRTGEN_STEP"]] in line and "bash" not in line.split()[0]:
                    found[env["SRTGEN_STEP"]] = env
        return set(found) == set(STEPS)

    live.until("a process of each step", complete)
    live.notes["env"] = found


LIST, LINES = 'nic0,nic1;{"j": [1, 2]}', "one\ntwo, three"
OPERATOR = {"ENROOT_DATA_PATH": "/local/user1/enroot", "SITE_TOKEN_FILE": "/etc/site token, with a comma"}
LEAKY = Scenario(
    "environment-pyxis", profile="site", fault=SLOW, act=record_environments, env={**submitting.EVIL, **OPERATOR},
    sets=(f"environment.SITE_LIST='{LIST}'", 'environment.SITE_LINES="one\\ntwo, three"'))
BARE = Scenario("environment-none", recipe=PAIR, nodes=2, fault=SLOW, act=record_environments, env=submitting.EVIL)


# -- C: Slurm, steps, container launch ----------------------------------------


@jobs
@of(submitting.SUBMITTED, "relative-path", "symlinked-bundle", "blanks-in-the-path")
def test_case_034_the_script_finds_its_folder(outcome: Outcome) -> None:
    check(outcome)
    assert f"bundle {outcome.live.bundle}" in outcome.output


@jobs
def test_case_034_a_copy_alone_says_what_it_misses(tmp_path: Path) -> None:
    """As slurmd keeps it, and with a Slurm that knows no such job."""
    bundle = generate(SHARED, "none", SMALL, tmp_path / "the bundle")
    copy = tmp_path / "spool" / "job1" / "slurm_script"
    copy.parent.mkdir(parents=True)
    shutil.copy(bundle / "run.sbatch", copy)
    done = subprocess.run(["bash", copy], cwd="/", env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "1"},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 10
    assert "the bundle of this job is not found" in done.stderr


@jobs
@on(GREEN[0])
def test_case_036_no_folder_is_needed_for_the_output(outcome: Outcome) -> None:
    """A fresh bundle has no results folder, and Slurm's own output needs none."""
    text = (outcome.live.bundle / "run.sbatch").read_text()
    assert "#SBATCH --output=slurm-%j.out\n" in text
    assert "results" not in {path.split("/")[0] for path in outcome.live.manifest()["files"]}
    assert (outcome.live.cwd / f"slurm-{outcome.live.job}.out").exists()


@jobs
@on(LEAKY)
def test_case_037_commas_and_newlines_arrive(outcome: Outcome) -> None:
    check(outcome)
    for step in ("prefill_0", "decode_0"):
        env = outcome.live.notes["env"][step]
        assert (env["SITE_LIST"], env["SITE_LINES"]) == (LIST, LINES)
        assert env["SITE_TOKEN_FILE"] == OPERATOR["SITE_TOKEN_FILE"]


@jobs
@on(LEAKY)
def test_case_039_the_submit_shell_does_not_leak(outcome: Outcome) -> None:
    for step, env in outcome.live.notes["env"].items():
        leaked = {name for name, value in submitting.EVIL.items() if value and env.get(name) == value}
        # What the worker's own share is may be the same number by chance; a mask must be the plan's.
        assert leaked <= {"HF_HOME"} - {"HF_HOME"}, (step, leaked)
        assert "SITE_MODULE" not in env


@jobs
@on(Scenario("cpus-per-task", profile="shared", fault=SLOW, act=record_environments))
def test_case_041_every_step_has_its_cpus(outcome: Outcome) -> None:
    check(outcome)
    assert {env["SLURM_CPUS_PER_TASK"] for env in outcome.live.notes["env"].values()} == {"8"}


@jobs
@of(GREEN, "green-shared-node-none", "green-aggregate-none")
def test_case_042_steps_share_a_node(outcome: Outcome) -> None:
    check(outcome)
    assert len(outcome.live.nodes) == 1
    assert not any("step creation temporarily disabled" in outcome.log(step) for step in outcome.live.steps())


def slow_node(live: Live) -> None:
    live.env["SITE_SLOW_NODE"] = live.nodes[1]


@jobs
@on(Scenario("site-wait-time", recipe=PAIR, nodes=2, profile="site", prepare=slow_node, waits=True))
def test_case_043_a_sites_wait_time_kills_nobody(outcome: Outcome) -> None:
    """The cluster of these tests has WaitTime=2; one node's checks take 5 s longer than the other's."""
    config = outcome.live.cluster.run(["scontrol", "show", "config"]).stdout
    assert re.search(r"^WaitTime\s*= 2 sec", config, re.M)
    check(outcome)
    assert outcome.lasted("preflight") > 5


@jobs
@of(submitting.SUBMITTED, "slurm-export-env", "export-none")
def test_case_044_steps_have_an_environment(outcome: Outcome) -> None:
    check(outcome)


@jobs
@on(Scenario("pyxis-not-on-the-nodes", 11, "ended with exit code 71", "load", profile="pyxis", env={"FAKEPYXIS_MODE": "host"}))
def test_case_045_a_container_option_that_is_ignored(outcome: Outcome) -> None:
    check(outcome)
    assert f"not in a container: is the container runtime (pyxis) loaded on node {outcome.live.nodes[0]}?" in outcome.output


@jobs
@pytest.mark.parametrize("runtime", ["pyxis", "docker", "podman", "apptainer", "none"])
def test_case_046_blanks_in_paths(tmp_path: Path, runtime: str) -> None:
    """pyxis cannot mount such a path: refused at generation. The others can (and run: see blanks-in-the-path-docker)."""
    done = subprocess.run(["python3", "-m", "srtgen", RECIPES / f"{SHARED}.yaml", "-o", tmp_path / "out dir", "--cluster",
                           PROFILES / f"{runtime}.yaml"], env={**os.environ, "PYTHONPATH": str(ROOT / "gen")},
                          capture_output=True, text=True, check=False)
    assert done.returncode == (1 if runtime == "pyxis" else 0), done.stderr
    assert (tmp_path / "out dir" / "run.sbatch").exists() == (runtime != "pyxis")


@jobs
@of(GREEN, "green-1p1d-docker")
def test_case_048_names_of_containers_hold_the_job(outcome: Outcome) -> None:
    runs = calls(outcome.live, "run")
    names = {argv[argv.index("--name") + 1] for argv in runs}
    assert names == {f"srtgen-{outcome.live.job}-{step}" for step in STEPS}
    assert all("--init" in argv for argv in runs)


@jobs
@of(GREEN, "green-1p1d-pyxis")
def test_case_048_pyxis_containers_have_no_name(outcome: Outcome) -> None:
    rows = [json.loads(line) for line in (outcome.live.cluster.dir / "log" / "fakepyxis.jsonl").read_text().splitlines()]
    mine = [row for row in rows if row["container"] and str(row["job"]) == outcome.live.job]
    assert len(mine) == len(STEPS)
    assert not any("container-name" in row["options"] for row in mine)


@jobs
@on(LEAKY)
def test_case_050_storage_settings_reach_the_runtime(outcome: Outcome) -> None:
    """ENROOT_* must be in srun's environment; pyxis reads it there."""
    assert outcome.live.notes["env"]["decode_0"]["ENROOT_DATA_PATH"] == "/local/user1/enroot"


STRANGER = "srtgen-1-decode_0"


def cancel_beside_a_stranger(live: Live) -> None:
    """Another live job's container runs on the node; ours is cancelled in the middle of the benchmark."""
    docker = engine(live)
    live.cluster.node(*docker, "run", "--detach", "--name", STRANGER, "--label", "srtgen.job=1", "--label",
                      f"srtgen.uid={os.getuid() + 1}", "docker.io/some/image", "sleep", "600")
    live.phase("bench")
    live.notes["during"] = live.cluster.node(*docker, "ps", "--quiet").split()
    live.scancel()
    live.cluster.wait(live.job, 60)
    end = time.monotonic() + 8
    while len(live.cluster.node(*docker, "ps", "--all", "--quiet").split()) > 1 and time.monotonic() < end:
        time.sleep(0.2)
    live.notes["after"] = live.cluster.node(*docker, "ps", "--all", "--format", "{{.Names}}").split()
    live.cluster.node(*docker, "rm", "--force", STRANGER)


@jobs
@on(*(Scenario(f"cancel-{name}", 143, "cancelled in phase bench", "bench", state="CANCELLED", profile=name, fault="bench:hang",
               act=cancel_beside_a_stranger, waits=True) for name in ("docker", "podman")))
def test_case_051_only_our_containers_go(outcome: Outcome) -> None:
    assert len(outcome.live.notes["during"]) == 5
    assert outcome.live.notes["after"] == [STRANGER]
    check(outcome)


@jobs
@of(GREEN, "green-1p1d-docker", "green-1p1d-podman", "green-1p1d-apptainer", "green-1p1d-pyxis", "green-1p1d-none")
def test_case_052_results_belong_to_the_user(outcome: Outcome) -> None:
    owners = {path.stat().st_uid for path in outcome.live.results.rglob("*")}
    assert owners == {os.getuid()}
    if outcome.live.scenario.profile == "docker":
        assert {argv[argv.index("--user") + 1] for argv in calls(outcome.live, "run")} == {f"{os.getuid()}:{os.getgid()}"}


@jobs
@of(preflight.REFUSED, "read-only-results")
def test_case_052_a_write_that_fails_fails_the_job(outcome: Outcome) -> None:
    check(outcome)


@jobs
@on(BARE, LEAKY)
def test_case_054_one_mask_of_the_plan(outcome: Outcome) -> None:
    masks = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
    gpus = {process["step"]: ",".join(map(str, process["gpus"])) for process in outcome.live.manifest()["processes"]}
    for step in ("prefill_0", "decode_0"):
        env = outcome.live.notes["env"][step]
        assert {name: env[name] for name in masks if name in env} == {"HIP_VISIBLE_DEVICES": gpus[step]}
        assert f"GPUs {gpus[step]}" in outcome.log(step)


def broken_python(live: Live) -> None:
    """The image's python3 has an interpreter that this user cannot reach."""
    folder = live.folder / "image" / "bin"
    folder.mkdir(parents=True)
    (folder / "python3").write_text("#!/root/.venv/of/the/image/python\n")
    (folder / "python3").chmod(0o755)
    lines = live.env["DOCKER_STANDIN_ENV"].replace("PATH=", f"PATH={folder}:", 1)
    live.env.update(DOCKER_STANDIN_ENV=lines, DOCKER_STANDIN_ROOTFS=live.env["DOCKER_STANDIN_ROOTFS"] + f" {live.folder}")


@jobs
@on(Scenario("python-of-the-image", 11, " ended with exit code 12", "load", profile="docker", prepare=broken_python))
def test_case_056_the_images_python_does_not_run(outcome: Outcome) -> None:
    assert outcome.exit_code in (10, 11)
    text = outcome.log("prefill_0") + outcome.log("decode_0") + outcome.log("bench")
    assert f"python3 of the image does not run for uid {os.getuid()}" in text
    assert outcome.seconds < 60
    assert (outcome.left, outcome.files) == ({}, [])


@jobs
@of(GREEN, "green-1p1d-podman")
def test_case_057_podman_needs_neither_home_nor_login(outcome: Outcome) -> None:
    """The stand-in refuses calls without roots of their own, and a run folder that cannot be made."""
    runs = calls(outcome.live, "run")
    assert {argv[argv.index("--group-add") + 1] for argv in runs} == {"keep-groups"}
    own = f"/tmp/standin-podman/srtgen-{os.getuid()}"
    assert {(argv[argv.index("--root") + 1], argv[argv.index("--runroot") + 1]) for argv in runs} == {(f"{own}/storage", f"{own}/run")}
    # Once per node before anything loads, then the steps.
    assert [argv[argv.index("--name") + 1].split("-")[2] for argv in runs[:2]] == ["probe", "probe"]
    assert len(runs) == 2 + len(STEPS)


@jobs
@of(preflight.REFUSED, "dangling-model")
def test_case_058_links_that_dangle_in_the_container(outcome: Outcome) -> None:
    check(outcome)
    assert "lead out of the container's mounts: config.json -> ../../blobs/config.json" in outcome.result["reason"]


@jobs
@on(*submitting.RESTARTED)
def test_case_060_a_requeue_keeps_the_first_results(outcome: Outcome) -> None:
    assert "#SBATCH --no-requeue" in (outcome.live.bundle / "run.sbatch").read_text()
    assert json.loads((outcome.live.results / "result.json").read_text()) == outcome.live.notes["first"]


@jobs
@of(submitting.WARNED + submitting.TOO_FEW, "sbatch-variables", "sbatch-one-node")
def test_case_062_directives_that_were_overridden(outcome: Outcome) -> None:
    check(outcome)
    text = (outcome.live.bundle / "run.sbatch").read_text().splitlines()
    assert all(line.startswith("#") for line in text[:max(i for i, line in enumerate(text) if line.startswith("#SBATCH"))])


# -- D: health, readiness, teardown -------------------------------------------


@failing
@of(faults.LOADING, "exits-0-loading", "exits-1-loading", "exits-137-loading")
def test_case_063_a_dead_server_is_not_polled(outcome: Outcome) -> None:
    assert outcome.lasted("load") < 15
    failed = outcome.result["failed"]
    assert (failed["step"], failed["node"]) == ("decode_0", outcome.live.nodes[0])


@failing
@on(Scenario("slow-load", sets=("health_check.max_attempts=40",), fault="*_0:load_s=8", waits=True),
    faults.LOADING[3])
def test_case_065_the_limit_is_the_recipes(outcome: Outcome) -> None:
    check(outcome)
    assert re.search(r"loading: \d s, ready [01]/2, waiting for ", outcome.output)


@failing
@of(faults.LOADING, "hangs-loading")
def test_case_066_nothing_goes_on_after_the_time_out(outcome: Outcome) -> None:
    check(outcome)
    assert "serving" not in outcome.log("bench") and "Starting initial" not in outcome.log("bench")
    assert outcome.result["bench"] is None


@jobs
@of(submitting.SUBMITTED, "login-shell-none", "login-shell-pyxis")
def test_case_067_nothing_goes_through_a_proxy(outcome: Outcome) -> None:
    check(outcome)


@failing
@of(faults.ROUTER, "router-lists-one-less")
def test_case_069_one_definition_of_ready(outcome: Outcome) -> None:
    """/health and /v1/models of that router are fine; the plan is what counts."""
    check(outcome)
    assert "1 planned" in outcome.result["reason"]


@failing
@on(*(row for row in signals.CANCELLED if "batch" in row.name and "canary" not in row.name), *signals.TWICE[:2])
def test_case_071_signals_are_acted_on_at_once(outcome: Outcome) -> None:
    check(outcome)
    assert outcome.lasted("teardown") < 15


@failing
@of(faults.BENCH + faults.ROUTER, "decode-dies-benchmarking", "prefill-dies-benchmarking", "router-dies-benchmarking")
def test_case_073_one_component_dies(outcome: Outcome) -> None:
    check(outcome)
    assert outcome.result["bench"] is None or outcome.result["bench"]["valid"] == 0


def results_is_a_file(live: Live) -> None:
    (live.folder / "taken").write_text("")
    live.env["SRTGEN_RESULTS_DIR"] = str(live.folder / "taken")


@failing
@on(Scenario("no-results-folder", 10, prepare=results_is_a_file))
def test_case_075_a_failure_without_a_results_folder(outcome: Outcome) -> None:
    assert (outcome.state, outcome.exit_code) == ("FAILED", 10)
    assert "cannot make the results folder" in outcome.output
    assert (outcome.left, outcome.files) == ({}, [])


@failing
@of(faults.LOADING + faults.ROUTER + faults.BENCH, "exits-0-loading", "router-ends-with-0", "decode-ends-with-0-benchmarking",
    "client-writes-nothing")
def test_case_076_an_exit_code_of_0_is_no_success(outcome: Outcome) -> None:
    check(outcome)
    assert outcome.state == "FAILED"


@failing
@of(faults.TEARDOWN, "ignores-term")
def test_case_077_tasks_that_ignore_term_are_killed(outcome: Outcome) -> None:
    check(outcome)
    assert "killing" in outcome.output


# -- E: KV transfer, RDMA, network --------------------------------------------


@failing
@of(faults.CANARY, "tcp-asked-rdma-installed")
def test_case_078_tcp_asked_and_rdma_installed(outcome: Outcome) -> None:
    check(outcome)
    assert outcome.result["transport"]["steps"]["decode_0"]["seen"] == ["rdma"]


@jobs
@on(BARE)
def test_case_078_both_roles_are_forced_to_tcp(outcome: Outcome) -> None:
    check(outcome)
    for step in ("prefill_0", "decode_0"):
        assert outcome.live.notes["env"][step]["MC_FORCE_TCP"] == "true"
        assert outcome.result["transport"]["steps"][step] == {"seen": ["tcp"], "status": "match"}


IPV4_GID = "0000:0000:0000:0000:0000:ffff:0a4d:000b"
LOCAL_GID = "fe80:0000:0000:0000:0000:00ff:fe00:0001"


def adapters(*nodes: int, gids: dict[int, str], device: str = "ionic_0") -> Callable[[Live], None]:
    """Gives some of the scenario's nodes an RDMA adapter with these GIDs, in a /sys/class of their own."""
    def prepare(live: Live) -> None:
        script = ["set -e", "mount -t tmpfs none /sys/class", f"port=/sys/class/infiniband/{device}/ports/1",
                  'mkdir -p "$port/gids" "$port/gid_attrs/types"', "printf '4: ACTIVE\\n' >$port/state",
                  "printf 'Ethernet\\n' >$port/link_layer"]
        script += [f"printf '{gid}\\n' >$port/gids/{index}; printf 'RoCE v2\\n' >$port/gid_attrs/types/{index}"
                   for index, gid in gids.items()]
        for index in nodes:
            node = live.nodes[index]
            live.cluster.node("exec", node, "bash", "-c", "\n".join(script))
            live.undo.append(partial(live.cluster.node, "exec", node, "umount", "-l", "/sys/class"))
    return prepare


RDMA = ("-engine.mooncake_protocol",)
SKIP = {"SRTGEN_SKIP_CHECKS": "limits"}  # 8 MiB of locked memory, on this machine


@failing
@on(Scenario("gid-link-local", 10, "preflight: rdma on {node}: ionic_0 has no usable GID", sets=RDMA, env=SKIP,
             prepare=adapters(0, gids={0: LOCAL_GID})),
    Scenario("gid-index-wrong", 10, "preflight: rdma on {node}: ionic_0 has no usable GID at index 0", profile="gid0",
             sets=RDMA, env=SKIP, prepare=adapters(0, gids={0: LOCAL_GID, 3: IPV4_GID})),
    Scenario("gid-usable", sets=RDMA, env=SKIP, prepare=adapters(0, gids={0: LOCAL_GID, 3: IPV4_GID})))
def test_case_080_a_link_local_gid_is_no_gid(outcome: Outcome) -> None:
    check(outcome)


@failing
@on(Scenario("adapter-on-one-node", 10, "preflight: rdma on {node1}: RDMA device of any kind is missing", recipe=PAIR, nodes=2,
             sets=RDMA, env=SKIP, prepare=adapters(0, gids={3: IPV4_GID})))
def test_case_082_the_node_without_adapters_is_named(outcome: Outcome) -> None:
    check(outcome)


def loopback_name(live: Live) -> None:
    """The node's own name is a loopback address in its /etc/hosts, as Debian's installer writes it."""
    node, hosts = live.nodes[1], live.folder / "hosts"
    lines = (live.cluster.dir / "hosts").read_text().splitlines()
    hosts.write_text("\n".join(["127.0.1.1 " + node, *(line for line in lines if not line.endswith(" " + node))]) + "\n")
    live.cluster.node("exec", node, "mount", "--bind", str(hosts), "/etc/hosts")
    live.undo.append(lambda: live.cluster.node("exec", node, "umount", "-l", "/etc/hosts"))


@failing
@on(Scenario("name-is-loopback", recipe=PAIR, nodes=2, prepare=loopback_name, fault=SLOW, act=record_environments))
def test_case_083_a_host_name_that_is_loopback(outcome: Outcome) -> None:
    check(outcome)
    address = outcome.live.cluster.address(outcome.live.nodes[1])
    assert outcome.result["nodes"][1]["address"] == address
    assert outcome.live.notes["env"]["decode_0"]["ATOM_HOST_IP"] == address
    assert f"node 1: {outcome.live.nodes[1]} {address}" in outcome.output


@jobs
@of(GREEN, "green-shared-node-none")
def test_case_085_a_shared_node_is_said(outcome: Outcome) -> None:
    text = json.dumps(outcome.live.manifest()["findings"])
    assert "share a node: transfer figures are not those of a network" in text


@failing
@of(faults.CANARY, "hangs-on-completions", "prefill-hangs-on-completions", "empty-completions", "router-hangs-on-completions")
def test_case_087_ready_but_no_answer(outcome: Outcome) -> None:
    check(outcome)
    assert outcome.lasted("canary") < 30


# -- I: router ----------------------------------------------------------------


@jobs
@on(Scenario("prefill-comes-late", fault="prefill_0:load_s=9", waits=True))
def test_case_114_ready_is_all_of_them(outcome: Outcome) -> None:
    check(outcome)
    assert outcome.lasted("load") > 8


@jobs
@on(Scenario("policies", sets=("frontend.args.prefill-policy=round_robin", "frontend.args.decode-policy=random")))
def test_case_116_policies_are_separate(outcome: Outcome) -> None:
    check(outcome)
    argv = next(row["argv"] for row in outcome.live.manifest()["processes"] if row["role"] == "atomesh")
    assert argv[argv.index("--prefill-policy") + 1] == "round_robin"
    assert argv[argv.index("--decode-policy") + 1] == "random"
    points = json.loads((outcome.live.results / "bench" / "summary.json").read_text())["points"]
    assert set(points[0]["workers"]) == {"prefill_0", "decode_0"}


@failing
@of(faults.BENCH + faults.CANARY, "client-hangs", "router-hangs-on-completions")
def test_case_118_no_answer_has_an_end(outcome: Outcome) -> None:
    check(outcome)


@jobs
@of(GREEN, "green-1p1d-none", "green-2p1d-dpa-none", "green-aggregate-none")
def test_case_120_the_mode_follows_the_topology(outcome: Outcome) -> None:
    aggregate = outcome.live.scenario.recipe == AGGREGATE
    assert ("Mode: Regular" if aggregate else "Mode: PD Disaggregated") in outcome.log("atomesh_0")


def no_router(live: Live) -> None:
    live.env["DOCKER_STANDIN_ENV"] = re.sub(r"PATH=\S*?/bin:", "PATH=", live.env["DOCKER_STANDIN_ENV"], count=1)


@jobs
@on(Scenario("no-router-in-the-image", 13, "atomesh_0 on {node} ended with exit code 127", "router", "atomesh_0",
             profile="docker", prepare=no_router))
def test_case_120_a_router_that_the_image_lacks(outcome: Outcome) -> None:
    check(outcome)
