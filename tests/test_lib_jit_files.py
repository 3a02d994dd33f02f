"""jit_files, jit_lists, jit_transfer, jit_prune, jit_key and jit_cache, function by function."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest
from jobs.shell import LIB, stub

sys.path.insert(0, str(LIB))
import jit_cache  # noqa: E402  (found only by the path above)
import jit_files  # noqa: E402
import jit_key  # noqa: E402
import jit_lists  # noqa: E402
import jit_prune  # noqa: E402
import jit_transfer  # noqa: E402

IMAGE = "rocm/atom-dev:nightly_202607231538"
OLD = time.time() - 100
NEVER = float("inf")


def write(path: Path, text: str = "x", when: float = OLD) -> Path:
    """A file of that age, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (when, when))
    return path


# ---- jit_files -------------------------------------------------------------------------------------------------------


def names(folder: Path) -> list[str]:
    return [found.path for found in jit_files.finished_files(folder)]


UNFINISHED = [".lock", ".lock.1", "a.lock", "tmp", ".tmp1", "tmp.pid_7_ab", "x.tmp", "x.part", ".ninja_lock", ".srtgen-1"]
FINISHED = ["lockx", "blocks", "a.lock.so", "a.tmp.so", "part", "template", ".ninja_log", ".so"]


def test_finished_files_are_known_by_their_names(tmp_path: Path) -> None:
    for name in [*UNFINISHED, *FINISHED]:
        write(tmp_path / "f" / name)
    assert names(tmp_path) == sorted(f"f/{name}" for name in FINISHED)


def test_a_folder_that_is_unfinished_by_name_is_left_out(tmp_path: Path) -> None:
    for name in ("tmp.pid_1/k", "a.tmp/k", "lock/k", "lock_a/k", "ok/tmp1/k", "ok/k"):
        write(tmp_path / name)
    assert names(tmp_path) == ["ok/k"]


@pytest.mark.parametrize("lock", ["lock", "lock_module_a"])
def test_nothing_is_finished_where_something_is_built(lock: str, tmp_path: Path) -> None:
    for name in (f"b/{lock}", "b/k", "b/deep/k", "a/k", "c/k"):
        write(tmp_path / name)
    assert names(tmp_path) == ["a/k", "c/k"]
    (tmp_path / "b" / lock).unlink()
    assert names(tmp_path) == ["a/k", "b/k", "b/deep/k", "c/k"]


@pytest.mark.parametrize(("seconds", "there"), [(0.0, []), (30.0, []), (-30.0, []), (90.0, ["k"]), (-90.0, ["k"])])
def test_a_file_must_be_quiet(seconds: float, there: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after now: the clock of a file server differs."""
    monkeypatch.setattr(jit_files, "QUIET_S", 60.0)
    write(tmp_path / "k", when=time.time() + seconds)
    assert names(tmp_path) == there


def test_only_regular_files_are_finished(tmp_path: Path) -> None:
    write(tmp_path / "k", "four")
    (tmp_path / "link").symlink_to("k")
    (tmp_path / "folder").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        os.utime(tmp_path / name, (OLD, OLD), follow_symlinks=False)
    (tmp_path / "k").chmod(0o4751)
    (found,) = jit_files.finished_files(tmp_path)
    assert found == ("k", tmp_path / "k", 4, 0o4751, (tmp_path / "k").stat().st_mtime_ns)
    assert list(jit_files.finished_files(tmp_path / "absent")) == []


def test_a_file_that_changed_meanwhile(tmp_path: Path) -> None:
    source = write(tmp_path / "k", "four")
    (found,) = jit_files.finished_files(tmp_path)
    assert found.unchanged()
    write(source, "five!")
    assert not found.unchanged()
    write(source, "4444", OLD + 1)  # as long, at another time
    assert not found.unchanged()
    source.unlink()
    assert not found.unchanged()


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("size", [0, 1, jit_files.CHUNK, jit_files.CHUNK + 1])
def test_copy_hashed_says_what_it_wrote(size: int, sync: bool, tmp_path: Path) -> None:
    content = os.urandom(size)
    (tmp_path / "a").write_bytes(content)
    assert jit_files.copy_hashed(tmp_path / "a", tmp_path / "b", sync) == (hashlib.sha256(content).hexdigest(), size)
    assert (tmp_path / "b").read_bytes() == content


def test_copy_hashed_overwrites_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a", "new")
    write(tmp_path / "b", "old")
    with pytest.raises(FileExistsError):
        jit_files.copy_hashed(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "old"
    with pytest.raises(FileNotFoundError):
        jit_files.copy_hashed(tmp_path / "absent", tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_age_and_remove(tmp_path: Path) -> None:
    path = write(tmp_path / "k")
    assert abs(jit_files.age(path) - (time.time() - OLD)) < 60
    jit_files.remove(path)
    jit_files.remove(path)
    assert (path.exists(), jit_files.age(path)) == (False, 0.0)
    jit_files.remove(tmp_path)  # a folder is none of ours
    assert tmp_path.is_dir()


# ---- jit_lists -------------------------------------------------------------------------------------------------------


def listed(folder: Path, files: object, content: bytes | None = None) -> Path:
    """A list of the store, under its hash."""
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"files": files}).encode() if content is None else content
    path = folder / f"{hashlib.sha256(content).hexdigest()}.json"
    path.write_bytes(content)
    return path


def test_a_list_is_read_by_path(tmp_path: Path) -> None:
    path = listed(tmp_path, {"a/k": ["h1", 3, 420, 9], "../k": ["h2", 3, 420, 9], "/k": ["h3", 3, 420, 9], "é ..k": ["h4", 0, 0, 0]})
    assert jit_lists.read_list(path) == {"a/k": ("h1", 3, 420, 9), "é ..k": ("h4", 0, 0, 0)}
    other = path.rename(tmp_path / f"{'0' * 64}.json")
    assert jit_lists.read_list(other) == {} == jit_lists.read_list(path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"{}", b"1", b'{"files": []}', b'{"files": {"k": 1}}', b'{"files": null}'])
def test_a_list_of_another_shape_is_none(content: bytes, tmp_path: Path) -> None:
    assert jit_lists.read_list(listed(tmp_path, None, content)) == {}


INSIDE = {"a": True, "a/b": True, "..a/b..": True, "...": True, "/a": False, "..": False, "a/..": False, "a/../b": False, "../a": False}


@pytest.mark.parametrize("name", INSIDE)
def test_inside(name: str) -> None:
    assert jit_lists.inside(name) == INSIDE[name]


# ---- jit_transfer ----------------------------------------------------------------------------------------------------


def act(item: int) -> int | None:
    """An even number is good, an odd one bad, 0 left out, one over 100 an error."""
    if item > 100:
        raise OSError(f"item {item}")
    return None if item == 0 else -1 if item % 2 else item


TRANSFERS = [([], NEVER, (0, 0, 0, "")), ([2, 4, 3, 0, 6], NEVER, (3, 12, 1, "")), ([2, 103, 102, 4], NEVER, (2, 6, 0, "item 103")),
             ([2, 0], 0.0, (1, 2, 0, "the time for it is over")), ([101, 4], 0.0, (1, 4, 0, "item 101"))]


@pytest.mark.parametrize(("items", "end", "done"), TRANSFERS)
def test_transfer(items: list[int], end: float, done: tuple[int, int, int, str]) -> None:
    assert jit_transfer.transfer(act, items, end) == done


def test_an_empty_file_is_a_file() -> None:
    assert jit_transfer.transfer(lambda item: 0, [1, 2], NEVER) == (2, 0, 0, "")


def test_transfers_overlap() -> None:
    """Each waits for all others: one after the other they would never end."""
    together = threading.Barrier(jit_transfer.THREADS)

    def meet(item: object) -> int:
        together.wait(timeout=20)
        return 1

    assert jit_transfer.transfer(meet, range(jit_transfer.THREADS), NEVER).files == jit_transfer.THREADS


def test_an_error_that_is_none_of_the_disk_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        jit_transfer.transfer(lambda item: 1 // 0, [1], NEVER)


# ---- jit_prune -------------------------------------------------------------------------------------------------------


def part(store: Path, image: str, size: int, when: float) -> Path:
    """One image's part, which says it holds that many bytes."""
    folder = store / image / "gfx950"
    listed(folder / "lists" / "0", {"k": [image, size, 420, 9]})
    os.utime(folder, (when, when))
    return folder


def test_size_counts_each_content_once(tmp_path: Path) -> None:
    one = part(tmp_path, "one", 10, OLD)
    listed(one / "lists" / "1", {"k": ["one", 10, 420, 9], "l": ["other", 5, 420, 9]})
    listed(one / "lists" / "1", None, b"damaged")
    assert (jit_prune.size(one), jit_prune.size(tmp_path / "absent")) == (15, 0)


PRUNED = [(40, "a b c d"), (39, "a b d"), (30, "a b d"), (25, "b d"), (10, "d"), (0, "d")]


@pytest.mark.parametrize(("limit", "left"), PRUNED)
def test_prune_removes_what_was_used_longest_ago(limit: int, left: str, tmp_path: Path) -> None:
    """The current part is d, which is older than some others, and stays even where it is too large alone."""
    for age, name in enumerate("cab"):
        part(tmp_path, name, 10, OLD + age)
    current = part(tmp_path, "d", 10, OLD + 1.5)
    jit_prune.prune(tmp_path, current, limit)
    assert [path.parent.name for path in sorted(tmp_path.glob("*/*"))] == left.split()


def test_prune_leaves_other_folders_alone(tmp_path: Path) -> None:
    write(tmp_path / "notes" / "mine" / "x", "x" * 100)
    os.utime(tmp_path / "notes" / "mine", (OLD - 10, OLD - 10))
    old = part(tmp_path, "old", 10, OLD)
    jit_prune.prune(tmp_path, tmp_path / "absent" / "gfx950", 0)
    assert (tmp_path / "notes" / "mine" / "x").exists() and not old.exists()


# ---- jit_key ---------------------------------------------------------------------------------------------------------


def node(sysfs: Path, number: int, text: str) -> None:
    write(sysfs / "class/kfd/kfd/topology/nodes" / str(number) / "properties", text)


@pytest.mark.parametrize(("text", "found"), [("simd_count 8\nname x\n\na 1 c\nunique_id 7", {"simd_count": 8, "unique_id": 7}), ("", {}),
                                             ("x -1\n", {}), ("é 1", {}), (None, {})])
def test_properties_are_whole_numbers(text: str | None, found: dict[str, int], tmp_path: Path) -> None:
    if text is not None:
        write(tmp_path / "p", text)
    assert jit_key.properties(str(tmp_path / "p")) == found


def test_sysfs_types_are_those_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_key.node_gpu, "SYSFS", str(tmp_path))
    assert list(jit_key.sysfs_types()) == []
    for number, text in enumerate(["cpu_cores_count 64\ngfx_target_version 0", "gfx_target_version 90402\nsimd_count 1216\nsimd_per_cu 4",
                                   "gfx_target_version 90010", "gfx_target_version 120001\nsimd_count 64\nsimd_per_cu 0"]):
        node(tmp_path, number, text + "\n")
    assert list(jit_key.sysfs_types()) == ["gfx942-304cu", "gfx90a-0cu", "gfx1201-64cu"]


@pytest.mark.parametrize(("text", "name"), [("rocm/atom:x_1", "rocm_atom_x_1"), ("./../", ""), ("a  /é b", "a_b"), ("", ""), (".hidden.", "hidden"),
                                            ("x" * 90, "x" * 80)])
def test_readable(text: str, name: str) -> None:
    assert jit_key.readable(text) == name


def test_listing_is_of_package_records(tmp_path: Path) -> None:
    for name in ("b-2.dist-info", "a-1.egg-info", "c.pth", "d.egg-link", "e.py", "dist-info"):
        write(tmp_path / name)
    assert jit_key.listing(str(tmp_path)) == ["a-1.egg-info", "b-2.dist-info", "c.pth", "d.egg-link"]
    assert jit_key.listing(str(tmp_path / "e.py")) == [] == jit_key.listing(str(tmp_path / "absent"))


def test_programs_are_records_with_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path), f"{tmp_path}/absent"])
    monkeypatch.setattr(jit_key, "ROCM_VERSION", str(write(tmp_path / "version", "7.0", 5)))
    write(tmp_path / "b-2.dist-info" / "METADATA", "four", 7)
    write(tmp_path / "a-1.egg-info" / "PKG-INFO", "x", 8)
    write(tmp_path / "z.pth", "", 9)
    (tmp_path / "gone-1.dist-info").mkdir()
    records = ["version 3 5", "a-1.egg-info/PKG-INFO 1 8", "b-2.dist-info/METADATA 4 7", "z.pth 0 9"]
    assert list(jit_key.programs()) == [sys.version, *(f"{tmp_path}/{record}" for record in records)]


# ---- jit_cache -------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This node has a GPU of one type."""
    monkeypatch.setattr(jit_key.node_gpu, "SYSFS", str(tmp_path / "sys"))
    node(tmp_path / "sys", 0, "gfx_target_version 90500\nsimd_count 1024\nsimd_per_cu 4\n")
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


def held(path: Path) -> int:
    """The lock of a worker's folder, opened as jit_role.sh does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(f"{path}.lock", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def test_say_begins_with_what_the_job_looks_for(capsys: pytest.CaptureFixture[str]) -> None:
    jit_cache.say("loaded 1 files")
    assert capsys.readouterr().out == "srtgen: jit cache: loaded 1 files\n"


def test_the_part_of_the_store_is_of_image_and_gpus(gpus: Path) -> None:
    found = jit_cache.part(str(gpus), IMAGE, "/tmp/srtgen-jit/3")
    assert (found.root, found.where) == (gpus / jit_key.image_key(IMAGE) / "gfx950-256cu", "3")
    assert list(gpus.iterdir()) == []


@pytest.mark.parametrize(("store", "version", "said"), [("absent", 90500, "absent is not there"), ("file", 90500, "file is not there"),
                                                        ("store", 0, "the type of the GPUs is not known here")])
def test_there_is_no_part(store: str, version: int, said: str, gpus: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(gpus.parent / "file")
    node(gpus.parent / "sys", 0, f"gfx_target_version {version}\n")
    stub(path, "rocm-smi", "exit 1")
    with pytest.raises(jit_cache.Off) as off:
        jit_cache.part(str(gpus.parent / store), IMAGE, "/x")
    assert str(off.value).endswith(said)


DONE = [((3, 3 << 20, 0, ""), "loaded", "loaded 3 files (3.0 MiB) in 1.2 s"),
        ((0, 0, 2, ""), "loaded", "loaded 0 files (0.0 MiB) in 1.2 s, 2 damaged ones were removed"),
        ((1, 1, 1, "full"), "stored", "stored 1 files (0.0 MiB) in 1.2 s, 1 changed meanwhile, not all: full")]


@pytest.mark.parametrize(("done", "what", "text"), DONE)
def test_shown_says_all_of_a_transfer(done: tuple[int, int, int, str], what: str, text: str) -> None:
    assert jit_cache.shown(jit_transfer.Done(*done), what, 1.24) == text


def test_what_one_keeps_the_next_one_loads(gpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "w" / "0"
    lock = held(folder)
    write(folder / "left" / "over")
    assert jit_cache.load(str(gpus), IMAGE, str(folder), lock) == 0
    assert list(folder.iterdir()) == []
    write(folder / "triton" / "k", "kernel")
    write(folder / "new", "written now", time.time())
    monkeypatch.setattr(sys, "stdin", io.StringIO("go\n"))
    assert jit_cache.keep(str(gpus), IMAGE, str(folder), 1 << 20) == 0
    assert jit_cache.load(str(gpus), IMAGE, str(folder), lock) == 0
    assert [(str(path.relative_to(folder)), path.read_text()) for path in folder.rglob("*") if path.is_file()] == [("triton/k", "kernel")]
    root = gpus / jit_key.image_key(IMAGE) / "gfx950-256cu"
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" (")[0] for line in said] == [f"srtgen: jit cache: {text}" for text in ("loaded 0 files", "stored 1 files", "loaded 1 files")]
    assert said[2].endswith(f" from {root}")
    os.close(lock)


def test_keep_without_a_turn_stores_nothing(gpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "w" / "k")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert jit_cache.keep(str(gpus), IMAGE, str(tmp_path / "w"), 1 << 20) == 0
    assert (list(gpus.iterdir()), capsys.readouterr().out) == ([], "")


def test_keep_stays_within_the_limit_and_makes_room(gpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                                    ) -> None:
    old = part(gpus, "old", 90, OLD)
    write(tmp_path / "w" / "a", "x" * 60)
    write(tmp_path / "w" / "b", "y" * 60)
    monkeypatch.setattr(sys, "stdin", io.StringIO("go\n"))
    jit_cache.keep(str(gpus), IMAGE, str(tmp_path / "w"), 100)
    assert capsys.readouterr().out.endswith(" s, not all: the store is full\n")
    assert not old.exists() and [path.read_text() for path in gpus.glob("*/*/objects/*/*")] == ["x" * 60]


@pytest.mark.parametrize("how", ["locked", "another file"])
def test_a_folder_in_use_is_left_alone(how: str, gpus: Path, tmp_path: Path) -> None:
    """Two workers never share a folder; a lock that was removed and made again by another one is no lock."""
    folder = tmp_path / "w" / "0"
    write(folder / "theirs")
    mine = held(folder)
    if how == "another file":
        os.unlink(f"{folder}.lock")
    theirs = held(folder)
    fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(jit_cache.Off, match="in use by another job on this node"):
        jit_cache.load(str(gpus), IMAGE, str(folder), mine)
    assert (folder / "theirs").exists()
    os.close(theirs)
    os.close(mine)


@pytest.mark.parametrize(("action", "said"), [("load", "off: {s} is not there"), ("keep", "nothing stored: {s} is not there")])
def test_main_says_why_it_works_without_the_store(action: str, said: str, gpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    gpus.rmdir()
    lock = held(tmp_path / "w" / "0")
    monkeypatch.setattr(sys, "stdin", io.StringIO("go\n"))
    assert jit_cache.main([action, str(gpus), IMAGE, str(tmp_path / "w" / "0"), "1", str(lock)]) == jit_cache.OFF
    assert capsys.readouterr().out == f"srtgen: jit cache: {said.format(s=gpus)}\n"
    os.close(lock)


def test_main_takes_its_limit_in_gib(gpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "w" / "k", "kernel")
    kept = part(gpus, "kept", (1 << 30) - 6, OLD)
    for wanted, gone in (("stored 1 files", False), ("stored 1 files", True)):
        monkeypatch.setattr(sys, "stdin", io.StringIO("go\n"))
        assert jit_cache.main(["keep", str(gpus), IMAGE, str(tmp_path / "w"), "1"]) == 0
        assert wanted in capsys.readouterr().out and kept.exists() != gone
        write(tmp_path / "w" / "one byte", "1")
