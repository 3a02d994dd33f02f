"""lib/weights.sh: what is started for a model's files on which nodes, and what the nodes' checks are told of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jobs.running import act, shown
from jobs.shell import LIB

sys.path.insert(0, str(LIB))
import node_check  # noqa: E402  (found only by the path above)

STEP = 'stage_step() { show "$1 $2 $3|${4:-}"; shift 3; words=("$@"); }\n'
WORDS = 'words=()\n{}\nfor word in "${{words[@]}}"; do show "= ${{word}}"; done'
ONE_NODE = "PLAN_WORKERS=('agg_0 agg 0 1 6100')"
LOCAL = "PLAN_MODEL_KIND=local\nPLAN_MODEL_SOURCE='/models/a b'\n"
HUB = "PLAN_MODEL_SOURCE=org/m\nPLAN_HUB_CACHE='/c d/hub'\n"


def test_a_copy_is_made_on_the_nodes_that_load_it(tmp_path: Path) -> None:
    plan = LOCAL + "PLAN_MODEL_STAGED='/nvme/a b'\n" + ONE_NODE
    step, *words = shown(act(tmp_path, STEP + WORDS.format("stage_model"), "preflight", plan=plan, env={"SRTGEN_STAGE_LIMIT_S": "77"}))
    assert step == "stage_model 77 n1|python3"
    assert words[-3:] == [f"= {tmp_path}/bundle/lib/stage_model.py", "= /models/a b", "= /nvme/a b"] and {"= -E", "= -s", "= -B"} < set(words)


def test_a_thing_has_two_hours(tmp_path: Path) -> None:
    assert shown(act(tmp_path, STEP + "stage_model", plan=LOCAL + "PLAN_MODEL_STAGED=/n/m")) == ["stage_model 7200 n0,n1|python3"]


@pytest.mark.parametrize("plan", ["", LOCAL, HUB])
def test_nothing_is_started_that_nobody_wants(plan: str, tmp_path: Path) -> None:
    assert shown(act(tmp_path, STEP + "stage_model; prefetch_model; show on", plan=plan)) == ["on"]


PREFETCHES = [("shared", "", "n0", "n0,n1"), ("local", "", "n0,n1", "n0,n1"), ("shared", ONE_NODE, "n1", "n1"), ("local", ONE_NODE, "n1", "n1")]


@pytest.mark.parametrize(("how", "more", "fetching", "looking"), PREFETCHES)
def test_one_node_fetches_or_each_and_all_look(how: str, more: str, fetching: str, looking: str, tmp_path: Path) -> None:
    text = STEP + "prefetch_command() { step_argv=(fetch); }\n" + WORDS.format("prefetch_model")
    fetch, look, *words = shown(act(tmp_path, text, plan=f"{HUB}PLAN_MODEL_PREFETCH={how}\n{more}", env={"SRTGEN_STAGE_LIMIT_S": "9"}))
    assert (fetch, look) == (f"prefetch_0 9 {fetching}|fetch", f"prefetch_check 9 {looking}|python3")
    assert words[-3:] == [f"= {tmp_path}/bundle/lib/node_hub.py", "= org/m", "= /c d/hub"]


COMMAND = 'prefetch_command\nfor word in "${step_argv[@]}"; do show "${word}"; done'
IMAGE = "PLAN_IMAGE=([prefetch]=img:1)"


def command(tmp_path: Path, plan: str, env: dict[str, str] | None = None) -> list[str]:
    return shown(act(tmp_path, COMMAND, plan=plan, env=env))


def test_without_a_container_the_script_is_run(tmp_path: Path) -> None:
    words = command(tmp_path, "PLAN_SRUN_OPTIONS=('--comment=two words')")
    assert words == ["--comment=two words", "bash", f"{tmp_path}/bundle/lib/host_step.sh", f"{tmp_path}/bundle/roles/prefetch.sh", "0"]


def test_a_container_gets_mounts_and_names_but_no_values(tmp_path: Path) -> None:
    """The options of srun stand before those of the container: stage_step has given all others."""
    plan = f"PLAN_RUNTIME=pyxis\nPLAN_MOUNTS=('/c d:/c:rw')\nPLAN_SRUN_OPTIONS=(--mem=0)\nPLAN_REQUIRE_ENV=(HF_TOKEN)\n{IMAGE}"
    words = command(tmp_path, plan, {"HF_TOKEN": "secret", "LD_LIBRARY_PATH": "/evil"})
    assert words[0] == "--mem=0" and words[1].startswith("--export=")
    names = words[1].removeprefix("--export=").split(",")
    assert {"HF_TOKEN", "SRTGEN_STEP", "SRTGEN_BUNDLE", "SRTGEN_RESULTS", "PATH"} <= set(names) and "LD_LIBRARY_PATH" not in names
    assert not [word for word in words if "secret" in word]
    assert "--container-image=img:1" in words and words[-2:] == ["/srtgen/roles/prefetch.sh", "0"]
    assert f"--container-mounts={tmp_path}/bundle:/srtgen:ro,{tmp_path}:/srtgen-results,{tmp_path}/logs:/logs,/c d:/c:rw" in words


def test_a_docker_container_of_the_prefetch(tmp_path: Path) -> None:
    words = command(tmp_path, f"PLAN_RUNTIME=docker\n{IMAGE}")
    assert words[0].startswith("--export=") and words[1:4] == ["bash", f"{tmp_path}/bundle/lib/engine_step.sh", "srtgen-7-prefetch_0"]
    assert "img:1" in words and words[-2:] == ["/srtgen/roles/prefetch.sh", "0"]


TOLD = [
    (LOCAL, {"model": "/models/a b", "stage": "", "own": []}),
    (LOCAL + "PLAN_MODEL_STAGED='/nvme/x y/m'", {"model": "/models/a b", "stage": "/nvme/x y/m", "own": ["/nvme/x y"]}),
    (HUB, {"hub_model": "org/m", "hub_cache": "/c d/hub", "offline": 0, "prefetch": "none", "own": [], "writable": []}),
    (HUB + "PLAN_OFFLINE=1", {"offline": 1, "prefetch": "none"}),
    (HUB + "PLAN_MODEL_PREFETCH=local", {"prefetch": "local", "own": ["/c d/hub"], "writable": []}),
    (HUB + "PLAN_MODEL_PREFETCH=shared", {"prefetch": "shared", "own": [], "writable": ["/c d"]}),
    ("", {"hub_model": "Qwen/Qwen3-0.6B", "hub_cache": "", "model": ""}),
]
NONE = {"model": "", "stage": "", "own": [], "writable": [], "hub_model": "", "hub_cache": "", "prefetch": ""}


@pytest.mark.parametrize(("plan", "wanted"), TOLD)
def test_the_checks_are_told_of_the_weights(plan: str, wanted: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the shell hands over is what the program reads, on a node that loads them and on one that does not."""
    text = 'weight_arguments=(old)\ncollect_weight_arguments\nfor word in "${weight_arguments[@]}"; do show "${word}"; done'
    argv = shown(act(tmp_path, text, "preflight", plan=f"{plan}\n{ONE_NODE}"))
    for node, differs in (("n1", {}), ("n0", {"stage": "", "own": [], "writable": []})):
        monkeypatch.setenv("SLURMD_NODENAME", node)
        told = vars(node_check.parse_arguments(argv))
        assert {name: told[name] for name in wanted} == {**wanted, **{name: differs[name] for name in wanted if name in differs}}
        assert told["weight_hosts"] == "n1"
    assert {word.partition("=")[0].lstrip("-").replace("-", "_") for word in argv} <= {*wanted, *NONE, "offline", "weight_hosts"}
