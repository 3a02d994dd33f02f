# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# The names of the preflight's checks, and which of them the operator skips.

readonly CHECK_NAMES=(bundle tools image model mounts disk ports gpu_count gpu_memory cpus limits rdma containers)

# Sets check_names to the names of a node's checks, those of the profile too.
collect_check_names() {
  local item
  check_names=("${CHECK_NAMES[@]}")
  for item in "${PLAN_PREFLIGHT_COMMANDS[@]}"; do check_names+=("${item%%$'\t'*}"); done
}

# What the operator skips; a misspelt name would skip nothing, and the result would say that it did.
read_skipped_checks() {
  local name names=()
  read -r -d '' -a names <<<"${SRTGEN_SKIP_CHECKS:-}" || :
  collect_check_names
  for name in "${names[@]}"; do
    [[ " nodes ${check_names[*]} " == *" ${name} "* ]] ||
      fail 10 "SRTGEN_SKIP_CHECKS: ${name} is no check; give some of these, with blanks between them: nodes ${check_names[*]}"
  done
  result_skipped=("${names[@]}")
}

# True if the operator skips check NAME.
check_skipped() {
  [[ " ${result_skipped[*]} " == *" $1 "* ]]
}
