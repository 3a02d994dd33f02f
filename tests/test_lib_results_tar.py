"""lib/results_tar.py: results of a node as an archive."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from jobs.shell import LIB

sys.path.insert(0, str(LIB))

import results_tar  # noqa: E402

PROGRAM = LIB / "results_tar.py"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's results: files of its own, copies of the job's, and the mark of a step that runs."""
    folder = tmp_path / "no de"
    for name in ("result.json", "manifest.json", "nodes.tsv", "identity.json", "bench/verdict.json", "bench/nodes.tsv", "logs/b.log", "logs/.b.alive",
                 "logs/a b.log", "logs/é.log"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "empty").mkdir()
    return folder


def packed(folder: Path, *names: str) -> bytes:
    out = io.BytesIO()
    results_tar.pack(str(folder), list(names), out)
    return out.getvalue()


def members(data: bytes) -> dict[str, str]:
    """The files of an archive in its order, with their text."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: archive.extractfile(member).read().decode() for member in archive}  # type: ignore[union-attr]


PACKED: dict[str, tuple[list[str], list[str]]] = {
    "all but the job's and hidden ones": ([], ["bench/nodes.tsv", "bench/verdict.json", "logs/a b.log", "logs/b.log", "logs/é.log"]),
    "the job's by name": (["nodes.tsv", "result.json"], ["nodes.tsv", "result.json"]), "a hidden one by name": (["logs/.b.alive"], ["logs/.b.alive"]),
    "some are not there": (["absent", "manifest.json", "b.log"], ["manifest.json"]), "a folder is no file": (["logs"], [])}


@pytest.mark.parametrize("case", PACKED)
def test_pack(case: str, node: Path) -> None:
    names, wanted = PACKED[case]
    assert list(members(packed(node, *names)).items()) == [(name, name) for name in wanted]


def test_pack_of_a_folder_that_is_not_there_is_an_empty_archive(tmp_path: Path) -> None:
    assert members(packed(tmp_path / "absent")) == {}


def test_unpack_makes_folders_and_replaces_what_is_there(node: Path, tmp_path: Path) -> None:
    to = tmp_path / "a" / "to"
    (to / "bench").mkdir(parents=True)
    (to / "bench" / "verdict.json").write_text("an older and longer text")
    (to / "mine").touch()
    results_tar.unpack(str(to), io.BytesIO(packed(node)))
    files = {str(path.relative_to(to)): path.read_text() for path in to.rglob("*") if path.is_file()}
    assert files == {"mine": "", **{name: name for name in PACKED["all but the job's and hidden ones"][1]}}


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


# member -> the file it becomes
MEMBERS = [(entry("in/x"), "to/in/x"), (entry("a..b/..x"), "to/a..b/..x"), (entry("../out"), None), (entry("in/../../out"), None),
           (entry("{t}/out"), None), (entry("link", tarfile.SYMTYPE, "../out"), None), (entry("hard", tarfile.LNKTYPE, "in/x"), None),
           (entry("folder", tarfile.DIRTYPE), None), (entry("pipe", tarfile.FIFOTYPE), None)]


@pytest.mark.parametrize(("member", "path"), MEMBERS, ids=[member.name for member, _ in MEMBERS])
def test_unpack_takes_only_files_that_stay_inside(member: tarfile.TarInfo, path: str | None, tmp_path: Path) -> None:
    member.name = member.name.format(t=tmp_path)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(member, io.BytesIO())
        archive.addfile(entry("last"), io.BytesIO())
    stream.seek(0)
    results_tar.unpack(str(tmp_path / "to"), stream)
    there = sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if not one.is_dir())
    assert there == sorted([*([path] if path else []), "to/last"])


def test_unpack_of_half_an_archive_leaves_no_half_file(tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.mkdir()
    (node / "a").write_text("whole")
    (node / "b").write_text("x" * 5000)
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "b").write_text("older")
    with pytest.raises(tarfile.ReadError):
        results_tar.unpack(str(tmp_path / "to"), io.BytesIO(packed(node)[:3000]))
    assert ((tmp_path / "to" / "a").read_text(), (tmp_path / "to" / "b").read_text()) == ("whole", "older")


def test_save_packs_all_under_the_folders_own_name(node: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_text("an older one")
    results_tar.save(str(node), str(tmp_path / "x.tar.gz"))
    with tarfile.open(tmp_path / "x.tar.gz", "r:gz") as archive:
        names = archive.getnames()
    assert {"no de", "no de/result.json", "no de/empty", "no de/logs/.b.alive", "no de/logs/a b.log"} <= set(names)
    assert all(name == "no de" or name.startswith("no de/") for name in names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["no de", "x.tar.gz"]


def test_a_save_that_fails_leaves_the_older_archive_and_nothing_half(node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.tar.gz").write_text("an older one")

    def full(self: tarfile.TarFile, name: str, arcname: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "add", full)
    with pytest.raises(OSError, match="No space left"):
        results_tar.save(str(node), str(tmp_path / "x.tar.gz"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()} == {"x.tar.gz": "an older one"}


def program(*words: object, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-E", "-s", "-B", str(PROGRAM), *map(str, words)], input=given, capture_output=True, timeout=20)


def test_main_from_node_to_node(node: Path, tmp_path: Path) -> None:
    some = program("pack", node, "nodes.tsv", "absent")
    assert (some.returncode, some.stderr, list(members(some.stdout))) == (0, b"", ["nodes.tsv"])
    assert program("unpack", tmp_path / "to", given=some.stdout).returncode == 0
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["nodes.tsv"]
    assert program("save", node, tmp_path / "x.tar.gz").returncode == 0 and (tmp_path / "x.tar.gz").exists()


FAILS = {"garbage": (["unpack", "{t}/to"], b"no archive", "unpack {t}/to: "), "nothing": (["unpack", "{t}/to"], b"", "unpack {t}/to: "),
         "a file in the way": (["unpack", "{t}/file"], None, "unpack {t}/file: "),
         "absent": (["save", "{t}/absent", "{t}/y.tar.gz"], b"", "save {t}/absent: "), "no place": (["save", "{t}", "{t}/no/y"], b"", "save {t}: ")}


@pytest.mark.parametrize("case", FAILS)
def test_main_fails_with_one_line(case: str, node: Path, tmp_path: Path) -> None:
    words, given, said = FAILS[case]
    (tmp_path / "file").touch()
    done = program(*(word.format(t=tmp_path) for word in words), given=packed(node) if given is None else given)
    lines = done.stderr.decode().splitlines()
    assert (done.returncode, len(lines)) == (1, 1) and lines[0].startswith("results_tar.py: " + said.format(t=tmp_path)), lines
    assert not list(tmp_path.glob("y*"))
