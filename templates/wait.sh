#!/usr/bin/env bash
# Waits for a job, prints its progress and ends with its exit code: ./wait.sh JOBID
set -Eeuo pipefail
shopt -s inherit_errexit

BUNDLE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
readonly BUNDLE
# shellcheck source-path=SCRIPTDIR source=lib/operate.sh
. "${BUNDLE}/lib/operate.sh"

readonly POLL_S="${SRTGEN_WAIT_POLL_S:-2}"
readonly ACCOUNTING_S="${SRTGEN_WAIT_ACCOUNTING_S:-60}" # how late an accounting record may come

# Prints "STATE CODE:SIGNAL" of job $1 as Slurm's controller knows it; fails when it knows no such job.
controller_state() {
  local job="$1" line state='' code=''
  while IFS= read -r line; do
    [[ ! "${line}" =~ JobState=([A-Z_]+) ]] || state="${BASH_REMATCH[1]}"
    [[ ! "${line}" =~ [[:space:]]ExitCode=([0-9]+:[0-9]+) ]] || code="${BASH_REMATCH[1]}"
  done < <(scontrol show job "${job}" 2>/dev/null)
  [[ -n "${state}" ]] || return 1
  printf '%s %s\n' "${state}" "${code:-0:0}"
}

# The same from the accounting records of a job that the controller has forgotten.
accounting_state() {
  local job="$1" option line
  for option in '' '-c'; do
    line="$(sacct ${option:+"${option}"} -n -P -X -j "${job}" -o State,ExitCode 2>/dev/null)" || line=''
    line="${line%%$'\n'*}" # not by head: a sacct that it cuts off fails
    [[ "${line}" != *'|'* ]] || {
      printf '%s %s\n' "${line%%[ |]*}" "${line##*|}"
      return 0
    }
  done
  return 1
}

# Prints the exit code for Slurm's state $1 and CODE:SIGNAL $2.
exit_code_of() {
  local state="$1" code="${2%%:*}" signal="${2##*:}"
  if ((code != 0)); then
    printf '%s\n' "${code}"
  elif [[ "${state}" == COMPLETED ]]; then
    printf '0\n'
  elif [[ "${state}" == TIMEOUT ]]; then
    printf '124\n'
  elif [[ "${state}" == CANCELLED* ]]; then
    printf '143\n'
  elif [[ "${state}" == NODE_FAIL ]]; then
    printf '11\n'
  elif ((signal != 0)); then
    printf '%s\n' "$((128 + signal))"
  else
    printf '70\n'
  fi
}

# Waits for the run in FOLDER, whose allocation lives on after it; ends with the run's code.
wait_for_run() {
  local folder="$1" shown='' phase
  while run_lives "${folder}"; do
    phase="$(result_text "${folder}/result.json" phase)"
    [[ "${phase}" == "${shown}" ]] || printf '%(%Y-%m-%dT%H:%M:%S%z)T run %s: phase %s\n' -1 "${folder##*/}" "${phase}"
    shown="${phase}"
    sleep "${POLL_S}"
  done
  [[ "$(result_text "${folder}/result.json" verdict)" != running ]] || {
    printf 'wait.sh: the run ended in phase %s, before it could say why\n' "$(result_text "${folder}/result.json" phase)" >&2
    exit 70
  }
  exit "$(result_number "${folder}/result.json" exit_code)"
}

main() {
  (($# == 1)) && [[ "$1" =~ ^[0-9]+$ ]] || {
    printf 'usage: wait.sh JOBID\n' >&2
    exit 2
  }
  local job="$1" answer shown='' missing_since=-1 folder
  if folder="$(find_results "${job}" 2>/dev/null)" && allocation_run "${folder}"; then
    wait_for_run "${folder}"
  fi
  while :; do
    if answer="$(controller_state "${job}" || accounting_state "${job}")"; then
      missing_since=-1
      if [[ "${answer%% *}" != "${shown}" ]]; then
        shown="${answer%% *}"
        printf '%(%Y-%m-%dT%H:%M:%S%z)T job %s: %s\n' -1 "${job}" "${shown}"
      fi
      case "${shown}" in
        PENDING | CONFIGURING | RUNNING | COMPLETING | SUSPENDED | REQUEUED | RESIZING | SIGNALING | STAGE_OUT | STOPPED) ;;
        *) exit "$(exit_code_of "${shown}" "${answer##* }")" ;;
      esac
    elif ((missing_since < 0)); then
      missing_since=${SECONDS}
    elif ((SECONDS - missing_since >= ACCOUNTING_S)); then
      printf 'wait.sh: Slurm knows no job %s, and %s s later there is still no accounting record\n' "${job}" "${ACCOUNTING_S}" >&2
      exit 70
    fi
    sleep "${POLL_S}"
  done
}

main "$@"
