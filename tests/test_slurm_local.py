"""The local Slurm itself: nodes, steps, failures, and what the pyxis stand-in enforces."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import SCRIPTS, STANDINS, SlurmCluster, cluster, docker_env, rootfs_env, standins_env

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with cluster(4) as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SlurmCluster, str]]:
    """A second cluster, and a job that lost a node at the start of this module: seen after the other tests."""
    folder = tmp_path_factory.mktemp("crash")
    with cluster(2, settings={"SLURM_LOCAL_DOWN": "4"}) as other:
        text = "srun --overlap -N2 -n2 sleep 60 &\nsleep 60"
        job = other.sbatch(script(folder, text), cwd=folder, args=["-N2", "--no-requeue", "--output=/dev/null"])
        other.wait_for(job, {"RUNNING"})
        other.node("crash", "node02")
        assert other.processes("node02") == {}
        yield other, job


def script(folder: Path, text: str) -> Path:
    path = folder / "job.sh"
    path.write_text("#!/usr/bin/env bash\n" + textwrap.dedent(text))
    return path


def run_job(slurm: SlurmCluster, folder: Path, text: str, nodes: int = 1, env: dict[str, str] | None = None) -> str:
    """Submits, waits, and returns the output; the job must end COMPLETED."""
    job = slurm.sbatch(script(folder, text), cwd=folder, env=env, args=[f"-N{nodes}", "--output=out"])
    state = slurm.wait(job)
    output = (folder / "out").read_text()
    assert state == ("COMPLETED", "0:0"), output
    return output


def test_every_node_has_its_name_gpus_and_address(slurm: SlurmCluster, tmp_path: Path) -> None:
    output = run_job(slurm, tmp_path, """
        srun --overlap -N4 -n4 bash -c 'printf "%s %s %s\\n" "$(hostname)" "$(hostname -I)" "$CUDA_VISIBLE_DEVICES"'
    """, nodes=4, env={"SBATCH_GRES": "gpu:8"})
    rows = sorted(line.split() for line in output.splitlines())
    assert rows == [[f"node{n:02d}", f"10.77.0.{10 + n}", "0,1,2,3,4,5,6,7"] for n in range(1, 5)]


def test_a_failing_script_keeps_its_exit_code(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = slurm.sbatch(script(tmp_path, "exit 13"), cwd=tmp_path, args=["--output=/dev/null"])
    assert slurm.wait(job) == ("FAILED", "13:0")
    assert slurm.job(job).exit_code == 13


def test_one_port_on_every_node_and_leftovers_are_seen(slurm: SlurmCluster, tmp_path: Path) -> None:
    server = "python3 -m http.server 8000 --bind 0.0.0.0"
    job = slurm.sbatch(script(tmp_path, f"srun --overlap -N2 -n2 -w node01,node02 {server}"), cwd=tmp_path,
                       args=["-N2", "-w", "node01,node02", "--output=out"])
    slurm.wait_for(job, {"RUNNING"})
    for node in ("node01", "node02"):
        slurm.run(["curl", "-sf", "--retry", "20", "--retry-connrefused", "--retry-delay", "1",
                   f"http://{slurm.address(node)}:8000/job.sh"])
        assert slurm.listening(node) == {8000}
        assert any("http.server" in line for line in slurm.processes(node).values())
    assert slurm.processes("node03") == {}
    slurm.run(["scancel", job])
    assert slurm.wait(job)[0] == "CANCELLED"
    assert slurm.clean() == {}


def test_a_cut_node_is_out_of_reach_until_it_rejoins(slurm: SlurmCluster) -> None:
    ping = ["bash", "-c", f"exec 3<>/dev/tcp/{slurm.address('node02')}/{slurm._slurmd_port()}"]
    slurm.run(ping)
    slurm.node("cut", "node02")
    assert slurm.run(["timeout", "1", *ping], check=False).returncode != 0
    slurm.node("join", "node02")
    slurm.run(ping, timeout=10)


def test_pyxis_options_are_recorded(slurm: SlurmCluster, tmp_path: Path) -> None:
    log = tmp_path / "pyxis.jsonl"
    run_job(slurm, tmp_path, "srun --overlap -N1 -n1 --container-image=a/b:c --container-mounts=/x:/y:ro "
            "--no-container-mount-home true", env={"FAKEPYXIS_LOG": str(log)})
    rows = [row for row in map(json.loads, log.read_text().splitlines()) if row["container"]]
    assert [row["options"] for row in rows] == [{
        "container-image": "a/b:c", "container-mounts": "/x:/y:ro", "no-container-mount-home": True}]


def test_a_container_sees_only_what_is_mounted(slurm: SlurmCluster, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "f").write_text("hello\n")
    step = "srun --overlap -N1 -n1 --container-image=x"
    output = run_job(slurm, tmp_path, f"""
        {step} --container-mounts={data}:/data:ro bash -c 'cat /data/f; pwd; ls {tmp_path}; echo x >/data/f'
        {step} --container-mounts={tmp_path}/none:/data true || echo refused
        {step} --container-mounts={data}:/data bash -c 'echo more >>/data/f'
    """, env={"FAKEPYXIS_MODE": "rootfs"})
    # srun's own words come on another stream, anywhere between.
    assert [line for line in output.splitlines() if not line.startswith("srun: ")][:2] == ["hello", "/"]
    assert f"ls: cannot access '{tmp_path}'" in output
    assert "Read-only file system" in output
    assert "refused" in output
    assert (data / "f").read_text() == "hello\nmore\n"


@pytest.mark.parametrize("env, step", [
    (standins_env(), "srun --overlap -N1 -n1"),
    (rootfs_env(), "srun --overlap -N1 -n1 --container-image=x"),
    (docker_env(Path("/tmp")), "srun --overlap -N1 -n1 docker run --rm x"),
], ids=["host", "rootfs", "docker"])
def test_stand_ins_are_found(slurm: SlurmCluster, tmp_path: Path, env: dict[str, str], step: str) -> None:
    if "DOCKER_STANDIN_STATE" in env:
        env = env | {"DOCKER_STANDIN_STATE": str(tmp_path / "docker")}
    output = run_job(slurm, tmp_path, f"""
        {step} bash -c 'cd /tmp && atomesh --version && python3 -c "import atom; print(atom.__file__)"'
    """, env=env)
    assert output.splitlines() == ["atomesh 0.1.0", f"{STANDINS}/python/atom/__init__.py"]


def test_a_container_outlives_the_step_that_started_it(slurm: SlurmCluster, tmp_path: Path) -> None:
    env = docker_env(tmp_path / "docker")
    run_job(slurm, tmp_path, """
        srun --overlap -N1 -n1 docker run --name left x sleep 303 &
        until [[ $(docker ps -q) ]]; do sleep 0.1; done
        kill -KILL $!
        wait || true
    """, env=env)
    assert [line for line in slurm.processes("node01").values() if line == "sleep 303"]
    slurm.node("exec", "node01", "env", *(f"{name}={value}" for name, value in env.items()), "docker", "rm", "-f", "left")
    assert slurm.clean() == {}


def test_no_start_in_a_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = subprocess.run([SCRIPTS / "start.sh", "2"], env={"PATH": "/usr/sbin:/usr/bin", "SLURM_LOCAL_DIR": str(tmp_path)},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "neither empty nor a state folder" in done.stderr or "is missing" in done.stderr
    assert (tmp_path / "mine").exists()


def test_stopping_leaves_nothing_behind(tmp_path: Path) -> None:
    with cluster(2) as second:
        second.sbatch(script(tmp_path, "setsid sleep 301 & srun --overlap -n1 sleep 302"), cwd=tmp_path,
                      args=["--output=/dev/null"])
        state = second.dir
        noted = [int((path).read_text().split()[0]) for path in (state / "pids").iterdir()]
        second.stop()
        assert not state.exists()
        for pid in noted:
            assert not is_alive(pid)


def test_a_crashed_node_fails_the_job_and_comes_back(crashed: tuple[SlurmCluster, str]) -> None:
    other, job = crashed
    assert other.wait(job, 60)[0] == "NODE_FAIL"
    other.node("start", "node02")
    other.idle()


def is_alive(pid: int) -> bool:
    """False for a process that is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False
