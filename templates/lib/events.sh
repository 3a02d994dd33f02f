# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# One queue for all that happens: ended processes, health, signals. The main shell only ever waits here.
# A line of the queue is KIND<TAB>NAME<TAB>TEXT; each is one write below PIPE_BUF, so lines never mix.

events_fd=''
event_kind='' event_name='' event_text=''
event_begun=''           # the part of a line that has been read so far
stop_signal=''           # USR1 or TERM once that came
declare -A task_pid=()   # background process by name, until its end was seen
declare -A task_gone=()  # seen without its process and without its end
declare -A task_told=()  # helpers that were told to end
helper_pids=()           # all helpers ever started
declare -A turn_fd=()    # the write end of a waiting step's standard input

# Opens the queue in FOLDER.
events_open() {
  local folder="$1"
  mkfifo -- "${folder}/events"
  exec {events_fd}<>"${folder}/events"
}

# Signals are only noted, the loop that reads the queue acts on them; the line ends its wait.
trap_signals() {
  trap 'note_signal USR1' USR1
  trap 'note_signal TERM' TERM INT
}

note_signal() {
  stop_signal="${stop_signal:-$1}"
  [[ -z "${events_fd}" ]] || printf 'signal\t\t\n' >&"${events_fd}"
}

# Runs COMMAND in the background as NAME; its end comes as "end NAME CODE".
# Slurm signals this shell's children too: the subshell must survive to report.
start_task() {
  local name="$1"
  shift
  (
    trap : TERM INT USR1 HUP
    trap - EXIT ERR
    local fd code=0
    for fd in "${turn_fd[@]}"; do exec {fd}>&-; done
    "$@" || code=$?
    printf 'end\t%s\t%s\n' "${name}" "${code}" >&"${events_fd}"
  ) &
  task_pid["${name}"]=$!
  disown $! # its end is an event, no message of the shell
}

# Waits up to TIMEOUT seconds for one line of the queue: sets event_kind (empty if none came), event_name, event_text.
next_event() {
  local timeout="$1" line='' rest
  event_kind=''
  if ! IFS= read -r -t "${timeout}" -u "${events_fd}" line; then
    event_begun+="${line}" # the time ran out, or a signal came, in the middle of a line
  else
    line="${event_begun}${line}"
    event_begun=''
    event_kind="${line%%$'\t'*}"
    rest="${line#*$'\t'}"
    event_name="${rest%%$'\t'*}"
    event_text="${rest#*$'\t'}"
    [[ "${event_kind}" != end ]] || unset -v "task_pid[${event_name}]"
  fi
}

# Reports tasks whose process is gone without a word (killed subshell): twice in a row, as its line may be on the way.
find_lost_tasks() {
  local name
  for name in "${!task_pid[@]}"; do
    if kill -0 "${task_pid[${name}]}" 2>/dev/null; then
      continue
    elif [[ -n "${task_gone[${name}]:-}" ]]; then
      unset -v "task_gone[${name}]"
      printf 'end\t%s\t137\n' "${name}" >&"${events_fd}"
    else
      task_gone["${name}"]=1
    fi
  done
}

# Like start_task for a program of our own, whose output lines are events and which end_task can end.
start_helper() {
  local name="$1"
  shift
  unset -v "task_told[${name}]"
  (
    stopped=''
    trap 'stopped=1' TERM INT
    trap : USR1 HUP
    trap - EXIT ERR
    local code=143 child fd
    for fd in "${turn_fd[@]}"; do exec {fd}>&-; done
    if [[ -z "${stopped}" ]]; then
      "$@" >&"${events_fd}" </dev/null &
      child=$!
      code=0
      [[ -n "${stopped}" ]] || wait "${child}" || code=$?
      # A signal may find the child before its exec: so it is repeated.
      while [[ -n "${stopped}" ]] && kill -TERM "${child}" 2>/dev/null; do sleep 0.1; done
      [[ -z "${stopped}" ]] || code=143
    fi
    printf 'end\t%s\t%s\n' "${name}" "${code}" >&"${events_fd}"
  ) &
  task_pid["${name}"]=$!
  helper_pids+=($!)
  disown $! # its end is an event, no message of the shell
}

# Ends helper NAME, if it still runs.
end_task() {
  local name="$1" pid="${task_pid[$1]:-}"
  [[ -n "${pid}" ]] || return 0
  unset -v "task_pid[${name}]"
  task_told["${name}"]=1
  kill -TERM "${pid}" 2>/dev/null || :
}

# A named pipe that keeps step NAME waiting until give_turn.
open_turn() {
  local name="$1" folder="$2" fd
  mkfifo -- "${folder}/turn_${name}"
  exec {fd}<>"${folder}/turn_${name}"
  turn_fd["${name}"]=${fd}
}

give_turn() {
  local name="$1"
  printf 'go\n' >&"${turn_fd[${name}]}"
}
