#!/usr/bin/env bash
# Stops a job: ./stop.sh [--now] [--force] JOBID. By a signal to its script, which ends the processes in order, records
# the verdict and leaves clean nodes; by force if it is still there after a while, or at once with --now.
# --force: also a job that is not this bundle's.
set -Eeuo pipefail
shopt -s inherit_errexit nullglob

BUNDLE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
readonly BUNDLE
# shellcheck source-path=SCRIPTDIR source=lib/operate.sh
. "${BUNDLE}/lib/operate.sh"
# shellcheck source-path=SCRIPTDIR source=lib/steps.sh
. "${BUNDLE}/lib/steps.sh"
# shellcheck source-path=SCRIPTDIR source=lib/container.sh
. "${BUNDLE}/lib/container.sh"

readonly GRACE_S="${SRTGEN_STOP_GRACE_S:-120}" # for the job's own teardown
readonly KILL_S="${SRTGEN_STOP_KILL_S:-90}"    # for Slurm's cancellation

say() {
  printf 'stop.sh: %s\n' "$*" >&2
}

# True if Slurm says that JOB was submitted from this bundle, or its results are here.
belongs_here() {
  local job="$1" text command folder
  text="$(scontrol show job "${job}" 2>/dev/null)" || text=''
  if [[ "${text}" =~ Command=([^$'\n']*) && "${BASH_REMATCH[1]}" != '(null)' ]]; then
    command="${BASH_REMATCH[1]%%.sbatch*}.sbatch"
    folder="$(cd -- "$(dirname -- "${command}")" 2>/dev/null && pwd -P)" || folder=''
    [[ "${folder}" != "${BUNDLE}" ]] || return 0
  fi
  folder="$(find_results "${job}")" && is_ours "${folder}"
}

# True if JOB has no batch script: somebody's allocation.
is_allocation() {
  [[ "$(scontrol show job "$1" 2>/dev/null)" == *' BatchFlag=0 '* ]]
}

# Returns 0 once JOB has ended, 1 after LIMIT seconds.
wait_for_end() {
  local job="$1" end=$((SECONDS + $2)) state
  while state="$(slurm_state "${job}")" && is_live "${state%% *}"; do
    ((SECONDS < end)) || return 1
    sleep 1
  done
}

show_verdict() {
  local job="$1" folder="${2:-}"
  [[ -n "${folder}" ]] || folder="$(find_results "${job}")" || return 0
  [[ -r "${folder}/result.json" ]] || return 0
  say "job ${job}: $(result_text "${folder}/result.json" verdict), $(result_text "${folder}/result.json" reason)"
}

# Sets job_text to what Slurm says of allocation JOB, and how its steps are kept on their nodes.
read_allocation() {
  local job="$1" hosts=()
  job_text="$(scontrol show job "${job}" 2>/dev/null)" || job_text=''
  [[ ! "${job_text}" =~ [[:space:]]NodeList=([^[:space:]]+) ]] ||
    mapfile -t hosts < <(scontrol show hostnames "${BASH_REMATCH[1]}")
  read_loose_hosts "${hosts[@]}"
}

# Ends the steps of the run in FOLDER, which outlive their parent, and removes what it left on its nodes.
clean_after_run() {
  local folder="$1" hosts=() node_options PLAN_CONTAINER_STORAGE IFS=,
  [[ -r "${folder}/nodes.tsv" ]] || return 0
  mapfile -t hosts < <(tail -n +2 -- "${folder}/nodes.tsv" | cut -f 2)
  bind_step "${hosts[*]}"
  PLAN_CONTAINER_STORAGE="$(plan_constant PLAN_CONTAINER_STORAGE)"
  collect_engine_options
  srun --overlap "--jobid=${run_step%%.*}" "--nodes=${#hosts[@]}" "--ntasks=${#hosts[@]}" --ntasks-per-node=1 "${node_options[@]}" \
    --mpi=none --chdir=/ --export=ALL python3 -E -s -B "${BUNDLE}/lib/node_clean.py" "${run_step%%.*}" "$(plan_constant PLAN_RUNTIME)" "${run_name}" \
    "${engine_options[@]}"
}

# Stops the run of this bundle in allocation JOB; the allocation itself is the user's.
stop_run() {
  local job="$1" now="$2" folder end=$((SECONDS + GRACE_S)) node_options
  if ! folder="$(find_results "${job}")" || ! allocation_run "${folder}"; then
    say "job ${job} is an allocation, and no run of this bundle is in it; scancel ${job} ends it"
    exit 1
  fi
  read_allocation "${job}"
  if ! run_lives "${folder}"; then
    say "the run in allocation ${job} has ended already"
  elif ((now)); then
    say "cancelling step ${run_step}"
    scancel "${run_step}"
    clean_after_run "${folder}"
  else
    say "asking the run in allocation ${job} to end; it has ${GRACE_S} s"
    bind_step "${run_host}"
    srun --overlap "--jobid=${job}" --nodes=1 --ntasks=1 "${node_options[@]}" --mpi=none --chdir=/ --export=ALL \
      kill -TERM "${run_pid}" || say 'the run could not be signalled'
    while run_lives "${folder}"; do
      ((SECONDS < end)) || {
        say "still there after ${GRACE_S} s; stop.sh --now ${job} ends its step"
        exit 1
      }
      sleep 1
    done
  fi
  show_verdict "${job}" "${folder}"
  say "allocation ${job} is left as it is"
  exit 0
}

# Stops batch job JOB, which Slurm says is in STATE: by its own teardown, by Slurm if NOW or if that does not help.
stop_job() {
  local job="$1" now="$2" state="$3"
  if ((now == 0)) && [[ "${state}" == RUNNING* ]]; then
    say "asking job ${job} to end; it has ${GRACE_S} s"
    scancel --batch --signal=TERM "${job}" || say 'scancel could not signal the job'
    if wait_for_end "${job}" "${GRACE_S}"; then
      show_verdict "${job}"
      exit 0
    fi
    say "still there after ${GRACE_S} s"
  fi
  say "cancelling job ${job}"
  scancel "${job}"
  wait_for_end "${job}" "${KILL_S}" || {
    say "job ${job} is still there after ${KILL_S} s: $(slurm_state "${job}")"
    exit 1
  }
  show_verdict "${job}"
}

main() {
  local now=0 force=0 job state
  while [[ "${1:-}" == --* ]]; do
    case "$1" in
      --now) now=1 ;;
      --force) force=1 ;;
      *) break ;;
    esac
    shift
  done
  job="${1:-}"
  (($# == 1)) && [[ "${job}" =~ ^[0-9]+$ ]] || {
    printf 'usage: stop.sh [--now] [--force] JOBID\n' >&2
    exit 2
  }
  state="$(slurm_state "${job}")" || {
    say "Slurm knows no job ${job}"
    exit 1
  }
  ((force)) || belongs_here "${job}" || {
    say "job ${job} is not one of this bundle; --force stops it all the same"
    exit 1
  }
  is_live "${state%% *}" || {
    say "job ${job} has ended already: ${state%% *}"
    show_verdict "${job}"
    exit 0
  }
  ! is_allocation "${job}" || stop_run "${job}" "${now}"
  stop_job "${job}" "${now}" "${state}"
}

main "$@"
