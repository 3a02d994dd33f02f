"""node_files and node_net, function by function: files, images, addresses, ports, adapters."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from jobs.shell import LIB, stub

sys.path.insert(0, str(LIB))
import node_engine  # noqa: E402  (found only by the path above)
import node_files  # noqa: E402
import node_net  # noqa: E402


def no_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


# ---- node_files ------------------------------------------------------------------------------------------------------


DOCKERS = [("exit 0", ""), ("printf ' no such image \\n'; exit 1", "no such image"), ("exit 7", "exit code 7"),
           ("exec sleep 20", "no answer within 1 s")]


@pytest.mark.parametrize(("text", "said"), DOCKERS)
def test_docker_says_its_last_words(text: str, said: str, path: Path) -> None:
    stub(path, "docker", text)
    assert node_engine.run(Namespace(runtime="docker", engine_option=[]), ["x"], 1) == said


def test_docker_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_programs(tmp_path, monkeypatch)
    assert "No such file or directory" in node_engine.run(Namespace(runtime="docker", engine_option=[]), ["x"], 1)


IMAGES = [("[[ $1 == image ]]", "ok", ""), ("[[ $1 == pull ]]", "note", "pulled a:1"),
          ("printf 'denied'; exit 1", "fail", "image a:1 is not here and docker pull failed: denied")]


@pytest.mark.parametrize(("text", "status", "said"), IMAGES)
def test_an_image_that_is_not_here_is_pulled(text: str, status: str, said: str, path: Path) -> None:
    stub(path, "docker", text)
    assert node_files.check_image(Namespace(runtime="docker", image=["a:1", "a:1"], engine_option=[])) == (status, said)


def test_an_image_file_that_cannot_be_read(tmp_path: Path) -> None:
    found = node_files.check_image(Namespace(runtime="pyxis", image=[f"{tmp_path}/x.sqsh"]))
    assert found == ("fail", f"image file {tmp_path}/x.sqsh is missing or not readable")
    assert node_files.check_image(Namespace(runtime="none", image=["/nowhere.sqsh"])) == ("ok", "runtime none")


def test_weight_files_by_the_index_else_by_their_names(tmp_path: Path) -> None:
    for name in ("b.safetensors", "a.bin", "x.gguf", "y.pt", "config.json", "c.txt"):
        (tmp_path / name).touch()
    assert node_files.weight_files(str(tmp_path)) == ["a.bin", "b.safetensors", "x.gguf", "y.pt"]
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"1": "z", "2": "a", "3": "z"}}))
    assert node_files.weight_files(str(tmp_path)) == ["a", "z"]


MOUNTS = ["/data:/model:ro", "/hub/blobs:/model/blobs", "/x:/", "bad"]
PLACES = [("/model", "/data"), ("/model/a/b", "/data/a/b"), ("/model/blobs/1", "/hub/blobs/1"), ("/models/a", "/x/models/a"), ("/other", "/x/other")]


@pytest.mark.parametrize(("path", "host"), PLACES)
def test_host_path_is_of_the_longest_mount(path: str, host: str) -> None:
    assert node_files.host_path(path, MOUNTS) == host


def test_host_path_outside_of_all_mounts() -> None:
    assert node_files.host_path("/models/a", MOUNTS[:2]) == "" == node_files.host_path("/model", [])


def test_dangles_follows_links_as_the_container_does(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    links = {"near": "a", "twice": "near", "out": "/etc/passwd", "up": "../x", "round": "round", "absolute": "/m/a"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    found = {name: node_files.dangles(f"/m/{name}", [f"{tmp_path}:/m"]) for name in (*links, "a", "absent")}
    assert found == {"near": False, "twice": False, "out": True, "up": True, "round": True, "absolute": False, "a": False, "absent": True}


@pytest.mark.parametrize(("results", "tmp", "said"), [(1 << 62, 0, "{t} has "), (0, 1 << 62, "/tmp has "), (0, 0, "")])
def test_check_disk_names_the_full_one(results: int, tmp: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_files, "RESULTS_MIN_BYTES", results)
    monkeypatch.setattr(node_files, "TMP_MIN_BYTES", tmp)
    status, text = node_files.check_disk(Namespace(results=str(tmp_path), jit_cache=""))
    assert status == ("fail" if said else "ok") and text.startswith(said.format(t=tmp_path))


def test_check_disk_without_inodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Namespace(f_bavail=1 << 40, f_frsize=4096, f_files=100, f_favail=0)
    monkeypatch.setattr(node_files.os, "statvfs", lambda folder: full)
    assert node_files.check_disk(Namespace(results=str(tmp_path), jit_cache="")) == ("fail", f"{tmp_path} has no inode free")
    full.f_files = 0  # a file system that does not count them
    assert node_files.check_disk(Namespace(results=str(tmp_path), jit_cache="")) == ("ok", "")


# ---- node_net --------------------------------------------------------------------------------------------------------


ROUTES = [("eth0 0000FEA9 0 1\neno1 00000000 0101A8C0 3\n", "eno1"), ("eth0 0000FEA9 0 1\n", ""), ("\n", ""), (None, "")]


@pytest.mark.parametrize(("rows", "name"), ROUTES)
def test_default_interface(rows: str | None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_net, "PROC", str(tmp_path))
    if rows is not None:
        (tmp_path / "net").mkdir()
        (tmp_path / "net/route").write_text("Iface Destination Gateway Flags\n" + rows)
    assert node_net.default_interface() == name


@pytest.mark.parametrize(("name", "bridge"), [("lo", True), ("docker0", True), ("br-1a", True), ("own", True), ("brand0", False), ("eth0", False)])
def test_is_bridge_by_name_or_kernel(name: str, bridge: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_net, "SYSFS", str(tmp_path))
    (tmp_path / "class/net/own/bridge").mkdir(parents=True)
    assert node_net.is_bridge(name) == bridge


def test_addresses_with_and_without_iproute2(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(path, "ip", "printf '2: eth9    inet 10.9.8.7/24 brd x scope global eth9\\n3: e inet6 ::1/128\\n'")
    assert node_net.addresses("") == [("eth9", "10.9.8.7", "10.9.8.0/24")]
    assert node_net.addresses("eth1") == []
    no_programs(tmp_path, monkeypatch)
    assert "10.9.8.7" not in [address for _, address, _ in node_net.addresses("")]
    assert node_net.addresses("lo") == []


def test_ports_that_are_free_listened_to_and_closing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (inode,) = node_net.listener_inodes(port)
        assert os.readlink(f"/proc/self/fd/{server.fileno()}") == f"socket:[{inode}]"
        assert not node_net.port_is_free(port)
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
    assert node_net.port_is_free(port)
    assert node_net.listener_inodes(port) == []


def test_a_port_of_ipv6_is_seen() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        assert len(node_net.listener_inodes(port)) == 1 and not node_net.port_is_free(port)


def test_port_owner_names_process_and_job(process: list[subprocess.Popen[str]]) -> None:
    text = "import socket, sys\ns = socket.create_server(('127.0.0.1', 0))\nprint(s.getsockname()[1], flush=True)\nsys.stdin.read()"
    one = subprocess.Popen([sys.executable, "-c", text, "a mark"], env={"SLURM_JOB_ID": "4711"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           text=True, start_new_session=True)
    process.append(one)
    assert one.stdout is not None
    port = int(one.stdout.readline())
    owner = node_net.port_owner(port)
    assert owner.startswith(f"pid {one.pid} of job 4711: {sys.executable} -c ") and len(owner) < 200
    one.kill()
    one.wait()
    assert node_net.port_owner(port) == "a process of another user"


@pytest.mark.parametrize(("there", "wanted", "said"), [
    ([], "", "RDMA device of any kind is missing; there are: none"), ([], "a", "RDMA device a is missing; there are: none"),
    (["b", "a"], "a,,c,d", "RDMA device c, d is missing; there are: a, b"), (["a"], "", "a has no active port"),
    (["a"], "a", "a has no active port")])
def test_check_rdma_says_which_adapter(there: list[str], wanted: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_net, "SYSFS", str(tmp_path))
    for name in there:
        (tmp_path / "class/infiniband" / name).mkdir(parents=True)
    assert node_net.check_rdma(Namespace(transport="rdma", ib_device=wanted, gid_index="")) == ("fail", said)


GIDS = [("InfiniBand", {}, "", True), ("Ethernet", {0: "fe80::1"}, "", False), ("Ethernet", {0: "fe80::1", 3: "::ffff:a00:1"}, "", True),
        ("Ethernet", {0: "fe80::1", 3: "::ffff:a00:1"}, "0", False), ("Ethernet", {3: "::ffff:a00:1"}, "3", True),
        ("Ethernet", {0: "FE80::1"}, "", False),
        ("Ethernet", {0: "0000:0000"}, "", False), (None, {1: "::ffff:a00:1"}, "", True), (None, {}, "", False)]


@pytest.mark.parametrize(("layer", "gids", "index", "usable"), GIDS)
def test_usable_gid_and_port_state(layer: str | None, gids: dict[int, str], index: str, usable: bool, tmp_path: Path) -> None:
    (tmp_path / "gids").mkdir()
    if layer:
        (tmp_path / "link_layer").write_text(layer + "\n")
    for number, gid in gids.items():
        (tmp_path / f"gids/{number}").write_text(gid + "\n")
    assert node_net.usable_gid(str(tmp_path), index) == usable
    assert node_net.port_state(str(tmp_path)) == ""
    (tmp_path / "state").write_text("4: ACTIVE\n")
    assert node_net.port_state(str(tmp_path)) == "4: ACTIVE"
