"""lib/start.sh: a clean environment, a folder for the results, the profile's preamble."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from jobs.shell import bash, stub

LIBRARIES = ["log", "result", "start", "events", "steps", "allocation", "single", "node_results", "watch"]
SHOW = """printf '%s|%s' "${job_folder}" "${attempt}\""""


def run(text: str, tmp_path: Path, env: dict[str, str] | None = None, plan: str = "") -> subprocess.CompletedProcess[str]:
    (tmp_path / "bundle").mkdir(exist_ok=True)
    (tmp_path / "bundle" / "manifest.json").write_text("{}")
    return bash(text, tmp_path, LIBRARIES, env, plan=plan)


def environment(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


FOREIGN = ["SLURM_EXPORT_ENV", "SLURM_CPU_BIND", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE", "SLURM_MEM_BIND", "SLURM_MEM_BIND_LIST",
           "SLURM_DISTRIBUTION", "SLURM_HINT", "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image", "ROCR_VISIBLE_DEVICES",
           "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "USE_ATOMESH_ENTRYPOINTS"]


@pytest.mark.parametrize("name", FOREIGN)
def test_what_the_submit_shell_brought_is_gone(name: str, tmp_path: Path) -> None:
    kept = {"SLURM_JOB_NUM_NODES": "2", "ENROOT_CACHE_PATH": "/a b"}
    seen = environment(run("clean_environment; env", tmp_path, {name: "x", **kept}).stdout)
    assert name not in seen
    assert kept.items() <= seen.items()


def test_an_environment_that_is_clean_stays(tmp_path: Path) -> None:
    done = run("clean_environment; printf on", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "on", "")


CPUS = [("   NumNodes=2 NumCPUs=32 NumTasks=2 CPUs/Task=16 ReqB:S:C:T=0:0:*:*", "16"), ("   NumCPUs=2 CPUs/Task=2", "2"), ("   CPUs/Task=1 x", None),
        ("   CPUs/Task=N/A", None), ("", None)]


@pytest.mark.parametrize("function", ["clean_environment", "read_cpus_per_task"])
@pytest.mark.parametrize(("line", "cpus"), CPUS)
def test_cpus_per_task_are_this_jobs(line: str, cpus: str | None, function: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", f"[[ $* == 'show job 7' ]] && printf '%s\\n' 'JobId=7' '{line}'")
    env = {"SLURM_CPUS_PER_TASK": "99", "SLURM_TRES_PER_TASK": "cpu:99"}
    seen = environment(run(f"{function}; env", tmp_path, env).stdout)
    assert (seen.get("SLURM_CPUS_PER_TASK"), "SLURM_TRES_PER_TASK" in seen) == (cpus, False)


def test_cpus_that_slurm_does_not_tell_are_none(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", "exit 1")
    done = run("read_cpus_per_task; env", tmp_path, {"SLURM_CPUS_PER_TASK": "99"})
    assert done.returncode == 0 and "SLURM_CPUS_PER_TASK" not in environment(done.stdout)


def test_slurm_is_not_asked_without_a_reason(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", f"printf x >>{tmp_path}/asked")
    assert run("clean_environment", tmp_path).returncode == 0
    assert not (tmp_path / "asked").exists()


def test_overrides_of_the_directives_are_told_and_go_no_further(tmp_path: Path) -> None:
    text = 'warn_about_overrides; json_list "${result_warnings[@]}"; printf "%s\\n" "${REPLY}"; env'
    lines = run(text, tmp_path, {"SBATCH_TIMELIMIT": "5", "SBATCH_COMMENT": "a  b", "MY_SBATCH_X": "1"}).stdout.splitlines()
    said = "was set at submission and overrides run.sbatch's directives"
    assert json.loads(lines[2]) == [f"SBATCH_COMMENT=a  b {said}", f"SBATCH_TIMELIMIT=5 {said}"]
    assert lines[0].endswith(f"warning: SBATCH_COMMENT=a  b {said}")
    assert [name for name in environment("\n".join(lines[3:])) if "SBATCH_" in name] == ["MY_SBATCH_X"]


def test_without_overrides_nothing_is_said(tmp_path: Path) -> None:
    assert run('warn_about_overrides; printf "%s" "${#result_warnings[@]}"', tmp_path).stdout == "0"


ROOTS = [
    ({}, "", "{t}/bundle/results/7"), ({"SRTGEN_RESULTS_DIR": "{t}/a b"}, "PLAN_OUTPUT_DIR=/nowhere", "{t}/a b/7"),
    ({}, "PLAN_OUTPUT_DIR='{t}/it'\\''s'", "{t}/it's/7"), ({"SLURM_SUBMIT_DIR": "{t}/sub"}, "PLAN_OUTPUT_DIR=out/x", "{t}/sub/out/x/7"),
    ({"SRTGEN_RESULTS_DIR": "-r"}, "", "{t}/bundle/-r/7"), ({"SRTGEN_RESULTS_DIR": ""}, "PLAN_OUTPUT_DIR={t}/o", "{t}/o/7"),
]


@pytest.mark.parametrize(("env", "plan", "folder"), ROOTS)
def test_where_results_go(env: dict[str, str], plan: str, folder: str, tmp_path: Path) -> None:
    names = {name: value.format(t=tmp_path) for name, value in env.items()}
    wanted = folder.format(t=tmp_path)
    done = run("open_results\n" + SHOW, tmp_path, names, plan.format(t=tmp_path))
    assert (done.returncode, done.stdout) == (0, f"{wanted}|1")
    made = Path(wanted)
    assert sorted(path.name for path in made.iterdir()) == ["bench", "eval", "logs", "manifest.json", "result.json"]
    assert json.loads((made / "result.json").read_text())["verdict"] == "running"


ATTEMPTS = [([], "0", "7|1"), (["7"], "0", "7.r1|2"), (["7", "7.r1", "7.r2"], "0", "7.r3|4"), (["7"], "1", "7.r1|2"), (["7", "7.r1"], "2", "7.r2|3"),
            (["7", "7.r1"], "1", "7.r2|3")]


@pytest.mark.parametrize(("present", "restarts", "wanted"), ATTEMPTS)
def test_results_of_an_earlier_attempt_are_never_touched(present: list[str], restarts: str, wanted: str, tmp_path: Path) -> None:
    for name in present:
        (tmp_path / "o" / name).mkdir(parents=True)
        (tmp_path / "o" / name / "result.json").write_text(name)
    done = run("open_results\n" + SHOW, tmp_path, {"SRTGEN_RESULTS_DIR": f"{tmp_path}/o", "SLURM_RESTART_COUNT": restarts})
    assert done.stdout == f"{tmp_path}/o/{wanted}"
    assert all((tmp_path / "o" / name / "result.json").read_text() == name for name in present)


@pytest.mark.parametrize(("root", "reason"), [("/proc/srtgen", "cannot make the results folder /proc/srtgen"), ("{t}/file", "cannot make the results folder"),
                                              ("/proc/sys", "cannot make /proc/sys/7"), ("{t}/taken", "cannot make {t}/taken/7")])
def test_a_results_folder_that_cannot_be_made_refuses_the_job(root: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "7").touch()
    done = run("open_results", tmp_path, {"SRTGEN_RESULTS_DIR": root.format(t=tmp_path)})
    assert done.returncode == 10 and f"refused: {reason.format(t=tmp_path)}" in done.stderr


OPEN = "run_folder=${PWD}; job_folder=${PWD}; mkdir -p logs; note_error() { printf 'error %s' \"$3\"; }\n"


def preamble(tmp_path: Path, lines: str, text: str = "") -> subprocess.CompletedProcess[str]:
    quoted = lines.replace("'", "'\\''")
    return run(OPEN + "run_preamble\n" + text, tmp_path, plan=f"PLAN_PREAMBLE='{quoted}'")


def test_what_a_preamble_exports_and_defines_reaches_the_job(tmp_path: Path) -> None:
    done = preamble(tmp_path, "export SITE='a  b'; module() { :; }; cd /", 'module; env; pwd')
    assert environment(done.stdout)["SITE"] == "a  b" and done.stdout.endswith("\n/\n")


@pytest.mark.parametrize("lines", ["false; : ${UNSET_NAME}; true", "grep x /dev/null; :", "set -e; :", "return 0"])
def test_a_preamble_may_fail_in_between(lines: str, tmp_path: Path) -> None:
    """Module systems use unset variables and failing commands."""
    done = preamble(tmp_path, lines, "printf on")
    assert (done.returncode, done.stdout, done.stderr) == (0, "on", "")


@pytest.mark.parametrize(("lines", "code"), [("false", 1), ("no_such_command 2>/dev/null", 127), ("return 3; :", 3), ("module() { return 4; }; module load x", 4)])
def test_a_preamble_that_fails_in_the_end_ends_the_job(lines: str, code: int, tmp_path: Path) -> None:
    done = preamble(tmp_path, lines, "printf on")
    assert done.returncode == 10
    assert done.stdout.endswith(f"FAILED (10): the profile's preamble ended with exit code {code}\n")


@pytest.mark.parametrize(("text", "out"), [("broken() { false; }; broken; printf on", "error false"), (": ${UNSET_NAME}; printf on", "")])
def test_after_the_preamble_the_job_is_as_strict_as_before(text: str, out: str, tmp_path: Path) -> None:
    done = preamble(tmp_path, "set +e; true", text)
    assert done.returncode != 0 and done.stdout == out


def test_without_a_preamble_nothing_is_run(tmp_path: Path) -> None:
    assert preamble(tmp_path, "", "printf on").stdout == "on"
    assert not (tmp_path / "preamble").exists()
