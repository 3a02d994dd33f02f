# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# What is brought onto the nodes between the checks and the load: one Slurm step a thing, on many nodes at once.
#
#   stage_step NAME LIMIT_S HOSTS COMMAND...   returns once COMMAND has ended with 0 on every host; else the job ends.
#     NAME     the step's job name; its log is logs/NAME.log, whose lines carry "TASK: " (the log's head names the nodes)
#     LIMIT_S  seconds until the job fails
#     HOSTS    names of nodes by comma, in the order of node_hosts (worker_hosts sets REPLY to such a list)
#     COMMAND  one task a node, environment of this shell; options of srun may stand before it, which is what
#              "${PLAN_RUNTIME}_step" adds to step_argv: a command in a container needs "--export=${names}" too
# What a command prints last is its progress (logged every 30 s), and the reason of the job if it fails: so it prints
# whole lines, flushes them, and ends with one line that says what is wrong. TERM means stop: others have failed.

readonly STAGE_PROGRESS_S=30
readonly STAGE_LIMIT_S="${SRTGEN_STAGE_LIMIT_S:-7200}" # for one thing; what stands still says so by itself

stage_hosts=()            # of the step that runs, by task number
declare -A stage_words=() # host -> what it said last

# Everything that the plan wants on the nodes, one after the other.
stage_all() {
  [[ "${STAGE_LIMIT_S}" =~ ^[1-9][0-9]{0,8}$ ]] || fail 10 "SRTGEN_STAGE_LIMIT_S: ${STAGE_LIMIT_S} is no number of seconds"
  stage_images
  stage_model
  prefetch_model
}

# Sets REPLY to the hosts of the nodes INDEX..., by comma: each once, in the order of node_hosts.
hosts_of() {
  local index found=() wanted IFS=' '
  wanted=" $* "
  for index in "${!node_hosts[@]}"; do
    [[ "${wanted}" != *" ${index} "* ]] || found+=("${node_hosts[${index}]}")
  done
  IFS=,
  REPLY="${found[*]}"
}

# Sets REPLY to the hosts that workers run on, by comma.
worker_hosts() {
  local line node nodes=() IFS=' '
  for line in "${PLAN_WORKERS[@]}"; do
    read -r _ _ _ node _ <<<"${line}"
    nodes+=("${node}")
  done
  hosts_of "${nodes[@]}"
}

stage_step() {
  local name="$1" limit="$2" hosts="$3" argv start=${SECONDS} next=$((SECONDS + STAGE_PROGRESS_S))
  shift 3
  IFS=, read -r -a stage_hosts <<<"${hosts}"
  stage_argv "${name}" "${hosts}"
  steps+=("${name}")
  step_role["${name}"]=stage
  step_host["${name}"]="${stage_hosts[0]}"
  log "${name}: on ${#stage_hosts[@]} nodes, log ${job_folder}/logs/${name}.log"
  start_task "${name}" run_stage "${name}" "${argv[@]}" "$@"
  while [[ -z "${step_code[${name}]:-}" ]]; do
    pump 1
    ! find_failed_task "${name}" || fail_stage "${name}"
    if ((SECONDS - start >= limit)); then
      stage_progress "${name}"
      fail 10 "${name}: not done after ${limit} s: ${REPLY}" "${name}"
    elif ((SECONDS >= next)); then
      stage_progress "${name}"
      log "${name}: $((SECONDS - start)) s, ${REPLY}"
      next=$((SECONDS + STAGE_PROGRESS_S))
    fi
  done
  fail_if_node_died "${name}" # srun ends with 0 then
  [[ "${step_code[${name}]}" == 0 ]] || fail_stage "${name}"
  steps=("${steps[@]:0:${#steps[@]}-1}") # nothing of it is left to stop
  log "${name}: done after $((SECONDS - start)) s"
}

# Sets argv to srun with the options of step NAME on HOSTS; task numbers follow the order of the nodes.
stage_argv() {
  local name="$1" hosts="$2" count="${#stage_hosts[@]}" node_options
  bind_step "${hosts}"
  argv=(
    srun "--job-name=${name}" --overlap "--nodes=${count}" "--ntasks=${count}" --ntasks-per-node=1
    "${node_options[@]}" --distribution=block --kill-on-bad-exit=1 --wait=0 --mpi=none --chdir=/ --export=ALL
    --label "--output=${job_folder}/logs/${name}.log" --open-mode=append
  )
  [[ -z "${PLAN_CPUS_PER_TASK:-${SLURM_CPUS_PER_TASK:-}}" ]] ||
    argv+=("--cpus-per-task=${PLAN_CPUS_PER_TASK:-${SLURM_CPUS_PER_TASK}}")
}

# Runs in the background subshell of a step.
run_stage() {
  local name="$1" file="${job_folder}/logs/$1.log" index
  shift
  export SRTGEN_STEP="${name}" # node_clean.py knows the job's processes by it
  for index in "${!stage_hosts[@]}"; do
    printf 'srtgen: task %s is on %s\n' "${index}" "${stage_hosts[${index}]}"
  done >>"${file}"
  "$@" </dev/null 2>>"${file}"
}

# True if a task of step NAME failed, by the first such line of srun: sets REPLY to its number and how it ended.
find_failed_task() {
  local name="$1" line
  line="$(grep -a -m 1 -E '^srun: error: [^ ]+: tasks? [0-9]' -- "${job_folder}/logs/${name}.log" 2>/dev/null)" || return 1
  [[ "${line}" =~ :\ tasks?\ ([0-9]+)[0-9,-]*:\ *(.*) ]] || return 1
  REPLY="${BASH_REMATCH[1]} ${BASH_REMATCH[2]}"
}

fail_if_node_died() {
  local name="$1"
  find_dead_node "${name}"
  [[ -z "${REPLY}" ]] || fail 11 "node ${REPLY} died (${name} ran there)" "${name}" "${REPLY}"
}

# Ends the job with what the first task that failed said last.
fail_stage() {
  local name="$1" end=$((SECONDS + 2)) task host how words
  while [[ -z "${step_code[${name}]:-}" ]] && ((SECONDS < end)); do pump 0.2; done # the words may be on their way
  confirm_running "${name}"
  fail_if_node_died "${name}"
  if ! find_failed_task "${name}"; then # srun itself
    words="$(grep -a '^srun: error: ' -- "${job_folder}/logs/${name}.log" 2>/dev/null | tail -n 1)" || words=''
    describe_code "${step_code[${name}]:-1}"
    fail 10 "${name}: ${words:-srun ended with ${REPLY}}" "${name}"
  fi
  read -r task how <<<"${REPLY}"
  host="${stage_hosts[${task}]}"
  read_stage_words "${name}"
  words="${stage_words["${host}"]:-}"
  # Who was killed said nothing about it.
  [[ -n "${words}" && "${how}" =~ ^Exited.*\ ([0-9]+)$ ]] && ((BASH_REMATCH[1] <= 128)) || words="${how}${words:+ after \"${words}\"}"
  fail 10 "${name} on ${host}: ${words}" "${name}" "${host}"
}

# Sets stage_words to the last line of each host in the step's log.
read_stage_words() {
  local name="$1" line
  stage_words=()
  while IFS= read -r line; do
    [[ "${line}" != *'*** STEP '* && ! "${line}" =~ _step\.sh:\ line\ [0-9]+:\ +[0-9]+\  ]] || continue # Slurm's, the shell's
    [[ "${line}" =~ ^\ *([0-9]+):\ +(.*[^ ]) ]] || continue
    stage_words["${stage_hosts[${BASH_REMATCH[1]}]:-none}"]="${BASH_REMATCH[2]:0:300}"
  done < <(tail -c 262144 -- "${job_folder}/logs/${name}.log" 2>/dev/null)
}

# Sets REPLY to what each host said last.
stage_progress() {
  local name="$1" host text=''
  read_stage_words "${name}"
  for host in "${stage_hosts[@]}"; do text+="${text:+; }${host}: ${stage_words["${host}"]:-no word yet}"; done
  REPLY="${text}"
}
