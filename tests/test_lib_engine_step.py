"""engine_step.sh: devices, names, and a container that is removed however its step ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import script
from jobs.shell import stub

STEP = "lib/engine_step.sh"
SHOW = 'printf "%s|" "${device_options[@]}" "${slurm_options[@]}"'

# A daemon in files: a container is a file that exists, its client lives as long; each call is written down.
DOCKER = f"""#!{sys.executable} -I
import json, os, pathlib, signal, sys, time
state = pathlib.Path(os.environ["STATE"])
words, mode = sys.argv[1:], os.environ.get("MODE", "")
with open(state / "calls", "a") as stream:
    stream.write(json.dumps(words) + "\\n")
if words[0] == "rm" and mode == "slow_rm" and not (state / "slow").exists():
    (state / "slow").touch()
    time.sleep(1)
if words[0] == "rm":
    sys.exit((state / words[-1]).unlink(missing_ok=True))
if words[0] == "stop":
    if mode == "deaf_stop":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "stop" in mode:
        time.sleep(60)
    sys.exit((state / words[-1]).unlink(missing_ok=True))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "refused":
    sys.exit(125)
container = state / words[words.index("--name") + 1]
container.touch()
print(sys.stdin.readline().strip(), flush=True)
if mode == "ends":
    sys.exit(9)
while container.exists():
    time.sleep(0.02)
sys.exit(137)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").write_text(DOCKER)
    (tmp_path / "bin" / "docker").chmod(0o755)
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def calls(state: Path) -> list[list[str]]:
    return [json.loads(line) for line in (state / "calls").read_text().splitlines()]


def devices(tmp_path: Path, *paths: str) -> subprocess.CompletedProcess[str]:
    """collect_devices of a machine that has these device files."""
    for index, path in enumerate(paths):
        file = tmp_path / "dev" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        if os.geteuid() == 0:
            os.chown(file, -1, 40 + index // 2)
    own = script.functions(STEP, "slurm_options=() run_options=()\ncollect_devices\n" + SHOW, tmp_path / "bundle")
    own.write_text(re.sub(r"/dev/(kfd|dri|infiniband)", rf"{tmp_path}/dev/\1", own.read_text()))
    return subprocess.run(["bash", str(own)], env=script.environment(tmp_path), capture_output=True, text=True, timeout=20)


def test_devices_of_the_node_and_each_group_once(tmp_path: Path) -> None:
    paths = ("kfd", "dri/card0", "dri/renderD128", "dri/renderD129", "infiniband/uverbs0")
    done = devices(tmp_path, *paths)
    dev = tmp_path / "dev"
    order = ("kfd", "dri/renderD128", "dri/renderD129", "dri/card0", "infiniband/uverbs0")
    groups = dict.fromkeys(str((dev / path).stat().st_gid) for path in order)
    expected = [word for name in ("kfd", "dri", "infiniband") for word in ("--device", f"{dev}/{name}")]
    expected += [word for group in groups for word in ("--group-add", group)]
    assert done.stdout.rstrip("|").split("|") == expected, done.stderr


def test_a_node_without_devices_passes_none(tmp_path: Path) -> None:
    done = devices(tmp_path)
    assert (done.returncode, done.stdout.strip("|")) == (0, ""), done.stderr
    assert devices(tmp_path, "kfd").stdout.split("|")[:2] == ["--device", f"{tmp_path}/dev/kfd"]


def test_slurms_names_are_passed_where_they_are_set_and_never_their_values(tmp_path: Path) -> None:
    env = {"SLURM_JOB_NAME": "", "SLURMD_NODENAME": "n 1", "SLURM_PROCID": "0", "SLURM_CONF": "/x"}
    done = script.call(STEP, "device_options=()\ncollect_slurm_names\n" + SHOW, tmp_path, env)
    assert done.stdout == "--env|SLURM_JOB_ID|--env|SLURM_JOB_NAME|--env|SLURM_PROCID|--env|SLURMD_NODENAME|"


@pytest.mark.parametrize("program", ["exit 0", "printf 'no such container\\n' >&2; exit 1"])
def test_remove_container_never_fails_and_says_nothing(program: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "docker", f'printf "%s|" "$@" >"{tmp_path}/said"\n{program}')
    done = script.call(STEP, "engine=(docker)\nremove_container '-odd name'", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "said").read_text() == "rm|--force|--|-odd name|"


@pytest.mark.parametrize("mode", ["", "stop_hangs", "deaf_stop"])
def test_on_term_removes_the_container_and_ends_the_client(mode: str, daemon: Path, tmp_path: Path) -> None:
    (daemon / "c").touch()
    text = ("engine=(docker)\nsleep 50 &\nchild=$!\nstopping=''\nbegin=${SECONDS}\non_term c\ncode=0; wait \"${child}\" || code=$?\n"
            'printf "%s %s %s" "${code}" "${stopping}" "$((SECONDS - begin < 5))"; trap -p TERM')
    done = script.call(STEP, text, tmp_path, {"STATE": str(daemon), "MODE": mode})
    assert done.stdout == "143 1 1trap -- '' SIGTERM\n", done.stderr
    assert not (daemon / "c").exists()
    assert [words[0] for words in calls(daemon)] == ["stop", "rm"]


def test_on_term_before_there_is_a_client(daemon: Path, tmp_path: Path) -> None:
    done = script.call(STEP, "engine=(docker) child='' stopping=''\non_term c; printf '%s' \"${stopping}\"", tmp_path, {"STATE": str(daemon)})
    assert (done.returncode, done.stdout) == (0, "1"), done.stderr


WORDS = "srtgen-7-x docker run --label 'a b=c,d' image:1 bash -c 'echo $0'"


def step(tmp_path: Path, state: Path, mode: str) -> subprocess.Popen[str]:
    return script.start(STEP, f"main {WORDS}", tmp_path, {"STATE": str(state), "MODE": mode})


def test_main_hands_words_input_and_code_on_and_leaves_no_container(daemon: Path, tmp_path: Path) -> None:
    (daemon / "srtgen-7-x").touch()  # of an earlier attempt
    process = step(tmp_path, daemon, "ends")
    out, _ = process.communicate("go\n", timeout=20)
    assert (out, process.returncode) == ("go\n", 9)
    first, run, last = calls(daemon)
    assert first == last == ["rm", "--force", "--", "srtgen-7-x"]
    assert run[:3] == ["run", "--name", "srtgen-7-x"] and run[-6:] == ["--label", "a b=c,d", "image:1", "bash", "-c", "echo $0"]
    assert run[run.index("--entrypoint") + 1] == "" and "--detach" not in run
    assert not (daemon / "srtgen-7-x").exists()


def test_main_keeps_the_code_of_a_container_that_does_not_start(daemon: Path, tmp_path: Path) -> None:
    process = step(tmp_path, daemon, "refused")
    process.communicate(timeout=20)
    assert process.returncode == 125
    assert [words[0] for words in calls(daemon)] == ["rm", "run", "rm"]


@pytest.mark.parametrize(("number", "mode"), [(signal.SIGTERM, "stop_hangs"), (signal.SIGINT, ""), (signal.SIGHUP, "")])
def test_main_after_a_signal(number: signal.Signals, mode: str, daemon: Path, tmp_path: Path) -> None:
    """The client itself does not heed the signal, as docker's does not while its daemon hangs."""
    process = step(tmp_path, daemon, mode)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("up\n")
    process.stdin.flush()
    assert process.stdout.readline() == "up\n"
    begin = time.monotonic()
    process.send_signal(number)
    assert process.wait(20) in (137, 128 + number)  # the client's code, or that of the wait for it
    assert time.monotonic() - begin < 5 + 3  # Slurm's KillWait may be 5 s; the rest is a slow machine
    assert not (daemon / "srtgen-7-x").exists()


def test_main_ends_by_a_signal_before_it_starts_the_container(daemon: Path, tmp_path: Path) -> None:
    process = step(tmp_path, daemon, "slow_rm")
    end = time.monotonic() + 10
    while not (daemon / "slow").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    process.terminate()
    assert process.wait(20) == 143
    assert "run" not in [words[0] for words in calls(daemon)]
