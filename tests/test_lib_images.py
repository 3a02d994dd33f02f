"""Images imported into files: names, which nodes, what a whole file is, and one import step by step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs.shell import LIB, bash, stub
from slurm_cluster import STANDINS, write_image
from srtgen.runtimes import RUNTIMES
from test_lib_preflight import plan

sys.path.insert(0, str(LIB))
import image_file  # noqa: E402  (found only by the path above)
import node_files  # noqa: E402
import node_system  # noqa: E402
import stage_image  # noqa: E402

REFERENCE = "docker://rocm/atom:1"
NAMES = [("a/b:1", "a_b_1-"), ("ghcr.io#a/b:1", "ghcr.io_a_b_1-"), ("a/b@sha256:0f", "a_b_sha256_0f-"), ("dockerd://a/b", "dockerd_a_b-")]


@pytest.mark.parametrize(("image", "name"), NAMES)
@pytest.mark.parametrize(("runtime", "suffix"), [("pyxis", ".sqsh"), ("apptainer", ".sif")])
def test_the_name_shows_the_reference(runtime: str, suffix: str, image: str, name: str) -> None:
    found = RUNTIMES[runtime].staged(image, "/local")
    assert found is not None
    file, source = found
    assert file.startswith(f"/local/{name}") and file.endswith(suffix) and file.count("/") == 2
    assert source == (image if "://" in image else f"docker://{image}")


def test_no_two_references_share_a_file() -> None:
    images = ["a/b:c", "a_b_c", "a/b_c", "a:b/c", "a@b/c", "x" * 300, "x" * 301]
    files = {found[0] for image in images if (found := RUNTIMES["pyxis"].staged(image, "/l"))}
    assert len(files) == len(images) and all(len(Path(file).name) < 240 for file in files)


def test_files_are_used_as_they_are() -> None:
    assert RUNTIMES["apptainer"].staged("/images/a.sif", "/local") is None


@pytest.mark.parametrize("kind", ["squashfs", "sif"])
def test_a_file_is_whole_or_not(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "image"
    write_image(str(path), kind, 10000)
    assert image_file.problem(str(path)) == ""
    whole = path.read_bytes()
    for content, said in ((b"", "is empty"), (whole[:-1], "has 9999 of its 10000 bytes"), (whole[:100], "is no image"),
                          (bytes(len(whole)), "is no image"), (b"<html>" * 100, "is no image")):
        path.write_bytes(content)
        assert said in image_file.problem(str(path)), content[:10]
    with pytest.raises(OSError):
        image_file.problem(str(tmp_path / "absent"))


def test_padding_behind_a_squashfs_is_none_of_its_business(tmp_path: Path) -> None:
    write_image(str(tmp_path / "x"), "squashfs", 10000)
    with open(tmp_path / "x", "ab") as stream:
        stream.write(bytes(4096))
    assert image_file.problem(str(tmp_path / "x")) == ""


PLACED = """PLAN_RUNTIME=pyxis
PLAN_STAGED_IMAGES=($'/l/a.sqsh\\tdocker://a' $'/l/b.sqsh\\tdocker://b')
-A PLAN_IMAGE=([prefill]=/l/a.sqsh [decode]=/l/b.sqsh [atomesh]=/l/a.sqsh [bench]=/x.sqsh)"""


def test_each_node_imports_what_its_steps_use(tmp_path: Path) -> None:
    text = """node_hosts=(n0 n1 spare)
stage_step() { printf '%s\\n' "$@"; }
stage_images"""
    done = bash(text, tmp_path, ["stage", "stage_image"], plan=PLACED)
    assert done.stdout.splitlines() == [
        "stage_image", "7200", "n0,n1", "python3", "-E", "-s", "-B", f"{tmp_path}/bundle/lib/stage_image.py",
        "n0", "/l/a.sqsh", "docker://a", "n1", "/l/b.sqsh", "docker://b"], done.stderr


def test_the_image_that_fetches_the_model_goes_to_every_worker(tmp_path: Path) -> None:
    text = 'node_hosts=(n0 n1)\nimage_hosts /l/a.sqsh\nprintf "%s" "${REPLY}"'
    plan_of = PLACED.replace("[bench]=", "[prefetch]=/l/a.sqsh [bench]=")
    assert bash(text, tmp_path, ["stage", "stage_image"], plan=plan_of).stdout == "n0,n1"
    assert bash(text, tmp_path, ["stage", "stage_image"], plan=PLACED).stdout == "n0"


@pytest.mark.parametrize(("changes", "asked"), [(PLACED, "--tool enroot"), ("PLAN_RUNTIME=pyxis", ""),
                                                (PLACED.replace("pyxis", "apptainer"), "")])
def test_the_importing_program_is_looked_for(changes: str, asked: str, tmp_path: Path) -> None:
    text = 'check_arguments=()\ncollect_staging_tools\nprintf "%s" "${check_arguments[*]}"'
    assert bash(text, tmp_path, ["stage", "stage_image"], plan=changes).stdout == asked


def test_nothing_is_staged_without_a_folder(tmp_path: Path) -> None:
    done = bash('stage_images; is_staged /x || printf no', tmp_path, ["stage", "stage_image"], plan="PLAN_RUNTIME=pyxis")
    assert (done.returncode, done.stdout) == (0, "no")


def test_a_missing_tool_fails_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert node_system.check_tools(plan(runtime="pyxis", tool=["enroot"])) == ("fail", "enroot is missing")


def test_a_damaged_sif_fails_the_checks(tmp_path: Path) -> None:
    path = tmp_path / "a.sif"
    write_image(str(path), "sif", 10000)
    assert node_files.check_image(plan(runtime="apptainer", image=[str(path)])) == ("ok", "")
    path.write_bytes(path.read_bytes()[:5000])
    assert node_files.check_image(plan(runtime="apptainer", image=[str(path)])) == (
        "fail", f"image file {path} has 5000 of its 10000 bytes")
    assert node_files.check_image(plan(runtime="apptainer", image=[str(tmp_path)])) == ("ok", "")  # a sandbox


def start(folder: Path, file: str = "a.sqsh", **env: str) -> subprocess.Popen[str]:
    """One node's part of the step."""
    names = {"PATH": f"{STANDINS}/bin:/usr/bin:/bin", "SLURMD_NODENAME": "n1", "ENROOT_STANDIN_STATE": f"{folder}/state",
             "APPTAINER_STANDIN_STATE": f"{folder}/state", **env}
    argv = [sys.executable, "-E", "-s", "-B", str(LIB / "stage_image.py"), "n0", "/nowhere/x.sqsh", "docker://other", "n0,n1",
            f"{folder}/images/{file}", REFERENCE]
    return subprocess.Popen(argv, env=names, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(folder: Path, file: str = "a.sqsh", **env: str) -> tuple[int, list[str]]:
    process = start(folder, file, **env)
    out, _ = process.communicate(timeout=60)
    return process.returncode, out.splitlines()


def calls(folder: Path) -> int:
    return len((folder / "state" / "calls.jsonl").read_text().splitlines())


@pytest.mark.parametrize("file", ["a.sqsh", "a.sif"])
def test_an_import_leaves_the_file_and_nothing_else(file: str, tmp_path: Path) -> None:
    code, lines = run(tmp_path, file)
    assert code == 0 and f"{tmp_path}/images/{file} imported in " in lines[-1]
    assert sorted(os.listdir(tmp_path / "images")) == [f".{file}.lock", file]
    assert image_file.problem(f"{tmp_path}/images/{file}") == ""
    code, lines = run(tmp_path, file)
    assert code == 0 and lines == [f"{tmp_path}/images/{file} is there: 1.0 MiB"]
    assert calls(tmp_path) == 1


def test_the_operators_folders_are_kept(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    stub(tmp_path / "bin", "enroot", f"printf '%s\\n' \"$ENROOT_TEMP_PATH\" \"$ENROOT_CACHE_PATH\" >{tmp_path}/seen; exec {STANDINS}/bin/enroot \"$@\"")
    assert run(tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin", ENROOT_TEMP_PATH=f"{tmp_path}/mine")[0] == 0
    temp, cache = (tmp_path / "seen").read_text().split()
    assert temp == f"{tmp_path}/mine" and cache.startswith(f"{tmp_path}/images/.a.sqsh.srtgen-part/")


def test_what_is_killed_keeps_its_folder_until_its_last_process_ends(tmp_path: Path) -> None:
    """The lock belongs to the import too: a second job does not write where a first one still does."""
    first = start(tmp_path, ENROOT_STANDIN_HANG="1")
    until(lambda: (tmp_path / "images" / ".a.sqsh.srtgen-part" / "image").exists())
    children = [int(pid) for pid in Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()]
    first.kill()
    first.wait()
    second = start(tmp_path)
    assert second.stdout
    assert "waiting for another job that imports" in second.stdout.readline()
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    out, _ = second.communicate(timeout=30)
    assert second.returncode == 0 and "removing what an import that was cut short has left" in out
    assert sorted(os.listdir(tmp_path / "images")) == [".a.sqsh.lock", "a.sqsh"]


def test_a_registry_that_fails_once_is_asked_again(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "enroot", f"[[ -e {tmp_path}/once ]] || {{ : >{tmp_path}/once; echo 'error code: 503' >&2; exit 1; }}\n"
         f"exec {STANDINS}/bin/enroot \"$@\"")
    code, lines = run(tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    assert code == 0 and any(line.startswith("again in 5 s: (") and line.endswith("error code: 503") for line in lines)


def test_a_program_that_makes_no_image_is_not_believed(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "enroot", 'printf "<html>" >"$3"')
    code, lines = run(tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    assert code == 1 and "is no image: it begins with neither" in lines[-1]
    assert sorted(os.listdir(tmp_path / "images")) == [".a.sqsh.lock"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "images").write_text("a file")
    code, lines = run(tmp_path)
    assert code == 1 and str(tmp_path / "images") in lines[-1]


def until(check: object) -> None:
    end = time.monotonic() + 20
    while not check():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


def test_folders_of_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPTAINER_TMPDIR", "")
    env = stage_image.environment(stage_image.IMPORTERS[".sif"], str(tmp_path))
    assert env["APPTAINER_TMPDIR"] == f"{tmp_path}/apptainer_tmpdir" and Path(env["APPTAINER_TMPDIR"]).is_dir()


def test_an_import_hands_its_words_on(capfd: pytest.CaptureFixture[str]) -> None:
    assert stage_image.run(["sh", "-c", "echo one; echo; echo '  two  '; exit 4"], dict(os.environ), -1) == "two"
    assert capfd.readouterr().out == "one\ntwo\n"
    assert stage_image.run(["false"], dict(os.environ), -1) == "exit code 1"
    assert stage_image.run(["true"], dict(os.environ), -1) == ""


def test_without_locks_each_import_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[str] = []
    monkeypatch.setattr(stage_image, "take_turn", lambda path, what: -1)
    monkeypatch.setattr(stage_image, "attempt", lambda file, reference, part, lock: parts.append(part) or str(write_image(file, "squashfs") or ""))
    stage_image.stage(f"{tmp_path}/a.sqsh", REFERENCE)
    assert parts[0].endswith(f"-{os.getpid()}") and stage_image.give_back(-1) is None


def test_an_attempt_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path / "bin", "enroot", "echo no such manifest; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    said = stage_image.attempt(f"{tmp_path}/a.sqsh", REFERENCE, f"{tmp_path}/part", -1)
    assert said.endswith(" free) no such manifest") and not (tmp_path / "part").exists()
