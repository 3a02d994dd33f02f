#!/usr/bin/env bash
# A step in an apptainer container: apptainer_step.sh NAME,NAME... apptainer exec OPTION... IMAGE COMMAND...
# Adds what only the node knows. The variables NAME and Slurm's reach the container by the environment, unread by any
# shell (--no-eval), because a value may hold commas, quotes and secrets.
set -Eeuo pipefail
shopt -s inherit_errexit

# Hands the variables on, as apptainer takes them (--cleanenv keeps everything else out).
export_names() {
  local name
  for name in "$@" SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES SLURM_NODEID SLURM_PROCID SLURMD_NODENAME; do
    [[ -z "${!name+set}" ]] || export "APPTAINERENV_${name}=${!name}"
  done
}

# Sets device_options to the GPU and RDMA devices of this node. Not --rocm: it brings in the host's ROCm libraries, which
# differ from those that the image was built with.
collect_devices() {
  local path
  device_options=()
  for path in /dev/kfd /dev/dri /dev/infiniband; do
    [[ ! -e "${path}" ]] || device_options+=(--bind "${path}")
  done
}

main() {
  local names folder="/tmp/srtgen-${SLURM_JOB_ID:?}/${SRTGEN_STEP:?}"
  IFS=, read -r -a names <<<"$1"
  shift
  export_names "${names[@]}"
  collect_devices
  mkdir -p -- "${folder}"
  # --workdir: what is written into /tmp lies on the host's disk, not in a tmpfs of 64 MiB (apptainer.conf).
  # --pid: whatever the command starts ends with it. --no-home: the image's own /root stays visible.
  exec "$1" "$2" \
    --contain \
    --cleanenv \
    --no-eval \
    --no-home \
    --pid \
    --pwd / \
    --workdir "${folder}" \
    "${device_options[@]}" "${@:3}"
}

main "$@"
