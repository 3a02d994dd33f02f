"""lib/srtgen.sh: the story of a job, and the one way out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from jobs.running import RUNNING
from jobs.shell import LIB, bash, stub

SHOW = "show() { printf '> %s\\n' \"$*\"; }\n"


def story(tmp_path: Path, text: str, plan: str = "", env: dict[str, str] | None = None, job: str = RUNNING) -> subprocess.CompletedProcess[str]:
    """The text with all libraries, in a bundle of its own."""
    bundle = tmp_path / "bundle"
    bundle.mkdir(exist_ok=True)
    (bundle / "lib").symlink_to(LIB)
    (bundle / "manifest.json").write_text("{}")
    stub(tmp_path / "bin", "scontrol", f"printf '%s\\n' '{job}'")
    return bash(SHOW + text, tmp_path, ["srtgen"], env, plan=plan)


def shown(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line[2:] for line in done.stdout.splitlines() if line.startswith("> ")]


def result(tmp_path: Path) -> dict[str, object]:
    loaded = json.loads((tmp_path / "bundle/results/7/result.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_a_job_is_opened(tmp_path: Path) -> None:
    env = {"SLURM_EXPORT_ENV": "ALL", "HIP_VISIBLE_DEVICES": "0"}
    text = """open_job
show "${attempt} ${SLURM_EXPORT_ENV-unset} ${HIP_VISIBLE_DEVICES-unset}"
[[ -d "${run_folder}" && -p "${run_folder}/events" ]] && show "${run_folder}"
start_task one true; next_event 5; show "${event_kind} ${event_name}"
kill -TERM $$; show "${stop_signal}\""""
    done = story(tmp_path, text, env=env)
    assert done.stderr == "" and done.returncode == 0
    first, folder, *rest = shown(done)
    assert (first, rest) == ("1 unset unset", ["end one", "TERM"])
    assert folder.startswith("/tmp/srtgen-run-7.") and not Path(folder).exists()
    log = (tmp_path / "bundle/results/7/job.log").read_text()
    assert f" job 7, attempt 1: qwen3-0.6b-1p1d-tp1, bundle {tmp_path}/bundle\n" in log
    assert [line for line in done.stdout.splitlines() if not line.startswith("> ")] == log.splitlines()


def test_every_command_is_shown_if_the_operator_wants_it(tmp_path: Path) -> None:
    done = story(tmp_path, "play() {\nopen_job\nrouter_port=5\nexit 0\n}\nplay", env={"SRTGEN_DEBUG": "1"})
    assert done.returncode == 0
    assert "+ log.sh:" in done.stderr and ":events_open: mkfifo" in done.stderr and "router_port=5" in done.stderr


EXITS = [
    ("exit 0", 0, "passed", "passed"), ("result_reason='stopped on request'; exit 0", 0, "passed", "stopped on request"),
    ("fail 12 'not ready'", 12, "failed", "not ready"), ("begin_phase load; exit 3", 70, "failed", "internal error: exit code 3 in phase load"),
    (": ${UNSET_NAME}", 70, "failed", "internal error: exit code 1 in phase start"), ("no_such_command 2>/dev/null", 70, "failed", None),
    ("broken() { false; }; broken", 70, "failed", None), ("record_failure 11 first '' ''; false", 11, "failed", "first"),
    ("(exit 4)", 70, "failed", None), ("x=$(exit 5)", 70, "failed", None), ("false || :; ! true; exit 0", 0, "passed", "passed"),
]


@pytest.mark.parametrize(("text", "code", "verdict", "reason"), EXITS)
def test_every_way_out_has_a_verdict(text: str, code: int, verdict: str, reason: str | None, tmp_path: Path) -> None:
    body = f"teardown() {{ show teardown; }}\nopen_job\nstory() {{\n{text}\n}}\nstory"
    done = story(tmp_path, body)
    written = result(tmp_path)
    assert done.returncode == code
    assert shown(done) == ["teardown"]
    assert (written["exit_code"], written["verdict"], written["phase"]) == (code, verdict, "done")
    phases = written["phases"]
    assert isinstance(phases, list) and [row["name"] for row in phases][-2:] == ["teardown", "done"]
    if reason is None:
        assert str(written["reason"]).startswith("internal error: ") and " line " in str(written["reason"])
    else:
        assert written["reason"] == reason
    log = (tmp_path / "bundle/results/7/job.log").read_text().splitlines()
    assert f" verdict: {verdict} ({code}) after " in log[-2] and log[-2].endswith(f" s: {written['reason']}")
    assert log[-1].endswith(f" results: {tmp_path}/bundle/results/7")


def test_an_unexpected_error_says_where(tmp_path: Path) -> None:
    story(tmp_path, "teardown() { :; }\nopen_job\nbroken() { local a=1; grep -q x /dev/null; }\nbroken")
    reason = str(result(tmp_path)["reason"])
    assert reason.startswith("internal error: ") and reason.endswith(": grep -q x /dev/null (exit code 1)") and " line " in reason


@pytest.mark.parametrize(("call", "reason"), [
    ("false || note_error 12 /a/b.sh 'x y'", "internal error: b.sh line 12: x y (exit code 1)"), ("(false || note_error 12 b.sh x)", "")])
def test_only_the_jobs_shell_notes_its_errors(call: str, reason: str, tmp_path: Path) -> None:
    text = f"open_job\ntrap - EXIT ERR\n{call}\nrm -rf -- \"${{run_folder}}\"\nshow \"${{result_code}}|${{result_reason}}\""
    done = story(tmp_path, text)
    assert shown(done) == [f"70|{reason}" if reason else "null|"]


@pytest.mark.parametrize(("lines", "code"), [("exit 0", 0), ("exit 3", 3), ("module() { exit 4; }; module load x", 4)])
def test_a_preamble_that_exits_is_no_green_job(lines: str, code: int, tmp_path: Path) -> None:
    done = story(tmp_path, "open_job\nrun_preamble\nshow on", plan=f"PLAN_PREAMBLE='{lines}'")
    assert (done.returncode, shown(done)) == (10, [])
    assert result(tmp_path)["reason"] == f"the profile's preamble ended the job with exit {code}"


def test_on_exit_leaves_nothing_behind(tmp_path: Path) -> None:
    text = """teardown() { :; }
open_job
printf x >"${job_folder}/logs/.bench.alive"; printf x >"${job_folder}/logs/bench.log"
start_helper watch bash -c 'printf "%s" $$ >pid; exec sleep 30'
until [[ -s pid ]]; do sleep 0.05; done
exit 0"""
    done = story(tmp_path, text)
    assert done.returncode == 0
    assert [path.name for path in (tmp_path / "bundle/results/7/logs").iterdir()] == ["bench.log"]
    pid = (tmp_path / "pid").read_text()
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(100):
        if not stat.exists() or stat.read_text().split()[2] == "Z":
            break
        subprocess.run(["sleep", "0.05"], check=True)
    else:
        raise AssertionError("the helper lives on")


def test_on_exit_in_a_subshell_is_no_end_of_the_job(tmp_path: Path) -> None:
    done = story(tmp_path, "teardown() { show teardown; }\nopen_job\n(on_exit; show sub)\nshow on")
    assert shown(done) == ["sub", "on", "teardown"]


def test_results_that_cannot_be_written_are_no_success(tmp_path: Path) -> None:
    text = "teardown() { :; }\nopen_job\nresult_file=/nowhere/result.json\nexit 0"
    done = story(tmp_path, text)
    assert done.returncode == 20
    assert "verdict: failed (20) after " in done.stdout and "cannot be written into" in done.stdout


@pytest.mark.parametrize(("signal", "seen"), [("TERM", "1"), ("USR1", "0"), ("HUP", "0")])
def test_signals_in_a_teardown_change_no_verdict(signal: str, seen: str, tmp_path: Path) -> None:
    done = story(tmp_path, f"teardown() {{ kill -{signal} $$; show \"${{teardown_signal}}\"; }}\nopen_job\nfail 11 why")
    assert (done.returncode, shown(done)) == (11, [seen])
    assert result(tmp_path)["reason"] == "why"


def test_an_error_in_a_teardown_does_not_stop_it(tmp_path: Path) -> None:
    done = story(tmp_path, "teardown() { false; show on; }\nopen_job\nexit 0")
    assert (done.returncode, shown(done)) == (0, ["on"])


START = """open_job
node_hosts=(n0 n1) node_addresses=(10.0.0.1 10.0.0.2)
give_turn() { show turn; }
teardown() { :; }
start_step() { show "$*"; }
"""
WORKERS = ["prefill_0 prefill 0 roles/prefill.sh 0 0", "decode_0 decode 1 roles/decode.sh 0 0"]
ROUTER, BENCH, EVAL = "atomesh_0 atomesh 0 roles/atomesh.sh 0 1", "bench bench 0 bench.sh 0 1", "eval bench 0 eval/run.sh 0 1"
STARTS = [
    ("", "off", [*WORKERS, ROUTER, BENCH]), ("PLAN_BENCH=none", "off", [*WORKERS, ROUTER]), ("", "only", [*WORKERS, ROUTER, EVAL]),
    ("PLAN_BENCH_NODE=1\nPLAN_ROUTER_NODE=1", "after_benchmark",
     [*WORKERS, ROUTER.replace("atomesh 0", "atomesh 1"), BENCH.replace("bench 0", "bench 1"), EVAL.replace("bench 0", "bench 1")]),
]


@pytest.mark.parametrize(("plan", "mode", "calls"), STARTS)
def test_all_steps_are_started_and_clients_wait_for_their_turn(plan: str, mode: str, calls: list[str], tmp_path: Path) -> None:
    done = story(tmp_path, START + f"eval_mode={mode}\nstart_steps", plan)
    assert (done.returncode, shown(done)) == (0, calls)


def test_the_environment_of_the_steps_is_ready_before_the_first(tmp_path: Path) -> None:
    text = START + """start_step() {
  show "${SRTGEN_RESULTS} ${SRT_ENDPOINT} ${#container_mounts[@]}"
  [[ " ${export_names[*]} " == *' SRT_ENDPOINT '* ]] && show named
  exit 0
}
start_steps"""
    assert shown(story(tmp_path, text, "PLAN_RUNTIME=pyxis")) == ["/srtgen-results http://10.0.0.1:8000 3", "named"]


def test_a_signal_while_steps_start_is_heeded_at_once(tmp_path: Path) -> None:
    done = story(tmp_path, START + 'start_step() { show "$1"; kill -TERM $$; }\nstart_steps')
    assert (done.returncode, shown(done)) == (143, ["prefill_0"])
    assert result(tmp_path)["reason"] == "cancelled in phase start"


def test_the_number_of_workers_is_told(tmp_path: Path) -> None:
    text = START + 'start_step() { steps+=("$1"); }\nstart_steps'
    assert " started 2 workers\n" in story(tmp_path, text).stdout


ACTS = ("warn_about_overrides run_preamble read_skipped_checks read_nodes preflight stage_all start_steps wait_for_workers watch_workers start_router check_identity check_transport "
        "run_canary await_eval_packages run_client run_eval").split()
PLAYED = [("sa-bench", "off", "run_eval"), ("sa-bench", "after_benchmark", ""), ("sa-bench", "only", "run_client"), ("none", "off", "run_client run_eval")]


@pytest.mark.parametrize(("bench", "mode", "left_out"), PLAYED)
def test_the_story(bench: str, mode: str, left_out: str, tmp_path: Path) -> None:
    text = "".join(f'{name}() {{ show "${{result_phase}} {name}"; }}\n' for name in ACTS)
    text += f"choose_eval() {{ eval_mode={mode}; }}\nteardown() {{ show \"${{result_phase}} teardown\"; }}\nmain"
    done = story(tmp_path, text, f"PLAN_BENCH={bench}")
    phases = {"warn_about_overrides": "start", "run_preamble": "start", "read_skipped_checks": "start", "read_nodes": "start",
              "preflight": "preflight", "stage_all": "preflight", "start_steps": "load", "wait_for_workers": "load",
              "watch_workers": "load", "start_router": "router", "check_identity": "router", "check_transport": "router",
              "run_canary": "canary", "await_eval_packages": "canary", "run_client": "bench", "run_eval": "eval"}
    assert shown(done) == [f"{phases[name]} {name}" for name in ACTS if name not in left_out.split()] + ["teardown teardown"]
    assert done.returncode == 0 and result(tmp_path)["verdict"] == "passed"


@pytest.mark.parametrize("name", ACTS)
def test_a_story_that_breaks_off_anywhere_ends_with_its_reason(name: str, tmp_path: Path) -> None:
    text = "".join(f"{other}() {{ show {other}; }}\n" for other in ACTS)
    text += f"{name}() {{ fail 14 'no {name}'; }}\nchoose_eval() {{ eval_mode=after_benchmark; }}\nteardown() {{ show teardown; }}\nmain"
    done = story(tmp_path, text)
    assert (done.returncode, shown(done)) == (14, [*ACTS[:ACTS.index(name)], "teardown"])
    assert result(tmp_path)["reason"] == f"no {name}"
