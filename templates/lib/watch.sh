# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# What an event means for the job. Any way out is `fail`, which records the reason and exits; the EXIT trap tears down.

declare -A task_code=()      # helpers that have ended
declare -A pending_reason=() # what a worker or helper is waiting for
declare -A helper_failure=() # what a helper said when it failed

# Waits up to TIMEOUT seconds for one event and acts on it.
pump() {
  local timeout="$1" name text
  next_event "${timeout}"
  name="${event_name}" text="${event_text}" # the next event replaces them
  check_allocation_end
  [[ -z "${stop_signal}" ]] || stop_requested
  case "${event_kind}" in
    '') find_lost_tasks ;;
    end) note_end "${name}" "${text}" ;;
    ready)
      worker_ready["${name}"]=1
      log "${name} is ready on ${step_host[${name}]}"
      ;;
    waiting) pending_reason["${name}"]="${text}" ;;
    progress) log "${name}: ${text}" ;;
    failed) helper_failure["${name}"]="${text}" ;;
    fatal) fail 11 "${name} on ${step_host[${name}]} logged: ${text}" "${name}" ;;
    lost)
      confirm_running
      fail_component "${name}" "does not answer any more: ${text}"
      ;;
  esac
}

# The same without acting: for the time when the job is ending anyway.
drain() {
  local timeout="$1"
  next_event "${timeout}"
  case "${event_kind}" in
    '') find_lost_tasks ;;
    end)
      if [[ -n "${step_role[${event_name}]:-}" ]]; then
        step_code["${event_name}"]="${event_text}"
      else
        task_code["${event_name}"]="${event_text}"
      fi
      ;;
  esac
}

# A background process ended. A server must not end at all, not even with 0; the client only in its phase.
note_end() {
  local name="$1" code="$2"
  if [[ -z "${step_role[${name}]:-}" ]]; then
    ((code <= 128)) || [[ -n "${task_told[${name}]:-}" ]] || confirm_running
    task_code["${name}"]="${code}"
    return 0
  fi
  step_code["${name}"]="${code}"
  [[ "${step_role[${name}]}" != stage ]] || return 0 # stage_step, which waits for it, judges
  [[ "${name}" != "${result_phase}" ]] || { # bench or eval, in its own phase
    ((code <= 128)) || confirm_running "${name}"
    return 0
  }
  confirm_running "${name}"
  case "${name}" in
    bench) fail_early_client "${code}" ;;
    eval) fail_eval "${code}" ;;
  esac
  describe_code "${code}"
  fail_component "${name}" "ended with ${REPLY} in phase ${result_phase}"
}

# The client gave up before its turn: its own checks failed, or its container did not start.
fail_early_client() {
  local code="$1"
  read_verdict
  local reason="${REPLY}"
  describe_code "${code}"
  reason="${reason:-ended with ${REPLY} before its turn}"
  client_code "${code}"
  [[ "${REPLY}" != 0 ]] || REPLY=20
  fail "${REPLY}" "benchmark client on ${step_host[bench]}: ${reason}" bench
}

# Ends the job because component NAME is gone.
fail_component() {
  local name="$1" what="$2" code=11
  [[ "${step_role[${name}]}" != atomesh ]] || code=13
  find_dead_node "${name}"
  [[ -z "${REPLY}" ]] || fail 11 "node ${REPLY} died (${name} ran there)" "${name}"
  fail "${code}" "${name} on ${step_host[${name}]} ${what}" "${name}"
}

# Sets REPLY to the node that srun says has died under the steps NAME..., '' if none.
find_dead_node() {
  local line
  REPLY=''
  (($#)) || return 0
  while IFS= read -r line; do
    [[ ! "${line}" =~ [Nn]ode\ failure\ on\ ([^ ,]+) ]] || REPLY="${BASH_REMATCH[1]}"
  done < <(cd -- "${job_folder}/logs" && tail -q -c 65536 -- "${@/%/.log}" 2>/dev/null | grep -a -i 'node failure on')
}

# Sets job_state and job_reason to Slurm's view of this job.
read_job_state() {
  local line
  job_state='' job_reason=''
  while IFS= read -r line; do
    [[ ! "${line}" =~ JobState=([A-Z_]+)\ Reason=([A-Za-z_]+) ]] || {
      job_state="${BASH_REMATCH[1]}"
      job_reason="${BASH_REMATCH[2]}"
    }
  done < <(scontrol show job "${SLURM_JOB_ID}" 2>/dev/null)
}

# True if Slurm's own words in the log of step NAME say that it was cancelled: at the end of a job before the job knows.
step_cancelled() {
  local name="$1"
  [[ "$(tail -c 4096 -- "${job_folder}/logs/${name}.log" 2>/dev/null)" == *'*** STEP '*' CANCELLED AT '* ]]
}

# True if the event is the end of the client in its phase, or of a step that stages: who waits for it reads step_code.
waited_for() {
  [[ "${event_kind}" == end && ("${event_name}" == "${result_phase}" || "${step_role["${event_name}"]:-}" == stage) ]]
}

# Something ended unexpectedly. If Slurm is ending the whole job that is the reason, and its signal may come a moment later.
# What else happens in that moment is put back into the queue; only the ends of what somebody waits for are noted.
confirm_running() {
  local name="${1:-}" ticks=2 line held=()
  [[ -z "${name}" ]] || ! step_cancelled "${name}" || ticks=14
  for ((; ticks > 0; ticks--)); do
    [[ -z "${stop_signal}" ]] || stop_requested
    drain 0.15
    [[ -z "${event_kind}" || "${event_kind}" == signal ]] || waited_for || held+=("${event_kind}"$'\t'"${event_name}"$'\t'"${event_text}")
  done
  for line in "${held[@]}"; do printf '%s\n' "${line}" >&"${events_fd}"; done
  [[ -z "${stop_signal}" ]] || stop_requested
  read_job_state
  [[ "${job_state}" == RUNNING || -z "${job_state}" ]] || {
    stop_signal=TERM
    stop_requested
  }
}

# Ends the job as Slurm or the operator asked.
stop_requested() {
  local signal="${stop_signal}"
  stop_signal=''
  read_job_state
  if [[ "${PLAN_BENCH}" == manual && "${result_phase}" == bench && "${job_reason}" != NodeDown ]]; then
    log 'stopped on request'
    exit 0
  elif [[ "${job_reason}" == NodeDown || "${job_state}" == NODE_FAIL ]]; then
    find_dead_node "${steps[@]}"
    fail 11 "node ${REPLY:-of this job} died (Slurm: ${job_state} ${job_reason})"
  elif [[ "${signal}" == USR1 ]]; then
    fail 124 "the time limit is near, in phase ${result_phase}"
  elif [[ "${job_reason}" == TimeLimit || "${job_state}" == TIMEOUT ]]; then
    fail 124 "the time limit is reached, in phase ${result_phase}"
  fi
  fail 143 "cancelled in phase ${result_phase}"
}

# Records the reason that the job fails for, the first one only, and exits with CODE.
fail() {
  local code="$1" reason="$2" step="${3:-}" node="${4:-}"
  record_failure "${code}" "${reason}" "${step}" "${node}"
  exit "${code}"
}

record_failure() {
  local code="$1" reason="$2" step="$3" node="$4" json
  [[ "${result_code}" == null ]] || return 0
  result_code="${code}"
  result_verdict=failed
  result_reason="${reason}"
  log "FAILED (${code}): ${reason}"
  if [[ -n "${step}" ]]; then
    json_string "${step}"
    json="{\"step\":${REPLY}"
    json_string "${node:-${step_host[${step}]:-}}"
    json+=",\"node\":${REPLY},\"exit_code\":${step_code[${step}]:-null}"
    json_string "${job_folder}/logs/${step}.log"
    json+=",\"log\":${REPLY}"
    log_tail "${step}"
    result_failed="${json},\"tail\":${REPLY}}"
    [[ "${step}" == preflight ]] || log_lines_of "${step}" # its failures are logged already
  fi
  write_result
}

# Shows the end of a failed step's log where people look first.
log_lines_of() {
  local step="$1" line
  while IFS= read -r line || [[ -n "${line}" ]]; do
    log "  ${step}: ${line}"
  done < <(tail -n 20 -- "${job_folder}/logs/${step}.log" 2>/dev/null)
}
