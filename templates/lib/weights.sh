# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# The weights, before anything loads them: copied to the nodes' own disks, or fetched from the Hugging Face hub.

# A local model's files onto the disks of the nodes that load them.
stage_model() {
  [[ -n "${PLAN_MODEL_STAGED}" ]] || return 0
  worker_hosts
  stage_step stage_model "${STAGE_LIMIT_S}" "${REPLY}" \
    python3 -E -s -B "${BUNDLE}/lib/stage_model.py" "${PLAN_MODEL_SOURCE}" "${PLAN_MODEL_STAGED}"
}

# A hub model into the cache, by one node or by each; then every node that loads it must see it whole.
prefetch_model() {
  local hosts fetching
  [[ "${PLAN_MODEL_PREFETCH}" != none ]] || return 0
  worker_hosts
  hosts="${REPLY}"
  fetching="${hosts}"
  [[ "${PLAN_MODEL_PREFETCH}" == local ]] || fetching="${hosts%%,*}"
  prefetch_command
  stage_step prefetch_0 "${STAGE_LIMIT_S}" "${fetching}" "${step_argv[@]}"
  stage_step prefetch_check "${STAGE_LIMIT_S}" "${hosts}" \
    python3 -E -s -B "${BUNDLE}/lib/node_hub.py" "${PLAN_MODEL_SOURCE}" "${PLAN_HUB_CACHE}"
}

# Sets step_argv to what makes a worker's container of a step of many nodes.
prefetch_command() {
  export_locations
  collect_mounts
  collect_export_names
  local IFS=,
  step_argv=("${PLAN_SRUN_OPTIONS[@]}")
  [[ "${PLAN_RUNTIME}" == none ]] || step_argv+=("--export=${export_names[*]}")
  "${PLAN_RUNTIME}_step" prefetch_0 prefetch roles/prefetch.sh 0
}

# Sets weight_arguments to what node_check.py must know of them.
collect_weight_arguments() {
  weight_arguments=()
  if [[ "${PLAN_MODEL_KIND}" == local ]]; then
    weight_arguments+=("--model=${PLAN_MODEL_SOURCE}")
    [[ -z "${PLAN_MODEL_STAGED}" ]] || weight_arguments+=("--stage=${PLAN_MODEL_STAGED}" "--own=${PLAN_MODEL_STAGED%/*}")
  else
    weight_arguments+=("--hub-model=${PLAN_MODEL_SOURCE}" "--hub-cache=${PLAN_HUB_CACHE}")
    weight_arguments+=("--offline=${PLAN_OFFLINE}" "--prefetch=${PLAN_MODEL_PREFETCH}")
    case "${PLAN_MODEL_PREFETCH}" in
      local) weight_arguments+=("--own=${PLAN_HUB_CACHE}") ;;
      shared) weight_arguments+=("--writable=${PLAN_HUB_CACHE%/hub}") ;; # one that is not there is not mounted
    esac
  fi
  worker_hosts
  weight_arguments+=("--weight-hosts=${REPLY}")
}
