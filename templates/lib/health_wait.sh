# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# Until all workers are ready, and whether they stay so. The asking is health_wait.py's, the judgement is here.

readonly PROGRESS_S=30 # at least one line of progress in this time

declare -A worker_ready=()
worker_addresses=()         # NAME=HOST:PORT

# Sets worker_addresses from the plan.
collect_worker_addresses() {
  local line step node port
  worker_addresses=()
  for line in "${PLAN_WORKERS[@]}"; do
    read -r step _ _ node port _ <<<"${line}"
    worker_addresses+=("${step}=${node_addresses[${node}]}:${port}")
  done
}

# Logs how far the load is: elapsed, ready n/m, who is not and why.
log_progress() {
  local item name missing=()
  for item in "${worker_addresses[@]}"; do
    name="${item%%=*}"
    [[ -n "${worker_ready[${name}]:-}" ]] || missing+=("${name} (${pending_reason[${name}]:-not asked yet})")
  done
  local IFS=,
  log "loading: $((SECONDS - load_start)) s, ready ${#worker_ready[@]}/${#worker_addresses[@]}${missing[*]:+, waiting for ${missing[*]}}"
}

# Ends the job, saying who is not ready after the deadline.
fail_late() {
  local item name first='' late=''
  for item in "${worker_addresses[@]}"; do
    name="${item%%=*}"
    [[ -z "${worker_ready[${name}]:-}" ]] || continue
    first="${first:-${name}}"
    late+="${late:+, }${name} on ${step_host[${name}]} (${pending_reason[${name}]:-no answer}, log ${job_folder}/logs/${name}.log)"
  done
  fail 12 "not ready after ${PLAN_HEALTH_DEADLINE_S} s: ${late}" "${first}"
}

# Returns once every worker has answered /health; any other outcome ends the job.
wait_for_workers() {
  local item argv=() next=0
  load_start=${SECONDS}
  collect_worker_addresses
  for item in "${worker_addresses[@]}"; do
    argv+=("--worker=${item}" "--log=${item%%=*}=${job_folder}/logs/${item%%=*}.log")
  done
  for item in "${PLAN_FATAL_MARKERS[@]}"; do argv+=("--marker=${item}"); done
  for item in "${PLAN_FATAL_PATTERNS[@]}"; do argv+=("--pattern=${item}"); done
  start_helper health python3 -E -s -B "${BUNDLE}/lib/health_wait.py" wait "${argv[@]}"
  while ((${#worker_ready[@]} < ${#worker_addresses[@]})); do
    pump 1
    [[ -z "${task_code[health]:-}" || "${task_code[health]}" == 0 ]] ||
      fail 70 "the health probe ended with code ${task_code[health]}"
    ((SECONDS - load_start < PLAN_HEALTH_DEADLINE_S)) || fail_late
    if ((SECONDS >= next)); then
      log_progress
      next=$((SECONDS + PROGRESS_S))
    fi
  done
  log "all ${#worker_addresses[@]} workers are ready after $((SECONDS - load_start)) s"
}

# From here on a worker that stops answering ends the job (event "lost").
watch_workers() {
  local item argv=()
  end_task health
  for item in "${worker_addresses[@]}"; do argv+=("--worker=${item}"); done
  start_helper watch python3 -E -s -B "${BUNDLE}/lib/health_wait.py" watch "${argv[@]}"
}

# After a client's failure: is every server still there? One that is not ends the job as the better reason.
judge_servers() {
  local item argv=() end=$((SECONDS + 6))
  for item in "${worker_addresses[@]}"; do argv+=("--worker=${item}"); done
  argv+=("--worker=${PLAN_ROUTER_STEP}=${node_addresses[${PLAN_ROUTER_NODE}]}:${PLAN_ROUTER_PORT}")
  start_helper judge python3 -E -s -B "${BUNDLE}/lib/health_wait.py" judge "${argv[@]}"
  while [[ -z "${task_code[judge]:-}" ]] && ((SECONDS < end)); do pump 0.5; done
}
