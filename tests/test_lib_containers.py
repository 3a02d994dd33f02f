"""podman and apptainer: what a step is asked for, what reaches its container, and what a node's checks say of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobs.shell import LIB, bash, stub
from srtgen.runtimes import RUNTIMES
from test_lib_preflight import plan
from test_lib_steps import SETUP, SHOW_ARGV, START

sys.path.insert(0, str(LIB))
import node_engine  # noqa: E402  (found only by the path above)
import node_system  # noqa: E402

LIBRARIES = ["log", "result", "events", "steps", "container"]
IMAGE = "rocm/atom-dev:nightly_202607231538"
PODMAN = "PLAN_RUNTIME=podman\nPLAN_CONTAINER_STORAGE=/local\nPLAN_CONTAINER_OPTIONS=(--shm-size 16G)"
APPTAINER = "PLAN_RUNTIME=apptainer\nPLAN_MOUNTS=('/m n, \"x\":/model:ro')"


def step(tmp_path: Path, changes: str, text: str = START, uid: int = 1234) -> list[str]:
    """step_argv of a step that a user starts."""
    stub(tmp_path / "bin", "id", f"[[ $1 == -u ]] && printf {uid} || printf {uid + 1}")
    env = {"CONTAINERS_CONF": "/c", "APPTAINER_CACHEDIR": "/c", "XDG_RUNTIME_DIR": "/run/user/1234", "NO_PROXY": "a,b"}
    done = bash("collect_engine_options\n" + SETUP + text + "\n" + SHOW_ARGV, tmp_path, LIBRARIES, env, plan=changes)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def names_after(words: list[str], option: str) -> list[str]:
    return [words[i + 1] for i, word in enumerate(words) if word == option]


def test_podman_of_a_user(tmp_path: Path) -> None:
    words = step(tmp_path, PODMAN)
    start = words.index(f"{tmp_path}/bundle/lib/engine_step.sh")
    assert words[start + 1:start + 10] == [
        "srtgen-7-prefill_0", "podman", "--root", "/local/srtgen-1234/storage", "--runroot", "/local/srtgen-1234/run",
        "--cgroup-manager", "cgroupfs", "run"]
    assert names_after(words, "--user") == ["1234:1235"]
    assert names_after(words, "--userns") == ["keep-id"]
    assert names_after(words, "--group-add") == ["keep-groups"]
    assert names_after(words, "--cgroups") == ["disabled"]
    assert names_after(words, "--label") == ["srtgen.job=7", "srtgen.uid=1234"]
    # The step's variables, never the host's own folders or the runtime's settings; and names only.
    envs = names_after(words, "--env")
    assert {"SRTGEN_STEP", "NO_PROXY"} <= set(envs)
    assert not {"PATH", "HOME", "XDG_RUNTIME_DIR", "CONTAINERS_CONF", "APPTAINER_CACHEDIR"} & set(envs)
    assert all("=" not in name for name in envs)
    image = words.index(IMAGE)
    assert words[image - 2:image] == ["--shm-size", "16G"]


@pytest.mark.parametrize(("changes", "uid", "user"), [(PODMAN + "\nPLAN_CONTAINER_ROOT=1", 1234, "0:0"), (PODMAN, 0, "0:1")])
def test_podman_as_root_has_no_use_for_keep_id(changes: str, uid: int, user: str, tmp_path: Path) -> None:
    words = step(tmp_path, changes, uid=uid)
    assert names_after(words, "--user") == [user]
    assert "--userns" not in words


def test_podman_needs_no_login_session(tmp_path: Path) -> None:
    words = step(tmp_path, PODMAN, 'step_argv=("${XDG_RUNTIME_DIR}")')
    assert words == ["/local/srtgen-1234/run"]


def test_apptainer(tmp_path: Path) -> None:
    words = step(tmp_path, APPTAINER)
    start = words.index(f"{tmp_path}/bundle/lib/host_step.sh")
    assert words[start + 1] == f"{tmp_path}/bundle/lib/apptainer_step.sh"
    names, rest = words[start + 2].split(","), words[start + 3:]
    assert {"SRTGEN_STEP", "NO_PROXY"} <= set(names)
    assert not {"PATH", "HOME", "XDG_RUNTIME_DIR", "APPTAINER_CACHEDIR"} & set(names)
    assert rest[:2] == ["apptainer", "exec"]
    mounts = names_after(rest, "--mount")
    assert f'type=bind,"source={tmp_path}/bundle","destination=/srtgen",ro' in mounts
    assert 'type=bind,"source=/results/7","destination=/srtgen-results"' in mounts
    assert 'type=bind,"source=/m n, ""x""","destination=/model",ro' in mounts
    assert rest[rest.index(IMAGE) - 1] == "--writable-tmpfs"
    assert rest[-3:] == ["srtgen", "/srtgen/roles/prefill.sh", "0"]


@pytest.mark.parametrize("option", ["--overlay=/x", "--writable", "--writable-tmpfs"])
def test_apptainers_writable_layer_gives_way(option: str, tmp_path: Path) -> None:
    words = step(tmp_path, f"{APPTAINER}\nPLAN_CONTAINER_OPTIONS=({option})")
    assert words.count("--writable-tmpfs") == (option == "--writable-tmpfs") and option in words


ODD = 'a,b=c\n"d" $HOME `id` \\e'


def test_what_apptainer_hands_on(tmp_path: Path) -> None:
    """Values by the environment, whole; not one of them on the command line; a folder on the host's disk for /tmp."""
    stub(tmp_path / "bin", "apptainer", f'printf "%s\\0" "$@" >{tmp_path}/argv; env -0 >{tmp_path}/env')
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "SLURM_JOB_ID": "7test", "SRTGEN_STEP": "prefill_0", "ODD": ODD, "OTHER": "x"}
    subprocess.run(["bash", LIB / "apptainer_step.sh", "ODD,ABSENT", "apptainer", "exec", "--bind", "/a b:/c", "img", "true"],
                   env=env, check=True)
    argv = (tmp_path / "argv").read_text().split("\0")[:-1]
    assert argv[0] == "exec" and argv[-4:] == ["--bind", "/a b:/c", "img", "true"]
    assert {"--contain", "--cleanenv", "--no-eval", "--no-home", "--pid"} <= set(argv) and "--rocm" not in argv
    folder = Path(argv[argv.index("--workdir") + 1])
    assert folder == Path("/tmp/srtgen-7test/prefill_0") and folder.is_dir()
    folder.rmdir()
    folder.parent.rmdir()
    got = dict(item.partition("=")[::2] for item in (tmp_path / "env").read_text().split("\0") if item)
    handed = {name: value for name, value in got.items() if name.startswith("APPTAINERENV_")}
    assert handed == {"APPTAINERENV_ODD": ODD, "APPTAINERENV_SLURM_JOB_ID": "7test"}


@pytest.mark.parametrize(("runtime", "keeps"), [("docker", "yes"), ("podman", "yes"), ("apptainer", "no"), ("pyxis", "no")])
def test_which_programs_keep_containers(runtime: str, keeps: str, tmp_path: Path) -> None:
    text = "if keeps_containers; then printf yes; else printf no; fi"
    assert bash(text, tmp_path, LIBRARIES, plan=f"PLAN_RUNTIME={runtime}").stdout == keeps


def test_what_a_container_gets_by_name(tmp_path: Path) -> None:
    text = """export_names=(PATH HOME XDG_RUNTIME_DIR ENROOT_A DOCKER_HOST CONTAINERS_CONF APPTAINER_BIND LANG PATHS SRTGEN_STEP)
collect_container_names
printf '%s ' "${container_names[@]}"
"""
    assert bash(text, tmp_path, LIBRARIES, plan="").stdout == "LANG PATHS SRTGEN_STEP "


@pytest.mark.parametrize(("mount", "fields"), [
    ("/a:/b", 'type=bind,"source=/a","destination=/b"'), ("/a b:/c:ro", 'type=bind,"source=/a b","destination=/c",ro'),
    ('/a,"b":/c', 'type=bind,"source=/a,""b""","destination=/c"')])
def test_a_mount_of_apptainer(mount: str, fields: str, tmp_path: Path) -> None:
    assert bash(f"mount_fields '{mount}'; printf '%s' \"${{REPLY}}\"", tmp_path, LIBRARIES, plan="").stdout == fields


STEPS = [("engine_step docker bench bench bench.sh 0 --own 'x y'", "docker", ["--own", "x y"]), ("podman_step bench bench bench.sh 0", "podman", []),
         ("apptainer_step bench bench bench.sh 0", "apptainer", [])]


@pytest.mark.parametrize(("text", "runtime", "own"), STEPS)
def test_a_step_by_its_name(text: str, runtime: str, own: list[str], tmp_path: Path) -> None:
    words = step(tmp_path, f"PLAN_RUNTIME={runtime}", "step_argv=(srun)\n" + text)
    assert words[0] == "srun" and words[-3:] == ["srtgen", "/srtgen/bench.sh", "0"]
    assert not own or words[words.index(own[0]):][:2] == own


def test_words_before_run_are_the_program(tmp_path: Path) -> None:
    """engine_step.sh without its call of main."""
    text = (LIB / "engine_step.sh").read_text().replace('main "$@"', 'printf "%s|" "${engine[@]}"; split_command podman --root "a b" run --rm run x; '
                                                        'printf "%s|" "${engine[@]}" "${run_options[@]}"')
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "false|podman|--root|a b|--rm|run|x|"


@pytest.mark.parametrize(("option", "limits"), [("", "memlock=-1:-1"), ("keep-groups", "host")])
def test_limits_and_groups_by_whose_rights_it_has(option: str, limits: str) -> None:
    text = (LIB / "engine_step.sh").read_text().replace("/dev/kfd /dev/dri/render*", "/dev/null").replace('main "$@"', f"""
run_options=(--group-add {option})
if has_own_rights; then :; fi
collect_limits
collect_devices
printf "%s|" "${{limit_options[@]}}" "${{device_options[@]}}"
""")
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"--ulimit|{limits}|") and ("--group-add" in done.stdout) == (not option)


REFERENCES = [
    ("podman", "rocm/atom:1", "docker.io/rocm/atom:1"), ("podman", "atom:1", "docker.io/library/atom:1"),
    ("podman", "quay.io/a/b:1", "quay.io/a/b:1"), ("podman", "host:5000/b:1", "host:5000/b:1"), ("podman", "localhost/b", "localhost/b"),
    ("apptainer", "rocm/atom:1", "docker://rocm/atom:1"), ("apptainer", "oras://h/a:1", "oras://h/a:1"),
    ("apptainer", "/images/a.sif", "/images/a.sif"), ("docker", "rocm/atom:1", "rocm/atom:1"), ("pyxis", "rocm/atom:1", "rocm/atom:1")]


@pytest.mark.parametrize(("runtime", "image", "wanted"), REFERENCES)
def test_references(runtime: str, image: str, wanted: str) -> None:
    assert RUNTIMES[runtime].reference(image) == wanted


@pytest.mark.parametrize(("runtime", "path", "good"), [
    ("podman", "/a b", True), ("podman", "/a,b", False), ("apptainer", '/a, "b"\\c', True),
    ("apptainer", "/a\nb", False)])
def test_paths(runtime: str, path: str, good: bool) -> None:
    assert (RUNTIMES[runtime].path_problem(path) is None) == good


def podman_plan(folder: Path, **more: object) -> object:
    return plan(runtime="podman", engine_option=["--root", f"{folder}/srtgen-1/storage", "--runroot", f"{folder}/srtgen-1/run"], **more)


def test_a_store_that_belongs_to_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "srtgen-1").mkdir()
    assert node_engine.storage_problem(podman_plan(tmp_path)) == ""
    monkeypatch.setattr(node_engine.os, "getuid", lambda: os.geteuid() + 1)
    assert f"srtgen-1 belongs to uid {os.geteuid()}" in node_engine.storage_problem(podman_plan(tmp_path))


def test_a_store_on_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_engine, "SHARED_FILE_SYSTEMS", (node_engine.file_system(str(tmp_path)),))
    assert "container_runtime.storage must be a folder on the node's own disk" in node_engine.storage_problem(podman_plan(tmp_path))


def test_file_systems() -> None:
    assert node_engine.file_system("/proc/self") == "proc"
    assert node_engine.file_system("/nowhere/at/all") == node_engine.file_system("/")


@pytest.mark.parametrize(("runtime", "closed"), [("podman", True), ("apptainer", True), ("docker", False), ("none", False)])
def test_devices_that_the_user_may_not_open(runtime: str, closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kfd").touch()
    monkeypatch.setattr(node_engine.os, "access", lambda path, mode: False)
    said = node_engine.closed_devices(plan(runtime=runtime), [f"{tmp_path}/k*"])
    assert (f"may not open {tmp_path}/kfd (group " in said) == closed and bool(said) == closed


def test_a_daemon_sets_the_limits_and_a_users_engine_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_system.resource, "getrlimit", lambda which: (0, 1024))
    assert node_system.check_limits(plan(runtime="docker")) == ("ok", "set by docker")
    assert node_system.check_limits(plan(runtime="podman"))[0] == "fail"
    assert node_system.check_limits(plan(runtime="apptainer"))[0] == "fail"


def test_a_container_that_does_not_start_fails_the_node() -> None:
    good, bad = ["true", ""], ["sh", "-c", "echo no subuid ranges; exit 125", ""]
    assert node_system.check_containers(plan(runtime="apptainer", probe=good + good)) == ("ok", "")
    assert node_system.check_containers(plan(runtime="apptainer", probe=good + bad)) == (
        "fail", "no container starts: no subuid ranges")


@pytest.mark.parametrize(("changes", "images"), [
    (PODMAN, [IMAGE]), (APPTAINER, []), ("PLAN_RUNTIME=docker", []), ("PLAN_RUNTIME=pyxis", []),
    (APPTAINER + "\nPLAN_IMAGE=([prefill]=/a.sif [decode]=/a.sif [bench]=/b.sif)", ["/a.sif", "/b.sif"])])
def test_each_image_is_tried_once(changes: str, images: list[str], tmp_path: Path) -> None:
    stub(tmp_path / "bin", "id", "printf 5")
    text = 'job_folder=/r results_seen=/r\ncheck_arguments=()\nexport_locations\ncollect_probes\nprintf "%s\\0" "${check_arguments[@]}"'
    done = bash(text, tmp_path, LIBRARIES, plan=changes.replace("PLAN_IMAGE=(", "-A PLAN_IMAGE=("))
    assert done.returncode == 0, done.stderr
    words = [word.removeprefix("--probe=") for word in done.stdout.split("\0")[:-1] if word]
    assert sorted(word for word in words if word in (IMAGE, "/a.sif", "/b.sif")) == images
    assert words.count("") == len(images) and (not words or words[-1] == "")


def test_the_list_of_labels_is_asked_of_the_right_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path / "bin", "podman", f"""printf '%s\\n' "$*" >>{tmp_path}/calls
case " $* " in *" ps "*) cat {tmp_path}/list ;; *" rm "*) : >{tmp_path}/list ;; esac""")
    (tmp_path / "list").write_text("aaa 5\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert node_system.check_containers(podman_plan(tmp_path, running_job=["6"]))[0] == "note"  # type: ignore[arg-type]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert all(call.startswith(f"--root {tmp_path}/srtgen-1/storage --runroot ") for call in calls)
    assert json.dumps(calls).count(" rm --force aaa") == 1


def test_a_command_and_its_last_words(tmp_path: Path) -> None:
    assert node_engine.last_words(["true"], 9) == ""
    assert node_engine.last_words(["sh", "-c", "echo a; echo b >&2; exit 3"], 9) == "a\nb"
    assert node_engine.last_words(["false"], 9) == "exit code 1"
    assert node_engine.last_words(["sleep", "9"], 1) == "no answer within 1 s"
    assert "No such file" in node_engine.last_words([str(tmp_path / "absent")], 9)


@pytest.mark.parametrize(("runtime", "argv", "grants"), [
    ("docker", ["docker", "-x"], True), ("podman", ["podman", "-x"], False), ("apptainer", [], False), ("pyxis", [], False)])
def test_what_a_runtime_is(runtime: str, argv: list[str], grants: bool) -> None:
    given = plan(runtime=runtime, engine_option=["-x"])
    assert node_engine.argv(given) == argv and node_engine.grants_rights(given) == grants
    if not argv:
        assert node_engine.remove_leftovers(given) == ("ok", "")


def test_a_program_that_does_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    stub(tmp_path / "bin", "apptainer", "[[ $1 == --version ]] && { echo 'no libfuse'; exit 3; }")
    assert node_engine.problem(plan(runtime="apptainer")) == "apptainer --version fails: no libfuse"
    assert node_engine.problem(plan(runtime="none")) == ""


def test_probes_stop_at_the_first_that_fails(tmp_path: Path) -> None:
    words = ["sh", "-c", 'echo "$SRTGEN_STEP"; exit 1', "", "touch", f"{tmp_path}/late", ""]
    assert node_engine.start_probes(plan(probe=words)) == "probe"
    assert not (tmp_path / "late").exists()
