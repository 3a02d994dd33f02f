# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# How a step's command gets into its container: one function per runtime, which adds to step_argv.
# Arguments of each: step name, role, script of the bundle, its argument.

# Run inside the container first: the bundle is mounted there and only there.
# shellcheck disable=SC2016  # expands inside the container
readonly IN_CONTAINER_PROOF='[[ -r "$1" ]] || {
  printf "srtgen: not in a container: is the container runtime (pyxis) loaded on node %s?\n" "${SLURMD_NODENAME:-}" >&2
  exit 71
}
exec bash "$@"'

# Sets container_mounts to the mounts of every container of the job, src:dst[:ro].
collect_mounts() {
  container_mounts=(
    "${BUNDLE}:/srtgen:ro"
    "${results_seen}:/srtgen-results"
    "${results_seen}/logs:/logs"
    "${PLAN_MOUNTS[@]}"
  )
}

# Where processes of the job find the bundle and the results.
export_locations() {
  if [[ "${PLAN_RUNTIME}" == none ]]; then
    export SRTGEN_BUNDLE="${BUNDLE}" SRTGEN_RESULTS="${results_seen}"
  else
    export SRTGEN_BUNDLE=/srtgen SRTGEN_RESULTS=/srtgen-results
  fi
  export SRTGEN_RESULTS_HOST="${results_seen}" SRTGEN_STEP='' SRTGEN_TURN=0 # a step sets its own
}

# True if the plan has container option OPTION, with or without a value.
has_option() {
  local option="$1" given
  for given in "${PLAN_CONTAINER_OPTIONS[@]}" "${PLAN_SRUN_OPTIONS[@]}"; do
    [[ "${given%%=*}" != "${option}" ]] || return 0
  done
  return 1
}

pyxis_step() {
  local role="$2" script="$3" argument="$4" IFS=,
  step_argv+=(
    "--container-image=${PLAN_IMAGE[${role}]}"
    "--container-mounts=${container_mounts[*]}"
  )
  # A home folder from the host brings caches of other images; entry points are the image's business.
  has_option --container-mount-home || step_argv+=(--no-container-mount-home)
  has_option --container-entrypoint || step_argv+=(--no-container-entrypoint)
  has_option --container-readonly || has_option --container-writable || step_argv+=(--container-writable)
  step_argv+=(
    "${PLAN_CONTAINER_OPTIONS[@]}"
    bash -c "${IN_CONTAINER_PROOF}" srtgen "/srtgen/${script}" "${argument}"
  )
}

docker_step() {
  local name="$1" role="$2" script="$3" argument="$4" mount option user
  user="$(id -u):$(id -g)"
  ((PLAN_CONTAINER_ROOT == 0)) || user=0:0
  step_argv+=(
    bash "${BUNDLE}/lib/docker_step.sh" "srtgen-${SLURM_JOB_ID}-${name}"
    --user "${user}"
    --label "srtgen.job=${SLURM_JOB_ID}"
    --label "srtgen.uid=$(id -u)"
  )
  for option in "${export_names[@]}"; do
    # The image's own PATH and HOME are the right ones inside.
    [[ "${option}" == PATH || "${option}" == HOME ]] || step_argv+=(--env "${option}")
  done
  for mount in "${container_mounts[@]}"; do step_argv+=(--volume "${mount}"); done
  step_argv+=(
    "${PLAN_CONTAINER_OPTIONS[@]}"
    "${PLAN_IMAGE[${role}]}"
    bash -c "${IN_CONTAINER_PROOF}" srtgen "/srtgen/${script}" "${argument}"
  )
}

none_step() {
  local script="$3" argument="$4"
  step_argv+=(bash "${BUNDLE}/lib/host_step.sh" "${BUNDLE}/${script}" "${argument}")
}
