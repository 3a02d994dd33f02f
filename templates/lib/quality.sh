# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# The evaluation step: prepares its packages while the workers load, runs after the benchmark (or instead of it).

eval_mode=off   # off, after_benchmark, only
eval_folders=() # where the operator wants the results as well

# Sets eval_mode from the recipe (none: it has no evaluation); RUN_EVAL and EVAL_ONLY at submission win.
choose_eval() {
  eval_mode="${PLAN_EVAL:-none}"
  [[ "${eval_mode}" != none ]] || eval_mode=off
  case "${RUN_EVAL:-}" in
    1 | true | yes) [[ "${eval_mode}" != off ]] || eval_mode=after_benchmark ;;
    0 | false | no) eval_mode=off ;;
  esac
  case "${EVAL_ONLY:-}" in
    1 | true | yes) eval_mode=only ;;
  esac
  [[ "${eval_mode}" == off || -f "${BUNDLE}/eval/run.sh" ]] ||
    fail 10 'an evaluation is asked for, but this bundle holds none: give the recipe an eval or post_eval section'
}

# What an evaluation without a network needs must be in the bundle.
check_eval_offline() {
  local output
  [[ "${eval_mode}" != off ]] || return 0
  [[ "${PLAN_EVAL_OFFLINE:-0}" == 1 || -e "${BUNDLE}/offline" ]] || return 0
  output="$(python3 -BsE "${BUNDLE}/lib/eval_offline.py" "${BUNDLE}" 2>&1)" ||
    fail 10 "preflight: the offline evaluation is not complete: ${output//$'\n'/; }"
}

# Sets eval_folders from the submission; each must take files. No step sees these folders: the job itself writes there.
check_eval_folders() {
  local name folder
  [[ "${eval_mode}" != off ]] || return 0
  for name in SRTGEN_LM_EVAL_RESULT_DIR SRTCTL_LM_EVAL_RESULT_DIR; do
    folder="${!name:-}"
    [[ -n "${folder}" ]] || continue
    [[ "${folder}" == /* ]] || folder="${SLURM_SUBMIT_DIR:-${BUNDLE}}/${folder}"
    eval_folders+=("${folder}")
    check_skipped mounts || can_write "${folder}" || fail 10 "preflight: mounts: ${name}: cannot write into ${folder}"
  done
}

# Makes FOLDER if need be, and a file in it for a moment; fails if that is not possible.
can_write() {
  local folder="$1" probe="$1/.srtgen-${SLURM_JOB_ID}"
  mkdir -p -- "${folder}" && printf 'x' >"${probe}" && rm -f -- "${probe}"
} 2>/dev/null

# Copies what was scored into these folders; fails and sets REPLY to the reason if that is not possible.
export_eval_results() {
  local folder file
  for folder in "${eval_folders[@]}"; do
    for file in "${job_folder}/eval/"{results*.json,sample*.jsonl,meta_env.json}; do
      [[ -f "${file}" ]] || continue
      REPLY="$(cp -- "${file}" "${folder}/" 2>&1)" || return 1
    done
    log "evaluation: results copied to ${folder}"
  done
}

# True if the benchmark runs.
bench_planned() {
  [[ "${PLAN_BENCH}" != none && "${eval_mode}" != only ]]
}

# Starts the evaluation's step. A command of the recipe's own also gets variables of the submitting shell.
start_eval() {
  local name
  [[ "${eval_mode}" != off ]] || return 0
  for name in "${PLAN_EVAL_PASS_ENV[@]}"; do
    [[ -z "${!name+set}" ]] || export_names+=("${name}")
  done
  start_step eval bench "${PLAN_BENCH_NODE}" eval/run.sh 0 1
}

# Reads eval/verdict.json into result_eval; sets REPLY to its reason.
read_eval_verdict() {
  local file="${job_folder}/eval/verdict.json" output
  REPLY=''
  [[ -r "${file}" ]] || return 0
  output="$(python3 -E -s -B "${BUNDLE}/lib/verdict.py" eval "${file}" 2>/dev/null)" || return 0
  result_eval="${output%%$'\n'*}"
  REPLY="${output:${#result_eval}+1}" # the shell drops the end of an empty reason
}

# Ends the job for the end of the eval step with CODE, unless it is 0.
fail_eval() {
  local code="$1" reason
  read_eval_verdict
  reason="${REPLY}"
  describe_code "${code}"
  case "${code}" in
    0) [[ "${result_phase}" != eval ]] || return 0 ;;
    23) ;;
    *) code=22 ;;
  esac
  ((code != 0)) || code=22
  fail "${code}" "evaluation: ${reason:-its step ended with ${REPLY} in phase ${result_phase}}" eval
}

# Packages and task data must be there before anything is measured: a failure later would waste the allocation.
await_eval_packages() {
  local next=$((SECONDS + PROGRESS_S))
  [[ "${eval_mode}" != off ]] || return 0
  until grep -q '"ok": *true' -- "${job_folder}/eval/venv.json" 2>/dev/null; do
    pump 0.5
    if ((SECONDS >= next)); then
      log 'evaluation: still preparing its packages'
      next=$((SECONDS + PROGRESS_S))
    fi
  done
}

# The evaluation itself; everything stays watched.
run_eval() {
  local next=$((SECONDS + 300)) start=${SECONDS} end
  give_turn eval
  while [[ -z "${step_code[eval]:-}" ]]; do
    pump 1
    if ((SECONDS >= next)); then
      log "evaluation: running for $((SECONDS - start)) s"
      next=$((SECONDS + 300))
    fi
  done
  if ((step_code[eval] != 0)); then
    end=$((SECONDS + LATE_DEATH_S + 1))
    judge_servers
    while ((SECONDS < end)); do pump 0.5; done
  fi
  if ! export_eval_results; then
    ((step_code[eval] != 0)) || fail 22 "evaluation: its results could not be copied: ${REPLY}" eval
    warn "evaluation: its results could not be copied: ${REPLY}"
  fi
  fail_eval "${step_code[eval]}"
}
