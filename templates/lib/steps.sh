# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# Slurm steps: start, names of what a step's environment may hold, end.

declare -A step_role=()  # name -> prefill decode agg atomesh bench eval stage
declare -A step_host=()
declare -A step_code=()  # steps that have ended
steps=()                 # names in the order of their start
loose_hosts=()           # hosts of the job among which Slurm may choose by itself

# Slurm 24.11 takes a step's --nodelist that is the job's own for "any node of the job", and gives a job that was
# submitted with fewer names than nodes (sbatch -N2 --nodelist=a) steps on other nodes than asked for.
# Sets loose_hosts to the job's HOSTS if this is such a job, by what Slurm says of it in job_text.
read_loose_hosts() {
  local asked=()
  loose_hosts=()
  [[ "${job_text:-}" =~ [[:space:]]ReqNodeList=([^[:space:]]+) && "${BASH_REMATCH[1]}" != '(null)' ]] || return 0
  mapfile -t asked < <(scontrol show hostnames "${BASH_REMATCH[1]}")
  ((${#asked[@]} >= $#)) || loose_hosts=("$@")
}

# Sets node_options to the words of srun that keep a step on HOSTS (by comma).
bind_step() {
  local hosts="$1" host others=() IFS=,
  node_options=("--nodelist=${hosts}")
  for host in "${loose_hosts[@]}"; do
    [[ ",${hosts}," == *",${host},"* ]] || others+=("${host}")
  done
  ((${#others[@]} == 0)) || node_options+=("--exclude=${others[*]}")
}

# Names of variables that a step in a container may see; values never stand on a command line.
# Sets the list export_names.
collect_export_names() {
  local name more=() names=(PATH HOME USER LANG TERM NO_PROXY no_proxy XDG_RUNTIME_DIR)
  names+=("${!NODE_@}" "${!SRTGEN_@}" "${!SRT_@}" "${!SRTCTL_@}" "${!AIPERF_SERVER_@}")
  names+=("${!EVAL_@}" "${!ENROOT_@}" "${!DOCKER_@}" "${!CONTAINERS_@}" "${!APPTAINER_@}" "${PLAN_PASS_ENV[@]}" "${PLAN_REQUIRE_ENV[@]}")
  read -r -d '' -a more <<<"${SRTGEN_PASS_ENV:-}" || :
  names+=("${more[@]}")
  export_names=()
  local -A seen=()
  for name in "${names[@]}"; do
    [[ -z "${seen[${name}]:-}" && -n "${!name+set}" ]] || continue
    seen["${name}"]=1
    export_names+=("${name}")
  done
}

# Sets step_argv to srun with all options of step NAME of ROLE on HOST, without a command.
srun_argv() {
  local name="$1" role="$2" host="$3" role_options=() node_options IFS=,
  if declare -p "PLAN_SRUN_OPTIONS_${role}" >/dev/null 2>&1; then
    local -n planned="PLAN_SRUN_OPTIONS_${role}"
    role_options=("${planned[@]}")
  fi
  bind_step "${host}"
  step_argv=(
    srun
    "--job-name=${name}"
    --overlap
    --nodes=1
    --ntasks=1
    "${node_options[@]}"
    --kill-on-bad-exit=1
    --wait=0 # a site's WaitTime must not end a step
    --mpi=none
    --chdir=/
    "--output=${job_folder}/logs/${name}.log"
    --open-mode=append
  )
  # No step inherits the job's setting in every version of Slurm.
  [[ -z "${PLAN_CPUS_PER_TASK:-${SLURM_CPUS_PER_TASK:-}}" ]] ||
    step_argv+=("--cpus-per-task=${PLAN_CPUS_PER_TASK:-${SLURM_CPUS_PER_TASK}}")
  if [[ "${PLAN_RUNTIME}" == none || ("${role}" == bench && "${name}" == bench && "${PLAN_BENCH}" == custom) ]]; then
    step_argv+=(--export=ALL)
  else
    step_argv+=("--export=${export_names[*]}")
  fi
  step_argv+=("${PLAN_SRUN_OPTIONS[@]}" "${role_options[@]}")
}

# Runs in the background subshell of a step: environment, then srun.
run_step() {
  local name="$1" role="$2" turn="$3" waits="${4:-0}"
  export SRTGEN_STEP="${name}" SRTGEN_TURN="${waits}"
  unset ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL USE_ATOMESH_ENTRYPOINTS
  if [[ "${role}" == bench && "${name}" == bench && "${PLAN_BENCH}" == custom ]]; then
    unset LD_LIBRARY_PATH LD_PRELOAD PYTHONPATH PYTHONHOME VIRTUAL_ENV
  fi
  if [[ -n "${turn}" ]]; then
    "${step_argv[@]}" <"${turn}" 2>>"${job_folder}/logs/${name}.log"
  else
    "${step_argv[@]}" </dev/null 2>>"${job_folder}/logs/${name}.log"
  fi
}

# Starts step NAME of ROLE on node INDEX: SCRIPT of the bundle with ARGUMENT. TURN=1: it waits for give_turn; 2: it only
# listens for it, beside its work.
start_step() {
  local name="$1" role="$2" node="$3" script="$4" argument="$5" turn="$6" pipe=''
  if ((turn)); then
    open_turn "${name}" "${run_folder}"
    pipe="${run_folder}/turn_${name}"
  fi
  srun_argv "${name}" "${role}" "${node_hosts[${node}]}"
  "${PLAN_RUNTIME}_step" "${name}" "${role}" "${script}" "${argument}"
  steps+=("${name}")
  step_role["${name}"]="${role}"
  step_host["${name}"]="${node_hosts[${node}]}"
  start_task "${name}" run_step "${name}" "${role}" "${pipe}" "${turn}"
}

# True if process PID is ANCESTOR or descends from it.
descends_from() {
  local pid="$1" ancestor="$2" key value
  while ((pid > 1)); do
    ((pid != ancestor)) || return 0
    while read -r key value; do
      [[ "${key}" != PPid: ]] || break
    done 2>/dev/null <"/proc/${pid}/status" || return 1
    pid="${value:-0}"
  done
  return 1
}

# Sets REPLY to Slurm's step ids of this run's steps that run, as "name id" lines. A step is ours if its srun is:
# in the same job others may have steps of the same name.
step_ids() {
  local line pid found=''
  local step='StepId=([^ ]+) .* Name=([^ ]+) Network=.* SrunHost:Pid=[^ ]*:([0-9]+)'
  while IFS= read -r line; do
    [[ "${line}" =~ ${step} ]] || continue
    pid="${task_pid["${BASH_REMATCH[2]}"]:-0}"
    if descends_from "${BASH_REMATCH[3]}" "${pid}"; then found+="${BASH_REMATCH[2]} ${BASH_REMATCH[1]}"$'\n'; fi
  done < <(scontrol --oneliner show step "${SLURM_JOB_ID}" 2>/dev/null)
  REPLY="${found%$'\n'}"
}

# Sends SIGNAL (or ends at once: KILL by scancel itself) to the steps NAME...; fails when Slurm refuses.
signal_steps() {
  local signal="$1" line name failed=0 ids=()
  shift
  step_ids
  while read -r name line; do
    [[ " $* " != *" ${name} "* ]] || ids+=("${line}")
  done <<<"${REPLY}"
  ((${#ids[@]})) || return 1
  if [[ "${signal}" == KILL ]]; then
    scancel "${ids[@]}" 2>/dev/null || failed=1
  else
    scancel "--signal=${signal}" "${ids[@]}" 2>/dev/null || failed=1
  fi
  return "${failed}"
}

# True while step NAME has not ended.
step_runs() {
  [[ -n "${step_role[$1]:-}" && -z "${step_code[$1]:-}" ]]
}

# Sets REPLY to what exit code CODE says in words.
describe_code() {
  local code="$1"
  REPLY="exit code ${code}"
  ((code <= 128)) || REPLY+=" (signal $((code - 128)))"
}

# Sets REPLY to the last lines of step NAME's log as a JSON list.
log_tail() {
  local name="$1" lines=()
  mapfile -t lines < <(tail -n 20 -- "${job_folder}/logs/${name}.log" 2>/dev/null | cut -c 1-500)
  json_list "${lines[@]}"
}
