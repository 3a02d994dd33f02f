#!/usr/bin/env bash
# A step without a container: runs SCRIPT ARGUMENT and removes its work folder, also when the job is cancelled.
set -Eeuo pipefail
shopt -s inherit_errexit

main() {
  local script="$1" argument="$2" child code=0
  local folder="/tmp/srtgen-${SLURM_JOB_ID}"
  # Slurm signals every process of the step: the child needs no relay, this shell only has to outlive it.
  trap : TERM INT HUP
  bash "${script}" "${argument}" <&0 &
  child=$!
  while kill -0 "${child}" 2>/dev/null; do
    code=0
    wait "${child}" || code=$?
  done
  rm -rf -- "${folder:?}/${SRTGEN_STEP:?}"
  rmdir -- "${folder}" 2>/dev/null || : # the last step of the node
  exit "${code}"
}

main "$@"
