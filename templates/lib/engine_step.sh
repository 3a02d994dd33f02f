#!/usr/bin/env bash
# A step in a container of docker or podman: engine_step.sh NAME PROGRAM OPTION... run OPTION... IMAGE COMMAND...
# Stays as the container's parent, because killing the client leaves the container running:
# on TERM it stops the container and removes it, and it removes it in any case.
set -Eeuo pipefail
shopt -s inherit_errexit

readonly STOP_S=2 # from TERM to KILL: with the removal it must fit into Slurm's KillWait, which may be 5

engine=(false) # the program: never empty, for "rm" is a program too

# Sets engine to the words before "run", and run_options to those behind it.
split_command() {
  engine=()
  while [[ "$1" != run ]]; do
    engine+=("$1")
    shift
  done
  shift
  run_options=("$@")
}

# True if the program has only the user's own rights, and not a daemon's.
has_own_rights() {
  [[ " ${run_options[*]} " == *' keep-groups '* ]]
}

# Sets limit_options: a daemon grants any limit, a user's own program only what the user has.
collect_limits() {
  limit_options=(--ulimit memlock=-1:-1 --ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)")
  ! has_own_rights || limit_options=(--ulimit host)
}

# Sets device_options to what of the GPU and RDMA devices this node has, with the groups that own them.
collect_devices() {
  local path group
  local -A groups=()
  device_options=()
  for path in /dev/kfd /dev/dri /dev/infiniband; do
    [[ ! -e "${path}" ]] || device_options+=(--device "${path}")
  done
  ! has_own_rights || return 0 # keep-groups excludes all others
  for path in /dev/kfd /dev/dri/render* /dev/dri/card* /dev/infiniband/*; do
    [[ -e "${path}" ]] || continue
    group="$(stat -c %g -- "${path}")"
    [[ -z "${groups[${group}]:-}" ]] || continue
    groups["${group}"]=1
    device_options+=(--group-add "${group}") # numeric: the image's group names may differ
  done
}

# Sets slurm_options to the names of Slurm's variables: nothing is passed by itself.
collect_slurm_names() {
  local name
  slurm_options=()
  for name in SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES SLURM_NODEID SLURM_PROCID SLURMD_NODENAME; do
    [[ -z "${!name+set}" ]] || slurm_options+=(--env "${name}")
  done
}

remove_container() {
  local name="$1"
  "${engine[@]}" rm --force -- "${name}" >/dev/null 2>&1 || :
}

# Ends container NAME for good, without waiting for anything that may be slow: Slurm kills this shell soon.
# shellcheck disable=SC2329  # the trap calls it
on_term() {
  local name="$1"
  trap '' TERM INT HUP
  stopping=1
  timeout -k 0.5 "${STOP_S}.5" "${engine[@]}" stop -t "${STOP_S}" -- "${name}" >/dev/null 2>&1 || :
  remove_container "${name}"
  [[ -z "${child}" ]] || kill -TERM "${child}" 2>/dev/null || :
}

main() {
  local name="$1" child='' code=0 stopping=''
  shift
  split_command "$@"
  collect_devices
  collect_limits
  collect_slurm_names
  trap 'on_term "${name}"' TERM INT HUP
  remove_container "${name}" # of an earlier attempt of this very job
  [[ -z "${stopping}" ]] || exit 143
  "${engine[@]}" run \
    --name "${name}" \
    --init \
    --interactive \
    --network host \
    --ipc host \
    --cap-add SYS_PTRACE \
    --security-opt seccomp=unconfined \
    --entrypoint '' \
    --env TMPDIR=/tmp \
    "${limit_options[@]}" "${device_options[@]}" "${slurm_options[@]}" "${run_options[@]}" <&0 &
  child=$!
  while :; do
    code=0
    wait "${child}" || code=$?
    # A signal ends the wait, not the client.
    if ((code <= 128)) || ! kill -0 "${child}" 2>/dev/null; then break; fi
  done
  remove_container "${name}"
  exit "${code}"
}

main "$@"
