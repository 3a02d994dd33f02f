"""lib/container.sh: how a step's command gets into its container (whole command lines: test_lib_steps.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.shell import bash

LIBRARIES = ["log", "result", "events", "steps", "container"]
IMAGE = "rocm/atom-dev:nightly_202607231538"


def words(tmp_path: Path, text: str, plan: str = "", env: dict[str, str] | None = None) -> list[str]:
    """step_argv after the text."""
    setup = "job_folder='/re sults/7'\ncontainer_mounts=(/a:/b '/c d:/e:ro')\nexport_names=(PATH HOME LANG SRTGEN_X)\nstep_argv=(srun)\n"
    done = bash(setup + text + '\nprintf "%s\\0" "${step_argv[@]}"', tmp_path, LIBRARIES, env, plan=plan)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize(("plan", "more"), [("", []), ("PLAN_MOUNTS=('/a b:/m:ro' /c:/d)", ["/a b:/m:ro", "/c:/d"])])
def test_mounts(plan: str, more: list[str], tmp_path: Path) -> None:
    done = bash("results_seen='/re sults/7'\ncollect_mounts\nprintf '%s\\n' \"${container_mounts[@]}\"", tmp_path, LIBRARIES, plan=plan)
    assert done.stdout.splitlines() == [f"{tmp_path}/bundle:/srtgen:ro", "/re sults/7:/srtgen-results", "/re sults/7/logs:/logs", *more]


@pytest.mark.parametrize(("runtime", "bundle", "results"), [("none", "{t}/bundle", "/re sults/7"), ("pyxis", "/srtgen", "/srtgen-results"),
                                                            ("docker", "/srtgen", "/srtgen-results")])
def test_where_processes_find_their_files(runtime: str, bundle: str, results: str, tmp_path: Path) -> None:
    text = "results_seen='/re sults/7'\nexport_locations\nenv"
    env = {"SRTGEN_STEP": "old", "SRTGEN_TURN": "1"}
    out = bash(text, tmp_path, LIBRARIES, env, plan=f"PLAN_RUNTIME={runtime}").stdout.splitlines()
    for line in (f"SRTGEN_BUNDLE={bundle.format(t=tmp_path)}", f"SRTGEN_RESULTS={results}", "SRTGEN_RESULTS_HOST=/re sults/7", "SRTGEN_STEP=",
                 "SRTGEN_TURN=0"):
        assert line in out


OPTIONS = [("PLAN_CONTAINER_OPTIONS=(--container-writable)", True), ("PLAN_SRUN_OPTIONS=(--mem=0 --container-writable)", True),
           ("PLAN_SRUN_OPTIONS=(--container-writable=yes)", True), ("PLAN_SRUN_OPTIONS=(--container-writable-x)", False), ("", False),
           ("PLAN_CONTAINER_OPTIONS=(--env=--container-writable)", False)]


@pytest.mark.parametrize(("plan", "has"), OPTIONS)
def test_an_option_of_the_plan(plan: str, has: bool, tmp_path: Path) -> None:
    text = "if has_option --container-writable; then printf yes; else printf no; fi"
    assert bash(text, tmp_path, LIBRARIES, plan=plan).stdout == ("yes" if has else "no")


def test_pyxis_step(tmp_path: Path) -> None:
    argv = words(tmp_path, "pyxis_step decode_0 decode roles/decode.sh '1 2'", "PLAN_CONTAINER_OPTIONS=(--container-workdir '/x y')")
    assert argv[:3] == ["srun", f"--container-image={IMAGE}", "--container-mounts=/a:/b,/c d:/e:ro"]
    assert argv[3:8] == ["--no-container-mount-home", "--no-container-entrypoint", "--container-writable", "--container-workdir", "/x y"]
    assert argv[8:10] == ["bash", "-c"] and argv[11:] == ["srtgen", "/srtgen/roles/decode.sh", "1 2"]


def test_docker_step(tmp_path: Path) -> None:
    argv = words(tmp_path, "docker_step decode_0 decode roles/decode.sh 1", "PLAN_CONTAINER_OPTIONS=('--cap-add' 'A B')")
    assert argv[:4] == ["srun", "bash", f"{tmp_path}/bundle/lib/engine_step.sh", "srtgen-7-decode_0"]
    options = list(zip(argv, argv[1:]))
    assert [value for name, value in options if name == "--env"] == ["LANG", "SRTGEN_X"]
    assert [value for name, value in options if name == "--volume"] == ["/a:/b", "/c d:/e:ro"]
    image = argv.index(IMAGE)
    assert argv[image - 2:image] == ["--cap-add", "A B"]
    assert argv[image + 1:image + 3] == ["bash", "-c"] and argv[image + 4:] == ["srtgen", "/srtgen/roles/decode.sh", "1"]


def test_none_step(tmp_path: Path) -> None:
    argv = words(tmp_path, "none_step decode_0 decode roles/decode.sh '1 2'")
    assert argv == ["srun", "bash", f"{tmp_path}/bundle/lib/host_step.sh", f"{tmp_path}/bundle/roles/decode.sh", "1 2"]


@pytest.mark.parametrize(("runtime", "word"), [("pyxis", "--container-image=two"), ("docker", "two")])
def test_each_role_has_its_own_image(runtime: str, word: str, tmp_path: Path) -> None:
    text = """declare -A PLAN_IMAGE=([decode]=one [bench]=two)
PLAN_CONTAINER_OPTIONS=() PLAN_SRUN_OPTIONS=() PLAN_CONTAINER_ROOT=0 step_argv=() container_mounts=() export_names=()
RUNTIME_step bench bench bench.sh 0
printf '%s\\n' "${step_argv[@]}\"""".replace("RUNTIME", runtime)
    argv = bash(text, tmp_path, LIBRARIES).stdout.splitlines()
    assert word in argv and not [other for other in argv if other.endswith("one")]
