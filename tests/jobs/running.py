"""A job in the middle of its story: one prefill, one decode, a router and a client have been started on two nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from jobs.shell import LIB, bash, stub

LIBRARIES = ["log", "result", "events", "steps", "container", "allocation", "single", "node_results", "watch", "checks", "preflight", "stage", "stage_image",
             "weights", "addresses", "health_wait", "router", "jit", "client", "quality", "teardown"]
SETUP = """show() { printf '> %s\\n' "$*"; }
job_folder="${PWD}" run_folder="${PWD}/q" results_seen="${PWD}" SRTGEN_RUN="${SRTGEN_RUN:-run7}"
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
trap 'write_result; kill -TERM "${task_pid[@]}" 2>/dev/null || :' EXIT
""".replace("LIBDIR", str(LIB))
RUNNING = "   JobState=RUNNING Reason=None Dependency=(null)"
ENDING = "   JobState=COMPLETING Reason=None Dependency=(null)"


def act(tmp_path: Path, text: str, phase: str = "load", job: str = RUNNING, plan: str = "", env: Mapping[str, str] | None = None,
        ) -> subprocess.CompletedProcess[str]:
    """The text in the job's shell, to which Slurm says `job` of itself."""
    stub(tmp_path / "bin", "scontrol", f"printf '%s\\n' '{job}'")
    done = bash(SETUP.replace("PHASE", phase) + text, tmp_path, LIBRARIES, env, plan=plan)
    assert done.stderr == ""
    return done


def judge(tmp_path: Path, text: str, phase: str = "load", job: str = RUNNING, plan: str = "", env: Mapping[str, str] | None = None,
          ) -> tuple[int, dict[str, object]]:
    """Exit code and result.json of a shell that acts on events."""
    done = act(tmp_path, text, phase, job, plan, env)
    return done.returncode, json.loads((tmp_path / "result.json").read_text())


def shown(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the text showed, without the log."""
    assert done.returncode == 0, done.stdout
    return [line[2:] for line in done.stdout.splitlines() if line.startswith("> ")]


def event(kind: str, name: str = "", text: str = "") -> str:
    """Shell text that puts an event into the queue."""
    return f"printf '%s\\t%s\\t%s\\n' '{kind}' '{name}' '{text}' >&\"${{events_fd}}\"\n"


def end(name: str, code: int) -> str:
    """Shell text: a background process has ended, and the job acts on it."""
    return event("end", name, str(code)) + "pump 1\n"
