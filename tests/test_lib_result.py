"""lib/result.sh: result.json in pure bash."""

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


@pytest.mark.parametrize(("raw", "text"), [("", ""), ("plain", "plain"), (r"a\xffb\xe2\x82", "a?b??"), (r"\xe2\x82\xac\t|", "€\t|"), (r"\x80", "?")])
def test_text_without_what_is_no_text(raw: str, text: str, tmp_path: Path) -> None:
    done = bash(f"utf8_only $'{raw}'; printf '%s' \"${{REPLY}}\"", tmp_path, ["log", "result"])
    assert done.stdout == text


@pytest.mark.parametrize(("words", "wanted"), [("", []), ("''", [""]), ("a 'b \" c'", ["a", 'b " c']), ("'1' '[2]'", ["1", "[2]"])])
def test_a_list_of_strings(words: str, wanted: list[str], tmp_path: Path) -> None:
    done = bash(f"json_list {words}; printf '%s' \"${{REPLY}}\"", tmp_path, ["log", "result"])
    assert json.loads(done.stdout) == wanted


@pytest.mark.parametrize(("words", "wanted"), [("", []), ("1 '{\"a\":[]}' '\"x\"'", [1, {"a": []}, "x"]), ("null", [None])])
def test_a_list_of_json(words: str, wanted: list[object], tmp_path: Path) -> None:
    done = bash(f"json_join {words}; printf '%s' \"${{REPLY}}\"", tmp_path, ["log", "result"])
    assert json.loads(done.stdout) == wanted


def test_the_document_of_a_failed_job_is_one_line(tmp_path: Path) -> None:
    text = """result_code=11 result_verdict=failed result_reason=$'two\\nlines' result_failed='{"step":"a"}' result_eval='{"m":1}'
result_modified=('a b' c) result_nodes=('{"index":0}')
result_text
printf '%s' "${REPLY}" """
    done = bash(text, tmp_path, ["log", "result"], plan="")
    assert "\n" not in done.stdout
    result = json.loads(done.stdout)
    assert (result["exit_code"], result["reason"], result["failed"], result["eval"]) == (11, "two\nlines", {"step": "a"}, {"m": 1})
    assert (result["bundle_modified"], result["nodes"], result["attempt"]) == (["a b", "c"], [{"index": 0}], 1)


def test_a_warning_is_logged_and_kept(tmp_path: Path) -> None:
    done = bash("warn two  words; warn 'a  b'; json_list \"${result_warnings[@]}\"; printf '%s' \"${REPLY}\"", tmp_path, ["log", "result"])
    first, second, kept = done.stdout.splitlines()
    assert first.endswith(" warning: two words") and second.endswith(" warning: a  b")
    assert json.loads(kept) == ["two words", "a  b"]


def test_a_lost_result_is_remembered_until_a_write_succeeds(tmp_path: Path) -> None:
    done = bash("write_result; result_file=later/result.json; write_result; printf '%s ' \"${result_lost}\"; mkdir later; write_result\n"
                "printf '%s' \"${result_lost}\"", tmp_path, ["log", "result"], plan="")
    warning, codes = done.stdout.splitlines()
    assert "cannot write later/result.json" in warning and codes == "1 0"
    assert [path.name for path in (tmp_path / "later").iterdir()] == ["result.json"]
