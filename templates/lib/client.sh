# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# The benchmark client: its environment, its turn, and what its end means.

readonly LATE_DEATH_S=2 # a component that dies may fail the client first
readonly BEAT_CHECK_S=5
readonly SILENT_S="${SRTGEN_CLIENT_SILENT_S:-120}" # the client's heartbeat (role.sh) may stand still for so long

beat_seen=''
beat_since=0

# Variables that clients of srt-slurm know, and ours.
export_client_environment() {
  local role line step address port
  local -A ips=() endpoints=()
  router_url
  export SRT_ENDPOINT="${REPLY}" SRT_FRONTEND_HOST="${node_addresses[${PLAN_ROUTER_NODE}]}" SRT_FRONTEND_PORT="${PLAN_ROUTER_PORT}"
  export SRT_MODEL_NAME="${PLAN_SERVED_MODEL}" SRT_JOB_ID="${SLURM_JOB_ID}" SRTCTL_FRONTEND_TYPE=atomesh
  export SRT_LOG_DIR=/logs AIPERF_SERVER_METRICS_URLS=''
  [[ "${PLAN_RUNTIME}" != none ]] || SRT_LOG_DIR="${job_folder}/logs"
  for line in "${PLAN_WORKERS[@]}"; do
    read -r step role _ address port _ <<<"${line}"
    address="${node_addresses[${address}]}"
    ips["${role}"]+="${ips[${role}]:+,}${address}"
    endpoints["${role}"]+="${endpoints[${role}]:+,}http://${address}:${port}"
    AIPERF_SERVER_METRICS_URLS+="${AIPERF_SERVER_METRICS_URLS:+,}http://${address}:${port}/metrics"
  done
  for role in prefill decode agg; do
    export "SRT_${role^^}_IPS=${ips[${role}]:-}" "SRT_${role^^}_ENDPOINTS=${endpoints[${role}]:-}"
  done
}

# Reads bench/verdict.json into result_bench; sets REPLY to its reason.
read_verdict() {
  local file="${job_folder}/bench/verdict.json" output
  REPLY=''
  [[ -r "${file}" ]] || return 0
  output="$(python3 -E -s -B "${BUNDLE}/lib/verdict.py" bench "${file}" 2>/dev/null)" || return 0
  result_bench="${output%%$'\n'*}"
  REPLY="${output:${#result_bench}+1}" # the shell drops the end of an empty reason
}

# Exit code of the job for the client's.
client_code() {
  local code="$1"
  case "${code}" in
    0 | 10 | 20 | 21 | 22 | 23) REPLY="${code}" ;;
    *) REPLY=20 ;;
  esac
}

# Ends the job if the client's step is gone without a word from Slurm: then srun would hang until the time limit.
# Its heartbeat says "orphan" without a slurmstepd, and is gone with the client.
check_beat() {
  local file="${job_folder}/logs/.bench.alive" beat='' limit="${SILENT_S}"
  { read -r beat <"${file}"; } 2>/dev/null || :
  [[ -e "${file}" || -z "${beat_seen}" ]] || beat=gone
  [[ "${beat}" != orphan && "${beat}" != gone ]] || limit="${BEAT_CHECK_S}"
  if [[ "${beat}" != "${beat_seen}" || (-z "${beat}" && -e "${file}") ]]; then
    beat_seen="${beat}"
    beat_since=${SECONDS}
  elif ((SECONDS - beat_since >= limit)); then
    confirm_running
    [[ -n "${step_code[bench]:-}" ]] ||
      fail 11 "bench on ${step_host[bench]} shows no sign of life for ${limit} s: did its slurmstepd die?" bench
  fi
}

# Runs the client to its end. While it runs any component's end is the job's (see pump).
run_client() {
  local start=${SECONDS} next=$((SECONDS + 300)) next_beat=$((SECONDS + BEAT_CHECK_S))
  beat_since=${SECONDS}
  give_turn bench
  while [[ -z "${step_code[bench]:-}" ]]; do
    pump 1
    if ((SECONDS >= next)); then
      log "benchmark: running for $((SECONDS - start)) s"
      next=$((SECONDS + 300))
    fi
    if ((SECONDS >= next_beat)); then
      check_beat
      next_beat=$((SECONDS + BEAT_CHECK_S))
    fi
  done
  judge_client
}

# What the client's end means for the job; a component that dies within 2 s, or is gone already, is the better reason.
judge_client() {
  local code reason what end=$((SECONDS + LATE_DEATH_S + 1))
  read_verdict
  reason="${REPLY}"
  client_code "${step_code[bench]}"
  code="${REPLY}"
  ((code != 0)) || return 0
  judge_servers
  while ((SECONDS < end)); do pump 0.5; done
  describe_code "${step_code[bench]}"
  what="${REPLY}"
  what="${reason:-the client ended with ${what}}"
  ((result_lost == 0)) || what+=', and nothing can be written into the results folder: is the disk full?'
  fail "${code}" "benchmark: ${what}" bench
}
