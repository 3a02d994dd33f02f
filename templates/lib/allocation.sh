# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# A run in an allocation that exists already (salloc; bash run.sbatch): no batch script, no directives, no signal before
# the end. The story runs as a step on the allocation's first node, as a batch script would; where it was started only
# waits, and what is signalled there goes through a pipe: Slurm would signal the story's srun processes as well.

readonly ASK_S=60           # how often Slurm is asked for the allocation's end
readonly LONGEST_LEAD_S=300 # as in the directive --signal of a batch job

allocation=0       # 1: this is such a run
allocation_step='' # its own step
allocation_end=''  # SECONDS at which it has to stop, '' without a limit
allocation_ask=0   # SECONDS at which Slurm is asked again

# Run on the first node before the story: where the bundle cannot be seen, bash would say less.
# shellcheck disable=SC2016  # expands on the node
readonly STORY='[[ -r "$1" ]] || {
  printf "run.sbatch: %s is not visible on %s: is it on a shared file system?\n" "$1" "${SLURMD_NODENAME:-}" >&2
  exit 10
}
exec bash "$1"'

# Returns in a batch job, and in the step of a run; else starts that step and ends as it does.
enter_allocation() {
  in_allocation || return 0
  if [[ -z "${SRTGEN_IN_ALLOCATION:-}" ]]; then
    start_story
  fi
  unset SRTGEN_IN_ALLOCATION
  allocation=1
  allocation_step="${SLURM_JOB_ID}.${SLURM_STEP_ID:?}"
  # What srun would take for the new steps' own.
  unset "${!SLURM_STEP@}" "${!SLURM_SRUN_COMM_@}" SLURM_PROCID SLURM_LOCALID SLURM_GTIDS SLURM_TASK_PID SLURM_NTASKS SLURM_NPROCS
  export SLURM_NNODES="${SLURM_JOB_NUM_NODES:-1}"
  (
    while IFS= read -r _; do kill -TERM "$$" || :; done
    kill -TERM "$$"
  ) <&0 &
  helper_pids+=($!)
  exec </dev/null
}

# Starts the story and stays until it ends; exits with its code.
start_story() {
  local nodes='' first folder script child code=0 control='' stopped=0 node_options
  [[ "${job_text}" == *'JobState=RUNNING '* ]] || refuse "allocation ${SLURM_JOB_ID} is not running"
  [[ ! "${job_text}" =~ [[:space:]]NodeList=([^[:space:]]+) ]] || nodes="${BASH_REMATCH[1]}"
  nodes="$(scontrol show hostnames "${nodes}")" || refuse "allocation ${SLURM_JOB_ID} has no nodes"
  first="${nodes%%$'\n'*}"
  # shellcheck disable=SC2086  # a list of hosts
  read_loose_hosts ${nodes}
  bind_step "${first}"
  script="${BUNDLE}/run.sbatch"
  ! is_single || script="${BUNDLE}.sbatch"
  unset SLURM_EXPORT_ENV # else the step loses its environment
  export SRTGEN_IN_ALLOCATION=1 SRTGEN_BUNDLE_DIR="${BUNDLE}"
  ! is_single || send_to_first "${first}" "${script}"
  folder="$(mktemp -d)"
  mkfifo -- "${folder}/control"
  trap 'hand_on' INT TERM HUP
  set -m # a process group of its own: a terminal's signals are for this shell alone
  srun --job-name=srtgen --overlap --nodes=1 --ntasks=1 "${node_options[@]}" --wait=0 --mpi=none --chdir=/ \
    --export=ALL bash -c "${STORY}" srtgen "${script}" <"${folder}/control" &
  child=$!
  set +m
  exec {control}>"${folder}/control"
  rm -r -- "${folder}"
  trap '' PIPE
  ((stopped == 0)) || hand_on # before there was a pipe
  # A signal ends a wait, not the step, whose code bash keeps.
  while wait "${child}" || (($? > 128)) && kill -0 "${child}" 2>/dev/null; do :; done
  wait "${child}" || code=$?
  ((code > 1)) || check_node_lives # 1 is srun's own, no code of a run
  exit "${code}"
}

# A script that carries its bundle is seen here only: HOST gets a copy at PATH.
send_to_first() {
  local host="$1" path="$2" node_options
  bind_step "${host}"
  # shellcheck disable=SC2016  # expands on the node
  srun --job-name=bundle --overlap --nodes=1 --ntasks=1 "${node_options[@]}" --mpi=none --chdir=/ --export=ALL \
    bash -c 'umask 077; cat >"$1"' srtgen "${path}" <"${SINGLE_FILE}" || refuse "the script cannot be copied to ${host}"
}

# A signal for the story. The end of this shell ends the pipe, which says the same.
# shellcheck disable=SC2329  # the trap calls it
hand_on() {
  stopped=1
  [[ -z "${control}" ]] || { printf 'stop\n' >&"${control}"; } 2>/dev/null || :
}

# srun ends with 0, since Slurm 24 with 1, when its node dies; then Slurm ends the allocation too.
check_node_lives() {
  local state
  state="$(squeue --noheader "--jobs=${SLURM_JOB_ID}" --format=%T 2>/dev/null)" || state=''
  [[ "${state}" == RUNNING ]] || {
    printf 'run.sbatch: the allocation ended (%s) before the run did\n' "${state:-gone}" >&2
    exit 11
  }
}

# Where the story runs, for stop.sh and status.sh; and what is different in an allocation.
join_allocation() {
  ((allocation)) || return 0
  trap 'note_signal TERM' HUP
  printf '%s %s %s %s\n' "${allocation_step}" "${SLURMD_NODENAME:?}" "$$" "${SRTGEN_RUN}" >"${job_folder}/.allocation"
  printf '%s\n' "$$" >"${run_folder}/pid"
  read_allocation_end
  log "in allocation ${SLURM_JOB_ID}, as step ${allocation_step}: the directives of run.sbatch are not applied"
  if [[ -z "${allocation_end}" ]]; then
    log 'the allocation has no time limit'
  elif ((allocation_end > SECONDS)); then
    log "the allocation leaves $((allocation_end - SECONDS)) s until this run must stop"
  else
    fail 10 'nodes: the allocation ends too soon for a run'
  fi
}

# Sets REPLY to the seconds of Slurm's [DAYS-][[HOURS:]MINUTES:]SECONDS; fails for anything else, as UNLIMITED.
duration_s() {
  local text="$1" days=0 part parts=()
  [[ "${text}" =~ ^([0-9]+-)?[0-9]+(:[0-9]+)*$ ]] || return 1
  [[ "${text}" != *-* ]] || days="${text%%-*}"
  IFS=: read -r -a parts <<<"${text##*-}"
  REPLY=0
  for part in "${parts[@]}"; do REPLY=$((REPLY * 60 + 10#${part})); done
  REPLY=$((REPLY + 10#${days} * 86400))
}

# Sets allocation_end: a tenth of the time limit before the end, at most LONGEST_LEAD_S, as for a batch job.
read_allocation_end() {
  local left limit lead="${LONGEST_LEAD_S}"
  allocation_ask=$((SECONDS + ASK_S))
  IFS='|' read -r left limit < <(squeue --noheader "--jobs=${SLURM_JOB_ID}" --format='%L|%l' 2>/dev/null) || return 0
  if duration_s "${limit}" && ((REPLY / 10 < lead)); then lead=$((REPLY / 10)); fi
  if duration_s "${left}"; then
    allocation_end=$((SECONDS + REPLY - lead))
  else
    allocation_end=''
  fi
}

# Asks for the end of the run when the allocation's is near, as the signal of a batch job does.
check_allocation_end() {
  ((allocation)) || return 0
  ((SECONDS < allocation_ask)) || read_allocation_end
  [[ -z "${allocation_end}" ]] || ((SECONDS < allocation_end)) || stop_signal="${stop_signal:-USR1}"
}

# Of a larger allocation the first nodes are used.
trim_allocation() {
  ((allocation && ${#node_hosts[@]} > PLAN_NODES)) || return 0
  node_hosts=("${node_hosts[@]:0:PLAN_NODES}")
  log "nodes: the allocation has more than the plan needs, used are ${node_hosts[*]}"
}

# Prints "PID FOLDER" of each other run in the allocation; PID is 0 if it was killed.
other_runs() {
  local other pid
  for other in "/tmp/srtgen-run-${SLURM_JOB_ID}."*; do
    [[ "${other}" != "${run_folder}" ]] || continue
    { read -r pid <"${other}/pid"; } 2>/dev/null || continue
    { kill -0 "${pid}" && grep -q run.sbatch "/proc/${pid}/cmdline"; } 2>/dev/null || pid=0
    printf '%s %s\n' "${pid}" "${other}"
  done
}

# The steps of a run that was killed live on, as its allocation does: they hold the ports.
clean_killed_runs() {
  local pid other all=() IFS=$' \n'
  ((allocation)) || return 0
  mapfile -t all < <(scontrol show hostnames "${SLURM_JOB_NODELIST}")
  while read -r pid other; do
    ((pid == 0)) || continue
    log "cleaning up after ${other##*/}, which was killed"
    IFS=,
    SRTGEN_RUN="${other##*/}" clean_hosts "${all[*]}" "${run_folder}/clean_killed" || warn "could not clean up after ${other##*/}"
    IFS=$' \n'
    rm -rf -- "${other}"
  done < <(other_runs)
}

# One run at a time in an allocation, whatever its ports: work folders and container names go by the allocation's id.
# The older one stays.
check_alone() {
  local pid other
  ((allocation)) || return 0
  while read -r pid other; do
    ((pid == 0)) || [[ "${other}/pid" -nt "${run_folder}/pid" ]] ||
      fail 10 "nodes: another run is going on in allocation ${SLURM_JOB_ID}: pid ${pid} on ${SLURMD_NODENAME:-}"
  done < <(other_runs)
}
