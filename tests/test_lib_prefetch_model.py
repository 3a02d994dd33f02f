"""lib/prefetch_model.py with the stand-in of the hub library: what passes is tried again, what does not is said at once."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from jobs.shell import LIB
from model_rig import contents, model_folder
from slurm_cluster import STANDINS

sys.path.insert(0, str(LIB))
import node_hub  # noqa: E402  (found only by the path above)
import prefetch_model  # noqa: E402


# The program with other constants: a test does not wait as long.
CHANGED = """
import sys
sys.path.insert(0, {lib!r})
import prefetch_model
prefetch_model.{constants}
sys.exit(prefetch_model.main())
"""


def fetch(tmp_path: Path, fault: str = "", constants: str = "PAUSE_S = 0", **more: str) -> tuple[int, list[str]]:
    """Exit code and lines of one run."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{STANDINS}/python", "HOME": str(tmp_path), "HF_HOME": f"{tmp_path}/cache",
           "STANDIN_HUB": f"{tmp_path}/server", "SRTGEN_STEP": "prefetch_0", "STANDIN_FAULT": f"prefetch_0:{fault}" if fault else "", **more}
    argv = [sys.executable, "-B", "-c", CHANGED.format(lib=str(LIB), constants=constants), "--repo", "org/m", "--ignore", "original/*"]
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def served(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "server" / "org" / "m", 2, 128 << 10)


def test_the_snapshot_is_what_preflight_looks_for(served: Path, tmp_path: Path) -> None:
    code, lines = fetch(tmp_path)
    assert code == 0 and lines[-1].startswith("prefetch: complete: org/m in "), lines
    cache = tmp_path / "cache" / "hub"
    assert node_hub.missing("org/m", str(cache)) == ""
    assert contents(next((cache / "models--org--m" / "snapshots").iterdir())) == contents(served)


def test_a_broken_connection_is_tried_again_from_where_it_was(served: Path, tmp_path: Path) -> None:
    code, lines = fetch(tmp_path, f"drop_after={64 << 10}")
    tries = [line for line in lines if line.startswith("prefetch: attempt ")]
    assert code == 0 and tries and "ConnectionResetError: [Errno 104] Connection reset by peer" in tries[0]


@pytest.mark.parametrize(("hide", "words"), [
    ("server", "prefetch: RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1) Repository Not Found for url: "
     "https://huggingface.co/api/models/org/m/revision/main there is no such model"),
])
def test_what_does_not_pass_is_tried_once(hide: str, words: str, served: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / hide)
    code, lines = fetch(tmp_path)
    assert (code, len(lines)) == (1, 2)
    assert lines[-1].replace(": there", " there").startswith(words), lines


def test_an_image_without_the_library_says_so(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-S", "-B", str(LIB / "prefetch_model.py"), "--repo", "org/m"], env=env,
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "prefetch: the image has no huggingface_hub: No module named 'huggingface_hub'\n")


def test_an_address_loses_what_may_be_a_secret() -> None:
    said = prefetch_model.words(OSError("no https://hub/x?X-Amz-Signature=abc&y=1 here\nnor there"))
    assert said == "OSError: no https://hub/x here nor there"


@pytest.mark.parametrize(("env", "folder"), [
    ({"HF_HUB_CACHE": "/a", "HUGGINGFACE_HUB_CACHE": "/b", "HF_HOME": "/c"}, "/a"), ({"HUGGINGFACE_HUB_CACHE": "/b", "HF_HOME": "/c"}, "/b"),
    ({"HF_HUB_CACHE": "", "HF_HOME": "/c d"}, "/c d/hub"), ({"HF_HOME": "", "HOME": "/h"}, "/h/.cache/huggingface/hub"), ({}, "/root/.cache/huggingface/hub")])
def test_the_cache_is_where_the_library_has_it(env: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert prefetch_model.cache_folder() == folder


def test_present_counts_whole_files_and_half_ones_once(tmp_path: Path) -> None:
    assert prefetch_model.present(str(tmp_path)) == 0
    for name, size in (("blobs/a", 5), ("blobs/b.incomplete", 7), ("blobs/sub/c", 11), ("refs/main", 100)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "a").symlink_to("../blobs/a")
    assert prefetch_model.present(str(tmp_path)) == 23


def test_a_file_that_is_renamed_while_it_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "a").write_text("four")
    monkeypatch.setattr(prefetch_model.os, "walk", lambda folder: [(folder, [], ["gone", "a"])])
    assert prefetch_model.present(str(tmp_path)) == 4


@pytest.mark.parametrize(("count", "text"), [(0, "0.00 GiB"), (1 << 30, "1.00 GiB"), (1234 << 30, "1234.00 GiB"), (3 << 29, "1.50 GiB")])
def test_gib(count: int, text: str) -> None:
    assert prefetch_model.gib(count) == text


def test_a_line_has_its_mark(capsys: pytest.CaptureFixture[str]) -> None:
    prefetch_model.say("a  b")
    assert capsys.readouterr().out == "prefetch: a  b\n"


class RepositoryNotFoundError(OSError):
    """As the library has it."""


class GatedRepoError(RepositoryNotFoundError):
    """As the library has it."""


class HfHubHTTPError(OSError):
    """As the library has it: with the server's answer."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{code} Error")
        self.response = SimpleNamespace(status_code=code)


class Odd(Exception):
    """An error with an answer that is no OSError."""

    response = SimpleNamespace(status_code=500)


PERSISTS = [
    (GatedRepoError("x"), "the token may not read it: is HF_TOKEN given"), (RepositoryNotFoundError("x"), "there is no such model"),
    (HfHubHTTPError(401), prefetch_model.DENIED), (HfHubHTTPError(403), prefetch_model.DENIED), (OSError(errno.ENOSPC, "x"), "in /c/hub"),
    (OSError(errno.EDQUOT, "x"), "in /c/hub"), (PermissionError(errno.EACCES, "x"), "in /c/hub"), (OSError(errno.EROFS, "x"), "in /c/hub"),
    (KeyError("x"), "this is an error of the library"), (TypeError("x"), "this is an error of the library"),
]
PASSES = [HfHubHTTPError(404), HfHubHTTPError(429), HfHubHTTPError(500), Odd(), ConnectionResetError(104, "x"), TimeoutError(), OSError("x"), RuntimeError("x")]


@pytest.mark.parametrize(("error", "advice"), PERSISTS)
def test_what_another_attempt_does_not_change(error: BaseException, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", "/c/hub")
    assert prefetch_model.final(error).startswith(advice)


@pytest.mark.parametrize("error", PASSES, ids=repr)
def test_what_another_attempt_may_change(error: BaseException) -> None:
    assert prefetch_model.final(error) == ""


def test_names_of_an_error_begin_with_its_own() -> None:
    names = prefetch_model.names_of(GatedRepoError("x"))
    assert names[:3] == ["GatedRepoError", "RepositoryNotFoundError", "OSError"] and names[-1] == "object"


def test_an_attempt_tells_its_progress_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(prefetch_model, "PROGRESS_S", 0.1)
    calls: list[tuple[object, ...]] = []
    half = tmp_path / "blobs" / "a.incomplete"
    half.parent.mkdir()

    def download(repo: str, ignore_patterns: list[str] | None, max_workers: int) -> str:
        calls.append((repo, ignore_patterns, max_workers))
        half.write_bytes(b"x" * (1 << 20))
        os.truncate(half, 1 << 29)
        time.sleep(0.5)
        return "/snapshot"

    hub = SimpleNamespace(snapshot_download=download)
    assert prefetch_model.attempt(hub, "org/m", [], str(tmp_path)) is None
    assert prefetch_model.attempt(hub, "org/m", ["a", "b"], str(tmp_path)) is None
    assert calls == [("org/m", None, prefetch_model.STREAMS), ("org/m", ["a", "b"], prefetch_model.STREAMS)]
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "prefetch: complete: org/m in /snapshot, 0.50 GiB" and "prefetch: 0.50 GiB of org/m are here" in lines


def test_an_attempt_hands_out_its_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = SystemExit("of the library")

    def download(*_: object, **__: object) -> str:
        raise error

    assert prefetch_model.attempt(SimpleNamespace(snapshot_download=download), "org/m", [], str(tmp_path)) is error
    assert capsys.readouterr().out == ""


def test_the_attempts_come_to_an_end(served: Path, tmp_path: Path) -> None:
    code, (_, *tries, last) = fetch(tmp_path, "drop_after=0", HF_ENDPOINT="https://mirror")
    assert code == 1 and [line.split(":")[1] for line in tries if " attempt " in line] == [f" attempt {n} of 5" for n in range(1, 5)]
    assert last == "prefetch: ConnectionResetError: [Errno 104] Connection reset by peer: after 5 attempts: can this node reach https://mirror?"


def test_a_download_that_stands_still_is_not_waited_for(served: Path, tmp_path: Path) -> None:
    code, lines = fetch(tmp_path, "chunk_s=300", "STALLED_S = prefetch_model.PROGRESS_S = 0.5")
    assert code == 1 and lines[-1].startswith("prefetch: no byte for 0 s; is a lock of a dead process in ")


def test_a_cache_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    code, lines = fetch(tmp_path)
    assert (code, lines[-1]) == (1, f"prefetch: {tmp_path}/cache/hub: Not a directory")
