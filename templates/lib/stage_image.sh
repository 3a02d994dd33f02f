# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# Images that are imported into a file of each node before the load: PLAN_STAGED_IMAGES has file and reference of each.

# True if FILE is made by the job.
is_staged() {
  local file="$1" line
  for line in "${PLAN_STAGED_IMAGES[@]}"; do
    [[ "${line%%$'\t'*}" != "${file}" ]] || return 0
  done
  return 1
}

# Adds to check_arguments what must be on the nodes for it.
collect_staging_tools() {
  [[ -z "${PLAN_STAGED_IMAGES[*]:-}" || "${PLAN_RUNTIME}" != pyxis ]] || check_arguments+=(--tool enroot)
}

# Sets REPLY to the hosts whose steps use image FILE, by comma.
image_hosts() {
  local file="$1" line role node nodes=() IFS=' '
  for line in "${PLAN_WORKERS[@]}"; do
    read -r _ role _ node _ <<<"${line}"
    # The model may be fetched by any node of a worker.
    [[ "${PLAN_IMAGE[${role}]}" != "${file}" && "${PLAN_IMAGE[prefetch]:-}" != "${file}" ]] || nodes+=("${node}")
  done
  [[ "${PLAN_IMAGE[atomesh]:-}" != "${file}" ]] || nodes+=("${PLAN_ROUTER_NODE}")
  [[ "${PLAN_IMAGE[bench]}" != "${file}" ]] || nodes+=("${PLAN_BENCH_NODE}")
  hosts_of "${nodes[@]}"
}

# One step for all images: each node imports those that its own steps use.
stage_images() {
  local line file arguments=() hosts
  [[ -n "${PLAN_STAGED_IMAGES[*]:-}" ]] || return 0
  for line in "${PLAN_STAGED_IMAGES[@]}"; do
    file="${line%%$'\t'*}"
    image_hosts "${file}"
    arguments+=("${REPLY}" "${file}" "${line#*$'\t'}")
  done
  printf -v hosts '%s,' "${node_hosts[@]:0:PLAN_NODES}"
  stage_step stage_image "${STAGE_LIMIT_S}" "${hosts%,}" \
    python3 -E -s -B "${BUNDLE}/lib/stage_image.py" "${arguments[@]}"
}
