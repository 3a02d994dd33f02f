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

engine_options=()  # of docker or podman, before their command
container_names=() # variables that a container gets

# True if the runtime is a program that keeps images and containers, which outlive the processes that start them.
keeps_containers() {
  [[ "${PLAN_RUNTIME}" == docker || "${PLAN_RUNTIME}" == podman ]]
}

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

# Sets engine_options to where podman keeps images and containers: a folder of this user on the node's own disk. The
# defaults lie in the home folder, which is on a network, and below /run/user, which is there only while the user is
# logged in. Its cgroups are Slurm's: asked to use systemd, podman would move the step out of them.
collect_engine_options() {
  local folder
  engine_options=()
  [[ -n "${PLAN_CONTAINER_STORAGE:-}" ]] || return 0
  folder="${PLAN_CONTAINER_STORAGE}/srtgen-$(id -u)"
  export XDG_RUNTIME_DIR="${folder}/run"
  engine_options=(--root "${folder}/storage" --runroot "${folder}/run" --cgroup-manager cgroupfs)
}

# Sets container_names to the variables that a container gets by name: PATH and HOME are the image's, and what the
# host's runtime reads is none of its business.
collect_container_names() {
  local name
  container_names=()
  for name in "${export_names[@]}"; do
    case "${name}" in
      PATH | HOME | XDG_RUNTIME_DIR | ENROOT_* | DOCKER_* | CONTAINERS_* | APPTAINER_*) ;;
      *) container_names+=("${name}") ;;
    esac
  done
}

# Adds engine_step.sh for PROGRAM with what docker and podman have in common; arguments behind the usual four are its own.
engine_step() {
  local program="$1" name="$2" role="$3" script="$4" argument="$5" option mount
  shift 5
  collect_container_names
  step_argv+=(
    bash "${BUNDLE}/lib/engine_step.sh" "srtgen-${SLURM_JOB_ID}-${name}"
    "${program}" "${engine_options[@]}" run
    --label "srtgen.job=${SLURM_JOB_ID}"
    --label "srtgen.uid=$(id -u)"
    "$@"
  )
  for option in "${container_names[@]}"; do step_argv+=(--env "${option}"); done
  for mount in "${container_mounts[@]}"; do step_argv+=(--volume "${mount}"); done
  step_argv+=(
    "${PLAN_CONTAINER_OPTIONS[@]}"
    "${PLAN_IMAGE[${role}]}"
    bash -c "${IN_CONTAINER_PROOF}" srtgen "/srtgen/${script}" "${argument}"
  )
}

docker_step() {
  local user
  user="$(id -u):$(id -g)"
  ((PLAN_CONTAINER_ROOT == 0)) || user=0:0
  engine_step docker "$@" --user "${user}"
}

# A user's podman has that user's rights. keep-groups: the groups that may open the devices; numbers do not work there
# (podman-run(1)). keep-id: else the user's number inside is another one outside, which may not write the results; not
# for root, who needs no user namespace and is refused one.
podman_step() {
  local user options=(--group-add keep-groups)
  user="$(id -u):$(id -g)"
  if ((PLAN_CONTAINER_ROOT)); then
    user=0:0
  elif [[ "${user}" != 0:* ]]; then
    options+=(--userns keep-id)
  fi
  # Its cgroup stays the step's; SELinux would refuse what is mounted; the step's log is the log.
  options+=(--cgroups disabled --security-opt label=disable --log-driver none --pull never)
  engine_step podman "$@" --user "${user}" "${options[@]}"
}

# Sets REPLY to a mount as apptainer's --mount wants it: fields of a CSV line. (--bind splits paths at commas.)
mount_fields() {
  local source="${1%%:*}" target="${1#*:}" mode=''
  [[ "${target}" != *:ro ]] || mode=,ro
  target="${target%:ro}"
  REPLY="type=bind,\"source=${source//\"/\"\"}\",\"destination=${target//\"/\"\"}\"${mode}"
}

apptainer_step() {
  local name="$1" role="$2" script="$3" argument="$4" mount IFS=,
  collect_container_names
  step_argv+=(
    bash "${BUNDLE}/lib/host_step.sh" "${BUNDLE}/lib/apptainer_step.sh" "${container_names[*]}"
    apptainer exec
  )
  for mount in "${container_mounts[@]}"; do
    mount_fields "${mount}"
    step_argv+=(--mount "${REPLY}")
  done
  # The image is read-only, and programs compile kernels beside their packages.
  has_option --writable-tmpfs || has_option --writable || has_option --overlay || step_argv+=(--writable-tmpfs)
  step_argv+=(
    "${PLAN_CONTAINER_OPTIONS[@]}"
    "${PLAN_IMAGE[${role}]}"
    bash -c "${IN_CONTAINER_PROOF}" srtgen "/srtgen/${script}" "${argument}"
  )
}

# Adds to check_arguments, for each image, a step that starts and ends at once (the library by itself does nothing): with a
# user's own rights a container may well not start, and a node must say so before anything loads.
collect_probes() {
  local role image step_argv word
  local -A seen=()
  [[ "${PLAN_RUNTIME}" == podman || "${PLAN_RUNTIME}" == apptainer ]] || return 0
  collect_mounts
  collect_export_names
  for role in "${!PLAN_IMAGE[@]}"; do
    image="${PLAN_IMAGE[${role}]}"
    # What apptainer does not have as a file it would import now.
    ! is_staged "${image}" || continue
    [[ -z "${seen["${image}"]:-}" && ("${PLAN_RUNTIME}" == podman || "${image}" == /*) ]] || continue
    seen["${image}"]=1
    step_argv=()
    "${PLAN_RUNTIME}_step" probe "${role}" lib/role.sh 0
    for word in "${step_argv[@]}" ''; do check_arguments+=("--probe=${word}"); done
  done
}

none_step() {
  local script="$3" argument="$4"
  step_argv+=(bash "${BUNDLE}/lib/host_step.sh" "${BUNDLE}/${script}" "${argument}")
}
