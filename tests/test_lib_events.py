"""lib/events.sh: one queue for ended processes, health and signals."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from jobs.shell import HEAD, LIB, bash

OPEN = "mkdir q; events_open q\n"
SHOW = """show() { printf '%s|%s|%s\\n' "${event_kind}" "${event_name}" "${event_text}"; }
quiet() { next_event 0.2; [[ -n "${event_kind}" ]] || printf 'quiet\\n'; }
"""


def events(text: str, tmp_path: Path) -> str:
    done = bash(OPEN + SHOW + text, tmp_path, ["events"])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_end_of_a_task_comes_with_its_code(tmp_path: Path) -> None:
    assert events("start_task one bash -c 'exit 3'\nnext_event 5\nshow", tmp_path) == "end|one|3\n"


def test_each_end_comes_once(tmp_path: Path) -> None:
    out = events("for n in a b c d; do start_task $n true; done\nfor n in 1 2 3 4; do next_event 5; show; done\nnext_event 0.1\nshow",
                 tmp_path)
    *ends, last = out.splitlines()
    assert sorted(ends) == [f"end|{name}|0" for name in "abcd"]
    assert last.startswith("|")


def test_no_event_in_time(tmp_path: Path) -> None:
    assert events("next_event 0.05\nshow", tmp_path) == "||\n"


def test_a_line_that_comes_in_two_pieces_is_one_event(tmp_path: Path) -> None:
    text = """printf 'ready\\tpre' >&"${events_fd}"
next_event 0.1; show
printf 'fill_0\\ttext with\\ttab\\n' >&"${events_fd}"
next_event 1; show"""
    assert events(text, tmp_path).splitlines()[1] == "ready|prefill_0|text with\ttab"


def test_a_task_whose_shell_is_killed_is_found(tmp_path: Path) -> None:
    text = """start_task long sleep 30
sleep 0.2
child=$(< /proc/${task_pid[long]}/task/${task_pid[long]}/children)
kill -KILL "${task_pid[long]}"
for n in 1 2 3 4 5; do next_event 0.1; [[ -z ${event_kind} ]] || break; find_lost_tasks; done
show
kill ${child}"""
    assert events(text, tmp_path) == "end|long|137\n"


def test_a_task_survives_the_signals_that_slurm_sends_to_all(tmp_path: Path) -> None:
    text = """start_task long bash -c 'trap "exit 5" TERM; sleep 0.3 & wait'
sleep 0.2
kill -TERM "${task_pid[long]}"
next_event 5; show"""
    assert events(text, tmp_path) == "end|long|0\n"


def test_a_helper_is_ended_by_end_task(tmp_path: Path) -> None:
    text = """start_helper probe bash -c 'printf "waiting\\tx\\ty\\n"; exec sleep 30'
next_event 5; show
kill -TERM "${task_pid[probe]}"
next_event 5; show
start_helper other sleep 30
pid=${task_pid[other]}
end_task other
for n in {1..50}; do kill -0 "${pid}" 2>/dev/null || break; sleep 0.1; done
[[ -z ${task_pid[other]:-} ]] && printf 'gone\\n'"""
    assert events(text, tmp_path) == "waiting|x|y\nend|probe|143\ngone\n"


def test_a_step_waits_for_its_turn(tmp_path: Path) -> None:
    text = """open_turn router q
start_task router bash -c 'read -r line <q/turn_router; [[ $line == go ]]'
next_event 0.2; show
give_turn router
next_event 5; show"""
    assert events(text, tmp_path) == "||\nend|router|0\n"


def test_the_end_of_the_job_is_an_end_of_input(tmp_path: Path) -> None:
    """Nobody but the batch shell holds the pipe open: not the tasks, which would live on."""
    text = f"""open_turn router q
start_task other sleep 1
start_task router bash -c 'cat <q/turn_router; printf "end of input\\n" >{tmp_path}/seen'
sleep 0.2
exec {{fd}}>&- ; exec "${{turn_fd[router]}}" 2>/dev/null || :
"""
    bash(OPEN + text.replace('exec {fd}>&- ; exec "${turn_fd[router]}" 2>/dev/null || :', "exit 0"), tmp_path, ["events"])
    end = time.monotonic() + 10
    while not (tmp_path / "seen").exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_signals_are_noted_at_once_and_the_first_stays(tmp_path: Path) -> None:
    script = (HEAD + f"source '{LIB}/events.sh'\n" + OPEN + "trap_signals\nprintf 'up\\n'\n"
              "while [[ -z ${stop_signal} ]]; do next_event 20; done\nprintf '%s\\n' \"${stop_signal}\"\n"
              "next_event 0.3\nprintf '%s\\n' \"${stop_signal}\"\n")
    process = subprocess.Popen(["bash", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGUSR1)
    start = time.monotonic()
    assert process.stdout.readline() == "USR1\n"
    assert time.monotonic() - start < 6
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "USR1\n"
    assert process.wait(10) == 0


def test_the_code_of_a_helper_that_ends_at_once(tmp_path: Path) -> None:
    out = events("for n in 1 2 3 4 5 6; do start_helper h bash -c 'exit 4'; next_event 5; show; done", tmp_path)
    assert out == "end|h|4\n" * 6


NOTES = [("note_signal USR1; note_signal TERM", "USR1"), ("note_signal TERM; note_signal USR1", "TERM")]


@pytest.mark.parametrize(("calls", "kept"), NOTES)
def test_a_signal_before_the_queue_is_open_is_kept(calls: str, kept: str, tmp_path: Path) -> None:
    done = bash(f'{calls}; printf "%s" "${{stop_signal}}"', tmp_path, ["events"])
    assert (done.returncode, done.stdout) == (0, kept)


def test_a_noted_signal_ends_the_wait_for_an_event(tmp_path: Path) -> None:
    assert events('note_signal TERM; SECONDS=0; next_event 20; show; ((SECONDS < 10))', tmp_path) == "signal||\n"


@pytest.mark.parametrize("name", ["absent", "ended"])
def test_what_does_not_run_cannot_be_ended(name: str, tmp_path: Path) -> None:
    text = f"""start_helper ended true
next_event 5; show
end_task {name}
quiet"""
    assert events(text, tmp_path) == "end|ended|0\nquiet\n"


def test_a_task_that_was_ended_is_not_lost(tmp_path: Path) -> None:
    """end_task forgets its process, so that nobody reports it twice."""
    text = """start_helper one bash -c 'printf "ready\\tone\\t\\n"; exec sleep 30'
next_event 5
end_task one
next_event 5; show
find_lost_tasks; find_lost_tasks; quiet"""
    assert events(text, tmp_path) == "end|one|143\nquiet\n"


def test_a_lost_task_is_told_at_the_second_look_and_once(tmp_path: Path) -> None:
    text = """true & wait $!
task_pid[gone]=$!
find_lost_tasks; quiet
find_lost_tasks; next_event 1; show
find_lost_tasks; find_lost_tasks; quiet"""
    assert events(text, tmp_path) == "quiet\nend|gone|137\nquiet\n"


def test_a_name_and_a_word_with_blanks_reach_the_task(tmp_path: Path) -> None:
    text = """start_task 'clean_n0,n1' bash -c '[[ $1 == "a  b" && $# == 2 && -z $2 ]]' x 'a  b' ''
next_event 5; show
start_task absent no_such_program 2>/dev/null
next_event 5; show"""
    assert events(text, tmp_path) == "end|clean_n0,n1|0\nend|absent|127\n"


def test_each_step_has_its_own_turn(tmp_path: Path) -> None:
    text = """open_turn one q; open_turn two q
for n in one two; do start_task $n bash -c "read -r line <q/turn_$n"; done
give_turn two; next_event 5; show
give_turn one; next_event 5; show"""
    assert events(text, tmp_path) == "end|two|0\nend|one|0\n"
