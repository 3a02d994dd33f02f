"""lib/log.sh: messages and time."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.shell import bash


def test_log_lines_carry_time_and_go_to_both(tmp_path: Path) -> None:
    done = bash("log_file=job.log\nlog 'two  words'", tmp_path, ["log"])
    assert done.stdout == (tmp_path / "job.log").read_text()
    stamp, _, text = done.stdout.partition(" ")
    assert len(stamp) == len("2026-01-01T00:00:00+0000") and text == "two  words\n"


@pytest.mark.parametrize(("cs", "text"), [(0, "0.00"), (7, "0.07"), (123, "1.23"), (360000, "3600.00")])
def test_seconds(cs: int, text: str, tmp_path: Path) -> None:
    assert bash(f'seconds_of {cs}; printf "%s" "${{REPLY}}"', tmp_path, ["log"]).stdout == text


@pytest.mark.parametrize("text", ["", "-n", "%s \\n", "$(touch pwned)"])
def test_a_message_is_no_format_and_no_command(text: str, tmp_path: Path) -> None:
    done = bash('log "${TEXT}"', tmp_path, ["log"], {"TEXT": text})
    assert done.stdout.partition(" ")[2] == text + "\n"
    assert not (tmp_path / "pwned").exists()


def test_the_words_of_a_message_are_joined(tmp_path: Path) -> None:
    assert bash("log one 'two  three'", tmp_path, ["log"]).stdout.endswith(" one two  three\n")


@pytest.mark.parametrize(("where", "kept"), [("log_file=job.log; log one >/dev/full; log two >&-", "one two"), ("log_file=/dev/full; log one", ""),
                                             ("log_file=/nowhere/job.log; log one", "")])
def test_a_place_that_cannot_be_written_ends_nothing(where: str, kept: str, tmp_path: Path) -> None:
    done = bash(where + '; printf "on\\n"', tmp_path, ["log"])
    assert (done.returncode, done.stderr, done.stdout.splitlines()[-1]) == (0, "", "on")
    lines = (tmp_path / "job.log").read_text().splitlines() if kept else []
    assert [line.partition(" ")[2] for line in lines] == kept.split()


def test_time_is_counted_from_its_beginning(tmp_path: Path) -> None:
    text = 'clock_begin; clock_cs; printf "%s " "${REPLY}"; sleep 0.3; clock_cs; printf "%s" "${REPLY}"'
    first, second = map(int, bash(text, tmp_path, ["log"]).stdout.split())
    assert 0 <= first < 500 and 25 <= second - first < 500


@pytest.mark.parametrize(("uptime", "start", "cs"), [("1234.56", 0, 123456), ("1234.56", 123400, 56), ("0.08", 0, 8), ("8.09", 0, 809)])
def test_the_clock_is_the_systems_uptime(uptime: str, start: int, cs: int, tmp_path: Path) -> None:
    text = f'read() {{ up={uptime}; }}\nclock_start={start}\nclock_cs\nprintf "%s" "${{REPLY}}"'
    assert bash(text, tmp_path, ["log"]).stdout == str(cs)


def test_without_the_systems_uptime_the_shell_counts(tmp_path: Path) -> None:
    text = 'read() { return 1; }\nSECONDS=40; clock_begin; SECONDS=42; clock_cs; printf "%s" "${REPLY}"'
    assert bash(text, tmp_path, ["log"]).stdout in ("200", "300")
