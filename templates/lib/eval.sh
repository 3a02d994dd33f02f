# The two halves of eval/run.sh; sourced by it.
# shellcheck shell=bash

eval_lib="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
readonly eval_lib

# Packages and task data. Ends the step with 22 if they can't be had: the job need not wait for the weights.
eval_prepare() {
  eval_script eval_prepare
  trap 'exit 143' TERM
  trap 'exit 130' INT
}

# Run a script of ours so that a signal reaches it and is not waited out; ends the step if it fails.
eval_script() {
  local script="$1" child rc=0
  python3 -BsE "${eval_lib}/${script}.py" &
  child=$!
  trap 'kill -TERM "${child}" 2>/dev/null || :; wait "${child}" || :; exit 143' TERM INT
  wait "${child}" || rc=$?
  trap - TERM INT
  ((rc == 0)) || exit "${rc}"
}

# The evaluation itself; ends the step with its code.
eval_measure() {
  if [[ "${EVAL_COMMAND:-0}" == 1 ]]; then
    eval_script eval_command
  else
    eval_script eval_run
  fi
  exit 0
}
