"""lib/stage_files.py, function by function (the program that uses it: test_lib_stage_model.py)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from pathlib import Path

import pytest
from jobs.shell import LIB
from model_rig import model_folder

sys.path.insert(0, str(LIB))
import stage_files  # noqa: E402  (found only by the path above)
import stage_model  # noqa: E402


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "shared" / "m", 2, 1000)


def test_the_listing_is_sorted_and_whole_with_links_resolved(source: Path) -> None:
    (source / "empty").mkdir()
    (source / "more").symlink_to("../blobs")
    items = stage_files.listing(str(source))
    assert [item.name for item in items] == ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                             "model.safetensors.index.json", "tokenizer.json", "code/modeling.py", "more/tokenizer"]
    assert {item.path for item in items if "tokenizer" in item.name} == {str(source.parent / "blobs" / "tokenizer")}
    assert items[1].size == 1000 and items[1].mtime_ns == os.stat(items[1].path).st_mtime_ns


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(stage_files.StageError, match=f"^cannot read {tmp_path}/absent: No such file or directory$"):
        stage_files.listing(str(tmp_path / "absent"))
    with pytest.raises(stage_files.StageError, match="^cannot read /a b: Permission denied$"):
        stage_files._raise(PermissionError(13, "Permission denied", "/a b"))


def test_an_item_is_a_file_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("four")
    os.chmod(tmp_path / "a b", 0o640)
    os.utime(tmp_path / "a b", ns=(1, 2_000_000_005))
    (tmp_path / "link").symlink_to("a b")
    item = stage_files._item(str(tmp_path), str(tmp_path / "link"))
    assert item == stage_files.Item("link", str(tmp_path / "a b"), 4, 2_000_000_005, 0o640)
    (tmp_path / "bad").symlink_to("x")
    for name, said in (("bad", " \\(a link to x\\): No such file or directory"), ("absent", ": No such file or directory")):
        with pytest.raises(stage_files.StageError, match=f"^cannot read {tmp_path}/{name}{said}$"):
            stage_files._item(str(tmp_path), str(tmp_path / name))


def test_a_copy_is_there_by_kind_size_and_second(tmp_path: Path) -> None:
    path = tmp_path / "a"
    item = stage_files.Item("a", "/s/a", 4, 7_500_000_000, 0o644)
    assert not stage_files.is_there(item, str(tmp_path))
    path.write_text("four")
    for nanoseconds, there in ((7_500_000_000, True), (7_000_000_000, True), (7_999_999_999, True), (8_000_000_000, False), (6_999_999_999, False)):
        os.utime(path, ns=(1, nanoseconds))
        assert stage_files.is_there(item, str(tmp_path)) == there
    os.utime(path, ns=(1, item.mtime_ns))
    assert not stage_files.is_there(item._replace(size=5), str(tmp_path))
    path.rename(tmp_path / "move")
    path.symlink_to("move")
    os.utime(path, ns=(1, item.mtime_ns), follow_symlinks=False)
    assert path.lstat().st_size == item.size
    assert not stage_files.is_there(item, str(tmp_path))


def copy_of(source: Path, target: Path) -> list[stage_files.Item]:
    stage_model.stage(str(source), str(target))
    return stage_files.listing(str(source))


def test_leftovers_and_what_is_needed(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "disk" / "m"
    items = stage_files.listing(str(source))
    total = sum(item.size for item in items)
    assert stage_files.leftovers(items, str(target)) == [] and stage_files.needed(items, str(target)) == total
    copy_of(source, target)
    assert stage_files.leftovers(items, str(target)) == [] and stage_files.needed(items, str(target)) == 0
    (target / f"code/.x{stage_files.PART}").write_bytes(b"x" * 30)
    (target / "old").write_bytes(b"x" * 7)
    (target / "link").symlink_to("/somewhere/else")
    assert stage_files.leftovers(items, str(target)) == [f"{target}/{name}" for name in (f"code/.x{stage_files.PART}", "link", "old")]
    assert stage_files.needed(items, str(target)) == -30 - 7 - len("/somewhere/else")
    (target / "model-00001-of-00002.safetensors").unlink()
    assert stage_files.needed(items, str(target)) == 1000 - 30 - 7 - len("/somewhere/else")


def test_free_is_of_the_nearest_folder_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = os.statvfs(tmp_path)
    asked: list[str] = []
    monkeypatch.setattr(stage_files.os, "statvfs", lambda folder: asked.append(folder) or info)
    (tmp_path / "file").touch()
    for name in ("a/b/c", "", "file"):
        assert stage_files.free(str(tmp_path / name)) == info.f_bavail * info.f_frsize
    assert asked == [str(tmp_path)] * 3


@pytest.mark.parametrize(("count", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), ((1 << 20) - 1, "1024.0 KiB"),
                                             (1 << 20, "1.0 MiB"), (3 << 30, "3.0 GiB"), (2050 << 30, "2050.0 GiB"), (-5, "-5 bytes")])
def test_bytes_as_people_read_them(count: int, text: str) -> None:
    assert stage_files.size(count) == text


@pytest.mark.parametrize(("content", "ticks"), [(b"", []), (b"abc", [3]), (b"x" * 20, [8, 8, 4])])
def test_sha256_tells_its_progress(content: bytes, ticks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_files, "CHUNK", 8)
    (tmp_path / "a").write_bytes(content)
    told: list[int] = []
    assert stage_files.sha256(str(tmp_path / "a"), told.append) == hashlib.sha256(content).hexdigest()
    assert told == ticks


SUMS = [
    ("SHA256SUMS", "{a}  config.json\n{b} *code/modeling.py\n", {"config.json": "a", "code/modeling.py": "b"}), ("sha256sum.txt", "{a} ./config.json\n", {"config.json": "a"}),
    ("code/SHA256SUMS", "{a}  modeling.py\n{b}  ../config.json\n", {"code/modeling.py": "a", "config.json": "b"}), ("config.json.sha256", "{a}\n", {"config.json": "a"}),
    ("x.sha256", "{a}  two words\n", {"two words": "a"}), ("SHA256SUMS", "# a comment\n{a}\nabc  config.json\n", {}), ("SHA256SUMS", "", {}), ("sums.txt", "{a}  config.json\n", {}),
]


@pytest.mark.parametrize(("name", "text", "wanted"), SUMS)
def test_checksum_files(name: str, text: str, wanted: dict[str, str], source: Path) -> None:
    (source / name).write_text(text.format(a="A" * 64, b="B" * 64))
    assert stage_files.checksums(stage_files.listing(str(source))) == {path: letter * 64 for path, letter in wanted.items()}


def test_stage_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(stage_files.StageError, match=f"^{tmp_path}/m holds no files$"):
        stage_model.stage(str(tmp_path / "m"), str(tmp_path / "n" / "m"))
    assert not (tmp_path / "n" / "m").exists()


def test_stage_keeps_modes_but_for_the_owner(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.chmod(source / "config.json", 0o444)
    os.chmod(source, 0o555)
    target = tmp_path / "n" / "m"
    copy_of(source, target)
    assert (target / "config.json").stat().st_mode & 0o777 == 0o644 and target.stat().st_mode & 0o777 == 0o755
    assert capsys.readouterr().out.splitlines()[-1] == "complete: 6 files, 2.1 KiB, 6 of them copied now, 0 with a checksum"
    with open(tmp_path / "n" / ".m.lock") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the turn was given back
