"""role.sh, function by function: what a process does in its container before its own command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs.shell import bash, stub


@pytest.fixture
def job() -> Iterator[str]:
    name = f"r{os.getpid()}"
    yield name
    shutil.rmtree(f"/tmp/srtgen-{name}", ignore_errors=True)


def role(text: str, tmp_path: Path, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "r" / "logs").mkdir(parents=True, exist_ok=True)
    return bash(text, tmp_path, ["role"], {"SRTGEN_RESULTS": f"{tmp_path}/r", "SRTGEN_BUNDLE": f"{tmp_path}/b", **env}, stdin=stdin)


@pytest.mark.parametrize(("limits", "expected"), [("ulimit -Sn 100; ulimit -Hn 900", "900"), ("ulimit -n 77", "77")])
def test_raise_limits_goes_to_the_hard_limit(limits: str, expected: str, tmp_path: Path) -> None:
    assert role(f"{limits}\nraise_limits\nulimit -Sn", tmp_path).stdout == f"{expected}\n"


IDENTITIES = {
    "named node": ({"SLURMD_NODENAME": "n7", "HIP_VISIBLE_DEVICES": "0,1"}, "printf 'Python 3.9.1\\n'", "decode_1 on n7, ", ", Python 3.9.1, ",
                   ", GPUs 0,1"),
    "unnamed node, all GPUs": ({}, "printf 'Python 3.9.1\\n'", f"decode_1 on {os.uname().nodename}, ", ", Python 3.9.1, ", ", GPUs all"),
    "no python": ({"SLURMD_NODENAME": "n7"}, "printf 'bad ELF\\n' >&2; exit 126", "decode_1 on n7, ",
                  f"python3 of the image does not run for uid {os.geteuid()}: bad ELF", ", GPUs all"),
}


@pytest.mark.parametrize("case", IDENTITIES)
def test_print_identity_is_one_line(case: str, tmp_path: Path) -> None:
    env, python, *parts = IDENTITIES[case]
    stub(tmp_path / "bin", "python3", python)
    done = role("ulimit -Sn 99\nprint_identity decode_1", tmp_path, **env)
    assert done.returncode == 0 and done.stdout.count("\n") == 1
    assert done.stdout.startswith("srtgen: ") and ", open files 99, memlock " in done.stdout
    assert all(part in done.stdout for part in parts), done.stdout


def test_print_versions_does_not_hold_up_the_server_and_reads_none_of_its_input(tmp_path: Path) -> None:
    (tmp_path / "b" / "lib").mkdir(parents=True)
    (tmp_path / "b" / "lib" / "versions.py").write_text(
        "import sys, time\ntime.sleep(1)\nprint('srtgen-version x', sys.stdin.read() == '', flush=True)\nsys.exit(3)\n")
    done = role('print_versions\nprintf "first %s\\n" "$(jobs -p)"; cat', tmp_path, "kept\n")
    assert done.stdout.splitlines() == ["first ", "kept", "srtgen-version x True"] and done.returncode == 0
    (tmp_path / "b" / "lib" / "versions.py").unlink()
    assert role("print_versions; printf on", tmp_path).stdout == "on"


TURNS = [("0", "", 0, "on"), ("", "", 0, "on"), ("1", "go\nrest\n", 0, "srtgen: waiting for the workers\nonrest"),
         ("1", "wait\n go\ngo\n", 0, "srtgen: waiting for the workers\non"), ("1", "wait\n", 143, "srtgen: waiting for the workers\n"),
         ("1", "go", 143, "srtgen: waiting for the workers\n")]


@pytest.mark.parametrize(("turn", "stdin", "code", "out"), TURNS)
def test_wait_turn_takes_the_word_and_leaves_the_rest(turn: str, stdin: str, code: int, out: str, tmp_path: Path) -> None:
    done = role("wait_turn\nprintf on\ncat", tmp_path, stdin, **({"SRTGEN_TURN": turn} if turn else {}))
    assert (done.returncode, done.stdout.rstrip("\n")) == (code, out.rstrip("\n"))
    assert ("the job ended before the turn" in done.stderr) == (code == 143)


def test_make_own_folders_makes_those_below_the_steps_folder_only(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "owner"
    env = {"HOME": f"{own}/home", "A_CACHE": f"{own}/a b/c\nd", "B_CACHE": f"{other}/x", "C_CACHE": str(own)}
    assert role(f"make_own_folders {own}", tmp_path, **env).returncode == 0
    assert sorted(path.name for path in own.iterdir()) == ["a b", "home"] and (own / "a b" / "c\nd").is_dir()
    assert not other.exists()
    shutil.rmtree(own)
    done = role(f"export HOME=/\nmake_own_folders {own}; printf on", tmp_path)
    assert done.stdout == "on" and not own.exists()


def test_keep_beating_changes_its_file_while_the_process_lives_and_removes_it_then(tmp_path: Path) -> None:
    file = tmp_path / "r" / "logs" / ".bench.alive"
    text = (f"sleep 7 >/dev/null & pid=$!\n(sleep 2; cat {file}; sleep 4; cat {file}) & reader=$!\n"
            'keep_beating bench "${pid}"\nwait "${reader}"\n')
    first, second = role(text, tmp_path).stdout.split()
    assert int(first) < int(second)
    assert not file.exists()


# A shell by the name of slurmstepd with a child; sets stepd and child.
STEPD = """ln -s "$(command -v bash)" slurmstepd
./slurmstepd -c 'sleep 30 >/dev/null & printf "%s %s\\n" "$$" "$!"; wait' >pids &
until [[ -s pids ]]; do sleep 0.05; done
read -r stepd child <pids
trap 'kill "${stepd}" "${child}" 2>/dev/null || :' EXIT
"""


def test_find_stepd_is_the_nearest_one_above(tmp_path: Path) -> None:
    text = STEPD + """for pid in "${child}" "${stepd}"; do find_stepd "${pid}"; printf '%s ' "$((REPLY == stepd))"; done
find_stepd 1 || printf 'none '
find_stepd 999999999 || printf 'gone'"""
    assert role(text, tmp_path).stdout == "1 1 none gone"


def test_lives_does_not_take_a_zombie_for_a_process(tmp_path: Path) -> None:
    text = """bash -c 'sleep 1 & printf "%s\n" "$!"; exec sleep 30' >pids & holder=$!
until [[ -s pids ]]; do sleep 0.05; done
read -r zombie <pids
for n in {1..200}; do lives "${zombie}" || break; sleep 0.05; done
kill -0 "${zombie}" && printf 'there '
for pid in "${zombie}" "${holder}" 999999999; do lives "${pid}" && printf 1 || printf 0; done
kill "${holder}"
"""
    assert role(text, tmp_path).stdout == "there 010"


def test_keep_beating_tells_of_a_slurmstepd_that_died(tmp_path: Path) -> None:
    file = tmp_path / "r" / "logs" / ".bench.alive"
    text = STEPD + f"""keep_beating bench "${{child}}" & beat=$!
until [[ -s {file} ]]; do sleep 0.05; done
cat {file}; kill -KILL "${{stepd}}"; wait "${{beat}}"; cat {file}; kill -0 "${{child}}" && printf lives"""
    assert role(text, tmp_path).stdout == "0\norphan\nlives"


def test_keep_beating_of_a_process_that_is_gone_or_a_full_disk(tmp_path: Path) -> None:
    begin = time.monotonic()
    assert role('sleep 0 & pid=$!; wait\nkeep_beating bench "${pid}"', tmp_path).returncode == 0
    done = role('sleep 1 >/dev/null & pid=$!\nkeep_beating bench "${pid}"', tmp_path, SRTGEN_RESULTS="/nowhere")
    assert (done.returncode, done.stdout) == (0, "") and time.monotonic() - begin < 20


@pytest.mark.parametrize("beats", [True, False])
def test_enter_role_beats_for_the_client_only(beats: bool, tmp_path: Path, job: str) -> None:
    step = "bench" if beats else "agg_0"
    file = tmp_path / "r" / "logs" / f".{step}.alive"
    (tmp_path / "b").mkdir()
    done = role(f"enter_role {step}\nfor n in {{1..20}}; do [[ ! -e {file} ]] || break; sleep 0.1; done\n[[ -e {file} ]] && printf alive; pwd",
                tmp_path, SLURM_JOB_ID=job)
    *_, last = done.stdout.splitlines()
    assert last == ("alive" if beats else "") + f"/tmp/srtgen-{job}/{step}", done.stderr


TMPDIRS = [("", "/tmp"), ("/nowhere", "/tmp"), ("/var/tmp", "/var/tmp"), ("/dev/shm/" + "x" * 40, "/tmp")]


@pytest.mark.parametrize(("given", "used"), TMPDIRS)
def test_enter_role_keeps_a_short_folder_for_sockets(given: str, used: str, tmp_path: Path, job: str) -> None:
    env = {"TMPDIR": given} if given else {}
    long = len(given) > 30
    if long:
        Path(given).mkdir()
    try:
        done = role('enter_role agg_0 >/dev/null\nprintf "%s" "${TMPDIR}"', tmp_path, SLURM_JOB_ID=job, **env)
    finally:
        if long:
            Path(given).rmdir()
    assert done.stdout == used, done.stderr


def test_enter_role_ends_where_tmp_is_taken(tmp_path: Path, job: str) -> None:
    Path(f"/tmp/srtgen-{job}").touch()
    try:
        done = role("enter_role agg_0\nprintf on", tmp_path, SLURM_JOB_ID=job, SLURMD_NODENAME="n3")
    finally:
        Path(f"/tmp/srtgen-{job}").unlink()
    assert done.returncode == 72 and re.search(r"uid \d+ cannot write in /tmp of n3", done.stderr) and "on" not in done.stdout
