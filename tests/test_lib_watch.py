"""lib/watch.sh, client.sh, router.sh, health_wait.sh, quality.sh: what an event means for the job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs.shell import LIB, bash, stub

LIBRARIES = ["log", "result", "events", "steps", "container", "allocation", "single", "node_results", "watch", "preflight", "addresses", "health_wait", "router", "client", "quality"]
SETUP = """job_folder="${PWD}" results_seen="${PWD}"
rm -rf q; mkdir -p logs bench eval q bundle
ln -sfn LIBDIR bundle/lib
result_file=result.json
clock_begin
events_open q
trap_signals
node_hosts=(n0 n1)
node_addresses=(127.0.0.1 127.0.0.1)
steps=(prefill_0 decode_0 atomesh_0 bench eval)
for s in prefill_0:prefill:n0 decode_0:decode:n1 atomesh_0:atomesh:n0 bench:bench:n0 eval:bench:n0; do
  IFS=: read -r name role host <<<"${s}"
  step_role[${name}]=${role} step_host[${name}]=${host}
done
result_phase=PHASE
trap 'write_result' EXIT
""".replace("LIBDIR", str(LIB))
RUNNING = "   JobState=RUNNING Reason=None Dependency=(null)"


def judge(tmp_path: Path, text: str, phase: str = "load", job: str = RUNNING, plan: str = "", env: dict[str, str] | None = None,
          ) -> tuple[int, dict[str, object]]:
    """Exit code and result.json of a shell that acts on events."""
    stub(tmp_path / "bin", "scontrol", f"printf '%s\\n' '{job}'")
    done = bash(SETUP.replace("PHASE", phase) + text, tmp_path, LIBRARIES, env, plan=plan)
    assert done.stderr == ""
    return done.returncode, json.loads((tmp_path / "result.json").read_text())


def end(name: str, code: int) -> str:
    return f'printf "end\\t{name}\\t{code}\\n" >&"${{events_fd}}"; pump 1\n'


@pytest.mark.parametrize("phase", ["load", "router", "canary", "bench"])
@pytest.mark.parametrize("code", [0, 1, 137])
def test_any_end_of_a_worker_ends_the_job(code: int, phase: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "decode_0.log").write_text("loading\nImportError: no module\n")
    rc, result = judge(tmp_path, end("decode_0", code), phase)
    signal = " (signal 9)" if code == 137 else ""
    assert (rc, result["exit_code"], result["verdict"]) == (11, 11, "failed")
    assert result["reason"] == f"decode_0 on n1 ended with exit code {code}{signal} in phase {phase}"
    assert result["failed"] == {"step": "decode_0", "node": "n1", "exit_code": code, "log": f"{tmp_path}/logs/decode_0.log",
                                "tail": ["loading", "ImportError: no module"]}


EVENTS = [
    (end("atomesh_0", 0), "router", 13, "atomesh_0 on n0 ended with exit code 0 in phase router"),
    ('printf "lost\\tdecode_0\\trefused\\n" >&"${events_fd}"; pump 1', "bench", 11, "decode_0 on n1 does not answer any more: refused"),
    ('printf "lost\\tatomesh_0\\tx\\n" >&"${events_fd}"; pump 1', "bench", 13, "atomesh_0 on n0 does not answer any more: x"),
    ('printf "fatal\\tprefill_0\\tHIP out of memory\\n" >&"${events_fd}"; pump 1', "load", 11, "prefill_0 on n0 logged: HIP out of memory"),
    (end("bench", 10), "load", 10, "benchmark client on n0: ended with exit code 10 before its turn"),
    (end("bench", 0), "load", 20, "benchmark client on n0: ended with exit code 0 before its turn"),
    (end("eval", 22), "load", 22, "evaluation: its step ended with exit code 22 in phase load"),
    (end("eval", 0), "load", 22, "evaluation: its step ended with exit code 0 in phase load"),
]


@pytest.mark.parametrize(("text", "phase", "code", "reason"), EVENTS, ids=[row[3][:40] for row in EVENTS])
def test_event(text: str, phase: str, code: int, reason: str, tmp_path: Path) -> None:
    rc, result = judge(tmp_path, text, phase)
    assert (rc, result["exit_code"], result["reason"]) == (code, code, reason)


def test_the_reason_of_an_early_client_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "verdict.json").write_text('{"code":10,"reason":"no tokenizer  here","points":null,"valid":null}')
    rc, result = judge(tmp_path, end("bench", 10))
    assert (rc, result["reason"]) == (10, "benchmark client on n0: no tokenizer here")


def test_ready_waiting_and_progress_end_nothing(tmp_path: Path) -> None:
    text = """for e in 'ready\\tdecode_0\\t' 'waiting\\tprefill_0\\trefused' 'progress\\tcanary\\t2 done' 'end\\thealth\\t0'; do
printf "${e}\\n" >&"${events_fd}"; pump 1; done
[[ ${worker_ready[decode_0]} == 1 && ${pending_reason[prefill_0]} == refused && ${task_code[health]} == 0 ]]"""
    rc, result = judge(tmp_path, text)
    assert (rc, result["verdict"]) == (0, "running")


SIGNALS = [
    ("TERM", RUNNING, "bench", "", 143, "cancelled in phase bench"),
    ("USR1", RUNNING, "load", "", 124, "the time limit is near, in phase load"),
    ("TERM", "   JobState=COMPLETING Reason=TimeLimit Dependency=(null)", "load", "", 124, "the time limit is reached, in phase load"),
    ("TERM", "   JobState=COMPLETING Reason=NodeDown Dependency=(null)", "load", "", 11,
     "node of this job died (Slurm: COMPLETING NodeDown)"),
    ("TERM", RUNNING, "bench", "PLAN_BENCH=manual", 0, ""),
    ("USR1", RUNNING, "bench", "PLAN_BENCH=manual", 0, ""),
    ("TERM", RUNNING, "load", "PLAN_BENCH=manual", 143, "cancelled in phase load"),
]


@pytest.mark.parametrize(("signal", "job", "phase", "plan", "code", "reason"), SIGNALS)
def test_signal(signal: str, job: str, phase: str, plan: str, code: int, reason: str, tmp_path: Path) -> None:
    rc, result = judge(tmp_path, f"kill -{signal} $$; pump 1", phase, job, plan)
    assert (rc, result["reason"]) == (code, reason)


def test_a_step_that_ends_because_slurm_ends_the_job_is_not_the_reason(tmp_path: Path) -> None:
    """The worker's end is seen first; Slurm's own view decides."""
    rc, result = judge(tmp_path, end("decode_0", 143), "bench", "   JobState=COMPLETING Reason=None Dependency=(null)")
    assert (rc, result["reason"]) == (143, "cancelled in phase bench")
    rc, result = judge(tmp_path, "(sleep 0.1; kill -TERM $$) & " + end("decode_0", 143), "bench")
    assert (rc, result["reason"]) == (143, "cancelled in phase bench")


def test_a_node_that_died_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "decode_0.log").write_text("srun: error: Node failure on n1\n")
    rc, result = judge(tmp_path, end("decode_0", 0), "bench")
    assert (rc, result["reason"]) == (11, "node n1 died (decode_0 ran there)")
    rc, result = judge(tmp_path, "kill -TERM $$; pump 1", "bench", "   JobState=COMPLETING Reason=NodeDown Dependency=(null)")
    assert (rc, result["reason"]) == (11, "node n1 died (Slurm: COMPLETING NodeDown)")


def test_the_first_failure_stays_the_reason(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "record_failure 11 first '' ''\nfail 143 second")
    assert (rc, result["exit_code"], result["reason"]) == (143, 11, "first")


CLIENT = [
    ("0", "", 0, ""), ("20", "", 20, "benchmark: the client ended with exit code 20"),
    ("21", '{"reason":"3 of 10 failed","points":2,"valid":1}', 21, "benchmark: 3 of 10 failed"),
    ("137", "", 20, "benchmark: the client ended with exit code 137 (signal 9)"), ("1", "", 20, "benchmark: the client ended with exit code 1"),
]
NO_PROBE = "LATE_DEATH() { :; }\njudge_servers() { :; }\n"


@pytest.mark.parametrize(("code", "verdict", "wanted", "reason"), CLIENT)
def test_the_end_of_the_client(code: str, verdict: str, wanted: int, reason: str, tmp_path: Path) -> None:
    if verdict:
        (tmp_path / "bench").mkdir()
        (tmp_path / "bench" / "verdict.json").write_text(verdict)
    rc, result = judge(tmp_path, f"{NO_PROBE}step_code[bench]={code}\njudge_client", "bench")
    assert (rc, result["reason"]) == (wanted, reason)
    assert result["bench"] == ({"points": 2, "valid": 1} if verdict else None)


def test_a_component_that_dies_after_the_client_failed_is_the_reason(tmp_path: Path) -> None:
    text = NO_PROBE + """step_code[bench]=1
(sleep 1; printf 'end\\tdecode_0\\t1\\n' >&"${events_fd}") &
judge_client"""
    rc, result = judge(tmp_path, text, "bench")
    assert (rc, result["reason"]) == (11, "decode_0 on n1 ended with exit code 1 in phase bench")


def test_a_server_that_is_gone_when_the_client_fails_is_the_reason(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "step_code[bench]=1\nworker_addresses=(decode_0=127.0.0.1:9)\njudge_client", "bench",
                       plan="PLAN_ROUTER_PORT=9")
    assert rc in (11, 13)
    assert "does not answer any more: /health: connection refused" in str(result["reason"])


def test_a_client_without_a_sign_of_life(tmp_path: Path) -> None:
    text = "beat_since=$((SECONDS - 3))\ncheck_beat\nprintf 'alive\\n' >alive"
    rc, result = judge(tmp_path, text, "bench", env={"SRTGEN_CLIENT_SILENT_S": "2"})
    assert rc == 11 and "no sign of life for 2 s" in str(result["reason"])
    (tmp_path / "logs" / ".bench.alive").write_text("10\n")
    rc, _ = judge(tmp_path, text, "bench", env={"SRTGEN_CLIENT_SILENT_S": "2"})
    assert rc == 0 and (tmp_path / "alive").exists()


def test_the_deadline_says_who_is_missing_and_where_its_log_is(tmp_path: Path) -> None:
    text = "worker_ready[prefill_0]=1\ncollect_worker_addresses\npending_reason[decode_0]='HTTP 503'\nfail_late"
    rc, result = judge(tmp_path, text)
    assert rc == 12
    assert result["reason"] == f"not ready after 900 s: decode_0 on n1 (HTTP 503, log {tmp_path}/logs/decode_0.log)"


def test_progress(tmp_path: Path) -> None:
    text = "load_start=$((SECONDS - 31))\ncollect_worker_addresses\nworker_ready[prefill_0]=1\npending_reason[decode_0]=refused\nlog_progress >out"
    judge(tmp_path, text)
    assert "loading: 31 s, ready 1/2, waiting for decode_0 (refused)" in (tmp_path / "out").read_text()


def test_clients_know_every_server(tmp_path: Path) -> None:
    judge(tmp_path, "node_addresses=(10.0.0.1 10.0.0.2)\nexport_client_environment\nenv >out")
    env = dict(line.split("=", 1) for line in (tmp_path / "out").read_text().splitlines() if "=" in line)
    wanted = {"SRT_ENDPOINT": "http://10.0.0.1:8000", "SRT_FRONTEND_HOST": "10.0.0.1", "SRT_FRONTEND_PORT": "8000",
              "SRT_MODEL_NAME": "Qwen/Qwen3-0.6B", "SRT_JOB_ID": "7", "SRT_LOG_DIR": f"{tmp_path}/logs", "SRT_PREFILL_IPS": "10.0.0.1",
              "SRT_PREFILL_ENDPOINTS": "http://10.0.0.1:6100", "SRT_DECODE_IPS": "10.0.0.2", "SRT_AGG_IPS": "", "SRT_AGG_ENDPOINTS": "",
              "SRTCTL_FRONTEND_TYPE": "atomesh",
              "AIPERF_SERVER_METRICS_URLS": "http://10.0.0.1:6100/metrics,http://10.0.0.2:6100/metrics"}
    assert {name: env.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(("sentence", "step"), [
    ("prefill_0 -> decode_0: the decode half (decode_0) failed", "decode_0"), ("decode_0 installed rdma", "decode_0"),
    ("the completion through the router failed", "")])
def test_the_worker_that_a_sentence_blames(sentence: str, step: str, tmp_path: Path) -> None:
    judge(tmp_path, f"named_worker '{sentence}' >out")
    assert (tmp_path / "out").read_text().strip() == step


EVAL = [("none", {}, "off"), ("off", {}, "off"), ("off", {"RUN_EVAL": "true"}, "after_benchmark"), ("only", {}, "only"),
        ("after_benchmark", {"RUN_EVAL": "0"}, "off"), ("after_benchmark", {"EVAL_ONLY": "1"}, "only"), ("only", {"RUN_EVAL": "1"}, "only")]


@pytest.mark.parametrize(("plan", "env", "mode"), EVAL)
def test_eval_mode(plan: str, env: dict[str, str], mode: str, tmp_path: Path) -> None:
    (tmp_path / "bundle" / "eval").mkdir(parents=True)
    (tmp_path / "bundle" / "eval" / "run.sh").touch()
    judge(tmp_path, "choose_eval; printf '%s' ${eval_mode} >out", plan=f"PLAN_EVAL={plan}", env=env)
    assert (tmp_path / "out").read_text() == mode


def test_an_evaluation_that_the_bundle_has_not(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "choose_eval", plan="PLAN_EVAL=none", env={"RUN_EVAL": "1"})
    assert rc == 10 and "this bundle holds none" in str(result["reason"])


def test_an_evaluation_below_its_threshold(tmp_path: Path) -> None:
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "verdict.json").write_text('{"code":23,"reason":"gsm8k 0.80 < 0.91","metrics":{"gsm8k":{"x":0.8}},"samples":{}}')
    rc, result = judge(tmp_path, "fail_eval 23", "eval")
    assert (rc, result["reason"]) == (23, "evaluation: gsm8k 0.80 < 0.91")
    assert isinstance(result["eval"], dict) and result["eval"]["metrics"] == {"gsm8k": {"x": 0.8}}
