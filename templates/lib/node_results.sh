# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# Where results are. With a bundle of one file each node has a folder of its own: files of the others are fetched, and in
# the end there is one archive on the first node.

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
  local host="$1" node_options
  shift
  bind_step "${host}"
  timeout -k 1 30 srun --job-name=results --overlap --nodes=1 --ntasks=1 "${node_options[@]}" --wait=0 --mpi=none --chdir=/ \
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
