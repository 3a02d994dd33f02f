"""The functions of status.sh, logs.sh, stop.sh and wait.sh, and the short scripts submit.sh and prefetch.sh."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from jobs import script
from jobs.shell import TEMPLATES, stub

NAME = "my-job"


def command(name: str, text: str, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "bundle").mkdir(exist_ok=True)
    (tmp_path / "bundle" / "run.sbatch").write_text(f"readonly PLAN_NAME={NAME}\nreadonly PLAN_OUTPUT_DIR=''\n")
    return script.call(name, text, tmp_path, env)


STEPS = [("decode_0", "decode"), ("prefill_0", "prefill"), ("prefill_1", "prefill"), ("atomesh_0", "atomesh"), ("bench", "bench")]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job's folder: all steps have a log but prefill_1, decode_0 is ready."""
    folder = tmp_path / "bundle" / "results" / "7"
    (folder / "logs").mkdir(parents=True)
    rows = ",\n".join(f'  {{"step": "{step}", "role": "{role}"}}' for step, role in STEPS)
    (folder / "manifest.json").write_text(f'{{\n "name": "{NAME}",\n "processes": [\n{rows}\n ]\n}}\n')
    for step, _ in STEPS:
        if step != "prefill_1":
            (folder / "logs" / f"{step}.log").write_text(f"log of {step}\n")
    (folder / "job.log").write_text("2026-01-01T00:00:00+0000 decode_0 is ready on n1\n2026-01-01T00:00:01+0000 the end\n")
    return folder


def result(folder: Path, **fields: object) -> None:
    values = {"name": NAME, "attempt": 2, "phase": "bench", "verdict": "running", "reason": "", "exit_code": None, "failed": None,
              "phases": [{"name": "start", "start_s": 0.0, "seconds": 0.5}, {"name": "load", "start_s": 0.5, "seconds": 12}], **fields}
    (folder / "result.json").write_text(json.dumps(values, separators=(",", ":")) + "\n")


# step, role, phase, verdict, failed step -> what it is said to be doing
STATES = [
    ("decode_0", "decode", "load", "running", "", "ready"), ("prefill_0", "prefill", "load", "running", "", "loading"),
    ("prefill_1", "prefill", "load", "running", "", "not started"), ("decode_0", "decode", "teardown", "running", "", "ended"),
    ("decode_0", "decode", "done", "passed", "", "ended"), ("decode_0", "decode", "bench", "running", "decode_0", "FAILED"),
    ("prefill_1", "prefill", "bench", "failed", "prefill_1", "FAILED"), ("decode_0", "decode", "bench", "lost", "", "ended"),
    ("bench", "bench", "load", "running", "", "waits for its turn"), ("bench", "bench", "bench", "running", "", "running"),
    ("bench", "bench", "eval", "running", "", "ended"), ("eval", "bench", "bench", "running", "", "waits for its turn"),
    ("eval", "bench", "eval", "running", "", "running"), ("atomesh_0", "atomesh", "load", "running", "", "waits for its turn"),
    ("atomesh_0", "atomesh", "router", "running", "", "starting"), ("atomesh_0", "atomesh", "canary", "running", "", "ready")]


@pytest.mark.parametrize(("step", "role", "phase", "verdict", "failed", "said"), STATES)
def test_step_state(step: str, role: str, phase: str, verdict: str, failed: str, said: str, job: Path, tmp_path: Path) -> None:
    (job / "logs" / "eval.log").touch()
    done = command("status.sh", f"step_state {job} {step} {role} {phase} {verdict} '{failed}'", tmp_path)
    assert done.stdout == said + "\n", done.stderr


def test_is_ready_is_the_jobs_word_on_this_very_step(job: Path, tmp_path: Path) -> None:
    (job / "job.log").write_text("T decode_10 is ready on n1\nT prefill_0 is ready to fail\nT x decode_1 is ready on n1\nT agg_0 is ready on n2\n")
    steps = ("decode_1", "decode_10", "prefill_0", "agg_0")
    text = "".join(f"is_ready {job} {step} && printf 1 || printf 0\n" for step in steps) + "is_ready /nowhere agg_0 || printf n"
    assert command("status.sh", text, tmp_path).stdout == "0101n"


def test_row_show_workers_and_steps(job: Path, tmp_path: Path) -> None:
    done = command("status.sh", f"row key 'a  b'\nshow_workers {job}\nshow_steps {job} load running ''", tmp_path)
    first, second, blank, *rows = done.stdout.splitlines()
    assert (first, second.split(None, 1), blank) == ("key       a  b", ["ready", "prefill 0/2, decode 1/1"], "")
    assert [row.split(None, 1)[0] for row in rows] == [step for step, _ in STEPS]
    assert rows[0].split() == ["decode_0", "ready", "log", "of", "decode_0"] and rows[2].split() == ["prefill_1", "not", "started"]


POINTS = [("1/2   4   40  started\r2/2  8  80   0:05\nother\n", "2/2 8 80 0:05 (point"), ("1/2\n12/40 [x\nnot 1/2 x\n", "12/40 [x (point"),
          ("no table\n", None), ("", None), (None, None)]


@pytest.mark.parametrize(("log", "said"), POINTS)
def test_show_point_is_the_last_line_of_the_table(log: str | None, said: str | None, job: Path, tmp_path: Path) -> None:
    (job / "logs" / "bench.log").unlink()
    if log is not None:
        (job / "logs" / "bench.log").write_text(log)
    done = command("status.sh", f"show_point {job}", tmp_path)
    assert done.returncode == 0 and done.stdout.startswith(f"point     {said}" if said else ""), done.stderr
    assert bool(done.stdout) == bool(said)


@pytest.mark.parametrize(("phases", "said"), [(None, "start 0.5 s, load 12 s"), ([], "")])
def test_time_line(phases: list[object] | None, said: str, job: Path, tmp_path: Path) -> None:
    result(job, **({} if phases is None else {"phases": phases}))
    assert command("status.sh", f"time_line {job}/result.json", tmp_path).stdout == said + "\n"


JOBS = [({}, "RUNNING None", {"Slurm": "RUNNING None", "phase": "bench"}),
        ({}, "", {"Slurm": "does not answer, or knows the job no more", "phase": "bench"}),
        ({}, "NODE_FAIL None", {"verdict": "none: the job ended as NODE_FAIL in phase bench, before it could say why"}),
        ({"verdict": "failed", "reason": "it is so", "exit_code": 11, "failed": {"step": "decode_0"}}, "FAILED None",
         {"verdict": "failed (11): it is so", "decode_0": "FAILED             log of decode_0"})]


@pytest.mark.parametrize(("fields", "slurm", "rows"), JOBS)
def test_show_job(fields: dict[str, object], slurm: str, rows: dict[str, str], job: Path, tmp_path: Path) -> None:
    result(job, **fields)
    done = command("status.sh", f"show_job 7 {job} '{slurm}'", tmp_path)
    seen = {line.split()[0]: line.split(None, 1)[1] for line in done.stdout.splitlines() if len(line.split()) > 1}
    assert {key: seen.get(key) for key in rows} == rows, done.stderr
    assert (seen["job"], seen["results"]) == (f"7, {NAME}, attempt 2", str(job)) and seen["last"].endswith("the end")
    assert ("phase" in seen) == ("phase" in rows)


CHOSEN = [("", ["job.log"]), ("prefill", ["prefill_0.log", "prefill_12.log"]), ("prefill_0", ["prefill_0.log"]), ("bench", ["bench.log"]),
          ("pre", []), ("prefill_", []), (".*", [])]


@pytest.mark.parametrize(("what", "names"), CHOSEN)
def test_choose_files(what: str, names: list[str], job: Path, tmp_path: Path) -> None:
    for name in ("prefill_12", "prefill_x", "preflight"):
        (job / "logs" / f"{name}.log").touch()
    done = command("logs.sh", f"choose_files {job} '{what}'\nprintf '%s\\n' \"${{files[@]##*/}}\"", tmp_path)
    assert done.stdout.split() == names


@pytest.mark.parametrize("name", ["logs.sh", "status.sh x y", "stop.sh", "wait.sh"])
def test_usage_is_told_with_2(name: str, tmp_path: Path) -> None:
    name, *words = name.split()
    call = "usage; printf on" if name == "logs.sh" else f"main {' '.join(words)}; printf on"
    done = command(name, call, tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith(f"usage: {name} ")


# What Slurm says call by call, and whether the results get a verdict: logs.sh must end in each case.
ENDS = {"verdict": ("exit 1", True), "ended without one": ("printf 'JobState=NODE_FAIL Reason=None\\n'", False)}


@pytest.mark.parametrize("case", ENDS)
def test_logs_wait_for_end(case: str, job: Path, tmp_path: Path) -> None:
    scontrol, has_verdict = ENDS[case]
    result(job)
    replace = f"sed -i s/running/passed/ {job}/result.json" if has_verdict else ":"
    stub(tmp_path / "bin", "scontrol", f"""printf x >>{tmp_path}/n
if (($(wc -c <{tmp_path}/n) < 3)); then printf 'JobState=RUNNING Reason=None\\n'; else {replace}; {scontrol}; fi""")
    stub(tmp_path / "bin", "sacct", "exit 1")
    done = command("logs.sh", f"wait_for_end 7 {job}\nprintf over", tmp_path, SRTGEN_LOGS_POLL_S="0.05")
    assert done.stdout == "over" and (tmp_path / "n").read_text() == "xxx", done.stderr


def test_logs_wait_for_end_without_a_result(job: Path, tmp_path: Path) -> None:
    done = command("logs.sh", f"wait_for_end 7 {job}\nprintf over", tmp_path)
    assert (done.stdout, done.stderr) == ("over", "")


def test_follow_shows_what_comes_and_leaves_no_process(job: Path, tmp_path: Path) -> None:
    result(job)
    for name in ("scontrol", "sacct"):
        stub(tmp_path / "bin", name, "exit 1")
    functions = script.functions("logs.sh", f'files=("{job}/job.log")\nfollow 7 {job}\nprintf "pid %s\\n" "${{tail_pid:-}}"', tmp_path / "bundle")
    functions.write_text(functions.read_text().replace("local job=\"$1\" folder=\"$2\" tail_pid", "job=\"$1\" folder=\"$2\"", 1))
    process = subprocess.Popen(["bash", str(functions)], env=script.environment(tmp_path, {"SRTGEN_LOGS_POLL_S": "0.1"}), text=True,
                               stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().endswith("is ready on n1\n") and process.stdout.readline().endswith("the end\n")
    with (job / "job.log").open("a") as stream:
        stream.write("later\n")
    assert process.stdout.readline() == "later\n"
    with (job / "job.log").open("a") as stream:
        stream.write("last\n")
    result(job, verdict="passed")
    rest, _ = process.communicate(timeout=20)
    last, pid = rest.splitlines()
    assert last == "last" and process.returncode == 0
    assert script.gone(int(pid.split()[1]))


SAYS = "printf 'JobId=7 JobName=x\\n   Command={}\\n   WorkDir=/\\n'"
# what scontrol says, whether there are results of the job here and of which bundle
BELONGS = {"submitted from here": (SAYS.format("{t}/bundle/run.sbatch"), None, True),
           "with arguments, over a link": (SAYS.format("{t}/link/run.sbatch 1 two"), None, True),
           "from elsewhere": (SAYS.format("/tmp/run.sbatch"), None, False), "elsewhere, results here": (SAYS.format("/tmp/x.sbatch"), NAME, True),
           "forgotten, results here": ("exit 1", NAME, True), "forgotten, another's results": ("exit 1", "other", False),
           "unknown": ("exit 1", None, False)}


@pytest.mark.parametrize("case", BELONGS)
def test_belongs_here(case: str, tmp_path: Path) -> None:
    scontrol, results, expected = BELONGS[case]
    stub(tmp_path / "bin", "scontrol", scontrol.format(t=tmp_path))
    (tmp_path / "bundle").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "bundle")
    if results:
        (tmp_path / "results" / "7").mkdir(parents=True)
        (tmp_path / "results" / "7" / "manifest.json").write_text(f'{{\n "name": "{results}",\n}}\n')
    done = command("stop.sh", "belongs_here 7 && printf yes || printf no", tmp_path)
    assert done.stdout == ("yes" if expected else "no"), done.stderr


def test_stop_wait_for_end(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "sacct", "exit 1")
    stub(tmp_path / "bin", "scontrol", "printf 'JobState=RUNNING Reason=None\\n'")
    assert command("stop.sh", "wait_for_end 7 1 && printf ended || printf 'still %s' $?", tmp_path).stdout == "still 1"
    stub(tmp_path / "bin", "scontrol", f"printf x >>{tmp_path}/n; (($(wc -c <{tmp_path}/n) < 2)) || exit 1; printf 'JobState=RUNNING Reason=None\\n'")
    assert command("stop.sh", "wait_for_end 7 20 && printf ended || printf still", tmp_path).stdout == "ended"


VERDICTS = [({"verdict": "passed", "reason": "all is well"}, "stop.sh: job 7: passed, all is well\n"), (None, "")]


@pytest.mark.parametrize(("fields", "said"), VERDICTS)
def test_show_verdict(fields: dict[str, object] | None, said: str, job: Path, tmp_path: Path) -> None:
    if fields is not None:
        result(job, **fields)
    done = command("stop.sh", "show_verdict 7; printf on", tmp_path)
    assert (done.stdout, done.stderr) == ("on", said)
    shutil.rmtree(job)
    assert command("stop.sh", "show_verdict 7; printf on", tmp_path).stderr == ""


CONTROLLER = [("printf '   JobState=RUNNING Reason=None\\n   Requeue=1 ExitCode=0:0 DerivedExitCode=5:0\\n'", "RUNNING 0:0\n", 0),
              ("printf '   JobState=FAILED\\n A=b ExitCode=11:0\\n'", "FAILED 11:0\n", 0), ("printf 'JobState=PENDING\\n'", "PENDING 0:0\n", 0),
              ("printf 'slurm_load_jobs error\\n' >&2; exit 1", "", 1)]


@pytest.mark.parametrize(("scontrol", "out", "code"), CONTROLLER)
def test_controller_state(scontrol: str, out: str, code: int, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", f'[[ "$*" == "show job 7" ]] || exit 9\n{scontrol}')
    done = command("wait.sh", "rc=0; controller_state 7 || rc=$?; exit $rc", tmp_path)
    assert (done.stdout, done.returncode) == (out, code)


ACCOUNTS = [("printf 'COMPLETED|0:0\\n'", "COMPLETED 0:0\n", 0),
            ("for n in {1..20000}; do printf 'FAILED|3:0\\n'; done", "FAILED 3:0\n", 0), ("printf 'CANCELLED by 5|0:15\\nX|1:0\\n'", "CANCELLED 0:15\n", 0),
            ("[[ $1 == -c ]] && printf 'TIMEOUT|0:15\\n' || exit 1", "TIMEOUT 0:15\n", 0), ("printf ''", "", 1), ("printf 'no table\\n'", "", 1)]


@pytest.mark.parametrize(("sacct", "out", "code"), ACCOUNTS)
def test_accounting_state(sacct: str, out: str, code: int, tmp_path: Path) -> None:
    """-c: Slurm without a database keeps completed jobs elsewhere."""
    stub(tmp_path / "bin", "sacct", sacct)
    done = command("wait.sh", "rc=0; accounting_state 7 || rc=$?; exit $rc", tmp_path)
    assert (done.stdout, done.returncode) == (out, code)


CODES = [("COMPLETED", "0:0", 0), ("COMPLETED", "3:0", 3), ("FAILED", "11:0", 11), ("TIMEOUT", "0:15", 124), ("TIMEOUT", "9:0", 9),
         ("CANCELLED", "0:15", 143), ("NODE_FAIL", "0:0", 11), ("OUT_OF_MEMORY", "0:9", 137), ("BOOT_FAIL", "0:0", 70)]


@pytest.mark.parametrize(("state", "codes", "code"), CODES)
def test_exit_code_of(state: str, codes: str, code: int, tmp_path: Path) -> None:
    assert command("wait.sh", f"exit_code_of {state} {codes}", tmp_path).stdout == f"{code}\n"


def test_wait_can_be_interrupted(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", "printf 'JobState=RUNNING ExitCode=0:0\\n'")
    process = script.start("wait.sh", "main 7", tmp_path, {"SRTGEN_WAIT_POLL_S": "0.05"})
    assert process.stdout is not None and process.stdout.readline().endswith("job 7: RUNNING\n")
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(10) in (-2, 130)


@pytest.mark.parametrize("words", [(), ("--hold", "a b")])
def test_submit_hands_its_words_on_and_is_quiet_in_a_clean_shell(words: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    shutil.copy(TEMPLATES / "submit.sh", folder)
    stub(tmp_path / "bin", "sbatch", 'printf "%s|" "${PWD}" "${SRTGEN_BUNDLE_DIR}" "$@"; exit 4')
    (tmp_path / "link").symlink_to(folder)
    done = subprocess.run(["bash", str(tmp_path / "link" / "submit.sh"), *words], env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}, cwd="/",
                          capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.returncode, done.stderr) == ("|".join([str(folder), str(folder), *words, "run.sbatch", ""]), 4, "")


def test_prefetch_starts_its_program_with_the_bundles_plan(tmp_path: Path) -> None:
    bundle = tmp_path / "a b"
    (bundle / "lib").mkdir(parents=True)
    shutil.copy(TEMPLATES / "prefetch.sh", bundle)
    (bundle / "lib" / "eval_prefetch.py").write_text(
        "import os, sys\nprint(os.environ['SRTGEN_BUNDLE'], os.environ['EVAL_X'], sys.argv[1:])\nsys.exit(3)\n")
    argv = ["bash", str(bundle / "prefetch.sh"), "w x"]
    none = subprocess.run(argv, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, cwd="/", timeout=20)
    assert none.returncode == 1 and "no evaluation, nothing to fetch" in none.stderr
    (bundle / "eval").mkdir()
    (bundle / "eval" / "plan.sh").write_text("export EVAL_X=1\n")
    done = subprocess.run(argv, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, cwd="/", timeout=20)
    assert (done.stdout, done.returncode) == (f"{bundle} 1 ['w x']\n", 3), done.stderr


# state, words, who heeds ("signal", "cancel"), grace -> code, what scancel was told
STOPS = [
    ("RUNNING", "7", "signal", 0, ["--batch --signal=TERM 7"]), ("RUNNING", "7", "cancel", 0, ["--batch --signal=TERM 7", "7"]),
    ("PENDING", "7", "cancel", 0, ["7"]), ("RUNNING", "--now 7", "cancel", 0, ["7"]), ("RUNNING", "7", "nobody", 1, ["--batch --signal=TERM 7", "7"]),
    ("COMPLETED", "7", "nobody", 0, []), ("RUNNING", "8", "signal", 1, []), ("RUNNING", "--force 8", "signal", 0, ["--batch --signal=TERM 8"]),
    ("RUNNING", "--hard 7", "signal", 2, [])]


@pytest.mark.parametrize(("state", "words", "heeds", "code", "sent"), STOPS)
def test_stop_asks_first_and_cancels_what_does_not_heed(state: str, words: str, heeds: str, code: int, sent: list[str], job: Path,
                                                        tmp_path: Path) -> None:
    result(job)
    (tmp_path / "state").write_text(state)
    stub(tmp_path / "bin", "sacct", "exit 1")
    stub(tmp_path / "bin", "scontrol", f"printf 'JobState=%s Reason=None Command=/x.sbatch\\n' \"$(<{tmp_path}/state)\"")
    stub(tmp_path / "bin", "scancel", f"""printf '%s\\n' "$*" >>{tmp_path}/sent
[[ "$1" == --batch ]] && how=signal || how=cancel
[[ "${{how}}" != {heeds} ]] || printf COMPLETED >{tmp_path}/state""")
    done = command("stop.sh", f"main {words}", tmp_path, SRTGEN_STOP_GRACE_S="1", SRTGEN_STOP_KILL_S="1")
    got = (tmp_path / "sent").read_text().splitlines() if (tmp_path / "sent").exists() else []
    assert (done.returncode, got) == (code, sent), done.stderr
    assert ("job 7: running" in done.stderr) == (code == 0 and "7" in words)
