# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# The one way out: client, router, workers; then nothing of this job is left on any node.

readonly GRACE_S="${SRTGEN_GRACE_S:-20}" # from the first TERM to KILL
readonly KILL_S=10                       # from KILL to giving up on a step

declare -A step_signalled=()
teardown_signal=0 # 1 once Slurm or somebody signalled the job while it was being taken down

# Sets REPLY to the names among the arguments whose steps have not ended.
running_steps() {
  local name found=()
  for name in "$@"; do
    if step_runs "${name}"; then found+=("${name}"); fi
  done
  REPLY="${found[*]}"
}

# True if Slurm is ending the job: then steps cannot be signalled, and have KillWait seconds.
job_is_ending() {
  read_job_state
  [[ -n "${job_state}" && "${job_state}" != RUNNING ]]
}

# The same in the middle of a teardown: asked only once a signal has come.
cut_short() {
  ((teardown_signal)) && job_is_ending
}

# Sets REPLY to Slurm's KillWait in seconds, 30 if it does not say.
kill_wait() {
  local line
  REPLY=30
  while IFS= read -r line; do
    [[ ! "${line}" =~ ^KillWait[[:space:]]*=\ ([0-9]+) ]] || REPLY="${BASH_REMATCH[1]}"
  done < <(scontrol show config 2>/dev/null)
}

# Waits until the named steps have ended, at most LIMIT seconds.
wait_steps() {
  local limit="$1" end=$((SECONDS + $1))
  shift
  while running_steps "$@" && [[ -n "${REPLY}" ]]; do
    ((SECONDS < end)) || return 1
    drain 0.2
  done
}

# Sends TERM to those of the named steps that did not get it yet: a step may be created only now.
terminate_steps() {
  local name id wanted=" $* " ids=()
  step_ids
  while read -r name id; do
    [[ -n "${id}" && "${wanted}" == *" ${name} "* && -z "${step_signalled[${name}]:-}" ]] || continue
    ids+=("${id}")
    step_signalled["${name}"]=1
  done <<<"${REPLY}"
  ((${#ids[@]} == 0)) || scancel --signal=TERM "${ids[@]}" 2>/dev/null
}

# Ends what the named steps' srun processes are: the last resort, and the only way for a step that never was created.
kill_srun() {
  local signal="$1" name pid children
  shift
  for name in "$@"; do
    pid="${task_pid[${name}]:-}"
    [[ -n "${pid}" ]] || continue
    children=''
    read -r children 2>/dev/null <"/proc/${pid}/task/${pid}/children" || : # the list has no newline at its end
    # shellcheck disable=SC2086  # a list of pids
    kill "-${signal}" ${children} 2>/dev/null
  done
}

# Asks the named steps to end, until they have or END (in SECONDS) has come: TERM to their tasks, as an srun that is
# signalled kills them at once.
ask_steps() {
  local end="$1" left
  shift
  running_steps "$@"
  [[ -n "${REPLY}" ]] || return 0
  log "stopping ${REPLY}"
  while running_steps "$@" && [[ -n "${REPLY}" ]] && ((SECONDS < end)); do
    read -r -a left <<<"${REPLY}"
    terminate_steps "${left[@]}"
    drain 0.2
    drain 0.2
    ! cut_short || return 0
  done
}

# Ends those of the named steps that still run: KILL, then their srun.
kill_steps() {
  local left
  running_steps "$@"
  [[ -n "${REPLY}" ]] || return 0
  read -r -a left <<<"${REPLY}"
  log "still there after ${GRACE_S} s, killing: ${left[*]}"
  signal_steps KILL "${left[@]}"
  wait_steps "${KILL_S}" "${left[@]}" && return 0
  kill_srun TERM "${left[@]}"
  wait_steps 3 "${left[@]}" && return 0
  kill_srun KILL "${left[@]}"
  wait_steps 3 "${left[@]}" || warn "would not end: ${REPLY}"
}

# One cleaning step per group of nodes; its findings go to the log.
clean_nodes() {
  local group report="${run_folder}/clean" groups=() tasks=() end=$((SECONDS + 15)) line IFS=,
  ((${#steps[@]})) || return 0
  if [[ "${result_code}" == null ]]; then
    groups=("${node_hosts[*]}")
  else
    groups=("${node_hosts[@]}") # one by one: a dead node must not keep the others dirty
  fi
  for group in "${groups[@]}"; do
    tasks+=("clean_${group}")
    start_task "clean_${group}" clean_hosts "${group}" "${report}"
  done
  for line in "${tasks[@]}"; do
    while [[ -z "${task_code[${line}]:-}" ]] && ((SECONDS < end)); do drain 0.2; done
    [[ "${task_code[${line}]:-1}" == 0 ]] || warn "could not clean ${line#clean_}"
  done
  while IFS= read -r line; do log "clean: ${line}"; done < <(grep -v '^srun: ' -- "${report}" 2>/dev/null)
}

# The cleaning step on HOSTS (comma separated).
clean_hosts() {
  local hosts="$1" report="$2" names node_options
  bind_step "${hosts}"
  IFS=, read -r -a names <<<"${hosts}"
  timeout -k 2 12 srun --job-name=teardown --overlap "--nodes=${#names[@]}" "--ntasks=${#names[@]}" --ntasks-per-node=1 \
    "${node_options[@]}" --wait=0 --mpi=none --chdir=/ --export=ALL \
    python3 -E -s -B "${BUNDLE}/lib/node_clean.py" "${SLURM_JOB_ID}" "${PLAN_RUNTIME}" "${SRTGEN_RUN}" "${engine_options[@]}" \
    </dev/null >>"${report}" 2>&1
}

# Slurm signals the steps itself and kills everything after KillWait, this shell too, which needs a moment for the verdict.
wait_for_slurm() {
  local left=()
  kill_wait
  log "Slurm is ending the job: waiting for its steps"
  wait_steps $((REPLY > 3 ? REPLY - 2 : 1)) "${steps[@]}" && return 0
  read -r -a left <<<"${REPLY}"
  log "not ended by themselves: ${left[*]}"
  kill_srun KILL "${left[@]}"
}

# Called once, from the EXIT trap: errors must not stop it.
teardown() {
  local name workers=() start
  for name in health watch router canary judge; do end_task "${name}"; done
  for name in "${steps[@]}"; do
    [[ "${step_role[${name}]}" == bench || "${step_role[${name}]}" == atomesh ]] || workers+=("${name}")
  done
  if job_is_ending; then
    wait_for_slurm
    return 0
  fi
  store_jit_cache # of a job that has passed: before the grace of what is stopped begins
  start=${SECONDS}
  # One grace for all: who does not end in its share is killed with the last.
  ask_steps $((start + GRACE_S / 2)) bench eval
  cut_short || ask_steps $((start + GRACE_S * 3 / 4)) "${PLAN_ROUTER_STEP}"
  cut_short || ask_steps $((start + GRACE_S)) "${workers[@]}"
  cut_short || kill_steps "${steps[@]}"
  if cut_short; then
    wait_for_slurm
  else
    clean_nodes
    leave_nodes
  fi
}
