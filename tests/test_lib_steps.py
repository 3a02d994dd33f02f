"""lib/steps.sh and lib/container.sh: what srun is asked for, and what a step's environment may hold."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from jobs.shell import LIB, bash, stub

LIBRARIES = ["log", "result", "events", "steps", "container"]
SETUP = """job_folder=/results/7 results_seen=/results/7
node_hosts=(n0 n1)
export_locations
collect_mounts
collect_export_names
"""
SHOW_ARGV = 'printf "%s\\n" "${step_argv[@]}"'


def argv(tmp_path: Path, plan: str, text: str, env: dict[str, str] | None = None) -> list[str]:
    done = bash(SETUP + text + "\n" + SHOW_ARGV, tmp_path, LIBRARIES, env, plan=plan)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


PYXIS = "PLAN_RUNTIME=pyxis\nPLAN_MOUNTS=(/m:/model:ro)"
START = 'srun_argv prefill_0 prefill n0; "${PLAN_RUNTIME}_step" prefill_0 prefill roles/prefill.sh 0'


def test_every_step_overlaps_and_says_its_size(tmp_path: Path) -> None:
    words = argv(tmp_path, "", START)
    for word in ("srun", "--job-name=prefill_0", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n0", "--kill-on-bad-exit=1",
                 "--wait=0", "--output=/results/7/logs/prefill_0.log", "--open-mode=append", "--export=ALL"):
        assert word in words
    assert words[-4:] == ["bash", f"{tmp_path}/bundle/lib/host_step.sh", f"{tmp_path}/bundle/roles/prefill.sh", "0"]
    assert not [word for word in words if word.startswith("--cpus-per-task")]


@pytest.mark.parametrize(("plan", "env", "wanted"), [
    ("PLAN_CPUS_PER_TASK=64", {}, "64"), ("", {"SLURM_CPUS_PER_TASK": "16"}, "16"),
    ("PLAN_CPUS_PER_TASK=64", {"SLURM_CPUS_PER_TASK": "16"}, "64")])
def test_cpus_per_task_is_on_every_step(plan: str, env: dict[str, str], wanted: str, tmp_path: Path) -> None:
    assert f"--cpus-per-task={wanted}" in argv(tmp_path, plan, START, env)


def test_srun_options_of_all_and_of_the_role(tmp_path: Path) -> None:
    plan = "PLAN_SRUN_OPTIONS=('--mem=0' '--comment=two words')\nPLAN_SRUN_OPTIONS_prefill=(--chdir=/x)"
    words = argv(tmp_path, plan, START)
    assert words.index("--mem=0") < words.index("--comment=two words") < words.index("--chdir=/x")
    assert "--chdir=/x" not in argv(tmp_path, plan, "srun_argv atomesh_0 atomesh n0")


def test_pyxis(tmp_path: Path) -> None:
    words = argv(tmp_path, PYXIS, START)
    assert "--container-image=rocm/atom-dev:nightly_202607231538" in words
    assert (f"--container-mounts={tmp_path}/bundle:/srtgen:ro,/results/7:/srtgen-results,/results/7/logs:/logs,/m:/model:ro"
            in words)
    for word in ("--no-container-mount-home", "--no-container-entrypoint", "--container-writable"):
        assert word in words
    assert not [word for word in words if word.startswith("--container-name")]
    assert words[-3:] == ["srtgen", "/srtgen/roles/prefill.sh", "0"]


@pytest.mark.parametrize(("option", "gone"), [
    ("--container-mount-home", "--no-container-mount-home"), ("--container-entrypoint", "--no-container-entrypoint"),
    ("--container-readonly", "--container-writable")])
@pytest.mark.parametrize("where", ["PLAN_CONTAINER_OPTIONS", "PLAN_SRUN_OPTIONS"])
def test_pyxis_defaults_give_way_to_the_plan(where: str, option: str, gone: str, tmp_path: Path) -> None:
    words = argv(tmp_path, f"{PYXIS}\n{where}=({option})", START)
    assert option in words and gone not in words


def test_a_given_pyxis_default_is_not_doubled(tmp_path: Path) -> None:
    words = argv(tmp_path, f"{PYXIS}\nPLAN_SRUN_OPTIONS=(--container-writable)", START)
    assert words.count("--container-writable") == 1


def exported(tmp_path: Path, env: dict[str, str], plan: str = "") -> set[str]:
    words = argv(tmp_path, f"{PYXIS}\n{plan}", "export NODE_0_ADDR=10.0.0.1\ncollect_export_names\n" + START, env)
    return set(next(word for word in words if word.startswith("--export=")).removeprefix("--export=").split(","))


def test_only_named_variables_reach_a_container(tmp_path: Path) -> None:
    evil = {"LD_LIBRARY_PATH": "/evil", "PYTHONPATH": "/evil", "HF_HOME": "/home/x", "HF_TOKEN": "secret", "http_proxy": "http://p",
            "ROCR_VISIBLE_DEVICES": "0", "ENROOT_CACHE_PATH": "/c", "SRTGEN_DEBUG": ""}
    names = exported(tmp_path, evil)
    assert {"PATH", "HOME", "NODE_0_ADDR", "SRTGEN_STEP", "SRTGEN_TURN", "SRTGEN_BUNDLE", "SRTGEN_RESULTS", "ENROOT_CACHE_PATH",
            "SRTGEN_DEBUG"} <= names
    assert not names & {"LD_LIBRARY_PATH", "PYTHONPATH", "HF_HOME", "HF_TOKEN", "http_proxy", "ROCR_VISIBLE_DEVICES"}


def test_named_secrets_and_operators_names_pass_if_they_are_set(tmp_path: Path) -> None:
    env = {"HF_TOKEN": "x", "EXTRA": "1,2", "SRTGEN_PASS_ENV": "EXTRA ABSENT"}
    names = exported(tmp_path, env, "PLAN_REQUIRE_ENV=(HF_TOKEN)\nPLAN_PASS_ENV=(SITE_A)")
    assert {"HF_TOKEN", "EXTRA"} <= names
    assert not names & {"ABSENT", "SITE_A"}


def test_a_custom_benchmark_gets_the_whole_environment(tmp_path: Path) -> None:
    text = "srun_argv bench bench n0"
    assert "--export=ALL" in argv(tmp_path, f"{PYXIS}\nPLAN_BENCH=custom", text)
    assert "--export=ALL" not in argv(tmp_path, f"{PYXIS}\nPLAN_BENCH=custom", START)
    assert "--export=ALL" not in argv(tmp_path, PYXIS, text)


@pytest.mark.parametrize(("plan", "role", "kept"), [
    ("", "prefill", {"PYTHONPATH"}), ("PLAN_BENCH=custom", "bench", set()), ("PLAN_BENCH=custom", "prefill", {"PYTHONPATH"})])
def test_the_environment_of_srun_is_cleaned(plan: str, role: str, kept: set[str], tmp_path: Path) -> None:
    name = "bench" if role == "bench" else "prefill_0"
    (tmp_path / "r" / "logs").mkdir(parents=True)
    text = f'job_folder={tmp_path}/r\nstep_argv=(env)\nrun_step {name} {role} ""'
    evil = {"PYTHONPATH": "/evil", "ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "1", "USE_ATOMESH_ENTRYPOINTS": "1"}
    out = bash(text, tmp_path, LIBRARIES, evil, plan=plan).stdout
    assert {name for name in evil if f"{name}=" in out} == kept
    assert f"SRTGEN_STEP={name}\n" in out and "SRTGEN_TURN=0\n" in out


def test_docker(tmp_path: Path) -> None:
    words = argv(tmp_path, "PLAN_RUNTIME=docker\nPLAN_MOUNTS=('/m n:/model:ro')\nPLAN_CONTAINER_OPTIONS=(--shm-size 16G)", START)
    start = words.index(f"{tmp_path}/bundle/lib/engine_step.sh")
    assert words[start + 1] == "srtgen-7-prefill_0"
    assert words[words.index("--user") + 1].count(":") == 1
    assert "srtgen.job=7" in words
    assert "/m n:/model:ro" in words and f"{tmp_path}/bundle:/srtgen:ro" in words
    envs = [words[i + 1] for i, word in enumerate(words) if word == "--env"]
    assert "SRTGEN_STEP" in envs and not {"PATH", "HOME"} & set(envs)
    assert all("=" not in name for name in envs)
    image = words.index("rocm/atom-dev:nightly_202607231538")
    assert words[image - 2:image] == ["--shm-size", "16G"]
    assert words[image + 1:image + 3] == ["bash", "-c"]


def test_docker_as_root_only_if_the_profile_says_so(tmp_path: Path) -> None:
    words = argv(tmp_path, "PLAN_RUNTIME=docker\nPLAN_CONTAINER_ROOT=1", START)
    assert words[words.index("--user") + 1] == "0:0"


def test_a_step_outside_a_container_stops_and_says_so(tmp_path: Path) -> None:
    done = bash('bash -c "${IN_CONTAINER_PROOF}" srtgen /srtgen-not-here/roles/x.sh 0', tmp_path, LIBRARIES,
                {"SLURMD_NODENAME": "n5"}, plan="")
    assert done.returncode == 71
    assert "not in a container" in done.stderr and "n5" in done.stderr


def test_inside_a_container_the_script_runs_with_its_argument(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text('printf "%s" "$1"; cat')
    done = bash(f'bash -c "${{IN_CONTAINER_PROOF}}" srtgen {tmp_path}/x.sh 3', tmp_path, LIBRARIES, plan="", stdin="in")
    assert done.stdout == "3in"


OURS = "export OWN=$$; task_pid=([prefill_0]=$$ [decode_0]=$$ [bench]=$$)\n"
STEPS = "".join(f"printf '%s\\n' \"StepId=7.{number} State=RUNNING Name={name} Network=(null) SrunHost:Pid=n0:${{OWN}}\"\n"
                for name, number in (("prefill_0", 2), ("decode_0", 1), ("bench", 4)))


@pytest.mark.parametrize(("call", "sent"), [
    ("signal_steps TERM bench", "--signal=TERM 7.4"), ("signal_steps TERM prefill_0 decode_0", "--signal=TERM 7.2 7.1"),
    ("signal_steps KILL decode_0", "7.1")])
def test_steps_are_signalled_by_their_names(call: str, sent: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", STEPS)
    stub(tmp_path / "bin", "scancel", f'printf "%s\\n" "$*" >>{tmp_path}/sent')
    assert bash(OURS + call, tmp_path, LIBRARIES, plan="").returncode == 0
    assert (tmp_path / "sent").read_text() == sent + "\n"


@pytest.mark.parametrize(("scontrol", "scancel"), [("exit 1", "exit 0"), (STEPS, "exit 1"), ("printf ''", "exit 0")])
def test_a_signal_that_cannot_be_sent_is_told(scontrol: str, scancel: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", scontrol)
    stub(tmp_path / "bin", "scancel", scancel)
    done = bash(OURS + "signal_steps TERM bench && printf sent || printf refused", tmp_path, LIBRARIES, plan="")
    assert done.stdout == "refused"


@pytest.mark.parametrize(("code", "text"), [(0, "exit code 0"), (3, "exit code 3"), (137, "exit code 137 (signal 9)")])
def test_describe_code(code: int, text: str, tmp_path: Path) -> None:
    assert bash(f'describe_code {code}; printf "%s" "${{REPLY}}"', tmp_path, LIBRARIES, plan="").stdout == text


def test_the_tail_of_a_log_is_a_list_of_lines(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "x.log").write_bytes(b"".join(b"line %d\xff\n" % i for i in range(50)))
    done = bash(f'job_folder={tmp_path}; log_tail x; printf "%s" "${{REPLY}}"; log_tail absent; printf "|%s" "${{REPLY}}"', tmp_path,
                LIBRARIES, plan="")
    tail, _, absent = done.stdout.partition("|")
    assert json.loads(tail) == [f"line {i}?" for i in range(30, 50)]
    assert json.loads(absent) == []


def host_step(tmp_path: Path, script: str, **popen: object) -> subprocess.Popen[str]:
    (tmp_path / "role.sh").write_text(script)
    return subprocess.Popen(["bash", str(LIB / "host_step.sh"), str(tmp_path / "role.sh"), "4"], text=True,
                            env={"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": f"t{tmp_path.name}", "SRTGEN_STEP": "agg_0"},
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def test_a_host_step_passes_input_argument_and_code_and_removes_its_folder(tmp_path: Path) -> None:
    work = Path(f"/tmp/srtgen-t{tmp_path.name}")
    process = host_step(tmp_path, f'mkdir -p {work}/agg_0/x; read -r line; printf "%s %s" "$1" "${{line}}"; exit 9')
    out, _ = process.communicate("go\n", timeout=20)
    assert (out, process.returncode) == ("4 go", 9)
    assert not work.exists()


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_cancelled_host_step_removes_its_folder_in_time(stubborn: bool, tmp_path: Path) -> None:
    import os
    import signal
    import time
    work = Path(f"/tmp/srtgen-t{tmp_path.name}")
    trap = "trap '' TERM" if stubborn else "trap 'exit 143' TERM"
    process = host_step(tmp_path, f"{trap}\nmkdir -p {work}/agg_0\nprintf 'up\\n'\nwhile :; do sleep 0.1; done")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGTERM)
    end = time.monotonic() + 12
    while work.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL) if stubborn else process.wait(10)
    process.wait(10)
    assert process.returncode == (-9 if stubborn else 143)


def test_the_code_of_a_host_step_that_ends_at_once(tmp_path: Path) -> None:
    for _ in range(5):
        process = host_step(tmp_path, "exit 6")
        process.communicate(timeout=20)
        assert process.returncode == 6


RUN = """show() { printf '> %s\\n' "$*"; }
mkdir -p r/logs q
job_folder=${PWD}/r results_seen=${PWD}/r run_folder=${PWD}/q
node_hosts=(n0 n1)
collect_mounts
collect_export_names
events_open q
"""


def started(tmp_path: Path, text: str, srun: str, plan: str = "", env: dict[str, str] | None = None) -> list[str]:
    """What the text showed; srun is a small program."""
    stub(tmp_path / "bin", "srun", srun)
    done = bash(RUN + text, tmp_path, LIBRARIES, env, plan=plan)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return [line[2:] for line in done.stdout.splitlines() if line.startswith("> ")]


def test_a_step_is_a_task_with_its_own_srun(tmp_path: Path) -> None:
    text = """start_step decode_0 decode 1 'roles/decode.sh' 0 0
start_step 'bench' bench 0 bench.sh 0 0
show "${steps[@]} ${step_role[decode_0]} ${step_host[decode_0]} ${step_role[bench]} ${step_host[bench]}"
for n in 1 2; do next_event 5; show "${event_kind} ${event_name} ${event_text}"; done"""
    srun = 'printf "%s\\n" "$*" "in=$(cat)"; printf "srun: error: x\\n" >&2; [[ $* == *--job-name=bench* ]] || exit 7'
    first, *ends = started(tmp_path, text, f'exec >>{tmp_path}/out-"${{SRTGEN_STEP}}"; {srun}')
    assert first == "decode_0 bench decode n1 bench n0"
    assert sorted(ends) == ["end bench 0", "end decode_0 7"]
    words, stdin = (tmp_path / "out-decode_0").read_text().splitlines()
    assert "--nodelist=n1" in words and words.endswith(f"bash {tmp_path}/bundle/lib/host_step.sh {tmp_path}/bundle/roles/decode.sh 0")
    assert stdin == "in="
    assert (tmp_path / "r" / "logs" / "decode_0.log").read_text() == "srun: error: x\n"


def test_a_step_with_a_turn_starts_at_once_and_reads_its_turn(tmp_path: Path) -> None:
    text = """start_step atomesh_0 atomesh 0 roles/atomesh.sh 0 1
next_event 0.3; show "${event_kind}"
give_turn atomesh_0
next_event 5; show "${event_kind} ${event_name} ${event_text}\""""
    srun = f'printf up >{tmp_path}/up; read -r line; [[ ${{line}} == go && ${{SRTGEN_TURN}} == 1 && -e {tmp_path}/up ]]'
    assert started(tmp_path, text, srun) == ["", "end atomesh_0 0"]


def test_a_step_is_run_in_the_plans_container(tmp_path: Path) -> None:
    text = "start_step prefill_0 prefill 0 roles/prefill.sh 3 0; next_event 5"
    started(tmp_path, text, f'printf "%s\\n" "$@" >{tmp_path}/argv', PYXIS)
    words = (tmp_path / "argv").read_text().splitlines()
    assert "--container-image=rocm/atom-dev:nightly_202607231538" in words and words[-2:] == ["/srtgen/roles/prefill.sh", "3"]


@pytest.mark.parametrize(("turn", "stdin", "flag"), [("", "", "0"), ("${PWD}/turn file", "go", "1")])
def test_the_input_of_a_step_is_its_turn_or_nothing(turn: str, stdin: str, flag: str, tmp_path: Path) -> None:
    (tmp_path / "turn file").write_text("go")
    text = f'step_argv=(srun "a  b" "")\nrun_step agg_0 agg "{turn}" {flag} || show "code $?"'
    srun = 'printf "> %s|%s|%s|%s|%s\\n" "$1" "$#" "${SRTGEN_STEP}" "${SRTGEN_TURN}" "$(cat)"; exit 5'
    assert started(tmp_path, text, srun) == [f"a  b|2|agg_0|{flag}|{stdin}", "code 5"]


STEP = "StepId={id} UserId=0 StartTime=x TimeLimit=UNLIMITED State=RUNNING Partition=p NodeList=n0 Nodes=1 Name={name} Network=(null) SrunHost:Pid=n0:{pid} x"


def step(name: str, number: int, pid: str) -> str:
    """What scontrol says of a step, as shell text."""
    return "printf '%s\\n' \"" + STEP.format(id=f"7.{number}", name=name, pid=pid) + '"'


STEP_LISTS = [(step("a", 1, "$(<pid)"), "a 7.1"), (f"{step('a', 1, '$(<pid)')}; {step('b', 2, '1')}; {step('x', 3, '$(<pid)')}", "a 7.1"),
              ("printf ''", ""), ("printf 'slurm_load: x\\n' >&2; exit 1", "")]


@pytest.mark.parametrize(("scontrol", "listed"), STEP_LISTS)
def test_the_steps_of_this_run_that_slurm_knows(scontrol: str, listed: str, tmp_path: Path) -> None:
    """Not those of the same name that somebody else started in the same allocation."""
    stub(tmp_path / "bin", "scontrol", f'[[ $* == "--oneliner show step 7" ]] || exit 3\ncd {tmp_path}\n{scontrol}')
    text = """sleep 30 >/dev/null 2>&1 & printf '%s' $! >pid
task_pid[a]=$! task_pid[b]=$!
step_ids; printf "%s" "${REPLY}"; kill $(<pid)"""
    done = bash(text, tmp_path, LIBRARIES, plan="")
    assert (done.returncode, done.stdout, done.stderr) == (0, listed, "")


@pytest.mark.parametrize(("name", "runs"), [("decode_0", True), ("bench", False), ("absent", False)])
def test_a_step_runs_until_its_end_was_seen(name: str, runs: bool, tmp_path: Path) -> None:
    text = f"step_role[decode_0]=decode step_role[bench]=bench step_code[bench]=0\nif step_runs {name}; then printf yes; else printf no; fi"
    assert bash(text, tmp_path, LIBRARIES, plan="").stdout == ("yes" if runs else "no")


@pytest.mark.parametrize("call", ["signal_steps TERM decode", "signal_steps TERM absent", "signal_steps KILL", "signal_steps TERM '*'"])
def test_a_signal_for_nobody_is_refused(call: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scancel", f"printf x >{tmp_path}/sent")
    assert bash(f"step_ids() {{ REPLY='decode_0 7.1'; }}\n{call} || printf refused", tmp_path, LIBRARIES, plan="").stdout == "refused"
    assert not (tmp_path / "sent").exists()


PASSED = [("PLAN_PASS_ENV=(A A B)", {"A": "", "B": "1"}, ["A", "B"]), ("PLAN_REQUIRE_ENV=(B)", {"B": "x", "SRTGEN_PASS_ENV": "B\n A\tC", "A": "1"}, ["B", "A"])]


@pytest.mark.parametrize(("plan", "env", "wanted"), PASSED)
def test_each_name_is_exported_once_if_it_is_set(plan: str, env: dict[str, str], wanted: list[str], tmp_path: Path) -> None:
    done = bash('collect_export_names; collect_export_names; printf "%s\\n" "${export_names[@]}"', tmp_path, LIBRARIES, env, plan=plan)
    assert [name for name in done.stdout.splitlines() if name in ("A", "B", "C")] == wanted


def test_a_role_without_options_of_its_own(tmp_path: Path) -> None:
    words = argv(tmp_path, "PLAN_SRUN_OPTIONS=(--mem=0)", "srun_argv agg_0 agg n1")
    assert words[-1] == "--mem=0" and "--nodelist=n1" in words


# What Slurm says that the job was submitted with, the hosts it has, and what keeps a step on n1.
NODE_LISTS = [("ReqNodeList=(null)", "n0 n1 n2", ["--nodelist=n1"]), ("ReqNodeList=n[0-2]", "n0 n1 n2", ["--nodelist=n1"]), ("", "n0 n1", ["--nodelist=n1"]),
              ("ReqNodeList=n1", "n0 n1 n2", ["--nodelist=n1", "--exclude=n0,n2"]), ("ReqNodeList=n1", "n1", ["--nodelist=n1"])]


@pytest.mark.parametrize(("asked", "hosts", "words"), NODE_LISTS)
def test_a_step_stays_on_its_node(asked: str, hosts: str, words: list[str], tmp_path: Path) -> None:
    """Slurm 24.11 runs a step with the job's own --nodelist anywhere in the job."""
    stub(tmp_path / "bin", "scontrol", 'case "$3" in n1) echo n1 ;; "n[0-2]") printf "%s\\n" n0 n1 n2 ;; *) exit 3 ;; esac')
    text = f"job_text='   JobState=RUNNING\n   {asked} ExcNodeList=(null)\n   NodeList=n[0-2]'\nread_loose_hosts {hosts}\nbind_step n1\nprintf '%s\\n' \"${{node_options[@]}}\""
    assert bash(text, tmp_path, LIBRARIES, plan="").stdout.splitlines() == words


def test_a_step_on_several_nodes_stays_there(tmp_path: Path) -> None:
    text = "loose_hosts=(n0 n1 n2 n3)\nbind_step n1,n3\nprintf '%s\\n' \"${node_options[@]}\""
    assert bash(text, tmp_path, LIBRARIES, plan="").stdout.splitlines() == ["--nodelist=n1,n3", "--exclude=n0,n2"]
