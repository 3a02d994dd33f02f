# The benchmark inside the client's container; sourced by bench.sh, whose BENCH_* constants it reads.
# Order of a run: bench_check, (the turn), bench_begin, bench_point or bench_custom …, bench_finish.
# shellcheck shell=bash

BENCH_DIR="${SRTGEN_RESULTS:?is not set: start this through the job}/bench"
bench_lib="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
bench_child=''
readonly BENCH_DIR bench_lib

# -E and -s: neither the recipe's PYTHONPATH nor a user folder may change our own few scripts.
bench_python() {
  python3 -BsE "${bench_lib}/$1.py" "${@:2}"
}

# Files of an earlier run in the same job folder are kept, but can't be taken for ours.
bench_fresh_folder() {
  local n=1
  # rmdir tells an empty folder from a used one.
  if [[ ! -e "${BENCH_DIR}" ]] || rmdir -- "${BENCH_DIR}" 2>/dev/null; then
    mkdir -p -- "${BENCH_DIR}"
    return 0
  fi
  while [[ -e "${BENCH_DIR}.previous-${n}" ]]; do n=$((n + 1)); done
  mv -- "${BENCH_DIR}" "${BENCH_DIR}.previous-${n}"
  mkdir -- "${BENCH_DIR}"
}

bench_raise_open_files() {
  local soft hard
  hard="$(ulimit -Hn)"
  ulimit -Sn "${hard}" || printf 'bench: the soft limit of open files can not be raised\n' >&2
  soft="$(ulimit -Sn)"
  printf 'bench: open files: soft %s, hard %s\n' "${soft}" "${hard}"
}

# Clients read proxy variables: requests to the job's own addresses must not leave through one.
bench_no_proxy() {
  local hosts="localhost,127.0.0.1" url list
  for list in "${SRT_FRONTEND_HOST:-}" "${SRT_PREFILL_ENDPOINTS:-}" "${SRT_DECODE_ENDPOINTS:-}" "${SRT_AGG_ENDPOINTS:-}"; do
    for url in ${list//,/ }; do
      url="${url#*://}"
      hosts+=",${url%%[:/]*}"
    done
  done
  export NO_PROXY="${NO_PROXY:+${NO_PROXY},}${hosts}"
  export no_proxy="${NO_PROXY}"
}

bench_offline() {
  [[ "${BENCH_OFFLINE:-0}" == 1 ]] || return 0
  export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 DO_NOT_TRACK=1
}

# End before the load with the preflight code; $1 is the reason.
bench_refuse() {
  local reason="$1"
  mkdir -p -- "${BENCH_DIR}"
  printf 'bench: %s\n' "${reason}" >&2
  printf '{"client_exit_code": null, "code": 10, "points": null, "reason": "%s", "valid": null}\n' "${reason}" \
    >"${BENCH_DIR}/verdict.json"
  exit 10
}

# Everything that can be known before the weights load; exits 10 with a verdict otherwise.
bench_check() {
  local rc=0
  export "${!BENCH_@}"
  bench_fresh_folder
  bench_raise_open_files
  bench_offline
  bench_python bench_check || rc=$?
  ((rc == 0)) || exit "${rc}"
}

# Names of variables that a custom command can't do without.
bench_require() {
  local name missing=()
  for name in "$@"; do
    [[ -n "${!name:+set}" ]] || missing+=("${name}")
  done
  ((${#missing[@]} == 0)) || bench_refuse "not set at submission: ${missing[*]}"
}

bench_stopped() {
  local code="$1"
  trap '' TERM INT
  if [[ -n "${bench_child}" ]]; then
    kill -TERM "${bench_child}" 2>/dev/null || :
    wait "${bench_child}" || :
  fi
  bench_python summary update || :
  exit "${code}"
}

# Run point.py in the background, so that a signal is acted upon at once and not after it.
# No function call behind the &: that would be a shell of its own, which dies and leaves python alone.
bench_supervise() {
  local rc=0
  python3 -BsE "${bench_lib}/point.py" "$@" &
  bench_child=$!
  wait "${bench_child}" || rc=$?
  bench_child=''
  return "${rc}"
}

# What every type does once it has its turn.
bench_attend() {
  bench_no_proxy
  trap 'bench_stopped 143' TERM
  trap 'bench_stopped 130' INT
}

bench_begin() {
  bench_attend
  bench_python summary begin
}

# Measure one point: NAME CONCURRENCY PROMPTS argv…; the client must write ${BENCH_DIR}/NAME.json.
bench_point() {
  bench_supervise run "$@"
}

# Run the recipe's own command, in BENCH_CWD if set.
bench_custom() {
  bench_attend
  bench_supervise custom "${BENCH_CWD:-}" "$@"
}

# Serve until the time limit, or until someone makes the file `stop`.
bench_manual() {
  local endpoint="${SRT_ENDPOINT:?}" model="${BENCH_MODEL:?}"
  local stop_file="${SRTGEN_RESULTS_HOST:-${SRTGEN_RESULTS}}/bench/stop" job="${SLURM_JOB_ID:-${SRT_JOB_ID:-}}"
  bench_attend
  printf 'serving %s at %s until the time limit\n' "${model}" "${endpoint}"
  printf "try:  curl %s/v1/completions -H 'Content-Type: application/json' -d '{\"model\": \"%s\", \"prompt\": \"Hello\", \"max_tokens\": 16}'\n" \
    "${endpoint}" "${model}"
  printf 'stop: touch %q   (or: ./stop.sh %s)\n' "${stop_file}" "${job}"
  while [[ ! -e "${BENCH_DIR}/stop" ]]; do
    sleep 2 &
    bench_child=$!
    wait "${bench_child}" || :
  done
  printf '{"client_exit_code": null, "code": 0, "points": null, "reason": "", "valid": null}\n' >"${BENCH_DIR}/verdict.json"
  exit 0
}

# Write the summary and the verdict, and end with its code.
bench_finish() {
  local rc=0
  bench_python summary finish || rc=$?
  exit "${rc}"
}
