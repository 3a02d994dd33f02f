"""submit.sh of a folder of bundles, function by function; Slurm's programs are small scripts that answer as told."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from jobs import script
from jobs.shell import TEMPLATES, stub

TOKEN = "srtgen-0123456789abcdef"
LOAD = "read_index; read_journal\n"
SHOW = """for name in a b c; do printf '%s job=%s token=%s id=%s time=%s\\n' "${name}" "${job_of[${name}]:-}" "${token_of[${name}]:-}" \\
  "${id_of[${name}]:-}" "${time_of[${name}]:-}"; done"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two bundles, an index, and a Slurm that knows nothing."""
    jobs = tmp_path / "bundle"
    for name in ("a", "b"):
        (jobs / name).mkdir(parents=True)
        (jobs / name / "manifest.json").write_text(f'{{\n "id": "id-{name}"\n}}\n')
        (jobs / name / "run.sbatch").write_text("#!/bin/sh\n#SBATCH --comment=mine\n" if name == "a" else "#!/bin/sh\n")
        shutil.copy(TEMPLATES / "submit.sh", jobs / name)
    (jobs / "index.tsv").write_text("a\tid-a\nb\tid-b\n")
    for program in ("squeue", "sacct", "scontrol", "sbatch"):
        stub(tmp_path / "bin", program, "exit 0" if program == "squeue" else "exit 1")
    return jobs


def run(folder: Path, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    return script.call("_jobs/submit.sh", text, folder.parent, {"SRTGEN_SUBMIT_SETTLE_S": "0", "SRTGEN_SUBMIT_POLL_S": "0.05", **env})


def journal(folder: Path, *lines: Sequence[str]) -> None:
    (folder / "submitted.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))


def recorded(folder: Path) -> list[list[str]]:
    file = folder / "submitted.tsv"
    return [line.split("\t") for line in file.read_text().splitlines()] if file.exists() else []


def test_say_die_and_usage(folder: Path) -> None:
    assert run(folder, "say a 'b  c'; printf on").stderr == "submit.sh: a b  c\n"
    done = run(folder, "die 'so it is'; printf on")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "submit.sh: so it is\n")
    used = run(folder, "usage; printf on")
    assert used.returncode == 2 and used.stderr.splitlines()[0] == "Usage: ./submit.sh [--at-most N] [--dry-run] [--changed] [-- sbatch options]"
    assert len(used.stderr.splitlines()) == 3 and not used.stdout


def test_read_index_keeps_the_order_and_refuses_half_a_folder(folder: Path) -> None:
    (folder / "index.tsv").write_text("z\tid-z\na\tid-a\n")
    assert run(folder, 'read_index; printf "%s " "${names[@]}" "${wanted[z]}"').stdout == "z a id-z "
    (folder / ".srtgen-writing").touch()
    done = run(folder, "read_index; printf on")
    assert done.returncode == 1 and "is half written" in done.stderr and not done.stdout


def test_read_journal_takes_the_last_word_on_each_bundle(folder: Path) -> None:
    journal(folder, ("intent", "a", "t1", "id-a", "100"), ("job", "a", "t1", "11"), ("intent", "b", "t2", "id-b", "200"), ("failed", "b", "t2", "no"),
            ("intent", "b", "t3", "id-b", "300"), ("intent", "c", "t4", "id-c"), ("weird", "c", "t4", "x"), ("job", "c", "t4"))
    with (folder / "submitted.tsv").open("a") as stream:
        stream.write("job\tb\tt3\t")  # torn
    done = run(folder, "read_journal\n" + SHOW)
    assert done.stdout.splitlines() == ["a job=11 token= id=id-a time=100", "b job= token=t3 id=id-b time=300", "c job= token=t4 id=id-c time=0"]
    assert "a line of unknown kind weird" in done.stderr


def test_read_journal_forgets_what_was_read_before(folder: Path) -> None:
    journal(folder, ("intent", "a", "t1", "id-a", "100"), ("job", "a", "t1", "11"))
    done = run(folder, "read_journal; rm bundle/submitted.tsv\nread_journal\n" + SHOW)
    assert done.stdout.splitlines()[0] == "a job= token= id= time="


def test_record_is_one_line_even_behind_a_torn_one(folder: Path) -> None:
    assert run(folder, "record intent a t 'i d' 5; record failed a t 'some words'").returncode == 0
    assert recorded(folder) == [["intent", "a", "t", "i d", "5"], ["failed", "a", "t", "some words"]]
    (folder / "submitted.tsv").write_text("job\ta\tt")
    run(folder, "record job b u 7")
    assert recorded(folder) == [["job", "a", "t"], ["job", "b", "u", "7"]]


def test_record_that_cannot_write_ends_everything(folder: Path) -> None:
    (folder / "submitted.tsv").mkdir()
    done = run(folder, "record job b u 7; printf on")
    assert done.returncode == 1 and "cannot write" in done.stderr and not done.stdout


def test_take_lock_waits_for_the_other_one_and_gives_up(folder: Path) -> None:
    assert run(folder, "take_lock; flock -n bundle/.submit.lock true || printf held").stdout == "held"
    with (folder / ".submit.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        done = run(folder, "take_lock; printf on", SRTGEN_SUBMIT_LOCK_S="0.2")
    assert done.returncode == 1 and "is still at work on this folder" in done.stderr and not done.stdout
    assert run(folder, "take_lock; printf on", SRTGEN_SUBMIT_LOCK_S="0.2").stdout == "on"


def test_take_lock_says_if_flock_is_missing(folder: Path) -> None:
    done = run(folder, "PATH=/nowhere\ntake_lock; printf on")
    assert done.returncode == 1 and "flock is missing" in done.stderr


def test_known_jobs_asks_for_all_of_this_user_and_does_not_keep_the_lock(folder: Path) -> None:
    stub(folder.parent / "bin", "squeue", 'printf "%s|" "$@"; [[ -e /proc/self/fd/9 ]] && printf locked || printf free')
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert run(folder, "take_lock; known_jobs").stdout == f"--noheader|--all|--states=all|--user={user}|--format=%A %k|free"


@pytest.mark.parametrize(("says", "out"), [("printf 'MaxJobs = 9\\nMinJobAge               = 300 sec\\nX=1\\n'", "300\n"), ("exit 1", ""),
                                           ("printf 'x\\n'", "")])
def test_memory_s(says: str, out: str, folder: Path) -> None:
    stub(folder.parent / "bin", "scontrol", says)
    done = run(folder, "memory_s")
    assert (done.returncode, done.stdout) == (0, out)


@pytest.mark.parametrize(("text", "out"), [(f"5 other\n12 mine,{TOKEN}\n13 {TOKEN}\n", "12\n"), (f"{TOKEN} 5\n", "none"), ("5 x\n", "none"),
                                           ("", "none"),
                                           (f"5|{TOKEN}|sbatch\n", "5\n"), (f"6 {TOKEN}x", "none")])
def test_id_with(text: str, out: str, folder: Path) -> None:
    (folder.parent / "list").write_text(text)
    assert run(folder, f"id_with {TOKEN} <list || printf none").stdout == out


ASKED: dict[str, tuple[str, str, str, int, str, int]] = {  # squeue, sacct, MinJobAge, seconds since, output, code
    "in the queue": (f"printf '4 x\\n5 c,{TOKEN}\\n'", "exit 1", "", 5, "5\n", 0),
    "in the accounts": ("printf '4 x\\n'", f"printf '5|{TOKEN}|sbatch\\n'", "", 9999, "5\n", 0),
    "in no account": ("exit 0", "printf '4||x\\n'", "", 9999, "", 1),
    "young, no accounts": ("exit 0", "exit 1", "300", 5, "", 1),
    "old, no accounts": ("exit 0", "exit 1", "300", 400, "", 2),
    "memory unknown": ("exit 0", "exit 1", "", 5, "", 2),
    "no queue": ("exit 1", f"printf '5|{TOKEN}|x\\n'", "300", 5, "", 2),
}


@pytest.mark.parametrize("case", ASKED)
def test_find_job(case: str, folder: Path) -> None:
    squeue, sacct, age, since, out, code = ASKED[case]
    stub(folder.parent / "bin", "squeue", squeue)
    stub(folder.parent / "bin", "sacct", sacct)
    stub(folder.parent / "bin", "scontrol", f"printf 'MinJobAge = {age}\\n'" if age else "exit 1")
    done = run(folder, f"rc=0; find_job {TOKEN} {int(time.time()) - since} || rc=$?; exit $rc")
    assert (done.stdout, done.returncode) == (out, code), done.stderr


def open_intent(folder: Path, age: int = 5) -> None:
    journal(folder, ("intent", "a", TOKEN, "id-a", str(int(time.time()) - age)))


def test_settle_finds_the_job_that_slurm_has(folder: Path) -> None:
    open_intent(folder)
    stub(folder.parent / "bin", "squeue", f"printf x >>{folder}/n; (($(wc -c <{folder}/n) < 2)) || printf '5 {TOKEN}\\n'")
    stub(folder.parent / "bin", "sacct", "exit 0")
    assert run(folder, LOAD + "settle a && printf found").stdout == "found"
    assert recorded(folder)[-1] == ["job", "a", TOKEN, "5"]


def test_settle_of_what_was_not_submitted(folder: Path) -> None:
    open_intent(folder)
    stub(folder.parent / "bin", "sacct", "exit 0")
    assert run(folder, LOAD + "settle a || printf 'not %s' $?").stdout == "not 1"
    assert recorded(folder)[-1] == ["failed", "a", TOKEN, "Slurm knows no such job"]


def test_settle_of_what_nobody_can_tell_leaves_it_open(folder: Path) -> None:
    open_intent(folder)
    stub(folder.parent / "bin", "squeue", "exit 1")
    done = run(folder, LOAD + "settle a; printf on")
    assert (done.returncode, done.stdout, len(recorded(folder))) == (1, "", 1)
    assert "./submit.sh --resolve a JOBID|none" in done.stderr and TOKEN in done.stderr


def test_wait_for_room(folder: Path) -> None:
    journal(folder, ("intent", "a", "t", "id-a", "1"), ("job", "a", "t", "11"), ("intent", "b", "u", "id-b", "1"), ("job", "b", "u", "12"))
    stub(folder.parent / "bin", "squeue", f"""printf x >>{folder}/n; n=$(wc -c <{folder}/n)
((n > 2)) || printf '11\\n'; ((n > 4)) || printf '12\\n'; printf '112\\n'""")
    done = run(folder, LOAD + "wait_for_room 2; wc -c <bundle/n; wait_for_room 1; wc -c <bundle/n")
    assert done.stdout.split() == ["3", "5"]
    assert done.stderr.splitlines() == [f"submit.sh: {n} in the queue: waiting for one of them to end" for n in (2, 1)]


def test_wait_for_room_ends_by_an_interrupt_or_a_silent_slurm(folder: Path) -> None:
    journal(folder, ("intent", "a", "t", "id-a", "1"), ("job", "a", "t", "11"))
    stub(folder.parent / "bin", "squeue", "printf '11\\n'")
    done = run(folder, LOAD + "stopped=1; wait_for_room 1; printf on")
    assert done.returncode == 1 and "interrupted" in done.stderr
    stub(folder.parent / "bin", "squeue", "exit 1")
    done = run(folder, LOAD + "wait_for_room 1; printf on")
    assert done.returncode == 1 and "squeue does not answer" in done.stderr


CHECKED = {"as the index says": ("", 0, ""), "another": ('{"id": "id-b"}', 1, "is another bundle than the index says"),
           "no manifest": (None, 1, "holds no bundle"), "half": (".srtgen-writing", 1, "is half written")}


@pytest.mark.parametrize("case", CHECKED)
def test_check_bundle(case: str, folder: Path) -> None:
    change, code, said = CHECKED[case]
    if change is None:
        (folder / "a" / "manifest.json").unlink()
    elif change.startswith("."):
        (folder / "a" / change).touch()
    elif change:
        (folder / "a" / "manifest.json").write_text(change)
    done = run(folder, LOAD + "check_bundle a; printf on")
    assert (done.returncode, done.stdout) == (code, "" if code else "on") and said in done.stderr, done.stderr


SBATCH = 'printf "%s\\n" "$@" >>"{f}/argv"; printf "%s\\n" "${{PWD}}" >>"{f}/argv"\n'


@pytest.mark.parametrize(("answer", "job_id"), [("42", "42"), ("42;cluster", "42")])
def test_submit_writes_the_intent_first_and_the_job_then(answer: str, job_id: str, folder: Path) -> None:
    stub(folder.parent / "bin", "sbatch", SBATCH.format(f=folder) + f"cp {folder}/submitted.tsv {folder}/before; printf '{answer}\\n'")
    done = run(folder, LOAD + "submit a --hold 'x y'; submit b")
    assert done.returncode == 0, done.stderr
    intent, job, *_ = recorded(folder)
    assert intent[:2] + intent[3:4] == ["intent", "a", "id-a"] and abs(int(intent[4]) - time.time()) < 60
    assert job == ["job", "a", intent[2], job_id]
    argv = (folder / "argv").read_text().splitlines()
    assert argv[:6] == ["--parsable", f"--comment=mine,{intent[2]}", "--hold", "x y", "run.sbatch", str(folder / "a")]
    assert argv[7] == f"--comment={recorded(folder)[2][2]}"
    assert (folder / "before").read_text().splitlines()[-1].startswith("intent\tb\t")


FAILED = {"refused": ("printf 'no such partition\\n' >&2; exit 1", "exit 0", 1, "failed"),
          "sent, and then broken": ("exit 1", 'sed -n "s/^intent\\t.\\t\\([^\\t]*\\).*/77 \\1/p" {f}/submitted.tsv', 0, "job"),
          "an odd answer": ("printf 'Submitted\\n'", "exit 0", 1, "failed")}


@pytest.mark.parametrize("case", FAILED)
def test_submit_asks_slurm_where_sbatch_failed(case: str, folder: Path) -> None:
    sbatch, squeue, code, kind = FAILED[case]
    stub(folder.parent / "bin", "sbatch", sbatch)
    stub(folder.parent / "bin", "squeue", squeue.format(f=folder))
    stub(folder.parent / "bin", "sacct", "exit 0")
    done = run(folder, LOAD + "submit a")
    assert (done.returncode, recorded(folder)[-1][0]) == (code, kind), done.stderr
    assert "asking Slurm whether it got the job" in done.stderr and ("not submitted. Mend" in done.stderr) == (code == 1)


def test_show_status(folder: Path) -> None:
    journal(folder, ("intent", "a", "t", "id-a", "1"), ("job", "a", "t", "11"), ("intent", "b", "u", "id-b", "1"))
    stub(folder.parent / "bin", "squeue", "printf '11 RUNNING\\n12 PENDING\\n'")
    assert run(folder, LOAD + "show_status").stdout.splitlines() == ["a\t11\tRUNNING", "b\t-\tunknown: interrupted while it was submitted"]
    results = folder / "a" / "results" / "11"
    results.mkdir(parents=True)
    (results / "result.json").write_text(r'{"verdict":"failed","reason":"said \"no\""}')
    assert run(folder, LOAD + "show_status").stdout.splitlines()[0] == 'a\t11\tRUNNING, failed: said \\"no\\"'
    stub(folder.parent / "bin", "squeue", "exit 1")
    (results / "result.json").unlink()
    assert run(folder, LOAD + "show_status").stdout.splitlines()[0] == "a\t11\tno longer in the queue"
    (folder / "submitted.tsv").unlink()
    assert run(folder, LOAD + "show_status").stdout == "a\t-\t\nb\t-\t\n"


RESOLVED = [("none", 0, ["failed", "a", TOKEN, "so says the operator"]), ("55", 0, ["job", "a", TOKEN, "55"]), ("5x", 2, None), ("''", 2, None)]


@pytest.mark.parametrize(("outcome", "code", "line"), RESOLVED)
def test_resolve(outcome: str, code: int, line: list[str] | None, folder: Path) -> None:
    open_intent(folder)
    assert run(folder, f"resolve a {outcome}").returncode == code
    assert recorded(folder)[1:] == ([line] if line else [])
    if code == 0:
        again = run(folder, f"resolve a {outcome}")
        assert again.returncode == 1 and "a: nothing is open" in again.stderr


# what the journal says of a, whether changed bundles are wanted -> due
DUE = [([], 0, True), ([("intent", "a", "t", "id-a", "1"), ("job", "a", "t", "1")], 1, False),
       ([("intent", "a", "t", "id-a", "1"), ("failed", "a", "t", "x")], 0, True),
       ([("intent", "a", "t", "old", "1"), ("job", "a", "t", "1")], 0, False), ([("intent", "a", "t", "old", "1"), ("job", "a", "t", "1")], 1, True)]


@pytest.mark.parametrize(("lines", "changed", "expected"), DUE)
def test_due(lines: list[Sequence[str]], changed: int, expected: bool, folder: Path) -> None:
    journal(folder, *lines)
    done = run(folder, LOAD + f"due a {changed} && printf yes || printf no")
    assert done.stdout == ("yes" if expected else "no")
    assert ("--changed submits the new one" in done.stderr) == (not expected and not changed)


MAINS = [("--dry-run", 0, "a\nb\n", []), ("", 0, "", ["a", "b"]), ("--at-most 0", 2, "", []), ("--at-most", 2, "", []), ("--resolve a", 2, "", []),
         ("--what", 2, "", []), ("--status", 0, "a\t-\t\nb\t-\t\n", []), ("--at-most 1 -- --hold", 0, "", ["a", "b"])]


@pytest.mark.parametrize(("words", "code", "out", "submitted"), MAINS)
def test_main(words: str, code: int, out: str, submitted: list[str], folder: Path) -> None:
    stub(folder.parent / "bin", "sbatch", "printf '42\\n'")
    done = run(folder, f"main {words}")
    assert (done.returncode, done.stdout) == (code, out), done.stderr
    assert [line[1] for line in recorded(folder) if line[0] == "job"] == submitted
    if submitted:
        assert run(folder, f"main {words}").returncode == 0
        assert len(recorded(folder)) == 4


def test_main_keeps_to_the_limit(folder: Path) -> None:
    """The first job stays in the queue for three looks; the second one is submitted after that."""
    stub(folder.parent / "bin", "sbatch", f"wc -l <{folder}/looks; exit 0")
    stub(folder.parent / "bin", "squeue", f"printf 'x\\n' >>{folder}/looks; (($(wc -l <{folder}/looks) > 4)) || printf '1\\n'")
    done = run(folder, "main --at-most 1")
    assert [line[3] for line in recorded(folder) if line[0] == "job"] == ["1", "5"], done.stderr
    assert "1 in the queue: waiting" in done.stderr
