# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# A bundle that travels inside run.sbatch (SINGLE_FILE), because the nodes share no file system: it is handed to the other
# nodes, where a step keeps it until the job is over.

readonly HAND_OVER_S=120

keeper_hosts=() # all nodes of the allocation but the first
script_sent=0   # 1: the script, or a part of it, may lie on them
keeper_fd=''    # open as long as the keepers (keeper.sh) have to keep the bundle

# True if this job's bundle came with its script.
is_single() {
  [[ -n "${SINGLE_FILE:-}" ]]
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
  local jobs node_options IFS=,
  bind_step "${keeper_hosts[*]}"
  jobs="$(own_jobs 2>/dev/null)" || jobs=all
  srun --job-name=bundle --overlap "--nodes=${#keeper_hosts[@]}" "--ntasks=${#keeper_hosts[@]}" --ntasks-per-node=1 \
    "${node_options[@]}" --kill-on-bad-exit=0 --wait=0 --mpi=none --chdir=/ --export=ALL \
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
  [[ -n "${task_code[keeper]:-}" ]] || kill_srun TERM keeper
}

# Removes what sbcast brought when no keeper came to do it.
drop_copies() {
  local node_options IFS=,
  bind_step "${keeper_hosts[*]}"
  timeout -k 1 15 srun --job-name=bundle --overlap "--nodes=${#keeper_hosts[@]}" "--ntasks=${#keeper_hosts[@]}" --ntasks-per-node=1 \
    "${node_options[@]}" --wait=0 --mpi=none --chdir=/ --export=ALL rm -f -- "${BUNDLE}.sbatch" </dev/null >/dev/null 2>&1 ||
    warn "could not remove ${BUNDLE}.sbatch from ${keeper_hosts[*]}"
}

# The end of their input tells the keepers to go.
release_keepers() {
  exec {keeper_fd}>&-
  unset -v 'turn_fd[keeper]'
  keeper_fd=''
}
