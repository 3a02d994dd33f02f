# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# From ready workers to a system that answers: router, versions, transport, canary.

readonly ROUTER_DEADLINE_S=300 # AToMesh binds its port once all are registered; it probes with pauses of up to 5 s
readonly ROUTER_SETTLE_S=20    # a router that answers has registered all it will

router_url() {
  REPLY="http://${node_addresses[${PLAN_ROUTER_NODE}]}:${PLAN_ROUTER_PORT}"
}

# Waits for helper NAME; sets REPLY to its reason and returns 1 if it failed.
await_helper() {
  local name="$1" next=$((SECONDS + PROGRESS_S))
  while [[ -z "${task_code[${name}]:-}" ]]; do
    pump 1
    if ((SECONDS >= next)); then
      log "${name}: still waiting: ${pending_reason[${name}]:-no word yet}"
      next=$((SECONDS + PROGRESS_S))
    fi
  done
  [[ "${task_code[${name}]}" != 0 ]] || return 0
  REPLY="${helper_failure[${name}]:-the check ended with code ${task_code[${name}]}}"
  return 1
}

# Sends the router off and waits until it lists exactly the plan.
start_router() {
  local line step role node port ranks argv=() url
  router_url
  url="${REPLY}"
  give_turn "${PLAN_ROUTER_STEP}"
  for line in "${PLAN_WORKERS[@]}"; do
    read -r step role _ node port _ ranks _ <<<"${line}"
    ((PLAN_ROUTER_RANKS)) || ranks=1
    argv+=(--worker "${role}=http://${node_addresses[${node}]}:${port}=${ranks}")
  done
  start_helper router python3 -E -s -B "${BUNDLE}/lib/router_check.py" --url "${url}" "--model=${PLAN_SERVED_MODEL}" \
    --deadline "${SRTGEN_ROUTER_DEADLINE_S:-${ROUTER_DEADLINE_S}}" --settle "${SRTGEN_ROUTER_SETTLE_S:-${ROUTER_SETTLE_S}}" "${argv[@]}"
  await_helper router || fail 13 "the router at ${url} is not as planned: ${REPLY}" "${PLAN_ROUTER_STEP}"
}

# Runs evidence.py; sets REPLY to its sentence and evidence_json; fails on a mismatch.
run_evidence() {
  local output
  output="$(python3 -E -s -B "${BUNDLE}/lib/evidence.py" "$@" 2>&1)" || {
    warn "the check of ${1} broke off: ${output##*$'\n'}"
    evidence_json='{}'
    return 0
  }
  evidence_json="${output#*$'\n'}"
  output="${output%%$'\n'*}"
  REPLY="${output#*$'\t'}"
  [[ "${output}" != mismatch* ]]
}

# Prints the worker that SENTENCE blames: the one in brackets, else the first word; nothing if that is no step.
named_worker() {
  local sentence="$1" name="${1%% *}"
  [[ ! "${sentence}" =~ \(([a-z]+_[0-9]+)\) ]] || name="${BASH_REMATCH[1]}"
  [[ -z "${step_role[${name}]:-}" ]] || printf '%s\n' "${name}"
}

check_identity() {
  local item argv=(versions)
  for item in "${PLAN_IDENTITY[@]}"; do argv+=("--expect=${item}"); done
  for item in "${steps[@]}"; do argv+=("--log=${job_folder}/logs/${item}.log"); done
  run_evidence "${argv[@]}" || {
    result_versions="${evidence_json}"
    fail 15 "identity: ${REPLY}"
  }
  result_versions="${evidence_json}"
}

check_transport() {
  local line step argv=(transport "--expect=${PLAN_TRANSPORT}")
  [[ -n "${PLAN_TRANSPORT}" ]] || return 0
  ((PLAN_TRANSPORT_EXPLICIT == 0)) || argv+=(--explicit)
  for line in "${PLAN_WORKERS[@]}"; do
    step="${line%% *}"
    argv+=("--log=${step}=${job_folder}/logs/${step}.log")
  done
  run_evidence "${argv[@]}" || {
    result_transport="${evidence_json}"
    fail 14 "transport: ${REPLY}" "$(named_worker "${REPLY}")"
  }
  result_transport="${evidence_json}"
  [[ "${evidence_json}" != *'"unverified"'* ]] || warn "transport: not every worker's log says what it installed (unverified)"
  [[ "${evidence_json}" != *'"differs from the default"'* ]] || warn "transport: installed is not what ATOM's default (${PLAN_TRANSPORT}) says"
}

# Each pair once, then the router, plain and streamed.
run_canary() {
  local line step role node port ranks argv=()
  router_url
  for line in "${PLAN_WORKERS[@]}"; do
    read -r step role _ node port _ ranks _ <<<"${line}"
    argv+=(--worker "${step}=${role}=http://${node_addresses[${node}]}:${port}=${ranks}")
  done
  ((PLAN_ROUTER_RANKS == 0)) || argv+=(--ranks-listed)
  start_helper canary python3 -E -s -B "${BUNDLE}/lib/canary.py" --url "${REPLY}" "--model=${PLAN_SERVED_MODEL}" \
    --deadline "${SRTGEN_CANARY_DEADLINE_S:-300}" "${argv[@]}"
  await_helper canary || fail 14 "canary: ${REPLY}" "$(named_worker "${REPLY}")"
}
