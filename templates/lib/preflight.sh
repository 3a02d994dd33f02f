# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# Before anything loads: one step on all nodes at once, its report as a table, one address per node.

readonly PREFLIGHT_LIMIT_S=300 # beside the wait for GPU memory and image pulls

node_hosts=() # by plan index
declare -A check_status=() # "host name" -> ok fail note skip
declare -A check_text=()
declare -A node_done=()
declare -A node_facts=()   # host -> JSON members

# Reads the allocation into node_hosts; the count must be the plan's whatever sbatch was told.
read_nodes() {
  mapfile -t node_hosts < <(scontrol show hostnames "${SLURM_JOB_NODELIST}")
  read_loose_hosts "${node_hosts[@]}"
  trim_allocation
  if ((${#node_hosts[@]} != PLAN_NODES)) && ! check_skipped nodes; then
    ((allocation == 0)) || fail 10 "nodes: the allocation has ${#node_hosts[@]} nodes, the plan needs ${PLAN_NODES}"
    fail 10 "nodes: the job has ${#node_hosts[@]} nodes, the plan needs ${PLAN_NODES} (was -N given to sbatch?)"
  fi
  ((${#node_hosts[@]} >= PLAN_NODES)) || fail 10 "nodes: ${#node_hosts[@]} nodes cannot hold the plan of ${PLAN_NODES}"
}

# Names that the job's submitter had to set; values are not looked at.
check_required_environment() {
  local name missing='' passed=()
  read -r -d '' -a passed <<<"${SRTGEN_PASS_ENV:-}" || :
  for name in "${passed[@]}"; do
    [[ "${name}" =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] ||
      fail 10 "SRTGEN_PASS_ENV: ${name} is no name of a variable; give names with blanks between them, no values"
  done
  for name in "${PLAN_REQUIRE_ENV[@]}"; do
    [[ -n "${!name:+set}" ]] || missing+=" ${name}"
  done
  [[ -z "${missing}" ]] || fail 10 "not set when the job was submitted:${missing}"
}

# Sets check_arguments to the plan as node_check.py wants it.
collect_check_arguments() {
  local host line name
  check_arguments=(
    --bundle "${BUNDLE}"
    --results "${results_seen}"
    --runtime "${PLAN_RUNTIME}"
    "--interface=${PLAN_INTERFACE}"
    "--transport=${PLAN_TRANSPORT}"
    "--ib-device=${PLAN_IB_DEVICE}"
    "--gid-index=${PLAN_RDMA_GID_INDEX}"
    "--cpus-per-task=${PLAN_CPUS_PER_TASK}"
    --gpus "${PLAN_GPUS_PER_NODE}"
    --drain "${PLAN_GPU_DRAIN_TIMEOUT_S}"
    --concurrency "${PLAN_BENCH_MAX_CONCURRENCY}"
    --strict "${SRTGEN_STRICT:-0}"
    "--jit-cache=${PLAN_JIT_CACHE:-}"
  )
  collect_weight_arguments
  check_arguments+=("${weight_arguments[@]}")
  for host in "${node_hosts[@]}"; do check_arguments+=(--host "${host}"); done
  for line in "${PLAN_MOUNTS[@]}"; do check_arguments+=("--mount=${line}"); done
  for line in "${PLAN_LISTEN[@]}"; do check_arguments+=(--listen "${line}"); done
  for line in "${PLAN_PREFLIGHT_COMMANDS[@]}"; do check_arguments+=("--command=${line}"); done
  for name in "${!PLAN_IMAGE[@]}"; do
    is_staged "${PLAN_IMAGE[${name}]}" || check_arguments+=("--image=${PLAN_IMAGE[${name}]}")
  done
  collect_staging_tools
  for name in "${result_skipped[@]}"; do check_arguments+=("--skip=${name}"); done
  while read -r host line; do
    [[ -z "${host}" ]] || check_arguments+=("--node-cpus=${host}=${line}")
  done < <(sinfo --noheader --Node --nodes="${SLURM_JOB_NODELIST}" --format='%N %c' 2>/dev/null)
  for line in "${engine_options[@]}"; do check_arguments+=("--engine-option=${line}"); done
  collect_probes
  keeps_containers || return 0
  while read -r line; do
    [[ -z "${line}" ]] || check_arguments+=("--running-job=${line}")
  done < <(squeue --noheader --format=%A 2>/dev/null)
}

# The step itself, in the background: its report goes to the batch node's own disk.
run_preflight() {
  local report="$1" node_options IFS=,
  bind_step "${node_hosts[*]}"
  local argv=(
    srun --job-name=preflight --overlap "--nodes=${#node_hosts[@]}" "--ntasks=${#node_hosts[@]}" --ntasks-per-node=1
    "${node_options[@]}" --kill-on-bad-exit=0 --wait=0 --mpi=none --chdir=/ --export=ALL
  )
  [[ -z "${PLAN_CPUS_PER_TASK:-${SLURM_CPUS_PER_TASK:-}}" ]] ||
    argv+=("--cpus-per-task=${PLAN_CPUS_PER_TASK:-${SLURM_CPUS_PER_TASK}}")
  "${argv[@]}" bash -c "$(<"${BUNDLE}/lib/node_check.sh")" node_check "${BUNDLE}" "${PLAN_ID}" \
    "${check_arguments[@]}" </dev/null >"${report}" 2>&1
}

# Reads the report lines of FILE into the tables.
read_report() {
  local report="$1" host kind name status text
  while IFS=$'\t' read -r host kind name status text; do
    case "${kind}" in
      check)
        check_status["${host} ${name}"]="${status}"
        check_text["${host} ${name}"]="${text}"
        ;;
      address) candidates["${host}"]+="${name} ${status} ${text}"$'\n' ;;
      fact) add_fact "${host}" "${name}" "${status}" ;;
      modified) [[ " ${result_modified[*]} " == *" ${name} "* ]] || result_modified+=("${name}") ;;
      end) node_done["${host}"]=1 ;;
      *) [[ -z "${host}" ]] || log "preflight: ${host}${kind:+ ${kind}}" ;; # srun's own words
    esac
  done <"${report}"
}

# Keeps a fact of HOST for identity.json.
add_fact() {
  local host="$1" json
  json_string "$2"
  json="${REPLY}"
  json_string "$3"
  node_facts["${host}"]+="${node_facts["${host}"]:+,}${json}:${REPLY}"
}

# What the nodes are, beside the results: numbers compare only where these are equal.
write_identity() {
  local host json=''
  for host in "${node_hosts[@]}"; do
    json_string "${host}"
    json+="${json:+,}${REPLY}:{${node_facts["${host}"]:-}}"
  done
  { printf '{"nodes":{%s}}\n' "${json}" >"${job_folder}/identity.json"; } 2>/dev/null || warn 'cannot write identity.json'
}

# Logs the table nodes x checks, then the texts that matter. Sets preflight_failure to the first failure.
show_report() {
  local host name line key
  collect_check_names
  preflight_failure=''
  line='node'
  for name in "${check_names[@]}"; do line+=" ${name}"; done
  log "preflight: ${line}"
  for host in "${node_hosts[@]}"; do
    line="${host}"
    for name in "${check_names[@]}"; do line+=" ${check_status["${host} ${name}"]:--}"; done
    log "preflight: ${line}"
  done
  for host in "${node_hosts[@]}"; do
    for name in "${check_names[@]}"; do
      key="${host} ${name}"
      case "${check_status["${key}"]:-}" in
        fail) note_failure "${name} on ${host}: ${check_text["${key}"]}" "${host}" ;;
        note) log "preflight: ${name} on ${host}: ${check_text["${key}"]}" ;;
      esac
    done
    [[ -n "${node_done["${host}"]:-}" ]] || note_failure "${host} did not finish its checks" "${host}"
  done
}

# Logs a failure; the first one is the job's reason.
note_failure() {
  log "preflight: FAILED: $1"
  { printf 'FAILED\t%s\n' "$1" >>"${job_folder}/logs/preflight.log"; } 2>/dev/null || :
  [[ -n "${preflight_failure}" ]] || {
    preflight_failure="$1"
    preflight_node="$2"
  }
}

# pyxis has no program of its own; srun must know its options.
check_pyxis() {
  [[ "${PLAN_RUNTIME}" == pyxis ]] || return 0
  check_skipped tools || [[ "$(srun --help 2>&1)" == *--container-image* ]] ||
    fail 10 'tools: srun knows no --container-image: pyxis is not installed on this cluster'
}

preflight() {
  local report="${run_folder}/preflight" deadline=$((SECONDS + PREFLIGHT_LIMIT_S + PLAN_GPU_DRAIN_TIMEOUT_S))
  ! keeps_containers || deadline=$((deadline + 1800))
  check_required_environment
  check_pyxis
  check_eval_offline
  check_eval_folders
  collect_engine_options
  collect_check_arguments
  start_task preflight run_preflight "${report}"
  while [[ -z "${task_code[preflight]:-}" ]]; do
    pump 1
    ((SECONDS < deadline)) || break
  done
  read_report "${report}"
  cp -- "${report}" "${job_folder}/logs/preflight.log" 2>/dev/null || :
  show_report
  ((${#result_modified[@]} == 0)) || warn "edited since generation: ${result_modified[*]}"
  [[ -z "${preflight_failure}" ]] || fail 10 "preflight: ${preflight_failure}" preflight "${preflight_node}"
  choose_addresses
  write_nodes_tsv
  write_identity
}
