# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# A bundle that travels inside run.sbatch (SINGLE_FILE), because the nodes share no file system: it is handed to the other
# nodes, each has a results folder of its own, and in the end there is one archive on the first node.

readonly HAND_OVER_S=120

keeper_hosts=() # all nodes of the allocation but the first
script_sent=0   # 1: the script, or a part of it, may lie on them
keeper_fd=''    # open as long as the keepers (keeper.sh) have to keep the bundle

# True if this job's bundle came with its script.
is_single() {
  [[ -n "${SINGLE_FILE:-}" ]]
}

# Sets REPLY to where results go unless they are told: the submit folder need not exist here.
default_results() {
  REPLY="${BUNDLE}/results"
  is_single || return 0
  REPLY="/tmp/srtgen-results-${EUID}"
  [[ ! -d "${SLURM_SUBMIT_DIR:-}" || ! -w "${SLURM_SUBMIT_DIR}" ]] || REPLY="${SLURM_SUBMIT_DIR}/results"
}

# Sets results_seen to the results folder as steps find it on their host: the same path on each node, here a link.
place_results() {
  results_seen="${job_folder}"
  is_single || return 0
  results_seen="${BUNDLE}/results"
  ln -s -- "${job_folder}" "${results_seen}"
}

# Gives the other nodes the bundle; ends the job, naming the node, if one does not get it.
hand_over_bundle() {
  is_single || return 0
  remove_old_bundles
  mapfile -t keeper_hosts < <(scontrol show hostnames "${SLURM_JOB_NODELIST}" | tail -n +2)
  ((${#keeper_hosts[@]})) || return 0
  log "handing the bundle over to ${keeper_hosts[*]}"
  script_sent=1
  start_task sbcast send_script "${run_folder}/sbcast"
  await_task sbcast
  check_sbcast "${task_code[sbcast]:-124}" "${run_folder}/sbcast"
  : >"${run_folder}/keeper"
  open_turn keeper "${run_folder}"
  keeper_fd="${turn_fd[keeper]}"
  start_task keeper run_keepers "${run_folder}/keeper"
  await_keepers "${run_folder}/keeper"
}

# Prints the ids of the user's jobs that are there; fails if Slurm does not answer.
own_jobs() {
  squeue --noheader "--user=${EUID}" --format=%A
}

# Jobs that could not clean up after themselves left bundles on this node; the keepers look on theirs.
remove_old_bundles() {
  local jobs
  jobs="$(own_jobs 2>/dev/null)" || return 0
  bash "${BUNDLE}/lib/keeper.sh" old "${jobs}" || :
}

send_script() {
  sbcast "${SINGLE_FILE}" "${BUNDLE}.sbatch" >"$1" 2>&1
}

# Waits for task NAME, at most HAND_OVER_S.
await_task() {
  local name="$1" end=$((SECONDS + HAND_OVER_S))
  while [[ -z "${task_code["${name}"]:-}" ]] && ((SECONDS < end)); do pump 1; done
}

# sbcast names the node: "REQUEST_FILE_BCAST(node02): No space left on device".
check_sbcast() {
  local code="$1" said node=''
  ((code != 0)) || return 0
  said="$(grep -v '^$' -- "$2" 2>/dev/null | head -n 1)" || said=''
  [[ ! "${said}" =~ \(([^\)]+)\) ]] || node="${BASH_REMATCH[1]}"
  fail 10 "bundle: it cannot be copied to ${node:-the other nodes}: ${said:-sbcast ended with code ${code}}" '' "${node}"
}

# The step that unpacks the bundle on the other nodes and removes it when the job is over.
run_keepers() {
  local jobs IFS=,
  jobs="$(own_jobs 2>/dev/null)" || jobs=all
  srun --job-name=bundle --overlap "--nodes=${#keeper_hosts[@]}" "--ntasks=${#keeper_hosts[@]}" --ntasks-per-node=1 \
    "--nodelist=${keeper_hosts[*]}" --kill-on-bad-exit=0 --wait=0 --mpi=none --chdir=/ --export=ALL \
    bash -c "$(<"${BUNDLE}/lib/keeper.sh")" keeper keep "${BUNDLE}" "${BUNDLE_SHA256}" "${UNPACK}" "${jobs}" \
    <"${run_folder}/turn_keeper" >"$1" 2>&1
}

# Waits until each other node has said that it has the bundle.
await_keepers() {
  local report="$1" end=$((SECONDS + HAND_OVER_S)) host kind text ready
  while :; do
    ready=' '
    while IFS=$'\t' read -r host kind text; do
      [[ "${kind}" != fail ]] || fail 10 "bundle: on ${host}: ${text}" '' "${host}"
      [[ "${kind}" != ok ]] || ready+="${host} "
    done <"${report}"
    for host in "${keeper_hosts[@]}"; do
      [[ "${ready}" == *" ${host} "* ]] || break
      host=''
    done
    [[ -n "${host}" ]] || return 0
    ((SECONDS < end)) && [[ -z "${task_code[keeper]:-}" ]] ||
      fail 10 "bundle: ${host} does not take it: $(grep -v $'\t' -- "${report}" | head -n 1)" '' "${host}"
    pump 0.5
  done
}

# True if the client works on another node than this: then its files are here only once they are fetched.
client_is_far() {
  is_single && ((PLAN_BENCH_NODE != 0))
}

# Fetches the client's files, if they are elsewhere.
fetch_client() {
  ! client_is_far || fetch_results "${node_hosts[${PLAN_BENCH_NODE}]}" "${job_folder}"
}

# Gives a far client what it says about the job beside its figures.
send_identity() {
  client_is_far || return 0
  python3 -E -s -B "${BUNDLE}/lib/results_tar.py" pack "${job_folder}" manifest.json result.json nodes.tsv identity.json |
    on_node "${node_hosts[${PLAN_BENCH_NODE}]}" unpack "${BUNDLE}/results" 2>/dev/null || warn 'the client was not told what the nodes are'
}

# Runs results_tar.py with ARGUMENTS on HOST.
on_node() {
  local host="$1"
  shift
  timeout -k 1 30 srun --job-name=results --overlap --nodes=1 --ntasks=1 "--nodelist=${host}" --wait=0 --mpi=none --chdir=/ \
    --export=ALL python3 -E -s -B "${BUNDLE}/lib/results_tar.py" "$@"
}

# Copies what lies in HOST's own results folder into FOLDER.
fetch_results() {
  local host="$1" folder="$2" archive="${run_folder}/fetched"
  if ! on_node "${host}" pack "${BUNDLE}/results" </dev/null >"${archive}" 2>/dev/null ||
    ! python3 -E -s -B "${BUNDLE}/lib/results_tar.py" unpack "${folder}" <"${archive}"; then
    warn "cannot fetch results from ${host}"
  fi
}

# At the end of the job, while steps can still be started: files of the other nodes, then the keepers may go.
leave_nodes() {
  local host end=$((SECONDS + 10))
  if [[ -z "${keeper_fd}" ]]; then
    ((script_sent == 0)) || drop_copies
    return 0
  fi
  for host in "${keeper_hosts[@]}"; do
    if client_is_far && [[ "${host}" == "${node_hosts[${PLAN_BENCH_NODE}]}" ]]; then
      fetch_results "${host}" "${job_folder}"
    else
      fetch_results "${host}" "${job_folder}/nodes/${host}"
    fi
  done
  release_keepers
  while [[ -z "${task_code[keeper]:-}" ]] && ((SECONDS < end)); do drain 0.2; done
  [[ -n "${task_code[keeper]:-}" ]] || kill_task keeper
}

# Removes what sbcast brought when no keeper came to do it.
drop_copies() {
  local IFS=,
  timeout -k 1 15 srun --job-name=bundle --overlap "--nodes=${#keeper_hosts[@]}" "--ntasks=${#keeper_hosts[@]}" --ntasks-per-node=1 \
    "--nodelist=${keeper_hosts[*]}" --wait=0 --mpi=none --chdir=/ --export=ALL rm -f -- "${BUNDLE}.sbatch" </dev/null >/dev/null 2>&1 ||
    warn "could not remove ${BUNDLE}.sbatch from ${keeper_hosts[*]}"
}

# The end of their input tells the keepers to go.
release_keepers() {
  exec {keeper_fd}>&-
  unset -v 'turn_fd[keeper]'
  keeper_fd=''
}

kill_task() {
  step_role["$1"]="$1" # kill_srun goes by task, whatever it is
  kill_srun TERM "$1"
}

# Packs the results, says where they are, and removes the bundle from this node.
pack_and_leave() {
  local archive host from
  is_single || return 0
  archive="${job_folder}.tar.gz"
  host="${SLURMD_NODENAME:-$(uname -n)}"
  if python3 -E -s -B "${BUNDLE}/lib/results_tar.py" save "${job_folder}" "${archive}"; then
    printf -v from '%q' "${archive}"
    log "all results: ${archive} on ${host}"
    log "fetch them: srun -N1 -n1 --nodelist=${host} cat ${from} >${archive##*/}   (or scp ${host}:${from} .)"
  else
    log "warning: the results could not be packed: they are in ${job_folder} on ${host}"
  fi
  rm -rf -- "${BUNDLE:?}" "${BUNDLE}.sbatch"
  ((allocation == 0)) || rm -f -- "${SINGLE_FILE}"
}
