"""The functions below the checks of a node (node_*.py), node_clean.py, and node_check.sh's report."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs.script import gone
from jobs.shell import LIB, bash, stub

sys.path.insert(0, str(LIB))
import node_check  # noqa: E402  (found only by the path above)
import node_clean  # noqa: E402
import node_facts  # noqa: E402
import node_files  # noqa: E402
import node_gpu  # noqa: E402
import node_net  # noqa: E402
import node_system  # noqa: E402

STANDINS = Path(__file__).resolve().parent / "standins" / "bin"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """tmp/bin first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def no_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


# ---- node_check ------------------------------------------------------------------------------------------------------


def test_say_is_one_line_of_fields(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n3")
    node_check.say("check", "ports", "fail", "a\tb\n  c ", "")
    assert capsys.readouterr().out == "n3\tcheck\tports\tfail\ta b c\t\n"


def crashing(plan: Namespace) -> tuple[str, str]:
    raise KeyError("x")


CHECKS = [(lambda plan: ("note", "so\nso"), [], "note\tso so"), (crashing, [], "fail\tthe check itself failed: KeyError: 'x'"),
          (crashing, ["mine"], "skip\tSRTGEN_SKIP_CHECKS"), (lambda plan: ("ok", ""), ["other"], "ok\t")]


@pytest.mark.parametrize(("check", "skip", "line"), CHECKS)
def test_run_check(check: node_check.Check, skip: list[str], line: str, monkeypatch: pytest.MonkeyPatch,
                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    node_check.run_check("mine", check, Namespace(skip=skip))
    assert capsys.readouterr().out == f"\tcheck\tmine\t{line}\n"


COMMANDS = [("true", "ok", ""), ("printf ' fine \\n'; printf more >&2", "ok", "fine \nmore"), ("printf no; exit 3", "fail", "exit code 3: no"),
            ("read x", "fail", "exit code 1: "), ("printf '%0400d' 1; exit 1", "fail", "exit code 1: " + "0" * 299 + "1")]


@pytest.mark.parametrize(("command", "status", "text"), COMMANDS)
def test_profile_check_is_a_command_of_bash_without_input(command: str, status: str, text: str) -> None:
    assert node_check.profile_check(command)(Namespace()) == (status, text)


def test_a_profile_check_that_hangs_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = subprocess.run
    monkeypatch.setattr(node_check.subprocess, "run", lambda *words, **more: real(*words, **{**more, "timeout": 0.3}))
    node_check.run_check("mine", node_check.profile_check("exec sleep 20"), Namespace(skip=[]))
    assert "fail\tthe check itself failed: TimeoutExpired" in capsys.readouterr().out


def test_parse_arguments_has_defaults_and_lists() -> None:
    empty = node_check.parse_arguments([])
    assert (empty.bundle, empty.gpus, empty.image, empty.running_job) == ("", 0, [], [])
    plan = node_check.parse_arguments(["--gpus=8", "--image", "a", "--image", "b c", "--node-cpus=n0=4", "--cpus-per-task=6", "--ib-device=x,y"])
    assert (plan.gpus, plan.image, plan.node_cpus, plan.cpus_per_task, plan.ib_device) == (8, ["a", "b c"], ["n0=4"], "6", "x,y")
    with pytest.raises(SystemExit):
        node_check.parse_arguments(["--gpus=many"])


def test_main_reports_addresses_edits_every_check_and_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                            capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {"gone file": {"sha256": "0"}}}))
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    skips = [f"--skip={name}" for name, _ in node_check.CHECKS if name != "bundle"]
    assert node_check.main(["--bundle", str(tmp_path), "--command=mine\texit 4", *skips]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert ["n1", "modified", "gone file"] in rows and ["n1", "fact", "kernel", os.uname().release] in rows
    assert ["n1", "check", "bundle", "note", "edited since generation: gone file"] in rows and rows[-1][2:4] == ["mine", "fail"]
    assert [row[2] for row in rows if row[1] == "check"] == [name for name, _ in node_check.CHECKS] + ["mine"]


def test_report_of_the_shell_part_is_the_same_line(tmp_path: Path) -> None:
    text = (LIB / "node_check.sh").read_text()
    functions = text[text.index("report() {"): text.index("\ntools=ok")]
    done = bash(functions + "\nreport tools fail 'a b: no'", tmp_path, env={"SLURMD_NODENAME": "n9"})
    assert done.stdout == "n9\tcheck\ttools\tfail\ta b: no\n"


# ---- node_clean ------------------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> str:
    return f"c{os.getpid()}{tmp_path.name}"


@pytest.fixture
def process(job: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are killed in any case."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()


def step_of(job: str, process: list[subprocess.Popen[str]], text: str = "sleep 60", **env: str) -> int:
    names = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": job, "SRTGEN_STEP": "agg_0", "SLURM_STEP_ID": "3", **env}
    one = subprocess.Popen(["bash", "-c", f"{text} & printf 'up\\n'; wait; wait"], env={n: v for n, v in names.items() if v}, text=True,
                           stdout=subprocess.PIPE, start_new_session=True)
    assert one.stdout is not None and one.stdout.readline() == "up\n"
    process.append(one)
    return one.pid


def test_environment_and_name_of_a_process(process: list[subprocess.Popen[str]], job: str) -> None:
    pid = step_of(job, process, ODD="a=b c", EMPTY="")
    assert node_clean.environment(pid).items() >= {"SLURM_JOB_ID": job, "ODD": "a=b c"}.items()
    assert node_clean.name_of(pid) == "bash"
    assert (node_clean.environment(1 << 30), node_clean.name_of(1 << 30)) == ({}, "")


@pytest.mark.parametrize(("env", "ours"), [({}, True), ({"SLURM_JOB_ID": "other"}, False), ({"SRTGEN_STEP": ""}, False), ({"SLURM_STEP_ID": ""}, False)])
def test_leftovers_are_processes_of_the_jobs_steps(env: dict[str, str], ours: bool, process: list[subprocess.Popen[str]], job: str) -> None:
    pid = step_of(job, process, **env)
    assert (pid in node_clean.leftovers(job)) == ours


def test_leftovers_leave_srun_alone(process: list[subprocess.Popen[str]], job: str, tmp_path: Path) -> None:
    (tmp_path / "srun").symlink_to("/usr/bin/sleep")
    names = {"SLURM_JOB_ID": job, "SRTGEN_STEP": "agg_0", "SLURM_STEP_ID": "3"}
    one = subprocess.Popen([str(tmp_path / "srun"), "60"], env=names, text=True, start_new_session=True)
    process.append(one)
    end = time.monotonic() + 10
    while node_clean.name_of(one.pid) != "srun":
        assert time.monotonic() < end
        time.sleep(0.01)
    assert node_clean.leftovers(job) == []


def test_send_reaches_all_that_live(process: list[subprocess.Popen[str]], job: str) -> None:
    pid = step_of(job, process)
    node_clean.send([1 << 30, pid], signal.SIGKILL)
    assert process[0].wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(("trap", "code"), [("trap 'exit 3' TERM; sleep 60", 3), ("trap '' TERM; sleep 60", -9)])
def test_end_processes_asks_and_then_kills(trap: str, code: int, process: list[subprocess.Popen[str]], job: str,
                                           capfd: pytest.CaptureFixture[str]) -> None:
    pid = step_of(job, process, trap)
    node_clean.end_processes(job)
    assert process[0].wait(10) == code
    assert node_clean.leftovers(job) == [] and gone(pid)
    assert f"{pid} (bash)" in capfd.readouterr().out
    node_clean.end_processes(job)
    assert capfd.readouterr().out == ""


DOCKER = """printf '%s|' "$@" >>{t}/calls; printf '\\n' >>{t}/calls
[[ "$1" != ps ]] || printf '{names}'"""


@pytest.mark.parametrize(("names", "removed"), [("aa\\nbb\\n", "rm|--force|aa|bb|"), ("", None)])
def test_remove_containers_of_the_job_only(names: str, removed: str | None, path: Path, tmp_path: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    stub(path, "docker", DOCKER.format(t=tmp_path, names=names))
    node_clean.remove_containers("7")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["ps|--all|--quiet|--filter|label=srtgen.job=7|"] + ([removed] if removed else [])
    assert bool(capsys.readouterr().out) == bool(removed)


@pytest.mark.parametrize(("runtime", "asked"), [("docker", True), ("pyxis", False), ("none", False)])
def test_main_of_node_clean_removes_the_work_folder(runtime: str, asked: bool, path: Path, tmp_path: Path, job: str) -> None:
    stub(path, "docker", DOCKER.format(t=tmp_path, names=""))
    work = Path(f"/tmp/srtgen-{job}")
    (work / "agg_0" / "x").mkdir(parents=True)
    node_clean.main(job, runtime)
    assert not work.exists() and (tmp_path / "calls").exists() == asked
    node_clean.main(job, runtime)


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
    assert list(node_facts.digests(Namespace(runtime="docker", image=images))) == [("image a:1", "sha256:1")]
    assert list(node_facts.digests(Namespace(runtime="pyxis", image=images))) == []


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
    found = dict(node_facts.facts(Namespace(runtime="none", image=[])))
    expected = {"gpu_model": "AMD Instinct MI355X", "power_cap_w": "1400.0", "driver": "6.16.6" if sysfs else "6.14.14", "kernel": os.uname().release}
    assert found == expected | ({"rocm": "7.0.2-38"} if sysfs else {})


def test_facts_where_nothing_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SYSFS", "ROCM_VERSION"):
        monkeypatch.setattr(node_facts, name, str(tmp_path / "absent"))
    monkeypatch.setattr(node_gpu, "known_rows", {})
    no_programs(tmp_path, monkeypatch)
    assert list(node_facts.facts(Namespace(runtime="docker", image=["a"]))) == [("kernel", os.uname().release)]


# ---- node_files ------------------------------------------------------------------------------------------------------


DOCKERS = [("exit 0", ""), ("printf ' no such image \\n'; exit 1", "no such image"), ("exit 7", "exit code 7"),
           ("exec sleep 20", "Command '['docker', 'x']' timed out after 1 seconds")]


@pytest.mark.parametrize(("text", "said"), DOCKERS)
def test_docker_says_its_last_words(text: str, said: str, path: Path) -> None:
    stub(path, "docker", text)
    assert node_files.docker(["x"], 1) == said


def test_docker_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_programs(tmp_path, monkeypatch)
    assert "No such file or directory" in node_files.docker(["x"], 1)


IMAGES = [("[[ $1 == image ]]", "ok", ""), ("[[ $1 == pull ]]", "note", "pulled a:1"),
          ("printf 'denied'; exit 1", "fail", "image a:1 is not here and docker pull failed: denied")]


@pytest.mark.parametrize(("text", "status", "said"), IMAGES)
def test_an_image_that_is_not_here_is_pulled(text: str, status: str, said: str, path: Path) -> None:
    stub(path, "docker", text)
    assert node_files.check_image(Namespace(runtime="docker", image=["a:1", "a:1"])) == (status, said)


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
    status, text = node_files.check_disk(Namespace(results=str(tmp_path)))
    assert status == ("fail" if said else "ok") and text.startswith(said.format(t=tmp_path))


def test_check_disk_without_inodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Namespace(f_bavail=1 << 40, f_frsize=4096, f_files=100, f_favail=0)
    monkeypatch.setattr(node_files.os, "statvfs", lambda folder: full)
    assert node_files.check_disk(Namespace(results=str(tmp_path))) == ("fail", f"{tmp_path} has no inode free")
    full.f_files = 0  # a file system that does not count them
    assert node_files.check_disk(Namespace(results=str(tmp_path))) == ("ok", "")


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
    (["b", "a"], "a,,c,d", "RDMA device c, d is missing; there are: a, b"), (["a"], "", "a has no active port"), (["a"], "a", "a has no active port")])
def test_check_rdma_says_which_adapter(there: list[str], wanted: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_net, "SYSFS", str(tmp_path))
    for name in there:
        (tmp_path / "class/infiniband" / name).mkdir(parents=True)
    assert node_net.check_rdma(Namespace(transport="rdma", ib_device=wanted, gid_index="")) == ("fail", said)


GIDS = [("InfiniBand", {}, "", True), ("Ethernet", {0: "fe80::1"}, "", False), ("Ethernet", {0: "fe80::1", 3: "::ffff:a00:1"}, "", True),
        ("Ethernet", {0: "fe80::1", 3: "::ffff:a00:1"}, "0", False), ("Ethernet", {3: "::ffff:a00:1"}, "3", True), ("Ethernet", {0: "FE80::1"}, "", False),
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


# ---- node_system -----------------------------------------------------------------------------------------------------


TOOLS = [("none", None, "ok", ""), ("pyxis", None, "ok", ""), ("docker", None, "fail", "docker is missing"), ("apptainer", None, "fail", "apptainer is missing"),
         ("podman", "exit 1", "ok", ""), ("docker", "exit 0", "ok", ""), ("docker", "printf 'no daemon' >&2; exit 1", "fail", "docker ps fails: no daemon")]


@pytest.mark.parametrize(("runtime", "program", "status", "text"), TOOLS)
def test_check_tools(runtime: str, program: str | None, status: str, text: str, path: Path) -> None:
    if program:
        stub(path, runtime, program)
    assert node_system.check_tools(Namespace(runtime=runtime)) == (status, text)


def test_a_docker_that_hangs_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(path, "docker", "exec sleep 20")
    real = subprocess.run
    monkeypatch.setattr(node_system.subprocess, "run", lambda *words, **more: real(*words, **{**more, "timeout": 0.3}))
    assert node_system.check_tools(Namespace(runtime="docker")) == ("fail", "docker does not answer")


def test_leftover_containers_by_user_and_job(path: Path, tmp_path: Path) -> None:
    stub(path, "docker", f'printf "%s|" "$@" >{tmp_path}/asked; printf "aa 5\\nbb 6\\ncc\\n\\ndd 7 x\\nee 56\\n"')
    assert node_system.leftover_containers(1000, ["5", "7"]) == ["bb", "ee"]
    assert "label=srtgen.uid=1000|" in (tmp_path / "asked").read_text()
    assert node_system.leftover_containers(1000, []) == ["aa", "bb", "ee"]


def test_a_leftover_that_cannot_be_removed_is_a_failure(path: Path) -> None:
    stub(path, "docker", '[[ "$1" != ps ]] || printf "aa 5\\n"')
    found = node_system.check_containers(Namespace(runtime="docker", running_job=["6"]))
    assert found == ("fail", "containers of ended jobs cannot be removed: aa")
