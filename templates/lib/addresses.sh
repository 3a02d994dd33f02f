# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# One address per node, from what the preflight step saw there. Nothing resolves names later.

node_addresses=()        # by plan index
declare -A candidates=() # host -> "interface address network" lines, best first

# Chooses one address per node: a network that all nodes share if there is one, else each node's best.
choose_addresses() {
  local host network address line shared found index=0
  node_addresses=()
  while read -r _ _ shared; do
    [[ -n "${shared}" ]] || continue
    found=1
    for host in "${node_hosts[@]}"; do
      [[ "${candidates["${host}"]:-}" == *" ${shared}"$'\n'* ]] || found=0
    done
    ((found == 0)) || break
    shared=''
  done <<<"${candidates["${node_hosts[0]}"]:-}"
  for host in "${node_hosts[@]}"; do
    address=''
    while read -r _ line network; do
      [[ -n "${address}" || -z "${line}" || (-n "${shared}" && "${network}" != "${shared}") ]] || address="${line}"
    done <<<"${candidates["${host}"]:-}"
    [[ -n "${address}" ]] || fail 10 "nodes: no usable IPv4 address on ${host}${PLAN_INTERFACE:+ (interface ${PLAN_INTERFACE})}"
    node_addresses+=("${address}")
    export "NODE_${index}_ADDR=${address}"
    json_string "${host}"
    result_nodes+=("{\"index\":${index},\"host\":${REPLY},\"address\":\"${address}\"}")
    log "node ${index}: ${host} ${address}"
    index=$((index + 1))
  done
  local IFS=,
  export NO_PROXY="localhost,127.0.0.1,${node_addresses[*]}"
  export no_proxy="${NO_PROXY}"
}

write_nodes_tsv() {
  local index
  {
    printf 'index\thost\taddress\n'
    for index in "${!node_hosts[@]}"; do
      printf '%s\t%s\t%s\n' "${index}" "${node_hosts[${index}]}" "${node_addresses[${index}]}"
    done
  } 2>/dev/null >"${job_folder}/nodes.tsv" || warn "cannot write nodes.tsv"
}
