# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# The story of a job, from its start to its verdict. Sourced by run.sbatch, which holds the plan's data.

# shellcheck source-path=SCRIPTDIR
# shellcheck source=log.sh
source "${BUNDLE}/lib/log.sh"
# shellcheck source=result.sh
source "${BUNDLE}/lib/result.sh"
# shellcheck source=allocation.sh
source "${BUNDLE}/lib/allocation.sh"
# shellcheck source=single.sh
source "${BUNDLE}/lib/single.sh"
# shellcheck source=node_results.sh
source "${BUNDLE}/lib/node_results.sh"
# shellcheck source=start.sh
source "${BUNDLE}/lib/start.sh"
# shellcheck source=events.sh
source "${BUNDLE}/lib/events.sh"
# shellcheck source=steps.sh
source "${BUNDLE}/lib/steps.sh"
# shellcheck source=container.sh
source "${BUNDLE}/lib/container.sh"
# shellcheck source=watch.sh
source "${BUNDLE}/lib/watch.sh"
# shellcheck source=checks.sh
source "${BUNDLE}/lib/checks.sh"
# shellcheck source=preflight.sh
source "${BUNDLE}/lib/preflight.sh"
# shellcheck source=stage.sh
source "${BUNDLE}/lib/stage.sh"
# shellcheck source=stage_image.sh
source "${BUNDLE}/lib/stage_image.sh"
# shellcheck source=weights.sh
source "${BUNDLE}/lib/weights.sh"
# shellcheck source=addresses.sh
source "${BUNDLE}/lib/addresses.sh"
# shellcheck source=health_wait.sh
source "${BUNDLE}/lib/health_wait.sh"
# shellcheck source=router.sh
source "${BUNDLE}/lib/router.sh"
# shellcheck source=jit.sh
source "${BUNDLE}/lib/jit.sh"
# shellcheck source=client.sh
source "${BUNDLE}/lib/client.sh"
# shellcheck source=quality.sh
source "${BUNDLE}/lib/quality.sh"
# shellcheck source=teardown.sh
source "${BUNDLE}/lib/teardown.sh"

job_folder=''
run_folder=''
attempt=1

# An error that no function expected.
note_error() {
  local code=$? line="$1" file="$2" command="$3"
  ((BASHPID == $$)) || return 0
  record_failure 70 "internal error: ${file##*/} line ${line}: ${command} (exit code ${code})" '' ''
}

# Starts all steps at once: the router and the client wait inside their containers for their turn.
start_steps() {
  local line step role index node worker_turn=0
  if jit_planned; then worker_turn=2; fi
  export_locations
  collect_mounts
  export_client_environment
  collect_export_names
  for line in "${PLAN_WORKERS[@]}"; do
    read -r step role index node _ <<<"${line}"
    start_step "${step}" "${role}" "${node}" "roles/${role}.sh" "${index}" "${worker_turn}"
    [[ -z "${stop_signal}" ]] || stop_requested
  done
  log "started ${#steps[@]} workers"
  start_step "${PLAN_ROUTER_STEP}" atomesh "${PLAN_ROUTER_NODE}" roles/atomesh.sh 0 1
  if bench_planned; then start_step bench bench "${PLAN_BENCH_NODE}" bench.sh 0 1; fi
  start_eval
}

# Runs on every way out; the first failure stays the reason.
on_exit() {
  local code=$?
  ((BASHPID == $$)) || return 0
  trap - EXIT ERR
  trap : USR1 HUP # a second signal changes nothing
  trap 'teardown_signal=1' TERM INT
  set +eE
  ((preamble_runs == 0)) || record_failure 10 "the profile's preamble ended the job with exit ${code}" '' ''
  ((code == 0)) || record_failure 70 "internal error: exit code ${code} in phase ${result_phase}" '' ''
  begin_phase teardown
  teardown
  rm -f -- "${job_folder}/logs/".*.alive # of a container that was killed
  begin_phase 'done'
  if [[ "${result_code}" == null ]]; then
    result_code=0
    result_verdict=passed
    result_reason="${result_reason:-passed}"
  fi
  seconds_of "${phase_start_cs}"
  result_phases+=("{\"name\":\"done\",\"start_s\":${REPLY},\"seconds\":0.00}")
  write_result
  if ((result_lost)) && [[ "${result_verdict}" == passed ]]; then
    result_code=20
    result_verdict=failed
    result_reason="the results cannot be written into ${job_folder}: is the disk full?"
  fi
  timeout -k 1 10 python3 -E -s -B "${BUNDLE}/lib/report.py" "${job_folder}" >/dev/null 2>&1 || log 'warning: no report.md'
  seconds_of "${phase_start_cs}"
  log "verdict: ${result_verdict} (${result_code}) after ${REPLY} s: ${result_reason}"
  log "results: ${job_folder}"
  ((${#helper_pids[@]} == 0)) || kill -TERM "${helper_pids[@]}" 2>/dev/null # one may have missed its first signal
  rm -rf -- "${run_folder:?}"
  pack_and_leave
  exit "${result_code}"
}

# Results first, so that whatever happens has a place; then signals and the one way out.
open_job() {
  clock_begin
  clean_environment
  trap_signals
  open_results
  run_folder="$(mktemp -d "/tmp/srtgen-run-${SLURM_JOB_ID}.XXXXXX")"
  export SRTGEN_RUN="${run_folder##*/}" # by which teardown knows this run's processes
  trap on_exit EXIT
  trap 'note_error "${LINENO}" "${BASH_SOURCE[0]}" "${BASH_COMMAND}"' ERR
  [[ -z "${SRTGEN_DEBUG:-}" ]] || {
    PS4='+ ${BASH_SOURCE[0]##*/}:${LINENO}:${FUNCNAME[0]:-}: '
    set -x
  }
  log "job ${SLURM_JOB_ID}, attempt ${attempt}: ${PLAN_NAME}, bundle ${BUNDLE}"
  events_open "${run_folder}"
  join_allocation
}

main() {
  enter_allocation
  open_job
  warn_about_overrides
  run_preamble
  choose_eval
  read_skipped_checks
  read_nodes
  clean_killed_runs

  begin_phase preflight
  hand_over_bundle
  preflight
  check_alone
  stage_all

  begin_phase load
  start_steps
  wait_for_workers
  watch_workers
  log_jit_cache

  begin_phase router
  start_router
  check_identity
  check_transport

  begin_phase canary
  run_canary

  await_eval_packages
  if bench_planned; then
    begin_phase bench
    run_client
  fi
  if [[ "${eval_mode}" != off ]]; then
    begin_phase eval
    run_eval
  fi
}
