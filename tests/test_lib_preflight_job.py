"""lib/preflight.sh: the job's side of the preflight, from its arguments to its verdict (the nodes' side: test_lib_preflight.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from jobs.running import RUNNING, act, event, judge, shown
from jobs.shell import LIB, stub

sys.path.insert(0, str(LIB))
import node_check  # noqa: E402  (found only by the path above)

ALLOCATIONS = [("printf '%s\\n' n0 n1", "", 0, ""), ("printf '%s\\n' n0 n1 n2", "nodes", 0, ""), ("exit 1", "", 10, "nodes: the job has 0 nodes"),
               ("printf '%s\\n' n0", "ports  nodes", 10, "nodes: 1 nodes cannot hold the plan of 2"),
               ("printf '%s\\n' n0 n1 n2", "ports", 10, "nodes: the job has 3 nodes, the plan needs 2 (was -N given to sbatch?)")]


@pytest.mark.parametrize(("scontrol", "skip", "code", "reason"), ALLOCATIONS)
def test_the_nodes_of_the_allocation(scontrol: str, skip: str, code: int, reason: str, tmp_path: Path) -> None:
    text = f"cat >bin/scontrol <<'END'\n#!/bin/bash\n[[ $1 != show || $2 != hostnames ]] || {{ [[ $3 == 'n[0-1]' ]] || exit 9; {scontrol}; exit; }}\nEND\nread_skipped_checks\nread_nodes"
    rc, result = judge(tmp_path, text, "start", env={"SRTGEN_SKIP_CHECKS": skip})
    assert rc == code and str(result["reason"]).startswith(reason)


NAMES = [("PLAN_REQUIRE_ENV=(A B)", {"A": "1", "B": "two words"}, ""), ("PLAN_REQUIRE_ENV=(A)", {"A": ""}, "not set when the job was submitted: A"),
         ("", {"SRTGEN_PASS_ENV": "A_1 _b\nC"}, ""), ("", {"SRTGEN_PASS_ENV": "A,B"}, "SRTGEN_PASS_ENV: A,B is no name of a variable"),
         ("", {"SRTGEN_PASS_ENV": "A B=1"}, "SRTGEN_PASS_ENV: B=1 is no name of a variable"), ("", {"SRTGEN_PASS_ENV": "1A"}, "SRTGEN_PASS_ENV: 1A is no")]


@pytest.mark.parametrize(("plan", "env", "reason"), NAMES)
def test_names_of_the_submitters_environment(plan: str, env: dict[str, str], reason: str, tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "check_required_environment", "preflight", plan=plan, env=env)
    assert rc == (10 if reason else 0) and str(result["reason"]).startswith(reason)


PLAN = """PLAN_RUNTIME=docker
PLAN_MODEL_KIND=local
PLAN_MODEL_SOURCE='/models/a b'
PLAN_MOUNTS=('/x y:/m:ro')
PLAN_LISTEN=('0  8000   8000   atomesh_0')
PLAN_CPUS_PER_TASK=16
PLAN_INTERFACE=ib0
PLAN_TRANSPORT=rdma
PLAN_IB_DEVICE=rdma0,rdma1
PLAN_RDMA_GID_INDEX=3
PLAN_PREFLIGHT_COMMANDS=($'mine\\ttest -e "/x y"')"""


def test_the_nodes_are_told_the_whole_plan(tmp_path: Path) -> None:
    """What the shell hands over is what the program reads."""
    stub(tmp_path / "bin", "sinfo", "[[ $* == '--noheader --Node --nodes=n[0-1] --format=%N %c' ]] && printf '%s\\n' 'n0 128' 'n1 64'")
    stub(tmp_path / "bin", "squeue", "[[ $* == '--noheader --format=%A' ]] && printf '%s\\n' 7 8")
    text = 'read_skipped_checks\ncollect_check_arguments\nfor word in "${check_arguments[@]}"; do show "${word}"; done'
    env = {"SRTGEN_SKIP_CHECKS": "ports  disk", "SRTGEN_STRICT": "1"}
    plan = vars(node_check.parse_arguments(shown(act(tmp_path, text, "preflight", plan=PLAN, env=env))))
    wanted = {"bundle": f"{tmp_path}/bundle", "results": str(tmp_path), "runtime": "docker", "interface": "ib0", "transport": "rdma",
              "ib_device": "rdma0,rdma1", "gid_index": "3", "cpus_per_task": "16", "gpus": 8, "drain": 300, "concurrency": 4, "strict": 1,
              "model": "/models/a b", "host": ["n0", "n1"], "mount": ["/x y:/m:ro"], "listen": ["0  8000   8000   atomesh_0"],
              "command": ['mine\ttest -e "/x y"'], "skip": ["ports", "disk"], "node_cpus": ["n0=128", "n1=64"], "running_job": ["7", "8"]}
    assert {name: plan[name] for name in wanted} == wanted
    assert set(plan["image"]) == {"rocm/atom-dev:nightly_202607231538"}


def test_a_plan_without_extras_and_a_slurm_without_answers(tmp_path: Path) -> None:
    for name in ("sinfo", "squeue"):
        stub(tmp_path / "bin", name, "exit 1")
    text = 'collect_check_arguments\nfor word in "${check_arguments[@]}"; do show "${word}"; done'
    plan = vars(node_check.parse_arguments(shown(act(tmp_path, text, "preflight"))))
    for name in ("mount", "command", "skip", "node_cpus", "running_job"):
        assert plan[name] == []
    assert (plan["model"], plan["strict"], plan["cpus_per_task"]) == ("", 0, "")


@pytest.mark.parametrize(("plan", "env", "cpus"), [("", {}, []), ("PLAN_CPUS_PER_TASK=16", {"SLURM_CPUS_PER_TASK": "8"}, ["--cpus-per-task=16"]),
                                                   ("", {"SLURM_CPUS_PER_TASK": "8"}, ["--cpus-per-task=8"])])
def test_one_task_on_every_node_runs_the_checks(plan: str, env: dict[str, str], cpus: list[str], tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", 'printf "%s\\0" "$@" >argv; printf "in=%s\\n" "$(cat)"; printf "srun: x\\n" >&2; exit 4')
    text = "check_arguments=(--skip=a 'b  c')\nrun_preflight report || show $?"
    assert shown(act(tmp_path, text, "preflight", plan=plan, env=env)) == ["4"]
    argv = (tmp_path / "argv").read_text().split("\0")[:-1]
    start = argv.index("bash")
    for word in ("--job-name=preflight", "--overlap", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--nodelist=n0,n1", "--kill-on-bad-exit=0",
                 "--wait=0", "--export=ALL", *cpus):
        assert word in argv[:start]
    assert [word for word in argv if word.startswith("--cpus")] == cpus
    identity = "ce00aeefc9cdd6c3bd064ee7fc317c758d85589b90284b601edc025ab76be6c7"
    assert argv[start + 1:] == ["-c", (LIB / "node_check.sh").read_text().rstrip("\n"), "node_check", f"{tmp_path}/bundle", identity, "--skip=a", "b  c"]
    assert (tmp_path / "report").read_text() == "in=\nsrun: x\n"


def test_a_report_is_read_into_tables(tmp_path: Path) -> None:
    (tmp_path / "report").write_text(
        "n0\tcheck\tports\tfail\tport 1,  2\tand 3\nn0\taddress\teth0\t10.0.0.1\t10.0.0.0/24\nn0\taddress\tib0\t10.1.0.1\t10.1.0.0/16\n"
        "n0\tfact\tgpu\tMI \"355X\"\nn0\tmodified\tbench.sh\nn1\tmodified\tbench.sh\nn1\tmodified\tlib/a b\nn0\tend\nsrun: error: n1: x\n\nn1\tcheck\tdisk\tok\n")
    text = """read_report report
show "${check_status["n0 ports"]} ${check_text["n0 ports"]}|${check_status["n1 disk"]}|${node_done[n0]}${node_done[n1]:-no}"
show "${candidates[n0]}"
show "${node_facts[n0]}"
show "${result_modified[*]}\""""
    done = act(tmp_path, text, "preflight")
    assert shown(done) == ["fail port 1,  2\tand 3|ok|1no", "eth0 10.0.0.1 10.0.0.0/24", '"gpu":"MI \\"355X\\""', "bench.sh lib/a b"]
    assert "ib0 10.1.0.1 10.1.0.0/16" in done.stdout and done.stdout.splitlines()[0].endswith(" preflight: srun: error: n1: x")


def test_facts_that_cannot_be_written_are_a_warning(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "add_fact n0 a b\njob_folder=/nowhere\nwrite_identity\njob_folder=${PWD}", "preflight")
    assert (rc, result["warnings"]) == (0, ["cannot write identity.json"])


def test_the_checks_of_the_profile_have_their_columns(tmp_path: Path) -> None:
    text = """node_done=([n0]=1 [n1]=1) check_status=(["n0 mine"]=fail ["n1 disk"]=note) check_text=(["n0 mine"]='exit 3' ["n1 disk"]='2 GiB left')
show_report; show "${preflight_failure} @ ${preflight_node}\""""
    done = act(tmp_path, text, "preflight", plan="PLAN_PREFLIGHT_COMMANDS=($'mine\\ttrue')")
    rows = [line.partition("preflight: ")[2].split() for line in done.stdout.splitlines()]
    assert rows[0][0] == "node" and rows[0][-1] == "mine" and rows[1][-1] == "fail" and rows[2][-1] == "-"
    assert rows[2][rows[0].index("disk")] == "note" and ["disk", "on", "n1:", "2", "GiB", "left"] in rows
    assert shown(done) == ["mine on n0: exit 3 @ n0"]


def test_a_report_without_a_failure(tmp_path: Path) -> None:
    done = act(tmp_path, 'node_done=([n0]=1 [n1]=1)\npreflight_failure=old\nshow_report; show "[${preflight_failure}]"', "preflight")
    assert shown(done) == ["[]"]


def test_all_failures_are_told_and_the_first_is_the_reason(tmp_path: Path) -> None:
    text = """preflight_failure=''
note_failure 'ports on n1: 1' n1
note_failure 'disk on n0: 2' n0
job_folder=/nowhere
note_failure 'x' n0
job_folder=${PWD}
show "${preflight_failure} @ ${preflight_node}\""""
    done = act(tmp_path, text, "preflight")
    assert shown(done) == ["ports on n1: 1 @ n1"]
    assert [line.partition(" ")[2] for line in done.stdout.splitlines()[:3]] == [f"preflight: FAILED: {text}" for text in ("ports on n1: 1", "disk on n0: 2", "x")]
    assert (tmp_path / "logs" / "preflight.log").read_text() == "FAILED\tports on n1: 1\nFAILED\tdisk on n0: 2\n"


PYXIS = [("none", "", "", 0), ("pyxis", "", "Usage: srun", 10), ("pyxis", "", "  --container-image=[USER@][REGISTRY#]IMAGE", 0), ("pyxis", "tools", "", 0)]


@pytest.mark.parametrize(("runtime", "skip", "text", "code"), PYXIS)
def test_srun_knows_pyxis(runtime: str, skip: str, text: str, code: int, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", f"[[ $1 == --help ]] && printf '%s\\n' '{text}' >&2; exit 1")
    rc, result = judge(tmp_path, "read_skipped_checks\ncheck_pyxis", "preflight", plan=f"PLAN_RUNTIME={runtime}", env={"SRTGEN_SKIP_CHECKS": skip})
    assert rc == code and ("pyxis is not installed" in str(result["reason"])) == (code == 10)


GOOD = "".join(f"n{n}\taddress\teth0\t10.0.0.{n + 1}\t10.0.0.0/24\nn{n}\tcheck\tports\tok\t\nn{n}\tfact\tgpus\t8\nn{n}\tend\n" for n in (0, 1))
WHOLE = [
    (GOOD, "0", "", 0, ""), (GOOD, "1", "", 0, ""), (GOOD.replace("ports\tok\t", "ports\tfail\tport 6100 is in use", 1), "0", "", 10,
                                                    "preflight: ports on n0: port 6100 is in use"),
    (GOOD.replace("n1\tend\n", ""), "1", "", 10, "preflight: n1 did not finish its checks"), ("", "1", "", 10, "preflight: n0 did not finish its checks"),
    (GOOD.replace("address", "other"), "0", "", 10, "nodes: no usable IPv4 address on n0"),
    (GOOD, "0", "PLAN_REQUIRE_ENV=(A)", 10, "not set when the job was submitted: A"),
]


@pytest.mark.parametrize(("report", "srun", "plan", "code", "reason"), WHOLE)
def test_the_whole_preflight(report: str, srun: str, plan: str, code: int, reason: str, tmp_path: Path) -> None:
    (tmp_path / "report").write_text(report)
    stub(tmp_path / "bin", "srun", f"cat {tmp_path}/report; exit {srun}")
    rc, result = judge(tmp_path, "read_skipped_checks\npreflight", "preflight", plan=plan, env={"SRTGEN_SKIP_CHECKS": "disk limits"})
    assert (rc, result["reason"]) == (code, reason)
    if not reason.startswith("not set"):
        assert result["checks_skipped"] == ["disk", "limits"]
        assert (tmp_path / "logs" / "preflight.log").read_text().startswith(report)
    if code == 0:
        assert json.loads((tmp_path / "identity.json").read_text()) == {"nodes": {"n0": {"gpus": "8"}, "n1": {"gpus": "8"}}}
        assert (tmp_path / "nodes.tsv").read_text().splitlines()[2] == "1\tn1\t10.0.0.2"
    else:
        assert not (tmp_path / "nodes.tsv").exists()
    if reason.startswith("preflight: "):
        node = "n0" if " n0" in reason else reason.split()[1]
        assert isinstance(result["failed"], dict) and (result["failed"]["step"], result["failed"]["node"]) == ("preflight", node)
        assert result["failed"]["tail"][-1].startswith("FAILED\t")


def test_files_that_were_edited_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "report").write_text(GOOD + "n0\tmodified\tbench.sh\nn1\tmodified\troles/decode.sh\n")
    stub(tmp_path / "bin", "srun", f"cat {tmp_path}/report")
    _, result = judge(tmp_path, "preflight", "preflight")
    assert result["bundle_modified"] == ["bench.sh", "roles/decode.sh"]
    assert result["warnings"] == ["edited since generation: bench.sh roles/decode.sh"]


@pytest.mark.parametrize(("runtime", "turns"), [("none", 6), ("docker", 24)])
def test_a_preflight_that_hangs_ends_at_its_limit(runtime: str, turns: int, tmp_path: Path) -> None:
    (tmp_path / "report").write_text(GOOD.replace("n1\tend\n", ""))
    stub(tmp_path / "bin", "srun", f"cat {tmp_path}/report; : >up; while [[ ! -e over ]]; do sleep 0.1; done")
    text = """turns=0
pump() { while [[ ! -e up ]]; do sleep 0.05; done; SECONDS=$((SECONDS + 100)); turns=$((turns + 1)); }
trap ': >over; show "${turns} turns"; write_result' EXIT
preflight"""
    done = act(tmp_path, text, "preflight", plan=f"PLAN_GPU_DRAIN_TIMEOUT_S=250\nPLAN_RUNTIME={runtime}")
    assert done.returncode == 10 and "FAILED (10): preflight: n1 did not finish its checks" in done.stdout
    assert done.stdout.splitlines()[-1] == f"> {turns} turns"


def test_a_job_that_is_cancelled_in_its_preflight(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", "exec sleep 1")
    rc, result = judge(tmp_path, event("signal") + "stop_signal=TERM\npreflight", "preflight", RUNNING)
    assert (rc, result["reason"]) == (143, "cancelled in phase preflight")
