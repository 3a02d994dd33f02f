"""lib/jit.sh and lib/jit_role.sh, function by function: what the job hears of the workers' compile caches, and where these lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.running import ENDING, RUNNING, act, event, shown
from jobs.shell import bash

SAID = "srtgen: jit cache: "
STORE = "PLAN_JIT_CACHE=/shared/jit"


def said(tmp_path: Path, name: str, *lines: str) -> None:
    """A worker's log of so many lines."""
    (tmp_path / "logs").mkdir(exist_ok=True)
    (tmp_path / "logs" / f"{name}.log").write_text("".join(f"{line}\n" for line in lines), errors="surrogateescape")


def logged(stdout: str) -> list[str]:
    """The job's log without its times."""
    return [line.partition(" ")[2] for line in stdout.splitlines() if not line.startswith("> ")]


# ---- jit.sh ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("plan", "planned"), [("", "no"), ("PLAN_JIT_CACHE=''", "no"), (STORE, "yes")])
def test_whether_a_store_is_planned(plan: str, planned: str, tmp_path: Path) -> None:
    """Bundles of before the store was there have no such line."""
    assert shown(act(tmp_path, "if jit_planned; then show yes; else show no; fi", plan=plan)) == [planned]


LAST = [
    ([SAID + "loaded 3 files"], "loaded", "yes loaded 3 files"),
    ([SAID + "loaded 3 files"], "off stored", "no "),
    ([SAID + "loaded 3 files"], "off load", "yes loaded 3 files"),
    (["x", SAID + "loaded 3 files", "y", SAID + "stored 1 files", "z"], "stored", "yes stored 1 files"),
    ([SAID + "loaded 3 files", SAID + "stored 1 files"], "loaded", "no "),
    ([SAID + "off: a " + SAID + "loaded"], "off", "yes off: a " + SAID + "loaded"),
    ([SAID + "loaded 3 files", "x" + SAID + "stored 1 files"], "loaded", "yes loaded 3 files"),
    (["x" + SAID + "loaded", "  " + SAID + "loaded"], "loaded", "no "),
    (["\0\udcff", SAID + "loaded \udce9"], "loaded", "yes loaded \udce9"),
    ([SAID + "loaded * ${x}"], "loaded", "yes loaded * ${x}"),
    ([SAID], "loaded", "no "),
    ([], "loaded", "no "),
    (None, "loaded", "no "),
]


@pytest.mark.parametrize(("lines", "words", "answer"), LAST)
def test_what_a_worker_said_last(lines: list[str] | None, words: str, answer: str, tmp_path: Path) -> None:
    if lines is not None:
        said(tmp_path, "decode_0", *lines)
    text = f"REPLY=old\nif jit_said decode_0 {words}; then show \"yes ${{REPLY//$'\\n'/|}}\"; else show \"no ${{REPLY}}\"; fi"
    assert shown(act(tmp_path, text)) == [answer]


def test_each_worker_is_told_of_once_all_are_ready(tmp_path: Path) -> None:
    said(tmp_path, "prefill_0", SAID + "loaded 3 files (0.1 MiB) in 0.2 s from /srtgen-jit/a/gfx950")
    said(tmp_path, "decode_0", SAID + "off: /srtgen-jit is not there")
    plan = STORE + "\nPLAN_WORKERS=('prefill_0 prefill 0' 'decode_0 decode 0' 'decode_1 decode 1')"
    assert logged(act(tmp_path, "log_jit_cache", plan=plan).stdout)[:3] == [
        "jit cache: prefill_0 loaded 3 files (0.1 MiB) in 0.2 s from /srtgen-jit/a/gfx950",
        "warning: jit cache: decode_0 compiled everything anew: /srtgen-jit is not there",
        "warning: jit cache: decode_1 said nothing of it"]


def test_without_a_store_nothing_is_told(tmp_path: Path) -> None:
    said(tmp_path, "prefill_0", SAID + "loaded 3 files")
    done = act(tmp_path, "log_jit_cache\nstore_jit_cache\nshow on")
    assert shown(done) == ["on"] and "jit cache" not in done.stdout


# Each worker answers its turn as jit_cache.py does, and lives on as a server does, until the job closes the pipe.
WORKER = """exec 8<"$1"; read -r line <&8; [[ ${line} != go ]] || printf "%s\\n" "$2" >>"$3"; read -r line <&8"""
ANSWERS = {"prefill_0": "stored 2 files", "decode_0": "nothing stored: x is not there"}


def test_workers_store_when_the_job_says_so(tmp_path: Path) -> None:
    text = ""
    for name, answer in ANSWERS.items():
        said(tmp_path, name, SAID + "loaded 0 files")
        text += f"open_turn {name} q\nstart_task {name} bash -c '{WORKER}' - q/turn_{name} '{SAID}{answer}' logs/{name}.log\n"
    done = act(tmp_path, text + "SECONDS=0\nstore_jit_cache\n((SECONDS < JIT_STORE_S)) || show late", plan=STORE)
    assert shown(done) == []
    assert sorted(line for line in logged(done.stdout) if "jit" in line) == [
        "jit cache: prefill_0 stored 2 files", "warning: jit cache: decode_0 nothing stored: x is not there"]


TURNS = "give_turn() { show \"turn $1\"; }\n"
LATE = TURNS + "drain() { SECONDS=$((SECONDS + 20)); }\nSECONDS=0\n"
BOTH = ["turn prefill_0", "turn decode_0"]
STORED = [
    ("", RUNNING, BOTH, ["warning: jit cache: not stored in time: prefill_0 decode_0"]),
    ("result_code=0", RUNNING, [], []),
    ("result_code=11", RUNNING, [], []),
    ("step_code[prefill_0]=0", RUNNING, BOTH[1:], ["warning: jit cache: not stored in time: decode_0"]),
    ("step_code[prefill_0]=0 step_code[decode_0]=0", RUNNING, [], []),
    (f"printf '{SAID}off: no store\\n' >>logs/decode_0.log", RUNNING, BOTH[:1], ["warning: jit cache: not stored in time: prefill_0"]),
    ("rm logs/*", RUNNING, [], []),
    ("teardown_signal=1", ENDING, BOTH, ["warning: jit cache: not stored in time: prefill_0 decode_0"]),
]


@pytest.mark.parametrize(("more", "job", "turns", "warnings"), STORED)
def test_who_is_asked_to_store_and_for_how_long(more: str, job: str, turns: list[str], warnings: list[str], tmp_path: Path) -> None:
    """Only a job that has passed stores, and only workers that live and have a store are asked."""
    for name in ("prefill_0", "decode_0"):
        said(tmp_path, name, SAID + "loaded 0 files")
    text = LATE + more + "\nstore_jit_cache\nshow ${SECONDS}\nresult_code=null"
    done = act(tmp_path, text, job=job, plan=STORE)
    *asked, seconds = shown(done)
    assert asked == turns and [line for line in logged(done.stdout) if "jit cache" in line] == warnings
    assert (int(seconds) >= 60) == (bool(turns) and job == RUNNING)


def test_a_worker_that_ends_in_the_meantime_is_not_awaited(tmp_path: Path) -> None:
    said(tmp_path, "prefill_0", SAID + "loaded 0 files")
    text = f"{TURNS}{event('end', 'prefill_0', '0')}SECONDS=0\nstore_jit_cache\n((SECONDS < JIT_STORE_S)) || show late"
    done = act(tmp_path, text, plan=STORE)
    assert shown(done) == ["turn prefill_0"] and "jit cache" not in done.stdout


# ---- jit_role.sh -----------------------------------------------------------------------------------------------------


FOLDER = "/tmp/srtgen-jit/0"
MOVED = [(f"{FOLDER}/triton", "{w}/cache/triton"), (f"{FOLDER}/a b/'c", "{w}/cache/a b/'c"), (f"{FOLDER}/x\ny", "{w}/cache/x\ny"),
         (FOLDER, FOLDER), (f"{FOLDER}1/x", f"{FOLDER}1/x"), (f"/a{FOLDER}/x", f"/a{FOLDER}/x"), (f"{FOLDER}/a:{FOLDER}/b", f"{{w}}/cache/a:{FOLDER}/b"),
         ("", "")]


@pytest.mark.parametrize(("before", "after"), MOVED)
def test_a_worker_without_the_store_has_folders_of_its_own(before: str, after: str, tmp_path: Path) -> None:
    """Nothing but values below the store's folder changes, for the server as well, and the new folders are made."""
    work = tmp_path / "wo rk"
    text = f"own_jit_folders '{work}'\nbash -c 'printf %s \"${{CACHE}}\"'"
    done = bash(text, tmp_path, ["role", "jit_role"], {"SRTGEN_JIT_FOLDER": FOLDER, "CACHE": before})
    wanted = after.format(w=work)
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")
    assert (Path(wanted).is_dir() if before != after else not work.exists())


def test_without_a_cache_folder_none_is_made(tmp_path: Path) -> None:
    done = bash("own_jit_folders work; shopt -s nullglob; printf '[%s]' work*", tmp_path, ["role", "jit_role"], {"SRTGEN_JIT_FOLDER": FOLDER})
    assert (done.stdout, done.stderr) == ("[]", "")
