"""lib/single.sh, lib/node_results.sh and lib/keeper.sh: a bundle that travels in run.sbatch, without Slurm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from jobs.shell import LIB, bash, stub

LIBRARIES = ["log", "result", "events", "steps", "allocation", "single", "node_results", "watch", "teardown"]
SINGLE = "SINGLE_FILE=run.sbatch\nBUNDLE_SHA256=x UNPACK=y\njob_folder=${PWD}/r run_folder=${PWD}\nmkdir -p r/logs\nresult_code=null\n"
FAR = "PLAN_BENCH_NODE=1"


@pytest.mark.parametrize(("setup", "env", "wanted"), [
    ("", {}, "{bundle}/results"), ("SINGLE_FILE=x", {}, f"/tmp/srtgen-results-{os.geteuid()}"),
    ("SINGLE_FILE=x", {"SLURM_SUBMIT_DIR": "/absent"}, f"/tmp/srtgen-results-{os.geteuid()}"),
    ("SINGLE_FILE=x", {"SLURM_SUBMIT_DIR": "{tmp}"}, "{tmp}/results"), ("", {"SLURM_SUBMIT_DIR": "{tmp}"}, "{bundle}/results")])
def test_where_results_go_by_default(setup: str, env: dict[str, str], wanted: str, tmp_path: Path) -> None:
    given = {name: value.format(tmp=tmp_path) for name, value in env.items()}
    done = bash(f'{setup}\ndefault_results\nprintf "%s" "${{REPLY}}"', tmp_path, LIBRARIES, given, plan="")
    assert done.stdout == wanted.format(tmp=tmp_path, bundle=tmp_path / "bundle")


@pytest.mark.parametrize("single", [False, True])
def test_steps_find_results_under_one_path(single: bool, tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "r").mkdir()
    text = f'{"SINGLE_FILE=x" if single else ""}\njob_folder={tmp_path}/r\nplace_results\n: >"${{results_seen}}/file"\nprintf "%s" "${{results_seen}}"'
    done = bash(text, tmp_path, LIBRARIES, plan="")
    assert done.stdout == str(tmp_path / ("bundle/results" if single else "r")) and (tmp_path / "r" / "file").exists()


def test_a_bundle_of_many_files_is_not_handed_over(tmp_path: Path) -> None:
    text = 'hand_over_bundle; leave_nodes; fetch_client; send_identity; pack_and_leave; printf "%s" "${#keeper_hosts[@]}"'
    done = bash(text, tmp_path, LIBRARIES, plan=FAR)
    assert (done.stdout, done.stderr) == ("0", "")


@pytest.mark.parametrize(("code", "said", "reason"), [
    (1, "sbcast: error: REQUEST_FILE_BCAST(n1): No space left on device", "copied to n1: sbcast: error"),
    (127, "sbcast: command not found", "copied to the other nodes: sbcast: command not found"),
    (124, "", "copied to the other nodes: sbcast ended with code 124"), (0, "whatever", "")])
def test_a_copy_that_fails_names_its_node(code: int, said: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "said").write_text(f"{said}\n")
    done = bash(f"{SINGLE}check_sbcast {code} said", tmp_path, LIBRARIES, plan="")
    assert done.returncode == (10 if reason else 0) and reason in done.stdout


@pytest.mark.parametrize(("report", "ended", "code", "reason"), [
    ("n1\tok\t\nn2\tok\t\n", "", 0, ""), ("n1\tok\t\nn2\tfail\tNo space left\n", "", 10, "bundle: on n2: No space left"),
    ("n1\tok\t\nsrun: error: n2: no\n", "1", 10, "bundle: n2 does not take it: srun: error: n2: no")])
def test_the_job_waits_for_every_keeper(report: str, ended: str, code: int, reason: str, tmp_path: Path) -> None:
    (tmp_path / "report").write_text(report)
    text = f"{SINGLE}events_open .\nkeeper_hosts=(n1 n2)\n{'task_code[keeper]=1' if ended else ''}\nawait_keepers report"
    done = bash(text, tmp_path, LIBRARIES, plan="")
    assert done.returncode == code and reason in done.stdout


@pytest.mark.parametrize(("plan", "setup", "far"), [
    (FAR, "SINGLE_FILE=x", "yes"), (FAR, "", "no"), ("PLAN_BENCH_NODE=0", "SINGLE_FILE=x", "no")])
def test_a_far_client(plan: str, setup: str, far: str, tmp_path: Path) -> None:
    assert bash(f"{setup}\nif client_is_far; then printf yes; else printf no; fi", tmp_path, LIBRARIES, plan=plan).stdout == far


def test_results_of_another_node(tmp_path: Path) -> None:
    """srun runs its command here; the node's own folder lies beside the job's."""
    node = tmp_path / "bundle" / "results"
    (node / "bench").mkdir(parents=True)
    (node / "bench" / "verdict.json").write_text("{}")
    (tmp_path / "bundle" / "lib").symlink_to(LIB)
    stub(tmp_path / "bin", "srun", 'while [[ "$1" == --* ]]; do shift; done; exec "$@"')
    text = f'{SINGLE}node_hosts=(n0 n1)\nfetch_client\nprintf x >r/nodes.tsv\nsend_identity'
    done = bash(text, tmp_path, LIBRARIES, plan=FAR)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "r" / "bench" / "verdict.json").read_text() == "{}" and (node / "nodes.tsv").read_text() == "x"
    stub(tmp_path / "bin", "srun", "exit 1")
    assert "cannot fetch results from n1" in bash(f"{SINGLE}node_hosts=(n0 n1)\nfetch_client", tmp_path, LIBRARIES, plan=FAR).stdout


def test_copies_without_a_keeper_are_dropped(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", f'printf "%s\\n" "$*" >>{tmp_path}/calls')
    done = bash(f"{SINGLE}keeper_hosts=(n1 n2)\nscript_sent=1\nleave_nodes", tmp_path, LIBRARIES, plan="")
    assert done.returncode == 0, done.stderr
    assert "--nodelist=n1,n2" in (tmp_path / "calls").read_text() and f"rm -f -- {tmp_path}/bundle.sbatch" in (tmp_path / "calls").read_text()


def test_the_last_words_say_how_to_fetch_the_results(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "lib").symlink_to(LIB)
    (tmp_path / "bundle.sbatch").touch()
    text = f"{SINGLE}allocation=1\nSINGLE_FILE=${{PWD}}/copy\n: >copy\nprintf x >r/job.log\npack_and_leave"
    done = bash(text, tmp_path, LIBRARIES, {"SLURMD_NODENAME": "n0"}, plan="")
    assert done.stdout.splitlines()[-1].endswith(
        f"fetch them: srun -N1 -n1 --nodelist=n0 cat {tmp_path}/r.tar.gz >r.tar.gz   (or scp n0:{tmp_path}/r.tar.gz .)")
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(("bin", "."))) == ["r", "r.tar.gz"]


@pytest.mark.parametrize(("setup", "said"), [("", "no"), ("SINGLE_FILE=''", "no"), ("SINGLE_FILE='a b'", "yes")])
def test_is_single(setup: str, said: str, tmp_path: Path) -> None:
    assert bash(f"{setup}\nif is_single; then printf yes; else printf no; fi", tmp_path, LIBRARIES, plan="").stdout == said


def test_own_jobs_fails_if_slurm_does_not_answer(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "squeue", f'[[ " $* " == *" --user={os.geteuid()} "* && " $* " == *" --format=%A "* ]] && printf "7\\n81\\n"')
    text = "own_jobs; printf 'exit 1\\n' >bin/squeue; own_jobs || printf 'code %s' $?"
    assert bash(text, tmp_path, LIBRARIES, plan="").stdout == "7\n81\ncode 1"


@pytest.mark.parametrize(("squeue", "keeper", "said"), [
    ("printf '7\\n81\\n'", "exit 0", "<old> <7\n81> on"), ("printf '7\\n'", "exit 3", "<old> <7> on"), ("printf 7; exit 1", "exit 0", "on")])
def test_old_bundles_are_removed_only_when_slurm_says_which_jobs_live(squeue: str, keeper: str, said: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "squeue", squeue)
    stub(tmp_path / "bundle" / "lib", "keeper.sh", f'printf "<%s> " "$@"; {keeper}')
    done = bash("remove_old_bundles\nprintf on", tmp_path, LIBRARIES, plan="")
    assert (done.stdout, done.stderr) == (said, "")


@pytest.mark.parametrize("code", [0, 5])
def test_what_sbcast_says_is_kept(code: int, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "sbcast", f'printf "<%s>" "$@"; printf no >&2; exit {code}')
    done = bash("SINGLE_FILE='a b'\nsend_script 'to ld' || printf 'code %s' $?", tmp_path, LIBRARIES, plan="")
    assert (done.stdout, done.stderr) == ("code 5" if code else "", "")
    assert (tmp_path / "to ld").read_text() == f"<a b><{tmp_path}/bundle.sbatch>no"


def act(text: str, tmp_path: Path) -> list[str]:
    """What a text prints that acts on events."""
    done = bash(f"{SINGLE}events_open .\n{text}", tmp_path, LIBRARIES, plan="")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout.splitlines()


TASKS = {"it ends": ("start_task sbcast bash -c 'sleep 0.3; exit 4'", "4 pumped"), "it has ended": ("task_code[sbcast]=0", "0 never"),
         "it does not end": ("pump() { pumped=pumped SECONDS=$((SECONDS + 50)); }", "none pumped"),
         "another one ends": ("start_task other true; p() { task_code[${1}]=9; }; pump() { next_event 5; p \"${event_name}\"; pumped=${event_name}; p sbcast; }",
                              "9 other")}


@pytest.mark.parametrize("case", TASKS)
def test_a_task_is_awaited_up_to_a_limit(case: str, tmp_path: Path) -> None:
    before, said = TASKS[case]
    counting = "check_allocation_end() { pumped=pumped; }\npumped=never\n"  # each pump looks there
    text = counting + f'{before}\nSECONDS=0\nawait_task sbcast\nprintf "%s\\n" "${{task_code[sbcast]:-none}} ${{pumped}}"\n' \
        '((SECONDS < 30 || (SECONDS >= HAND_OVER_S && SECONDS < HAND_OVER_S + 60))) || printf "%s\\n" "${SECONDS}"'
    assert act(text, tmp_path) == [said]


@pytest.mark.parametrize(("squeue", "jobs"), [("printf '7\\n81\\n'", "7\n81"), ("exit 1", "all")])
def test_keepers_are_one_step_on_all_other_nodes(squeue: str, jobs: str, tmp_path: Path) -> None:
    """Their text is an argument: they have no file yet. Their input stays open as long as the job wants them."""
    stub(tmp_path / "bin", "squeue", squeue)
    stub(tmp_path / "bin", "srun", f'printf "%s\\0" "$@" >{tmp_path}/words; cat >{tmp_path}/input; printf said; printf no >&2; exit 3')
    stub(tmp_path / "bundle" / "lib", "keeper.sh", "the text\n'of' keepers")
    text = f"{SINGLE}keeper_hosts=(n1 n2 n3)\nprintf turn >turn_keeper\nrun_keepers report || printf 'code %s' $?"
    done = bash(text, tmp_path, LIBRARIES, plan="")
    words = (tmp_path / "words").read_text().split("\0")[:-1]
    assert (done.stdout, done.stderr, (tmp_path / "report").read_text(), (tmp_path / "input").read_text()) == ("code 3", "", "saidno", "turn")
    assert {"--nodelist=n1,n2,n3", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--overlap"} <= set(words)
    assert words[-9:] == ["bash", "-c", "#!/usr/bin/env bash\nthe text\n'of' keepers", "keeper", "keep", f"{tmp_path}/bundle", "x", "y", jobs]


@pytest.mark.parametrize("code", [0, 1])
def test_copies_that_cannot_be_dropped_are_named(code: int, tmp_path: Path) -> None:
    stub(tmp_path / "bin", "srun", f'printf "%s\\n" "$*" >{tmp_path}/words; printf noise; exit {code}')
    said = act("keeper_hosts=(n1 n2)\ndrop_copies\nprintf '%s\\n' \"${#result_warnings[@]}\"", tmp_path)
    assert said[-1] == str(code) and len(said) == 1 + code
    assert code == 0 or said[0].endswith(f" warning: could not remove {tmp_path}/bundle.sbatch from n1,n2")
    assert (tmp_path / "words").read_text().endswith(f" rm -f -- {tmp_path}/bundle.sbatch\n")


def test_keepers_that_are_released_see_the_end_of_their_input(tmp_path: Path) -> None:
    text = """open_turn keeper .
open_turn other .
keeper_fd="${turn_fd[keeper]}"
copy() { cat <turn_keeper >got; }
start_task keeper copy
give_turn keeper
until [[ -s got ]]; do sleep 0.05; done
find_lost_tasks
printf '%s\\n' "${task_code[keeper]:-runs}"
release_keepers
await_task keeper
printf '%s\\n' "${task_code[keeper]:-runs}" "[${keeper_fd}]" "${!turn_fd[*]}\""""
    assert act(text, tmp_path) == ["runs", "0", "[]", "other"]


@pytest.mark.parametrize(("heeds", "ended"), [(True, "0"), (False, "143")])
def test_keepers_that_do_not_leave_are_killed(heeds: bool, ended: str, tmp_path: Path) -> None:
    """After each other node's files were fetched, the far client's into the job's own folder."""
    text = f"""set +eE
exec 2>/dev/null
fetch_results() {{ printf '%s\\n' "$*"; }}
drain() {{ next_event {5 if heeds else 0.05}; [[ "${{event_kind}}" != end ]] || task_code[${{event_name}}]=${{event_text}}; SECONDS=$((SECONDS + 1)); }}
node_hosts=(n0 n1 n2) keeper_hosts=(n1 n2)
open_turn keeper .
keeper_fd="${{turn_fd[keeper]}}"
copy() {{ cat <turn_keeper >got; }}
start_task keeper {"copy" if heeds else "sleep 30"}
give_turn keeper
until [[ -s got || -n "$(<"/proc/${{task_pid[keeper]}}/task/${{task_pid[keeper]}}/children")" ]]; do sleep 0.05; done
{"until [[ -s got ]]; do sleep 0.05; done" if heeds else ""}
leave_nodes
[[ -n "${{task_code[keeper]:-}}" ]] || {{ next_event 10; task_code[keeper]=${{event_text}}; }}
printf '%s\\n' "${{task_code[keeper]}}\""""
    done = bash(f"{SINGLE}events_open .\n{text}", tmp_path, LIBRARIES, plan=FAR)
    assert done.stdout.splitlines() == [f"n1 {tmp_path}/r", f"n2 {tmp_path}/r/nodes/n2", ended]


@pytest.mark.parametrize(("srun", "fetched"), [
    ('while [[ "$1" == --* ]]; do shift; done; exec "$@"', True), ("printf 'no archive'", False), ("exit 1", False),
    ('while [[ "$1" == --* ]]; do shift; done; "$@" | head -c 700', False)])
def test_files_are_fetched_from_a_node_or_it_is_named(srun: str, fetched: bool, tmp_path: Path) -> None:
    """What cannot be fetched is a warning: the job goes on."""
    node = tmp_path / "bundle" / "results"
    (node / "logs").mkdir(parents=True)
    (node / "logs" / "a b.log").write_text("z" * 2000)
    (node / "result.json").write_text("the job's own")
    (tmp_path / "bundle" / "lib").symlink_to(LIB)
    stub(tmp_path / "bin", "srun", f'[[ "$*" == *" --nodelist=n5 "* ]] || exit 9\n{srun}')
    done = bash(f"{SINGLE}fetch_results n5 'r/no des/n5'\nprintf '%s\\n' \"${{#result_warnings[@]}}\"", tmp_path, LIBRARIES, plan="")
    said = done.stdout.splitlines()
    assert done.stderr.count("\n") <= 1 and "Traceback" not in done.stderr
    assert said[-1] == ("0" if fetched else "1") and (fetched or said[0].endswith(" warning: cannot fetch results from n5"))
    files = {path.name: path.read_text() for path in (tmp_path / "r" / "no des").rglob("*") if path.is_file()}
    assert files.get("a b.log") == ("z" * 2000 if fetched else None) and "result.json" not in files


# -- keeper.sh ----------------------------------------------------------------


def keeper(tmp_path: Path, *argv: str, program: str = "pass", **popen: object) -> subprocess.Popen[str]:
    words = ["bash", "-c", (LIB / "keeper.sh").read_text(), "keeper", *(argv or ("keep", str(tmp_path / "b"), "sha", program, "all"))]
    return subprocess.Popen(words, env={"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True, start_new_session=True)


@pytest.mark.parametrize("by_signal", [False, True])
def test_a_keeper_keeps_its_bundle_until_the_end(by_signal: bool, tmp_path: Path) -> None:
    (tmp_path / "b.sbatch").touch()
    process = keeper(tmp_path, program="import sys; open(sys.argv[3] + '/made', 'w')")
    assert process.stdout is not None and process.stdout.readline() == "n1\tok\t\n"
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["made", "results"]
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700 and not (tmp_path / "b.sbatch").exists()
    if by_signal:
        os.killpg(process.pid, 15)
        assert process.wait(10) == 143
    else:
        process.communicate(timeout=10)
        assert process.returncode == 0
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(("program", "taken", "said"), [
    ("import sys; sys.exit('first\\nNo space left')", False, "No space left"), ("pass", True, "File exists")])
def test_a_keeper_that_cannot_unpack_says_why_and_leaves_nothing(program: str, taken: bool, said: str, tmp_path: Path) -> None:
    if taken:
        (tmp_path / "b").mkdir()
    (tmp_path / "b.sbatch").touch()
    out, _ = keeper(tmp_path, program=program).communicate(timeout=10)
    assert out.startswith("n1\tfail\t") and said in out
    assert not (tmp_path / "b.sbatch").exists() and not (tmp_path / "b").exists()


def elsewhere(tmp_path: Path) -> Path:
    """keeper.sh that looks into tmp_path in place of /tmp, where other jobs of this machine have theirs."""
    whole = (LIB / "keeper.sh").read_text()
    assert whole.count("/tmp/srtgen-bundle-") == 2
    (tmp_path / "keeper.sh").write_text(whole.replace("/tmp/srtgen-bundle-", f"{tmp_path}/srtgen-bundle-"))
    return tmp_path / "keeper.sh"


def test_bundles_of_jobs_that_have_ended_are_removed(tmp_path: Path) -> None:
    folders = [tmp_path / f"srtgen-bundle-{job}.x" for job in "12"]
    for folder in folders:
        folder.mkdir()
    for running, left in (("all", folders), ("3\n2", folders[1:])):
        subprocess.run(["bash", str(elsewhere(tmp_path)), "old", running], timeout=10, check=True)
        assert [folder for folder in folders if folder.exists()] == left


def keeping(text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Lines of bash with the functions of keeper.sh."""
    elsewhere(tmp_path)
    return bash(f"source ./keeper.sh none\n{text}", tmp_path)


def test_remove_is_not_interrupted(tmp_path: Path) -> None:
    (tmp_path / "-b x").mkdir()
    (tmp_path / "-b x" / "file").touch()
    (tmp_path / "-b x.sbatch").touch()
    (tmp_path / "-b x2").touch()
    done = keeping("rm() { for s in TERM INT HUP; do kill -$s $$; done; command rm \"$@\"; }\nfolder='-b x'\nremove\nremove\nprintf on", tmp_path)
    assert (done.stdout, done.stderr, [path.name for path in tmp_path.glob("-b*")]) == ("on", "", ["-b x2"])


@pytest.mark.parametrize(("jobs", "left"), [("all", "1.a 12.a 123.b"), ("12", "12.a"), ("123\n1", "1.a 123.b"), ("1234 2", ""), ("", ""), ("12.a", "")])
def test_bundles_of_other_jobs_are_removed(jobs: str, left: str, tmp_path: Path) -> None:
    """A job's number is compared whole; what is not the user's own stays."""
    for name in ("1.a", "12.a", "123.b"):
        (tmp_path / f"srtgen-bundle-{name}" / "lib").mkdir(parents=True)
    (tmp_path / "srtgen-bundle-4.foreign").symlink_to("nowhere")  # nobody's
    done = keeping(f"remove_old '{jobs}'\nprintf on", tmp_path)
    assert (done.stdout, done.stderr) == ("on", "")
    assert sorted(path.name.removeprefix("srtgen-bundle-") for path in tmp_path.glob("srtgen-bundle-*")) == [*left.split(), "4.foreign"]
