"""lib/result.sh and lib/log.sh: result.json in pure bash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs.shell import bash

TEXTS = ["", "plain", 'quote " and \\ back', "tab\tnewline\nreturn\r", "\x01\x1b[31m\x7f", "größe ⚡ 漢字", "$(touch pwned) `x`",
         "\\u0041", "%s %d", "-n", "a'b", "{}[],:"]


@pytest.mark.parametrize("text", TEXTS)
def test_json_string_says_what_it_was_given(text: str, tmp_path: Path) -> None:
    done = bash('json_string "${TEXT}"; printf "%s" "${REPLY}"', tmp_path, ["log", "result"], {"TEXT": text})
    assert json.loads(done.stdout) == text
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize(("raw", "text"), [
    (r"a\xffb", "a?b"), (r"\xc3", "?"), (r"\xc3\xa4", "ä"), (r"\xe2\x82", "??"), (r"\xed\xa0\x80", "???"), (r"\xc0\x80", "??"),
    (r"\xf0\x9f\x98\x80!", "😀!"), (r"\xf5\x80\x80\x80", "????")])
def test_bytes_that_are_no_text_become_question_marks(raw: str, text: str, locale: str, tmp_path: Path) -> None:
    done = bash(f"json_string $'{raw}'; printf '%s' \"${{REPLY}}\"", tmp_path, ["log", "result"], {"LC_ALL": locale})
    assert json.loads(done.stdout) == text


def write(tmp_path: Path, text: str) -> dict[str, object]:
    done = bash("attempt=2\nresult_file=result.json\nclock_begin\n" + text + "\nwrite_result", tmp_path, ["log", "result"],
                plan="PLAN_NAME='a \"name\"'")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert isinstance(result, dict)
    return result


def test_the_whole_document(tmp_path: Path) -> None:
    result = write(tmp_path, 'result_warnings+=("one" "two, three")\nresult_skipped=(ports)\nbegin_phase load')
    assert list(result) == ["schema", "job_id", "attempt", "name", "phase", "verdict", "reason", "exit_code", "phases", "failed",
                            "checks_skipped", "warnings", "bundle_modified", "nodes", "versions", "transport", "bench", "eval"]
    assert (result["schema"], result["job_id"], result["attempt"]) == ("srtgen/result/1", "7", 2)
    assert (result["name"], result["phase"], result["verdict"]) == ('a "name"', "load", "running")
    assert (result["exit_code"], result["failed"], result["bench"], result["eval"]) == (None, None, None, None)
    assert (result["warnings"], result["checks_skipped"]) == (["one", "two, three"], ["ports"])
    phases = result["phases"]
    assert isinstance(phases, list) and [row["name"] for row in phases] == ["start"]


def test_phases_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    phases = write(tmp_path, "begin_phase preflight\nsleep 0.05\nbegin_phase load\nbegin_phase router")["phases"]
    assert isinstance(phases, list)
    assert [row["name"] for row in phases] == ["start", "preflight", "load"]
    for before, after in zip(phases, phases[1:]):
        assert after["start_s"] == pytest.approx(before["start_s"] + before["seconds"], abs=0.011)
    assert phases[1]["seconds"] >= 0.04


def test_a_result_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    done = bash("result_file=/nowhere/result.json\nlog_file=/dev/full\nwrite_result\nlog goes on", tmp_path, ["log", "result"],
                plan="")
    assert done.returncode == 0
    assert "cannot write /nowhere/result.json" in done.stdout
    assert done.stdout.endswith("goes on\n")


def test_the_old_result_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("old")
    (tmp_path / "result.json.new").mkdir()
    done = bash("result_file=result.json\nwrite_result", tmp_path, ["log", "result"], plan="")
    assert done.returncode == 0
    assert (tmp_path / "result.json").read_text() == "old"


def test_log_lines_carry_time_and_go_to_both(tmp_path: Path) -> None:
    done = bash("log_file=job.log\nlog 'two  words'", tmp_path, ["log"])
    assert done.stdout == (tmp_path / "job.log").read_text()
    stamp, _, text = done.stdout.partition(" ")
    assert len(stamp) == len("2026-01-01T00:00:00+0000") and text == "two  words\n"


@pytest.mark.parametrize(("cs", "text"), [(0, "0.00"), (7, "0.07"), (123, "1.23"), (360000, "3600.00")])
def test_seconds(cs: int, text: str, tmp_path: Path) -> None:
    assert bash(f'seconds_of {cs}; printf "%s" "${{REPLY}}"', tmp_path, ["log"]).stdout == text
