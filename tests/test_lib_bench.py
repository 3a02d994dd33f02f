"""bench.sh, function by function, beside small programs that write down how they were called."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jobs.script import gone
from jobs.shell import HEAD, LIB, bash

PROGRAM = """import json, os, sys, time
with open({calls!r}, "a") as stream:
    stream.write(json.dumps([{name!r}, *sys.argv[1:]]) + "\\n")
print(os.environ.get("BENCH_MODEL", "-"), sys.flags.ignore_environment, sys.flags.no_user_site, sys.flags.dont_write_bytecode, flush=True)
if os.environ.get("HANG"):
    time.sleep(60)
sys.exit(int(os.environ.get("CODE", "0")))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A library folder with the real bench.sh."""
    (tmp_path / "li b").mkdir()
    shutil.copy(LIB / "bench.sh", tmp_path / "li b")
    for name in ("bench_check", "summary", "point"):
        (tmp_path / "li b" / f"{name}.py").write_text(PROGRAM.format(calls=f"{tmp_path}/calls", name=name))
    return tmp_path


def text_of(folder: Path, lines: str) -> str:
    return f"export SRTGEN_RESULTS={folder}/'a b'\n. {folder}/'li b'/bench.sh\n{lines}"


def bench(folder: Path, lines: str, **env: str) -> subprocess.CompletedProcess[str]:
    return bash(text_of(folder, lines), folder, env=env)


def calls(folder: Path) -> list[list[str]]:
    file = folder / "calls"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def verdict(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "a b" / "bench" / "verdict.json").read_text())


def test_sourced_outside_a_job_it_says_what_is_missing(folder: Path) -> None:
    done = bash(f". {folder}/'li b'/bench.sh\nprintf on", folder)
    assert done.returncode != 0 and "start this through the job" in done.stderr and done.stdout == ""


def test_bench_python_runs_our_script_without_the_recipes_python_settings(folder: Path) -> None:
    done = bench(folder, "bench_python summary 'a b' ''; printf '%s' $?", PYTHONPATH="/evil", CODE="0")
    assert calls(folder) == [["summary", "a b", ""]]
    assert done.stdout == "- 1 1 1\n0"
    assert bench(folder, "bench_python summary || printf '%s' $?", CODE="7").stdout.endswith("\n7")


FOLDERS: dict[str, tuple[Sequence[str], dict[str, bool]]] = {
    "new": ([], {"bench": True}),
    "empty": (["bench/"], {"bench": True}),
    "used": (["bench/x"], {"bench": True, "bench.previous-1/x": False}),
    "used again": (["bench/x", "bench.previous-1/", "bench.previous-2/"], {"bench": True, "bench.previous-3/x": False}),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_bench_fresh_folder_keeps_older_files_elsewhere(case: str, folder: Path) -> None:
    present, expected = FOLDERS[case]
    results = folder / "a b"
    for path in present:
        (results / path).parent.mkdir(parents=True, exist_ok=True)
        (results / path).mkdir() if path.endswith("/") else (results / path).touch()
    assert bench(folder, "bench_fresh_folder").returncode == 0
    assert all((results / path).is_dir() == is_folder for path, is_folder in expected.items())
    assert list((results / "bench").iterdir()) == []


def test_bench_raise_open_files_says_both_limits(folder: Path) -> None:
    done = bench(folder, "ulimit -Sn 50; ulimit -Hn 300\nbench_raise_open_files; ulimit -Sn")
    assert done.stdout == "bench: open files: soft 300, hard 300\n300\n"


PROXIES = [({}, "localhost,127.0.0.1"), ({"NO_PROXY": "a.b"}, "a.b,localhost,127.0.0.1"),
           ({"SRT_FRONTEND_HOST": "10.0.0.1", "SRT_PREFILL_ENDPOINTS": "http://10.0.0.2:8010,http://n3/x", "SRT_AGG_ENDPOINTS": "https://h:1"},
            "localhost,127.0.0.1,10.0.0.1,10.0.0.2,n3,h")]


@pytest.mark.parametrize(("env", "expected"), PROXIES)
def test_bench_no_proxy_has_every_address_of_the_job(env: dict[str, str], expected: str, folder: Path) -> None:
    done = bench(folder, "bench_no_proxy; printenv NO_PROXY no_proxy", **env)
    assert done.stdout.splitlines() == [expected, expected]


@pytest.mark.parametrize(("offline", "count"), [("1", 5), ("0", 0), ("", 0)])
def test_bench_offline_only_where_the_recipe_says_so(offline: str, count: int, folder: Path) -> None:
    done = bench(folder, f"BENCH_OFFLINE={offline}\nbench_offline; printenv | grep -c -E '^(HF_|TRANSFORMERS_OFFLINE|DO_NOT_TRACK)' || :")
    assert done.stdout == f"{count}\n"


def test_bench_refuse_ends_with_a_verdict(folder: Path) -> None:
    done = bench(folder, "bench_refuse 'no such thing'; printf on")
    assert (done.returncode, done.stdout, done.stderr) == (10, "", "bench: no such thing\n")
    assert verdict(folder) == {"client_exit_code": None, "code": 10, "points": None, "reason": "no such thing", "valid": None}


@pytest.mark.parametrize(("code", "end", "out"), [("0", 0, "on"), ("10", 10, ""), ("3", 3, "")])
def test_bench_check_exports_the_plan_and_ends_with_the_checks_code(code: str, end: int, out: str, folder: Path) -> None:
    done = bench(folder, "readonly BENCH_MODEL='m x' BENCH_OFFLINE=1\nbench_check\nprintf on; printenv HF_HUB_OFFLINE", CODE=code)
    assert done.returncode == end and "\nm x 1 1 1\n" in done.stdout
    assert done.stdout.endswith("on1\n") == (out == "on")
    assert calls(folder) == [["bench_check"]] and (folder / "a b" / "bench").is_dir()


REQUIRED = [("A B", {"A": "1", "B": "2"}, ""), ("A B C", {"B": "2", "C": ""}, "not set at submission: A C"), ("", {}, "")]


@pytest.mark.parametrize(("names", "env", "reason"), REQUIRED)
def test_bench_require_names_all_that_is_unset_or_empty(names: str, env: dict[str, str], reason: str, folder: Path) -> None:
    done = bench(folder, f"bench_require {names}\nprintf on", **env)
    assert (done.returncode, done.stdout) == ((10, "") if reason else (0, "on"))
    assert not reason or verdict(folder)["reason"] == reason


def test_bench_stopped_ends_the_child_renews_the_summary_and_keeps_the_code(folder: Path) -> None:
    done = bench(folder, 'sleep 60 >/dev/null & bench_child=$!; printf "%s\\n" "${bench_child}"\nbench_stopped 143; printf on', CODE="1")
    assert done.returncode == 143 and "on" not in done.stdout
    assert gone(int(done.stdout.split()[0])) and calls(folder) == [["summary", "update"]]


@pytest.mark.parametrize("child", ["''", "999999999"])
def test_bench_stopped_without_a_child(child: str, folder: Path) -> None:
    assert bench(folder, f"bench_child={child}\nbench_stopped 130").returncode == 130
    assert calls(folder) == [["summary", "update"]]


def test_bench_supervise_hands_words_on_and_returns_the_code(folder: Path) -> None:
    done = bench(folder, "rc=0; bench_supervise run 'a b' '' || rc=$?\nprintf '%s [%s]' \"${rc}\" \"${bench_child}\"", CODE="6")
    assert done.stdout.endswith("6 []") and calls(folder) == [["point", "run", "a b", ""]]


ENDS = {signal.SIGTERM: 143, signal.SIGINT: 130}


@pytest.mark.parametrize("number", ENDS)
def test_bench_attend_makes_a_signal_end_the_point_at_once(number: signal.Signals, folder: Path) -> None:
    script = HEAD + text_of(folder, "bench_attend; printf '%s\\n' \"${no_proxy}\"\nbench_supervise run x; printf on")
    process = subprocess.Popen(["bash", "-c", script], env={"PATH": "/usr/bin:/bin", "HANG": "1", "SRT_FRONTEND_HOST": "h"}, text=True,
                               stdout=subprocess.PIPE, cwd=folder)
    assert process.stdout is not None
    assert process.stdout.readline() == "localhost,127.0.0.1,h\n" and process.stdout.readline() == "- 1 1 1\n"
    process.send_signal(number)
    # HANG holds up the summary as well: it is only known that it was called.
    end = time.monotonic() + 20
    while ["summary", "update"] not in calls(folder):
        assert time.monotonic() < end
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        subprocess.run(["kill", "-KILL", child], check=True)
    assert process.wait(20) == ENDS[number] and "on" not in process.stdout.read()


STARTED = {
    "bench_begin": (["summary", "begin"], ""), "bench_point c4 4 40 cmd 'a b'": (["point", "run", "c4", "4", "40", "cmd", "a b"], ""),
    "bench_custom cmd 'a b'": (["point", "custom", "", "cmd", "a b"], ""),
    "BENCH_CWD='/x y'\nbench_custom cmd": (["point", "custom", "/x y", "cmd"], ""),
}


@pytest.mark.parametrize("lines", STARTED)
def test_what_is_started_and_that_its_failure_is_not_lost(lines: str, folder: Path) -> None:
    assert bench(folder, lines + "\nprintf on").stdout.endswith("on")
    assert calls(folder) == [STARTED[lines][0]]
    failed = bench(folder, lines + "\nprintf on", CODE="143")
    assert failed.returncode == 143 and "on" not in failed.stdout


@pytest.mark.parametrize("lines", ["bench_begin", "bench_custom cmd"])
def test_the_turn_brings_traps_and_no_proxy(lines: str, folder: Path) -> None:
    done = bench(folder, lines + "\ntrap -p TERM INT; printenv no_proxy")
    assert "bench_stopped 143' SIGTERM" in done.stdout and "bench_stopped 130' SIGINT" in done.stdout
    assert done.stdout.endswith("localhost,127.0.0.1\n")


def manual(folder: Path, **env: str) -> subprocess.Popen[str]:
    (folder / "a b" / "bench").mkdir(parents=True)
    script = HEAD + text_of(folder, "BENCH_MODEL='m/x'\nbench_manual; printf on")
    return subprocess.Popen(["bash", "-c", script], text=True, stdout=subprocess.PIPE, cwd=folder,
                            env={"PATH": "/usr/bin:/bin", "SRT_ENDPOINT": "http://h:1", **env})


def test_bench_manual_tells_where_and_ends_by_the_file(folder: Path) -> None:
    process = manual(folder, SRTGEN_RESULTS_HOST="/host/a b", SRT_JOB_ID="9")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert lines[0] == "serving m/x at http://h:1 until the time limit\n"
    stop = shlex.split(lines[2].partition("(or")[0])
    assert stop == ["stop:", "touch", "/host/a b/bench/stop"] and "./stop.sh 9" in lines[2]
    body = json.loads(shlex.split(lines[1])[-1])
    assert body["model"] == "m/x"
    (folder / "a b" / "bench" / "stop").touch()
    assert process.wait(20) == 0 and process.stdout.read() == ""
    assert (verdict(folder)["code"], verdict(folder)["reason"]) == (0, "")


def test_bench_manual_ends_by_a_signal(folder: Path) -> None:
    process = manual(folder)
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    assert process.wait(20) == 143
    assert not (folder / "a b" / "bench" / "verdict.json").exists()


@pytest.mark.parametrize("code", ["0", "20", "21"])
def test_bench_finish_ends_with_the_verdicts_code(code: str, folder: Path) -> None:
    done = bench(folder, "bench_finish; printf on", CODE=code)
    assert (done.returncode, calls(folder)) == (int(code), [["summary", "finish"]]) and "on" not in done.stdout
