"""lib/turn.py: taking turns by a file, and lines that are out at once."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobs.shell import LIB

sys.path.insert(0, str(LIB))
import turn  # noqa: E402  (found only by the path above)


def test_a_line_is_out_before_anything_else_happens(capsys: pytest.CaptureFixture[str]) -> None:
    turn.say("a  b")
    assert capsys.readouterr().out == "a  b\n"
    text = "import os, turn\nturn.say('50 %')\nos._exit(3)"
    done = subprocess.run([sys.executable, "-E", "-B", "-c", text], cwd=LIB, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "50 %\n", "")


def mode(handle: int) -> int:
    """How the handle is open; it is closed."""
    flags = fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE
    os.close(handle)
    return flags


def test_the_file_is_made_and_open_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "a lock"
    old = os.umask(0)
    try:
        assert mode(turn._open(str(path))) == os.O_RDWR
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o666
    path.write_text("kept")
    assert mode(turn._open(str(path))) == os.O_RDWR
    assert path.read_text() == "kept"


def test_another_users_file_is_open_for_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, path = os.open, tmp_path / "lock"

    def refuse(name: str, flags: int, *more: int) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise PermissionError(13, "Permission denied", name)
        return real(name, flags, *more)

    path.touch()
    monkeypatch.setattr(turn.os, "open", refuse)
    assert mode(turn._open(str(path))) == os.O_RDONLY
    handle = turn.take_turn(str(path), "works")
    assert handle >= 0 and mode(handle) == os.O_RDONLY


def test_a_file_that_others_may_not_make_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sticky folder the kernel refuses O_CREAT on a file that is there and may be written."""
    real, path = os.open, tmp_path / "lock"

    def protect(name: str, flags: int, *more: int) -> int:
        if flags & os.O_CREAT and os.path.exists(name):
            raise PermissionError(13, "Permission denied", name)
        return real(name, flags, *more)

    path.touch()
    monkeypatch.setattr(turn.os, "open", protect)
    assert mode(turn._open(str(path))) == os.O_RDWR


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        turn.take_turn(str(tmp_path / "absent" / "lock"), "works")


def test_a_turn_is_given_back_with_its_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Who waits says so now and then, not at every look."""
    path = str(tmp_path / "lock")
    first = turn.take_turn(path, "works")
    assert first >= 0 and capsys.readouterr().out == ""
    polls: list[float] = []

    def sleep(seconds: float) -> None:
        polls.append(seconds)
        if len(polls) == 2 * turn.SAID_EVERY + 1:
            os.close(first)

    monkeypatch.setattr(turn.time, "sleep", sleep)
    second = turn.take_turn(path, "works")
    assert second >= 0 and polls == [turn.POLL_S] * (2 * turn.SAID_EVERY + 1)
    assert capsys.readouterr().out == f"waiting for another job that works (lock {path})\n" * 3
    os.close(second)


def test_a_turn_ends_with_its_process(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    text = "import os, sys, turn\nturn.take_turn(sys.argv[1], 'works')\nprint('mine', flush=True)\nsys.stdin.read()\nos._exit(0)"
    with subprocess.Popen([sys.executable, "-B", "-c", text, path], cwd=LIB, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "mine\n"
        with open(path) as mine, pytest.raises(BlockingIOError):
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        other.kill()
    handle = turn.take_turn(path, "works")
    assert handle >= 0
    os.close(handle)


def test_an_error_that_is_no_lack_of_locks_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(turn.fcntl, "flock", fail)
    with pytest.raises(OSError, match="Input/output error"):
        turn.take_turn(str(tmp_path / "lock"), "works")
