# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# Compiled kernels kept between jobs (profile: jit_cache), the job's side: what workers say of it, and when they store.

readonly JIT_STORE_S=60 # all workers store at the same time, each at most 45 s

# True if the plan has such a store.
jit_planned() {
  [[ -n "${PLAN_JIT_CACHE:-}" ]]
}

# Sets REPLY to what worker NAME said of its cache last, if that begins with one of WORDS...
jit_said() {
  local name="$1" line word
  shift
  REPLY=''
  line="$(grep -a '^srtgen: jit cache: ' -- "${job_folder}/logs/${name}.log" 2>/dev/null)" || return 1
  line="${line##*$'\n'srtgen: jit cache: }"
  line="${line#srtgen: jit cache: }"
  for word in "$@"; do
    [[ "${line}" != "${word}"* ]] || REPLY="${line}"
  done
  [[ -n "${REPLY}" ]]
}

# Logs what each worker found, once all are ready.
log_jit_cache() {
  local line name
  jit_planned || return 0
  for line in "${PLAN_WORKERS[@]}"; do
    read -r name _ <<<"${line}"
    if jit_said "${name}" loaded; then
      log "jit cache: ${name} ${REPLY}"
    elif jit_said "${name}" off; then
      warn "jit cache: ${name} compiled everything anew: ${REPLY#off: }"
    else
      warn "jit cache: ${name} said nothing of it"
    fi
  done
}

# A job that has passed lets its workers store what they compiled; the client has ended, so nothing is measured any more.
store_jit_cache() {
  local line name waiting=() left end=$((SECONDS + JIT_STORE_S))
  jit_planned || return 0
  [[ "${result_code}" == null ]] || return 0
  for line in "${PLAN_WORKERS[@]}"; do
    read -r name _ <<<"${line}"
    if jit_said "${name}" loaded && step_runs "${name}"; then
      give_turn "${name}"
      waiting+=("${name}")
    fi
  done
  while ((${#waiting[@]})) && ((SECONDS < end)) && ! cut_short; do
    drain 0.2
    left=()
    for name in "${waiting[@]}"; do
      if jit_said "${name}" stored; then
        log "jit cache: ${name} ${REPLY}"
      elif jit_said "${name}" nothing; then
        warn "jit cache: ${name} ${REPLY}"
      elif step_runs "${name}"; then
        left+=("${name}")
      fi
    done
    waiting=("${left[@]}")
  done
  ((${#waiting[@]} == 0)) || warn "jit cache: not stored in time: ${waiting[*]}"
}
