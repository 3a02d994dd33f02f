#!/usr/bin/env bash
# A step that is a process of the host: runs SCRIPT ARGUMENT... and removes its work folder, also when the job is cancelled.
set -Eeuo pipefail
shopt -s inherit_errexit

readonly LEAVE_S=3 # Slurm kills everything KillWait seconds after TERM, and that may be 5

# Removes the step's folder, and the job's with the node's last step.
remove_work() {
  local folder="/tmp/srtgen-${SLURM_JOB_ID:?}"
  rm -rf -- "${folder}/${SRTGEN_STEP:?}"
  rmdir -- "${folder}" 2>/dev/null || :
}

# Slurm signals every process of the step: the child needs no relay, this shell only has to outlive it.
# A child that does not end in time is killed together with this shell, so the folder goes before that.
# shellcheck disable=SC2329  # the trap calls it
on_term() {
  local end=$((SECONDS + LEAVE_S))
  trap '' TERM INT HUP
  while kill -0 "${child}" 2>/dev/null; do
    ((SECONDS < end)) || {
      remove_work
      return 0
    }
    sleep 0.1
  done
}

main() {
  local child code=0
  trap on_term TERM INT HUP
  bash "$@" <&0 &
  child=$!
  while :; do
    code=0
    wait "${child}" || code=$?
    # A signal ends the wait, not the child.
    if ((code <= 128)) || ! kill -0 "${child}" 2>/dev/null; then break; fi
  done
  remove_work
  exit "${code}"
}

main "$@"
