"""lm-eval's packages for real: from the index, from a wheel folder without a network, and prepared."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_rig import CA_FILE, PYTHON, QUESTIONS, VERSION, EvalRig, right, router, write_questions


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[EvalRig]:
    rig = EvalRig(tmp_path, "t" + uuid.uuid4().hex[:8])
    rig.env["SRTGEN_TASK_DATA"] = str(write_questions(tmp_path / "data"))
    yield rig
    rig.clear()


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The offline/ folder that prefetch.sh makes."""
    root = tmp_path_factory.mktemp("prefetch")
    rig = EvalRig(root, "t" + uuid.uuid4().hex[:8])
    rig.write()
    rig.env["SRTGEN_TASK_DATA"] = str(write_questions(root / "data"))
    code, output = rig.run(script="prefetch.sh")
    assert code == 0, output
    assert f"task data {{'gsm8k': {{'train': 6, 'test': {QUESTIONS}}}}}" in output
    return root / "offline"


HOSTILE_PIP = "[global]\nindex-url = http://127.0.0.1:9/\nuser = true\ntarget = /nowhere\n"


def test_from_the_index(rig: EvalRig) -> None:
    """Case 102: whatever the shell and the home say about pip, the pinned list goes into the job's own venv."""
    home = rig.root / "home"
    (home / ".config" / "pip").mkdir(parents=True)
    (home / ".config" / "pip" / "pip.conf").write_text(HOSTILE_PIP)
    (home / ".local").mkdir()
    rig.env |= {"HOME": str(home), "PIP_USER": "1", "PIP_REQUIRE_VIRTUALENV": "1", "PIP_INDEX_URL": "http://127.0.0.1:9/",
                "PYTHONPATH": str(rig.root / "evil"), "SRTGEN_CA_FILE": CA_FILE}
    (rig.root / "evil").mkdir()
    (rig.root / "evil" / "lm_eval.py").write_text("raise SystemExit(99)")
    rig.write()
    with router(right) as server:
        rig.serve(server)
        code, output = rig.run()
    assert code == 0, output
    record = rig.venv()
    assert record["check"]["prefix"] == str(rig.work / "venv")
    assert record["check"]["lm_eval"] == "0.4.13"
    assert record["check"]["documents"] == {"gsm8k": QUESTIONS}
    assert sorted(path.name for path in home.rglob("*")) == [".config", ".local", "pip", "pip.conf"]
    assert not any(package.startswith("torch==") for package in record["check"]["packages"])
    assert rig.verdict()["metrics"] == {"gsm8k": {"strict-match": 1.0, "flexible-extract": 1.0}}


def no_route() -> list[str]:
    """A network namespace with loopback and nothing else."""
    words = ["unshare", "--net", "bash", "-c", 'ip link set lo up && exec "$@"', "-"]
    if os.geteuid() != 0 or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("no network namespaces here")
    return words


def test_from_wheels_without_a_route(rig: EvalRig, offline: Path) -> None:
    """Cases 100, 102: the air-gapped node, the router inside the same namespace."""
    shutil.copytree(offline, rig.root / "offline")
    del rig.env["SRTGEN_TASK_DATA"]
    rig.data["OFFLINE"] = "1"
    rig.write()
    server = "import sys; sys.path.insert(0, sys.argv[1])\nfrom eval_rig import *\nimport time\n" \
             "s = Router(right); print(s.server_address[1], flush=True); time.sleep(600)\n"
    script = rig.root / "both.sh"
    script.write_text(
        f"exec 3< <(exec {os.fsencode(PYTHON).decode()} -c '{server}' {Path(__file__).parent})\n"
        'read -r port <&3\nserver=$!\ntrap \'kill "${server}"\' EXIT\n'
        'export SRT_ENDPOINT="http://127.0.0.1:${port}"\nbash "${BASH_SOURCE[0]%/*}/eval/run.sh"\n')
    code, output = rig.run(*no_route(), script="both.sh")
    assert code == 0, output
    assert rig.verdict()["code"] == 0
    assert rig.venv()["packages"] == "wheels"


def test_prefetch_is_idempotent_and_repairs(rig: EvalRig, offline: Path) -> None:
    shutil.copytree(offline, rig.root / "offline")
    rig.write()
    assert rig.run(script="prefetch.sh") == (0, f"offline/ is complete for Python {VERSION}\n")
    (rig.root / "offline" / "task-data" / "gsm8k" / "test.jsonl").write_text("{}\n")
    (rig.root / "offline" / ".part").mkdir()
    wheel = next((rig.root / "offline" / "wheels").glob("lm_eval*"))
    wheel.unlink()
    check = ["python3", "-BsE", str(rig.root / "lib" / "eval_offline.py"), str(rig.root)]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{wheel} is missing" in done.stdout and "test.jsonl is not the file that prefetch.sh wrote" in done.stdout


def test_offline_names_what_is_missing(rig: EvalRig) -> None:
    rig.data["OFFLINE"] = "1"
    rig.write()
    code, _ = rig.run()
    assert code == 22
    assert "SHA256SUMS is missing: run prefetch.sh on a connected machine" in rig.verdict()["reason"]


def test_a_missing_wheel_is_named(rig: EvalRig, offline: Path) -> None:
    """Case 099."""
    shutil.copytree(offline / "wheels", rig.root / "wheels")
    next((rig.root / "wheels").glob("tenacity*")).unlink()
    rig.data |= {"PACKAGES": "wheels", "PACKAGES_PATH": str(rig.root / "wheels")}
    rig.write()
    code, _ = rig.run()
    assert code == 22
    assert "tenacity" in rig.verdict()["reason"]
    assert not list(rig.work.glob("venv*"))


def test_killed_build_is_not_taken_and_two_at_once_agree(rig: EvalRig, offline: Path) -> None:
    """Case 104."""
    rig.data |= {"PACKAGES": "wheels", "PACKAGES_PATH": str(offline / "wheels"), "COMMAND": "0"}
    rig.write()
    rig.env["SRT_ENDPOINT"] = "http://127.0.0.1:9"
    first = rig.start()
    deadline = time.monotonic() + 120
    while not list(rig.work.glob("venv.building-*/lib/python3*/site-packages/pip")):
        assert time.monotonic() < deadline and first.poll() is None
        time.sleep(0.05)
    os.killpg(first.pid, 9)
    first.communicate()
    assert not (rig.work / "venv").exists()
    (rig.work / "venv").mkdir()
    (rig.work / "venv" / "half").touch()
    prepare = ["bash", "-c", 'set -e; . "$1/eval/plan.sh"; export SRTGEN_BUNDLE="$1"; exec python3 -BsE "$1/lib/eval_prepare.py"', "-", str(rig.root)]
    both = [subprocess.Popen(prepare, env=rig.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=600)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert (rig.work / "venv" / ".srtgen-requirements").exists()
    assert not (rig.work / "venv" / "half").exists()


REFUSED = {
    "no such Python": ({"PYTHON": "/no/python3"}, "eval.python: /no/python3: No such file"),
    "no venv": ({"PACKAGES": "existing", "PACKAGES_PATH": "/no/venv"}, "eval.packages_path '/no/venv' is neither a venv nor a Python"),
    "venv without lm-eval": ({"PACKAGES": "existing", "PACKAGES_PATH": PYTHON}, "No module named 'lm_eval'"),
    "no threshold": ({"THRESHOLDS": "{}"}, "eval.thresholds names no metric"),
    "chat without template": ({"CHAT_TEMPLATE": "0"}, "endpoint chat needs the chat template"),
    "wheels of another Python": ({"PACKAGES": "wheels", "PACKAGES_PATH": "/tmp"}, f"requirements-{VERSION}.txt is missing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_the_turn(rig: EvalRig, case: str) -> None:
    data, reason = REFUSED[case]
    rig.data |= data
    rig.write()
    code, output = rig.run()
    assert code == 22, output
    assert reason in rig.verdict()["reason"]
    assert not (rig.results / "eval" / "venv.json").exists()


DATA = {
    "missing": (lambda folder: (folder / "gsm8k" / "test.jsonl").unlink(), "gsm8k/test.jsonl is missing"),
    "empty": (lambda folder: (folder / "gsm8k" / "test.jsonl").write_text(""), "test.jsonl is empty"),
    "other fields": (lambda folder: (folder / "gsm8k" / "test.jsonl").write_text('{"q": 1}\n'), "a line without question and answer"),
    "no JSON": (lambda folder: (folder / "gsm8k" / "train.jsonl").write_text("<html>\n"), "train.jsonl can't be used"),
}


@pytest.mark.parametrize("case", DATA)
def test_bad_task_data(rig: EvalRig, case: str) -> None:
    damage, reason = DATA[case]
    damage(rig.root / "data")
    rig.data |= {"PACKAGES": "existing", "PACKAGES_PATH": PYTHON}
    rig.write()
    assert rig.run()[0] == 22
    assert reason in rig.verdict()["reason"]


def test_command_of_the_recipe(rig: EvalRig) -> None:
    """post_eval.command of srt-slurm recipes."""
    rig.data["COMMAND"] = "1"
    rig.env["EVAL_CONC"] = "64"
    rig.write()
    (rig.root / "eval" / "command.sh").write_text('printf "%s %s\\n" "${MODEL_NAME}" "${EVAL_CONC}"; exit 3\n')
    code, output = rig.run()
    assert (code, "Qwen/Qwen3-0.6B 64" in output) == (22, True)
    assert json.loads((rig.results / "eval" / "verdict.json").read_text())["command_exit_code"] == 3
