"""node_facts, node_gpu and node_system, function by function."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from jobs.shell import LIB, stub

sys.path.insert(0, str(LIB))
import node_engine  # noqa: E402  (found only by the path above)
import node_facts  # noqa: E402
import node_gpu  # noqa: E402
import node_system  # noqa: E402

STANDINS = Path(__file__).resolve().parent / "standins" / "bin"


def no_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


# ---- node_facts ------------------------------------------------------------------------------------------------------


def test_read_text_is_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"  6.2\xff \nmore\n")
    assert node_facts.read_text(str(tmp_path / "f")) == "6.2\ufffd"
    assert node_facts.read_text(str(tmp_path / "absent")) == "" == node_facts.read_text(str(tmp_path))


PROGRAMS = [("printf 'a b\\n'", "a b\n"), ("printf x; exit 1", ""), ("exec sleep 20", ""), (None, "")]


@pytest.mark.parametrize(("text", "out"), PROGRAMS)
def test_run_is_empty_for_all_that_does_not_work(text: str | None, out: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_facts, "SMI_TIMEOUT_S", 0.5)
    if text:
        stub(path, "tool", text)
    assert node_facts.run(["tool", "x"]) == out


def test_values_and_same() -> None:
    rows = {"card0": {"Card Series": "A", "Card Model": 1}, "card1": {"Card Series": "B"}}
    assert node_facts.values(rows, "card series") == ["A", "B"] and node_facts.values(rows, "absent") == []
    assert [node_facts.same(found) for found in (["A", "A"], ["A", "B"], [])] == ["A", "A; B", None]


def test_power_caps_are_watts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_facts, "SYSFS", str(tmp_path))
    for card, text in (("card0", "1400000000\n"), ("card1", "750000000"), ("card2", "none"), ("renderD128", "1000000")):
        folder = tmp_path / "class/drm" / card / "device/hwmon/hwmon3"
        folder.mkdir(parents=True)
        (folder / "power1_cap").write_text(text)
    assert node_facts.power_caps() == ["1400", "750"]


def test_digests_of_the_images_that_are_here(path: Path) -> None:
    stub(path, "docker", '[[ "$*" == "image inspect --format {{.Id}} "* ]] || exit 9\n[[ "$5" == a:1 ]] && printf "sha256:1\\n" || exit 1')
    images = ["b:2", "a:1", "a:1"]
    assert list(node_facts.digests(Namespace(runtime="docker", image=images, engine_option=[]))) == [("image a:1", "sha256:1")]
    assert list(node_facts.digests(Namespace(runtime="pyxis", image=images, engine_option=[]))) == []


@pytest.mark.parametrize("sysfs", [True, False])
def test_facts_of_sysfs_else_of_rocm_smi(sysfs: bool, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_facts, "SYSFS", str(tmp_path / "sys"))
    monkeypatch.setattr(node_facts, "ROCM_VERSION", str(tmp_path / "version"))
    monkeypatch.setattr(node_gpu, "known_rows", {})
    monkeypatch.setenv("STANDIN_GPUS", "2")
    stub(path, "rocm-smi", f'exec {sys.executable} {STANDINS}/rocm-smi "$@"')
    if sysfs:
        (tmp_path / "version").write_text("7.0.2-38\n")
        (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
        (tmp_path / "sys/module/amdgpu/version").write_text("6.16.6\n")
    found = dict(node_facts.facts(Namespace(runtime="none", image=[], engine_option=[])))
    expected = {"gpu_model": "AMD Instinct MI355X", "power_cap_w": "1400.0", "driver": "6.16.6" if sysfs else "6.14.14", "kernel": os.uname().release}
    assert found == expected | ({"rocm": "7.0.2-38"} if sysfs else {})


def test_facts_where_nothing_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SYSFS", "ROCM_VERSION"):
        monkeypatch.setattr(node_facts, name, str(tmp_path / "absent"))
    monkeypatch.setattr(node_gpu, "known_rows", {})
    no_programs(tmp_path, monkeypatch)
    assert list(node_facts.facts(Namespace(runtime="docker", image=["a"], engine_option=[]))) == [("kernel", os.uname().release)]


# ---- node_gpu --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "number"), [("12\n", 12), ("", 0), ("0x1", None), (None, None)])
def test_read_number(text: str | None, number: int | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "f").write_text(text)
    assert node_gpu.read_number(str(tmp_path / "f")) == number


def test_sysfs_counts_gpus_and_orders_cards_as_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_gpu, "SYSFS", str(tmp_path))
    assert (node_gpu.sysfs_count(), node_gpu.sysfs_used()) == (0, [])
    for index, gpu in enumerate(("0", "77", "", "78")):
        (tmp_path / f"class/kfd/kfd/topology/nodes/{index}").mkdir(parents=True)
        (tmp_path / f"class/kfd/kfd/topology/nodes/{index}/gpu_id").write_text(gpu)
    for card, used in (("card10", "10"), ("card2", "2"), ("card2-HDMI-A-1", "99"), ("card1", "odd")):
        (tmp_path / f"class/drm/{card}/device").mkdir(parents=True)
        (tmp_path / f"class/drm/{card}/device/mem_info_vram_used").write_text(used)
    assert (node_gpu.sysfs_count(), node_gpu.sysfs_used()) == (2, [2, 10])
    assert node_gpu.used_bytes() == [2, 10]


@pytest.mark.parametrize(("mode", "cards"), [("", 3), ("fail", None), ("empty", 0)])
def test_smi_keeps_what_it_said(mode: str, cards: int | None, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_gpu, "known_rows", {"old": {}})
    monkeypatch.setattr(node_gpu, "SYSFS", str(tmp_path / "none"))
    monkeypatch.setenv("STANDIN_GPUS", "3")
    monkeypatch.setenv("STANDIN_GPU_USED_GIB", "1,2,3")
    monkeypatch.setenv("STANDIN_ROCM_SMI", mode)
    stub(path, "rocm-smi", f'exec {sys.executable} {STANDINS}/rocm-smi "$@"')
    rows = node_gpu.smi()
    if cards is None:
        assert rows is None and node_gpu.known_rows == {"old": {}} and node_gpu.used_bytes() is None
        return
    assert rows is not None and sum(name.startswith("card") for name in rows) == cards
    assert node_gpu.known_rows == rows
    assert node_gpu.used_bytes() == [(index + 1) << 30 for index in range(cards)]


def test_smi_that_is_missing_or_hangs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert node_gpu.smi() is None
    stub(path, "rocm-smi", "exec sleep 20")
    real = subprocess.run
    monkeypatch.setattr(node_gpu.subprocess, "run", lambda *words, **more: real(*words, **{**more, "timeout": 0.3}))
    assert node_gpu.smi() is None


def test_owners_names_at_most_four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_gpu, "SYSFS", str(tmp_path))
    assert node_gpu.owners() == ""
    (tmp_path / "class/kfd/kfd/proc" / str(os.getpid())).mkdir(parents=True)
    mine = node_gpu.owners()
    command = Path("/proc/self/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    assert mine == f"; held by pid {os.getpid()} {command[:80]}".strip()
    for pid in range(5):
        (tmp_path / f"class/kfd/kfd/proc/99999999{pid}").mkdir()
    assert node_gpu.owners().count("pid ") == 4 and "pid 999999991;" in node_gpu.owners() + ";"


# ---- node_system -----------------------------------------------------------------------------------------------------


TOOLS = [("none", None, "ok", ""), ("pyxis", None, "ok", ""), ("docker", None, "fail", "docker is missing"),
         ("apptainer", None, "fail", "apptainer is missing"),
         ("podman", "exit 1", "fail", "podman ps fails: exit code 1"), ("apptainer", "exit 0", "ok", ""), ("docker", "exit 0", "ok", ""),
         ("docker", "printf 'no daemon' >&2; exit 1", "fail", "docker ps fails: no daemon")]


@pytest.mark.parametrize(("runtime", "program", "status", "text"), TOOLS)
def test_check_tools(runtime: str, program: str | None, status: str, text: str, path: Path) -> None:
    if program:
        stub(path, runtime, program)
    assert node_system.check_tools(Namespace(runtime=runtime, tool=[], engine_option=[])) == (status, text)


def test_a_docker_that_hangs_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(path, "docker", "exec sleep 20")
    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *words, **more: real(*words, **{**more, "timeout": 0.3}))
    assert node_system.check_tools(Namespace(runtime="docker", tool=[], engine_option=[])) == ("fail", "docker ps fails: no answer within 30 s")


DOCKER = Namespace(runtime="docker", engine_option=[])


def test_leftover_containers_by_user_and_job(path: Path, tmp_path: Path) -> None:
    stub(path, "docker", f'printf "%s|" "$@" >{tmp_path}/asked; printf "aa 5\\nbb 6\\ncc\\n\\ndd 7 x\\nee 56\\n"')
    assert node_engine.leftover_containers(DOCKER, 1000, ["5", "7"]) == ["bb", "ee"]
    assert "label=srtgen.uid=1000|" in (tmp_path / "asked").read_text()
    assert node_engine.leftover_containers(DOCKER, 1000, []) == ["aa", "bb", "ee"]


def test_a_leftover_that_cannot_be_removed_is_a_failure(path: Path) -> None:
    stub(path, "docker", '[[ "$1" != ps ]] || printf "aa 5\\n"')
    found = node_system.check_containers(Namespace(runtime="docker", running_job=["6"], engine_option=[], probe=[]))
    assert found == ("fail", "containers of ended jobs cannot be removed: aa")
