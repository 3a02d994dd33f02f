#!/usr/bin/env bash
# How a job is doing, from its files and, where Slurm answers, from Slurm: ./status.sh [JOBID] (default: the latest).
set -Eeuo pipefail
shopt -s inherit_errexit nullglob

BUNDLE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
readonly BUNDLE
readonly PHASES=' start preflight load router canary bench eval teardown done '
# shellcheck source-path=SCRIPTDIR source=lib/operate.sh
. "${BUNDLE}/lib/operate.sh"

row() {
  printf '%-9s %s\n' "$1" "$2"
}

# Prints what STEP of ROLE is doing, for the job in FOLDER.
step_state() {
  local folder="$1" step="$2" role="$3" phase="$4" verdict="$5" failed="$6" own was is
  local before="${PHASES%% "${phase}" *}"
  if [[ "${failed}" == "${step}" ]]; then
    printf 'FAILED\n'
  elif [[ ! -e "${folder}/logs/${step}.log" ]]; then
    printf 'not started\n'
  elif [[ "${verdict}" != running || "${phase}" == teardown ]]; then
    printf 'ended\n'
  elif [[ "${role}" == bench || "${role}" == atomesh ]]; then
    own=bench was=ended is=running
    [[ "${role}" == bench ]] || own=router was=ready is=starting
    [[ "${step}" != eval ]] || own="eval"
    if [[ "${phase}" == "${own}" ]]; then
      printf '%s\n' "${is}"
    elif [[ "${before} " == *" ${own} "* ]]; then
      printf '%s\n' "${was}"
    else
      printf 'waits for its turn\n'
    fi
  elif is_ready "${folder}" "${step}"; then
    printf 'ready\n'
  else
    printf 'loading\n'
  fi
}

# True once the job has logged that worker STEP is ready.
is_ready() {
  local folder="$1" step="$2"
  grep -q -E "^[^ ]+ ${step} is ready on " -- "${folder}/job.log" 2>/dev/null
}

# Ready and planned workers of each role.
show_workers() {
  local folder="$1" step role text=''
  local -A ready=() planned=()
  while read -r step role; do
    case "${role}" in
      prefill | decode | agg)
        planned["${role}"]=$((${planned["${role}"]:-0} + 1))
        if is_ready "${folder}" "${step}"; then ready["${role}"]=$((${ready["${role}"]:-0} + 1)); fi
        ;;
      *) ;;
    esac
  done < <(job_steps "${folder}")
  for role in prefill decode agg; do
    [[ -z "${planned["${role}"]:-}" ]] || text+="${text:+, }${role} ${ready["${role}"]:-0}/${planned["${role}"]}"
  done
  row 'ready' "${text}"
}

# The point that is measured, or the last one that was.
show_point() {
  local folder="$1" line point=''
  [[ -r "${folder}/logs/bench.log" ]] || return 0
  while IFS= read -r line; do
    [[ ! "${line}" =~ ^[0-9]+/[0-9]+[[:space:]] ]] || point="${line}"
  done < <(tail -n 50 -- "${folder}/logs/bench.log" | tr '\r' '\n')
  [[ -z "${point}" ]] || row 'point' "$(tr -s ' ' <<<"${point}") (point, concurrency, prompts, elapsed, left, completed)"
}

# One line a process: state and its last log line.
show_steps() {
  local folder="$1" phase="$2" verdict="$3" failed="$4" step role state
  printf '\n'
  while read -r step role; do
    state="$(step_state "${folder}" "${step}" "${role}" "${phase}" "${verdict}" "${failed}")"
    printf '%-12s %-18s %s\n' "${step}" "${state}" "$(last_line "${folder}/logs/${step}.log" || :)"
  done < <(job_steps "${folder}")
}

# The phases that are over, with their seconds.
time_line() {
  local rest text=''
  rest="$(<"$1")"
  while [[ "${rest}" =~ \{\"name\":\"([a-z]+)\",\"start_s\":[0-9.]+,\"seconds\":([0-9.]+)\}(.*) ]]; do
    text+="${text:+, }${BASH_REMATCH[1]} ${BASH_REMATCH[2]} s"
    rest="${BASH_REMATCH[3]}"
  done
  printf '%s\n' "${text}"
}

show_job() {
  local job="$1" folder="$2" slurm="$3" file="$2/result.json" phase verdict reason failed='' code
  phase="$(result_text "${file}" phase)"
  verdict="$(result_text "${file}" verdict)"
  reason="$(result_text "${file}" reason)"
  code="$(result_number "${file}" exit_code)"
  [[ ! "$(<"${file}")" =~ \"failed\":\{\"step\":\"([^\"]*)\" ]] || failed="${BASH_REMATCH[1]}"
  row 'job' "${job}, $(result_text "${file}" name), attempt $(result_number "${file}" attempt)"
  if allocation_run "${folder}"; then slurm+=" (an allocation; this run is its step ${run_step})"; fi
  row 'Slurm' "${slurm:-does not answer, or knows the job no more}"
  if [[ "${verdict}" != running ]]; then
    row 'verdict' "${verdict} (${code}): ${reason}"
  elif [[ -n "${slurm}" ]] && ! is_live "${slurm%% *}"; then
    verdict=lost
    row 'verdict' "none: the job ended as ${slurm%% *} in phase ${phase}, before it could say why"
  elif [[ -n "${run_step:-}" ]] && ! run_lives "${folder}"; then
    verdict=lost
    row 'verdict' "none: the run ended in phase ${phase}, before it could say why"
  else
    row 'phase' "${phase}"
  fi
  row 'times' "$(time_line "${file}")"
  show_workers "${folder}"
  show_point "${folder}"
  show_steps "${folder}" "${phase}" "${verdict}" "${failed}"
  printf '\n'
  row 'last' "$(last_line "${folder}/job.log" || :)"
  row 'results' "${folder}"
}

main() {
  local job="${1:-}" folder='' slurm=''
  (($# <= 1)) && [[ "${job}" =~ ^[0-9]*$ ]] || {
    printf 'usage: status.sh [JOBID]\n' >&2
    exit 2
  }
  folder="$(find_results "${job}")" || folder=''
  if [[ -n "${folder}" && -z "${job}" ]]; then
    job="${folder##*/}"
    job="${job%%.*}"
  fi
  [[ -z "${job}" ]] || slurm="$(slurm_state "${job}")" || slurm=''
  if [[ -n "${folder}" && -r "${folder}/result.json" ]]; then
    show_job "${job}" "${folder}" "${slurm}"
  elif [[ -n "${slurm}" ]]; then
    row 'job' "${job}, no results yet"
    row 'Slurm' "${slurm}"
  else
    printf 'status.sh: no results of %s here, and Slurm knows no such job\n' "${job:+job }${job:-any job}" >&2
    exit 1
  fi
}

main "$@"
