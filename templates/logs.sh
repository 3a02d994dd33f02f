#!/usr/bin/env bash
# Prints a job's log, or the logs of a role or step: ./logs.sh [-f] JOBID [ROLE|STEP]. -f follows until the job ends.
set -Eeuo pipefail
shopt -s inherit_errexit nullglob

BUNDLE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
readonly BUNDLE
# shellcheck source-path=SCRIPTDIR source=lib/operate.sh
. "${BUNDLE}/lib/operate.sh"

usage() {
  printf 'usage: logs.sh [-f] JOBID [ROLE|STEP]   (roles: prefill decode agg atomesh bench eval preflight)\n' >&2
  exit 2
}

# Sets files to the logs of WHAT (a role, a step, or nothing: the job's own) in FOLDER.
choose_files() {
  local folder="$1" what="$2" file name
  files=()
  if [[ -z "${what}" ]]; then
    files=("${folder}/job.log")
    return 0
  fi
  for file in "${folder}"/logs/*.log; do
    name="${file##*/}"
    name="${name%.log}"
    [[ "${name}" != "${what}" && ! "${name}" =~ ^"${what}"_[0-9]+$ ]] || files+=("${file}")
  done
}

# Ends once the job in FOLDER has a verdict or Slurm says that JOB, or the run in an allocation, is over.
wait_for_end() {
  local job="$1" folder="$2" state
  while [[ "$(result_text "${folder}/result.json" verdict)" == running ]]; do
    state="$(slurm_state "${job}")" || state=''
    [[ -z "${state}" ]] || is_live "${state%% *}" || return 0
    ! allocation_run "${folder}" || run_lives "${folder}" || return 0
    sleep "${SRTGEN_LOGS_POLL_S:-3}"
  done
}

follow() {
  local job="$1" folder="$2" tail_pid
  tail -n +1 -F -- "${files[@]}" 2>/dev/null &
  tail_pid=$!
  # shellcheck disable=SC2064  # the pid as it is now
  trap "kill ${tail_pid} 2>/dev/null || :" EXIT
  wait_for_end "${job}" "${folder}"
  sleep 1.5 # tail looks once a second
}

main() {
  local follows=0 job what folder
  [[ "${1:-}" != -f ]] || {
    follows=1
    shift
  }
  job="${1:-}" what="${2:-}"
  (($# >= 1 && $# <= 2)) && [[ "${job}" =~ ^[0-9]+$ ]] || usage
  folder="$(find_results "${job}")" || {
    printf 'logs.sh: no results of job %s here\n' "${job}" >&2
    exit 1
  }
  choose_files "${folder}" "${what}"
  ((${#files[@]})) || {
    printf 'logs.sh: job %s has no log of %s; there are:' "${job}" "${what}" >&2
    for what in "${folder}"/logs/*.log; do
      what="${what##*/}"
      printf ' %s' "${what%.log}" >&2
    done
    printf '\n' >&2
    exit 1
  }
  if ((follows)); then
    follow "${job}" "${folder}"
  else
    tail -n +1 -- "${files[@]}"
  fi
}

main "$@"
