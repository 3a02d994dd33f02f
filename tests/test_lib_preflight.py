"""The checks of one node (node_*.py), their report, and the choice of addresses (preflight.sh)."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from jobs.shell import LIB, bash, stub
from model_rig import model_folder

sys.path.insert(0, str(LIB))
import node_files  # noqa: E402  (found only by the path above)
import node_gpu  # noqa: E402
import node_stage  # noqa: E402
import node_net  # noqa: E402
import node_system  # noqa: E402

CHOICES = [
    ([("lo", "127.0.0.1/8"), ("eth0", "10.0.0.5/24")], "", "", ["10.0.0.5"]),
    ([("eth0", "203.0.113.7/24"), ("eth1", "10.0.0.5/24")], "", "eth0", ["10.0.0.5", "203.0.113.7"]),
    ([("a", "10.1.0.5/24"), ("b", "10.2.0.5/24")], "", "b", ["10.2.0.5", "10.1.0.5"]),
    ([("docker0", "172.17.0.1/16"), ("virbr0", "192.168.122.1/24"), ("br-1", "172.18.0.1/16"), ("cni0", "10.9.0.1/24"),
      ("veth1", "10.8.0.1/24"), ("eno1", "169.254.1.1/16")], "", "docker0", []),
    ([("eth0", "10.0.0.5/24"), ("eno0", "203.0.113.7/24")], "eno0", "eth0", ["203.0.113.7"]),
    ([("docker0", "172.17.0.1/16")], "docker0", "", ["172.17.0.1"]),
    ([("lo", "127.0.0.1/8")], "lo", "", []),
    ([("ib0", "192.168.7.1/255.255.255.0")], "", "", ["192.168.7.1"]),
]


@pytest.mark.parametrize(("found", "wanted", "default", "addresses"), CHOICES)
def test_addresses(found: list[tuple[str, str]], wanted: str, default: str, addresses: list[str]) -> None:
    assert [address for _, address, _ in node_net.choose(found, wanted, default)] == addresses


def test_both_ways_to_ask_the_system_find_the_same() -> None:
    known = {text.split("/")[0] for _, text in node_net.addresses_by_ip()}
    assert {text.split("/")[0] for _, text in node_net.addresses_by_ioctl()} <= known
    assert "127.0.0.1" in known


def plan(**more: object) -> Namespace:
    values: dict[str, object] = {
        "bundle": "", "results": "/tmp", "runtime": "none", "interface": "", "transport": "", "ib_device": "", "gid_index": "",
        "model": "", "cpus_per_task": "", "gpus": 8, "drain": 0, "concurrency": 0, "strict": 0, "image": [], "mount": [],
        "listen": [], "host": ["n0", "n1"], "skip": [], "node_cpus": [], "jit_cache": "", "command": [], "running_job": [],
        "stage": "", "own": [], "writable": [], "offline": 0, "prefetch": "none", "hub_model": "", "hub_cache": "",
        "engine_option": [], "probe": [], "tool": []}
    return Namespace(**{**values, **more})


def test_a_busy_port_is_named_with_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        status, text = node_net.check_ports(plan(listen=[f"1 {port} {port} decode_0", "0 1 65535 other"]))
        assert status == "fail" and f"port {port} of decode_0 is in use by pid {os.getpid()}" in text
        assert node_net.check_ports(plan(listen=[f"0 {port} {port} decode_0"]))[0] == "ok"
    assert node_net.check_ports(plan(listen=[f"1 {port} {port} decode_0"])) == ("ok", "")


def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: list[int]) -> None:
    monkeypatch.setattr(node_gpu, "SYSFS", str(tmp_path))
    for index, gpu in enumerate([0, 0] + [1234 + i for i in range(len(used))]):
        node = tmp_path / f"class/kfd/kfd/topology/nodes/{index}"
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(f"{gpu}\n")
    for index, value in enumerate(used):
        device = tmp_path / f"class/drm/card{index}/device"
        device.mkdir(parents=True)
        (device / "mem_info_vram_used").write_text(f"{value}\n")
        (tmp_path / f"class/drm/card{index}-DP-1").mkdir()


GIB = 1 << 30


def test_gpus_of_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sysfs(tmp_path, monkeypatch, [GIB] * 8)
    assert node_gpu.check_count(plan()) == ("ok", "8 GPUs")
    assert node_gpu.check_memory(plan()) == ("ok", "")
    assert node_gpu.check_count(plan(gpus=9))[0] == "fail"


def test_a_busy_gpu_of_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sysfs(tmp_path, monkeypatch, [0, 8 * GIB - 1, 8 * GIB])
    status, text = node_gpu.check_memory(plan())
    assert status == "fail" and "GPU 2: 8.0 GiB" in text and "GPU 1" not in text


def test_gpus_without_their_memory_cannot_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sysfs(tmp_path, monkeypatch, [])
    (tmp_path / "class/kfd/kfd/topology/nodes/0/gpu_id").write_text("77")
    assert node_gpu.check_memory(plan()) == ("fail", "cannot tell how much GPU memory is in use")


SMI = [
    ('WARNING: x\\n{"card0":{"VRAM Total Memory (B)":"9","VRAM Total Used Memory (B)":"5"},"system":{}}', [5]),
    ("{}", []), ("no json", None), ('{"card0":{"GPU use (%)":"3"}}', None), ('{"card0":3}', None), ("", None)]


@pytest.mark.parametrize(("output", "used"), SMI)
def test_rocm_smi(output: str, used: list[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path / "bin", "rocm-smi", f"printf '{output}'")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert node_gpu.smi_used() == used


def test_one_answer_of_rocm_smi_serves_both_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_gpu, "SYSFS", str(tmp_path))
    stub(tmp_path / "bin", "rocm-smi", f"""printf x >>{tmp_path}/calls; printf '{{"card0":{{"used":"5"}}}}'""")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert node_gpu.check_count(plan(gpus=1)) == ("ok", "1 GPUs")
    assert node_gpu.check_memory(plan()) == ("ok", "")
    assert (tmp_path / "calls").read_text() == "x"


def test_the_gate_waits_for_memory_to_drain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sysfs(tmp_path, monkeypatch, [40 * GIB])
    monkeypatch.setattr(node_gpu.time, "sleep", lambda s: (tmp_path / "class/drm/card0/device/mem_info_vram_used").write_text("0"))
    assert node_gpu.check_memory(plan(drain=60)) == ("ok", "")


def model(tmp_path: Path, present: list[str], index: list[str] | None) -> Path:
    folder = tmp_path / "m"
    folder.mkdir()
    for name in present:
        (folder / name).write_text("x")
    if index is not None:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {str(i): n for i, n in enumerate(index)}}))
    return folder


MODELS = [
    (["config.json", "a.safetensors"], None, "ok", ""), (["config.json"], None, "fail", "holds no weights"),
    (["a.safetensors"], None, "fail", "config.json"), (["config.json", "a", "b"], ["a", "b"], "ok", ""),
    (["config.json", "a"], ["a", "b"], "fail", "1 of 3 files"),
]


@pytest.mark.parametrize(("present", "index", "status", "text"), MODELS)
def test_model(present: list[str], index: list[str] | None, status: str, text: str, tmp_path: Path) -> None:
    got = node_files.check_model(plan(model=str(model(tmp_path, present, index))))
    assert got[0] == status and text in got[1]


def test_missing_broken_and_empty_models(tmp_path: Path) -> None:
    assert node_files.check_model(plan(model="/nowhere"))[0] == "fail"
    folder = model(tmp_path, ["config.json", "a.safetensors"], None)
    (folder / "a.safetensors").write_text("")
    assert "missing or empty: a.safetensors" in node_files.check_model(plan(model=str(folder)))[1]
    (folder / "model.safetensors.index.json").write_text("{")
    assert "is broken" in node_files.check_model(plan(model=str(folder)))[1]


LINKS = [
    ("../../blobs/1", ["{s}:/model:ro"], "fail"),
    ("../../blobs/1", ["{s}:/hub/snapshots/abc:ro", "{t}/blobs:/hub/blobs"], "ok"),
    ("{t}/blobs/1", ["{s}:/model:ro", "{t}:{t}"], "ok"), ("{t}/blobs/1", ["{s}:/model:ro"], "fail"),
    ("config.json", ["{s}:/model:ro"], "ok"), ("w.safetensors", ["{s}:/model:ro"], "fail")]


@pytest.mark.parametrize(("link", "mounts", "status"), LINKS)
def test_links_of_a_model_are_followed_as_the_container_sees_them(link: str, mounts: list[str], status: str, tmp_path: Path) -> None:
    snapshot, names = tmp_path / "snapshots/abc", {"s": f"{tmp_path}/snapshots/abc", "t": str(tmp_path)}
    snapshot.mkdir(parents=True)
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs/1").write_text("x")
    (snapshot / "config.json").write_text("{}")
    (snapshot / "w.safetensors").symlink_to(link.format(**names))
    mounted = plan(runtime="pyxis", mount=[mount.format(**names) for mount in mounts])
    assert node_files.check_links(mounted, str(snapshot))[0] == status
    assert node_files.check_links(plan(mount=mounted.mount), str(snapshot))[0] == "ok"


def test_image_files_mounts_and_disk(tmp_path: Path) -> None:
    assert node_files.check_image(plan(runtime="pyxis", image=["/nowhere/x.sqsh"]))[0] == "fail"
    (tmp_path / "x.sqsh").write_text("x")
    assert node_files.check_image(plan(runtime="pyxis", image=[f"{tmp_path}/x.sqsh"])) == ("ok", "")
    assert node_files.check_image(plan(runtime="pyxis", image=["rocm/atom:1"]))[0] == "note"
    assert node_files.check_mounts(plan(results=str(tmp_path), mount=[f"{tmp_path}:/m"])) == ("ok", "")
    assert node_files.check_mounts(plan(results=str(tmp_path), mount=["/nowhere:/m"])) == ("fail", "not on this node: /nowhere")
    assert node_files.check_mounts(plan(results="/proc"))[0] == "fail"
    assert not list(tmp_path.glob(".write*"))


def test_the_place_of_a_staged_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mount is made later; its disk must be writable and hold what is still missing."""
    source, target = model_folder(tmp_path / "m"), tmp_path / "nvme" / "m-1"
    staged = plan(results=str(tmp_path), model=str(source), stage=str(target), own=[str(target.parent)], mount=[f"{target}:/model:ro"])
    assert (node_files.check_mounts(staged), node_stage.check_disk(staged)) == (("ok", ""), ("ok", ""))
    assert list((tmp_path / "nvme").iterdir()) == []
    monkeypatch.setattr(node_stage.stage_files, "free", lambda _: 1 << 20)
    status, text = node_stage.check_disk(staged)
    assert status == "fail" and text.startswith(f"{tmp_path}/nvme has 1.0 MiB free, the model needs ")
    assert node_files.check_mounts(plan(results=str(tmp_path), own=["/proc/nvme"]))[1].startswith("cannot write into /proc/nvme: ")


def test_modified_and_missing_files_of_the_bundle(tmp_path: Path) -> None:
    files = {name: {"sha256": hashlib.sha256(b"x").hexdigest()} for name in ("a", "b", "c")}
    (tmp_path / "manifest.json").write_text(json.dumps({"files": files}))
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("edited")
    changed = node_files.modified_files(str(tmp_path))
    assert changed == ["b", "c"]
    assert node_files.check_bundle(plan(modified=[])) == ("ok", "")
    assert node_files.check_bundle(plan(modified=changed)) == ("note", "edited since generation: b, c")
    assert node_files.check_bundle(plan(modified=changed, strict=1))[0] == "fail"


CPUS = [("8", "", ["n0=16"], "ok"), ("1", "", ["n0=16"], "fail"), ("7", "", ["n0=16"], "fail"), ("32", "32", [], "ok"), ("16", "32", [], "fail")]


@pytest.mark.parametrize(("on_node", "asked", "total", "status"), CPUS)
def test_cpus(on_node: str, asked: str, total: list[str], status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", on_node)
    monkeypatch.setenv("SLURMD_NODENAME", "n0")
    monkeypatch.setattr(node_system.os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(node_system.os, "cpu_count", lambda: 64)
    assert node_system.check_cpus(plan(cpus_per_task=asked, node_cpus=total))[0] == status


def test_a_bound_step_has_the_cpus_it_is_bound_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "64")
    monkeypatch.setattr(node_system.os, "sched_getaffinity", lambda pid: {3})
    monkeypatch.setattr(node_system.os, "cpu_count", lambda: 64)
    assert node_system.step_cpus() == 1


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {node_system.resource.RLIMIT_NOFILE: 4096, node_system.resource.RLIMIT_MEMLOCK: 8 << 20}
    monkeypatch.setattr(node_system.resource, "getrlimit", lambda which: (0, limits[which]))
    assert node_system.check_limits(plan())[0] == "ok"
    assert node_system.check_limits(plan(concurrency=1024))[0] == "fail"
    assert node_system.check_limits(plan(transport="rdma")) == (
        "fail", "locked memory is limited to 8 MiB, RDMA cannot register the KV cache")
    limits[node_system.resource.RLIMIT_MEMLOCK] = node_system.resource.RLIM_INFINITY
    assert node_system.check_limits(plan(transport="rdma"))[0] == "ok"
    assert node_system.check_limits(plan(runtime="docker", concurrency=1 << 20))[0] == "ok"


def adapter(root: Path, name: str, gids: dict[int, str], state: str = "4: ACTIVE", layer: str = "Ethernet") -> None:
    port = root / "class/infiniband" / name / "ports/1"
    (port / "gids").mkdir(parents=True)
    (port / "state").write_text(state + "\n")
    (port / "link_layer").write_text(layer + "\n")
    for index, gid in gids.items():
        (port / f"gids/{index}").write_text(gid + "\n")


LOCAL, ROUTABLE, NONE = "fe80:0000:0000:0000:1:2:3:4", "0000:0000:0000:0000:0000:ffff:0a00:0001", "0000:" * 7 + "0000"
RDMA = [
    ({"rdma0": {0: LOCAL, 3: ROUTABLE}}, {}, "ok"), ({"rdma0": {0: LOCAL, 1: NONE}}, {}, "fail"), ({}, {}, "fail"),
    ({"rdma0": {0: LOCAL, 3: ROUTABLE}}, {"gid_index": "0"}, "fail"), ({"rdma0": {0: LOCAL, 3: ROUTABLE}}, {"gid_index": "3"}, "ok"),
    ({"rdma0": {3: ROUTABLE}, "rdma1": {0: LOCAL}}, {}, "note"), ({"rdma0": {3: ROUTABLE}, "rdma1": {0: LOCAL}}, {"ib_device": "rdma0,rdma1"}, "fail"),
    ({"rdma0": {3: ROUTABLE}}, {"ib_device": "mlx5_1"}, "fail")]


@pytest.mark.parametrize(("devices", "more", "status"), RDMA)
def test_rdma(devices: dict[str, dict[int, str]], more: dict[str, str], status: str, tmp_path: Path,
              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_net, "SYSFS", str(tmp_path))
    for name, gids in devices.items():
        adapter(tmp_path, name, gids)
    assert node_net.check_rdma(plan(transport="rdma", **more))[0] == status
    assert node_net.check_rdma(plan(transport="tcp"))[0] == "ok"


def test_rdma_ports_that_are_down_and_infiniband(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_net, "SYSFS", str(tmp_path))
    adapter(tmp_path, "down", {3: ROUTABLE}, state="1: DOWN")
    assert node_net.check_rdma(plan(transport="rdma")) == ("fail", "down has no active port")
    adapter(tmp_path, "ib0", {0: LOCAL}, layer="InfiniBand")
    assert node_net.check_rdma(plan(transport="rdma"))[0] == "note"


def test_leftovers_of_dead_jobs_only_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path / "bin", "docker", f"""case $1 in
ps) cat {tmp_path}/list ;;
rm) shift 2; printf '%s\\n' "$@" >{tmp_path}/removed; grep -v -w -e "$1" {tmp_path}/list >{tmp_path}/l; mv {tmp_path}/l {tmp_path}/list ;;
esac""")
    (tmp_path / "list").write_text("aaa 5\nbbb 6\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert node_system.check_containers(plan(runtime="docker", running_job=["6"])) == ("note", "removed containers of ended jobs: aaa")
    assert (tmp_path / "removed").read_text() == "aaa\n"
    assert node_system.check_containers(plan(runtime="docker"))[0] == "note"


def run_node(tmp_path: Path, bundle: Path, path: str = "") -> list[list[str]]:
    text = (LIB / "node_check.sh").read_text()
    done = subprocess.run(["/bin/bash", "-c", text, "node_check", str(bundle), "abc", "--results", str(tmp_path), "--skip=disk",
                           "--command=mine\texit 3"], env={"PATH": path or "/usr/bin:/bin", "SLURMD_NODENAME": "n1"},
                          capture_output=True, text=True, timeout=60)
    return [line.split("\t") for line in done.stdout.splitlines()]


def fake_bundle(tmp_path: Path, identity: str = "abc") -> Path:
    bundle = tmp_path / "b"
    bundle.mkdir()
    (bundle / "manifest.json").write_text(json.dumps({"id": identity, "files": {}}, indent=1))
    (bundle / "lib").symlink_to(LIB)
    return bundle


def test_the_report_of_a_node(tmp_path: Path) -> None:
    rows = run_node(tmp_path, fake_bundle(tmp_path))
    assert rows[-1] == ["n1", "end"] and {row[0] for row in rows} == {"n1"}
    checks = {row[2]: row[3] for row in rows if row[1] == "check"}
    assert set(checks) == set("bundle tools image model mounts disk ports gpu_count gpu_memory cpus limits rdma containers mine".split())
    assert (checks["bundle"], checks["disk"], checks["mine"]) == ("ok", "skip", "fail")


@pytest.mark.parametrize("case", ["absent", "other", "writing", "python"])
def test_a_node_that_cannot_run_the_checks_still_reports(case: str, tmp_path: Path) -> None:
    bundle = tmp_path / "nowhere" if case == "absent" else fake_bundle(tmp_path, "other" if case == "other" else "abc")
    path = ""
    if case == "writing":
        (bundle / ".srtgen-writing").touch()
    if case == "python":
        (tmp_path / "few").mkdir()
        path = str(tmp_path / "few")
    check, last = run_node(tmp_path, bundle, path)
    assert last == ["n1", "end"]
    assert check[:4] == ["n1", "check", "tools" if case == "python" else "bundle", "fail"]


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "python3", """case $* in
--version) echo 'Python 3.6.8' ;;
*) echo 'SyntaxError: future feature annotations is not defined' >&2; exit 1 ;;
esac""")
    check, last = run_node(tmp_path, fake_bundle(tmp_path), f"{tmp_path}/bin:/usr/bin:/bin")
    assert check == ["n1", "check", "tools", "fail", "python3 is older than 3.8: Python 3.6.8"]
    assert last == ["n1", "end"]


LIBRARIES = ["log", "result", "events", "steps", "allocation", "watch", "checks", "preflight", "addresses"]
SETUP = "job_folder=${PWD}\nmkdir -p logs\nnode_hosts=(n0 n1)\nclock_begin\nresult_file=result.json\ntrap write_result EXIT\n"
GOOD = "n0\taddress\teth0\t10.0.0.1\t10.0.0.0/24\nn0\tend\nn1\taddress\teth0\t10.0.0.2\t10.0.0.0/24\nn1\tend\n"


def read(tmp_path: Path, report: str, text: str) -> tuple[int, str, dict[str, object]]:
    (tmp_path / "report").write_text(report)
    done = bash(SETUP + "read_report report\n" + text, tmp_path, LIBRARIES, plan="")
    assert done.stderr == ""
    return done.returncode, done.stdout, json.loads((tmp_path / "result.json").read_text())


def test_the_table_and_the_first_failure(tmp_path: Path) -> None:
    report = GOOD + "n1\tcheck\tports\tfail\tport 6100\nn0\tcheck\tports\tok\t\nn0\tcheck\tmodel\tnote\tof the hub\n"
    _, out, _ = read(tmp_path, report, 'show_report; printf "%s@%s" "${preflight_failure}" "${preflight_node}"')
    rows = [line.split("preflight: ", 1)[1].split() for line in out.splitlines() if "preflight: n" in line]
    column = rows[0].index("ports")
    assert [row[column] for row in rows[1:]] == ["ok", "fail"]
    assert out.endswith("ports on n1: port 6100@n1") and "model on n0: of the hub" in out


def test_a_node_that_does_not_finish_is_a_failure(tmp_path: Path) -> None:
    _, out, _ = read(tmp_path, GOOD.replace("n1\tend\n", "srun: error: n1: task failed\n"), 'show_report; printf "%s" "${preflight_failure}"')
    assert out.endswith("n1 did not finish its checks") and "srun: error: n1: task failed" in out


def test_addresses_reach_every_process(tmp_path: Path) -> None:
    rc, out, result = read(tmp_path, GOOD, 'choose_addresses\nwrite_nodes_tsv\nenv >out')
    assert rc == 0
    env = (tmp_path / "out").read_text().splitlines()
    for line in ("NODE_0_ADDR=10.0.0.1", "NODE_1_ADDR=10.0.0.2", "NO_PROXY=localhost,127.0.0.1,10.0.0.1,10.0.0.2",
                 "no_proxy=localhost,127.0.0.1,10.0.0.1,10.0.0.2"):
        assert line in env
    assert result["nodes"] == [{"index": i, "host": f"n{i}", "address": f"10.0.0.{i + 1}"} for i in (0, 1)]
    assert (tmp_path / "nodes.tsv").read_text() == "index\thost\taddress\n0\tn0\t10.0.0.1\n1\tn1\t10.0.0.2\n"


def test_a_network_that_all_nodes_share_comes_first(tmp_path: Path) -> None:
    report = ("n0\taddress\ta\t192.168.1.1\t192.168.1.0/24\nn0\taddress\tb\t10.0.0.1\t10.0.0.0/24\n"
              "n1\taddress\tc\t192.168.2.1\t192.168.2.0/24\nn1\taddress\tb\t10.0.0.2\t10.0.0.0/24\n")
    _, out, _ = read(tmp_path, report, 'choose_addresses; printf "%s" "${node_addresses[*]}"')
    assert out.endswith("10.0.0.1 10.0.0.2")
    _, out, _ = read(tmp_path, report.replace("10.0.0.0/24\n", "10.0.0.0/25\n", 1), 'choose_addresses; printf "%s" "${node_addresses[*]}"')
    assert out.endswith("192.168.1.1 192.168.2.1")


def test_a_node_without_an_address(tmp_path: Path) -> None:
    rc, _, result = read(tmp_path, GOOD.replace("n1\taddress", "n1\tx"), "choose_addresses")
    assert (rc, result["reason"]) == (10, "nodes: no usable IPv4 address on n1")


@pytest.mark.parametrize(("hosts", "skip", "code"), [("n0 n1", "", 0), ("n0", "", 10), ("n0 n1 n2", "", 10), ("n0 n1 n2", "nodes", 0), ("n0", "nodes", 10)])
def test_the_allocation_is_the_plans(hosts: str, skip: str, code: int, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", f"printf '%s\\n' {hosts}")
    done = bash(SETUP + "read_skipped_checks\nread_nodes", tmp_path, LIBRARIES, {"SRTGEN_SKIP_CHECKS": skip}, plan="")
    assert done.returncode == code, done.stdout


def test_what_had_to_be_set_at_submission(tmp_path: Path) -> None:
    done = bash(SETUP + "check_required_environment", tmp_path, LIBRARIES, {"A": "1"}, plan="PLAN_REQUIRE_ENV=(A B C)")
    assert done.returncode == 10 and "not set when the job was submitted: B C" in done.stdout


def test_facts_of_the_nodes_are_kept_as_json(tmp_path: Path) -> None:
    script = SETUP + (
        'job_folder=.; node_hosts=(a b); add_fact a gpu_model \'AMD "MI355X"\'; add_fact a power_cap_w 1400; '
        "write_identity; cat identity.json"
    )
    done = bash(script, tmp_path, LIBRARIES, plan="")
    assert json.loads(done.stdout) == {"nodes": {"a": {"gpu_model": 'AMD "MI355X"', "power_cap_w": "1400"}, "b": {}}}
