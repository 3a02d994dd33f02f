"""lib/stage_model.py: a node's own copy of a model, by the program itself on real files."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs.shell import LIB
from model_rig import SHARD, contents, model_folder, sums

sys.path.insert(0, str(LIB))
import stage_files  # noqa: E402  (found only by the path above)
import turn  # noqa: E402

FILES = 7  # that model_folder makes and a copy holds


def start(source: Path, target: Path, wrap: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    argv = [*wrap, sys.executable, "-E", "-s", "-B", str(LIB / "stage_model.py"), str(source), str(target)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def stage(source: Path, target: Path, wrap: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    """Exit code and lines of one run."""
    process = start(source, target, wrap)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output.splitlines()


def copied(lines: list[str]) -> int:
    """Files that a run says it copied."""
    assert lines[-1].startswith("complete: "), lines
    return int(lines[-1].split(" of them copied now")[0].rsplit(" ", 1)[-1])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "shared" / "a model")


def test_a_copy_is_whole_and_made_once(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "nvme" / "m"
    code, lines = stage(source, target)
    assert (code, copied(lines)) == (0, FILES)
    assert contents(target) == contents(source)
    assert not (target / "tokenizer.json").is_symlink()
    assert not (target / ".git").exists()
    before = {path: path.stat().st_ino for path in target.rglob("*")}
    code, lines = stage(source, target)
    assert (code, copied(lines)) == (0, 0)
    assert {path: path.stat().st_ino for path in target.rglob("*")} == before


def test_only_what_differs_is_copied_again(source: Path, tmp_path: Path) -> None:
    """A file that is gone, one cut short, one of an older state with the same size, and ones that are too many."""
    target = tmp_path / "nvme" / "m"
    stage(source, target)
    shards = sorted(target.glob("*.safetensors"))
    shards[0].unlink()
    os.truncate(shards[1], 5)
    (source / "config.json").write_text("[]")
    os.utime(source / "config.json", (1, 1))
    (target / "model-00004.safetensors").write_text("of an older state")
    (target / f".x{stage_files.PART}").write_text("half")
    code, lines = stage(source, target)
    assert (code, copied(lines)) == (0, 3)
    assert contents(target) == contents(source)
    assert not (target / f".x{stage_files.PART}").exists()
    assert f"removing {target}/model-00004.safetensors, which the model does not have" in lines


@pytest.mark.parametrize("name", ["SHA256SUMS", "sha256sums.txt", "model-00001-of-00003.safetensors.sha256"])
def test_a_checksum_file_finds_damage_of_the_same_size(name: str, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "nvme" / "m"
    sums(source, name)
    stage(source, target)
    shard = target / "model-00001-of-00003.safetensors"
    info = shard.stat()
    shard.write_bytes(b"y" * SHARD)
    os.utime(shard, ns=(info.st_atime_ns, info.st_mtime_ns))
    code, lines = stage(source, target)
    assert (code, copied(lines)) == (0, 1)
    assert contents(target) == contents(source)


def test_a_source_that_is_damaged_is_not_taken(source: Path, tmp_path: Path) -> None:
    sums(source)
    shard = source / "model-00002-of-00003.safetensors"
    shard.write_bytes(b"y" * SHARD)
    code, lines = stage(source, tmp_path / "nvme" / "m")
    assert (code, lines[-1]) == (1, f"{shard} does not have the sha256 of the model's checksum file")
    assert not (tmp_path / "nvme" / "m" / shard.name).exists()


def test_a_hash_without_a_name_is_of_the_file_that_its_file_is_named_after(source: Path) -> None:
    (source / "config.json.sha256").write_text("A" * 64 + "\n")
    (source / "code" / "SHA256SUMS").write_text("b" * 64 + " *modeling.py\nno sum\n")
    assert stage_files.checksums(stage_files.listing(str(source))) == {"config.json": "a" * 64, "code/modeling.py": "b" * 64}


REFUSED = {
    "dangling link": (lambda model: (model / "more.json").symlink_to("nowhere"), "more.json (a link to nowhere): No such file"),
    "loop of folders": (lambda model: (model / "again").symlink_to("."), "is reached twice, by links"),
    "pipe": (lambda model: os.mkfifo(model / "pipe"), "pipe is no file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_source_that_cannot_be_copied(name: str, source: Path, tmp_path: Path) -> None:
    spoil, words = REFUSED[name]
    spoil(source)
    code, lines = stage(source, tmp_path / "nvme" / "m")
    assert code == 1 and words in lines[-1]


def on_small_disk(folder: Path, options: str) -> tuple[str, ...]:
    """Words that run a command where the folder is a small file system of its own."""
    folder.mkdir()
    text = f"mount -t tmpfs -o {options} none {str(folder)!r} && exec \"$@\""
    allowed = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    if allowed.returncode:
        pytest.skip("namespaces are not allowed here (root is needed)")
    return ("unshare", "--mount", "bash", "-c", text, "small")


def test_too_little_room_is_seen_before_a_byte_is_copied(source: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    code, lines = stage(source, disk / "m", on_small_disk(disk, "size=2m"))
    assert (code, lines) == (1, [f"{disk} has 2.0 MiB free, 3.0 MiB are needed"])


def test_a_disk_that_fills_up_is_named(source: Path, tmp_path: Path) -> None:
    """Room enough by bytes, none for another file."""
    disk = tmp_path / "disk"
    code, lines = stage(source, disk / "m", on_small_disk(disk, "size=16m,nr_inodes=6"))
    assert (code, lines[-1]) == (1, f"{disk}/m: No space left on device")


def cut_short(source: Path, target: Path) -> bool:
    """Kills a run between the first byte of a file and its end; False if the run was faster."""
    process = start(source, target)
    while process.poll() is None:
        if any(part.stat().st_size for part in target.glob(f".*{stage_files.PART}")):
            process.kill()
            break
        time.sleep(0.001)
    process.communicate()
    return process.returncode == -signal.SIGKILL and bool(list(target.glob(f".*{stage_files.PART}")))


def test_a_copy_that_was_killed_goes_on(tmp_path: Path) -> None:
    source, target = model_folder(tmp_path / "shared" / "m", 2), tmp_path / "nvme" / "m"
    big = source / "model-00003.safetensors"
    with big.open("wb") as stream:
        stream.truncate(256 << 20)
    stage(model_folder(tmp_path / "other" / "m", 2), target)  # of another job: small files that are the same
    for path in target.rglob("*"):
        if path.is_file():
            os.utime(path, ns=(1, (source / path.relative_to(target)).stat().st_mtime_ns))
    assert any(cut_short(source, target) for _ in range(5))
    assert not (target / big.name).exists()
    code, lines = stage(source, target)
    assert (code, copied(lines)) == (0, 1)
    assert (target / big.name).stat().st_size == 256 << 20
    assert not list(target.glob(f".*{stage_files.PART}"))


def test_two_jobs_on_a_node_take_turns(source: Path, tmp_path: Path) -> None:
    """Both come while a third one copies; then one of them does what is left, the other has nothing to do."""
    target = tmp_path / "nvme" / "m"
    target.parent.mkdir()
    lock = os.open(target.parent / ".m.lock", os.O_RDONLY | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    both = [start(source, target), start(source, target)]
    for process in both:
        assert process.stdout and process.stdout.readline().startswith("waiting for another job that copies this model here (lock ")
    assert not target.exists()
    os.close(lock)
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sorted(copied(lines) for lines in outputs) == [0, FILES]
    assert contents(target) == contents(source)


def test_a_lock_that_cannot_be_had_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(turn.fcntl, "flock", refuse)
    assert turn.take_turn(str(tmp_path / "lock"), "works") == -1
    assert capsys.readouterr().out == f"going on without a lock: {tmp_path}/lock: No locks available\n"


HANGS = """
import sys, time
sys.path.insert(0, {lib!r})
import stage_model
stage_model.STALLED_S = stage_model.PROGRESS_S = 0.5
stage_model.Copy.write = lambda *_: time.sleep(300)
sys.exit(stage_model.main({source!r}, {target!r}))
"""


def test_a_file_system_that_hangs_is_not_waited_for(source: Path, tmp_path: Path) -> None:
    text = HANGS.format(lib=str(LIB), source=str(source), target=str(tmp_path / "nvme" / "m"))
    done = subprocess.run([sys.executable, "-B", "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    assert f"is the file system of the model or of {tmp_path}/nvme/m stuck?" in done.stdout.splitlines()[-1]
