# shellcheck shell=bash
# What status.sh, logs.sh and stop.sh share: where a job's results are, and what Slurm says of it.

# Prints the value of constant NAME of run.sbatch: one bare or single-quoted word.
plan_constant() {
  local name="$1" line quote="'"
  while IFS= read -r line; do
    [[ "${line}" == "readonly ${name}="* ]] || continue
    line="${line#*=}"
    line="${line//"'\\''"/$'\x01'}"
    line="${line//"${quote}"/}"
    printf '%s\n' "${line//$'\x01'/"${quote}"}"
    return 0
  done <"${BUNDLE}/run.sbatch"
}

# Prints the folders that may hold results of this bundle's jobs, the likeliest first.
results_roots() {
  local root
  for root in "${SRTGEN_RESULTS_DIR:-}" "$(plan_constant PLAN_OUTPUT_DIR)" results; do
    [[ -n "${root}" ]] || continue
    if [[ "${root}" == /* ]]; then
      printf '%s\n' "${root}"
    else
      printf '%s\n' "${PWD}/${root}" "${BUNDLE}/${root}"
    fi
  done
}

# True if FOLDER holds results of a job of this bundle, in whatever version.
is_ours() {
  local folder="$1" line name
  name="$(plan_constant PLAN_NAME)"
  [[ -r "${folder}/manifest.json" ]] || return 1
  while IFS= read -r line; do
    [[ "${line}" != *"\"name\": \"${name}\","* ]] || return 0
  done < <(head -n 8 -- "${folder}/manifest.json")
  return 1
}

# Prints the results of JOB's latest attempt; without JOB of the job that wrote last. Fails if there are none.
find_results() {
  local job="$1" root best=''
  while IFS= read -r root; do
    if [[ -n "${job}" ]]; then
      best="$(latest_attempt "${root}" "${job}")"
    else
      best="$(newest_of "${root}")"
    fi
    [[ -z "${best}" ]] || break
  done < <(results_roots)
  [[ -n "${best}" ]] || return 1
  printf '%s\n' "${best}"
}

latest_attempt() {
  local root="$1" job="$2" folder best='' number highest=-1
  for folder in "${root}/${job}" "${root}/${job}".r[0-9]*; do
    [[ -d "${folder}" ]] || continue
    number="$(attempt_of "${folder}")"
    ((number > highest)) || continue
    highest="${number}"
    best="${folder}"
  done
  printf '%s\n' "${best}"
}

# Prints the number behind .r of FOLDER, 0 for a first attempt.
attempt_of() {
  local name="${1##*/}"
  [[ "${name}" == *.r* ]] || name='.r0'
  printf '%s\n' "${name##*.r}"
}

# Prints the folder of this bundle in ROOT that was written to last.
newest_of() {
  local root="$1" best='' folder
  for folder in "${root}"/[0-9]*; do
    is_ours "${folder}" || continue
    [[ -n "${best}" && ! "${folder}/job.log" -nt "${best}/job.log" ]] || best="${folder}"
  done
  printf '%s\n' "${best}"
}

# Prints text field KEY of a result.json, still escaped as JSON; a quote in a text is escaped, so the first hit is the key.
result_text() {
  local file="$1" key="$2" content
  [[ -r "${file}" ]] || return 1 # a failing $(<…) ends the script, also before ||
  content="$(<"${file}")"
  [[ "${content}" =~ \"${key}\":\"(([^\"\\]|\\.)*)\" ]] || return 1
  printf '%s\n' "${BASH_REMATCH[1]}"
}

# The same for a number or null.
result_number() {
  local file="$1" key="$2" content
  [[ -r "${file}" ]] || return 1 # a failing $(<…) ends the script, also before ||
  content="$(<"${file}")"
  [[ "${content}" =~ \"${key}\":(null|[0-9.]+) ]] || return 1
  printf '%s\n' "${BASH_REMATCH[1]}"
}

# Prints "STATE REASON" of JOB as Slurm's controller or its accounting knows it; fails when neither does.
slurm_state() {
  local job="$1" line='' text
  text="$(scontrol --oneliner show job "${job}" 2>/dev/null)" || text=''
  if [[ "${text}" =~ JobState=([A-Z_]+)\ Reason=([^ ]+) ]]; then
    printf '%s %s\n' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
    return 0
  fi
  line="$(sacct -n -P -X -j "${job}" -o State 2>/dev/null | tail -n 1)" || line=''
  [[ -n "${line}" ]] || return 1
  printf '%s None\n' "${line%% *}"
}

# True if STATE is one that a job can still leave.
is_live() {
  case "$1" in
    PENDING | CONFIGURING | RUNNING | COMPLETING | SUSPENDED | REQUEUED | RESIZING | SIGNALING | STAGE_OUT | STOPPED) return 0 ;;
    *) return 1 ;;
  esac
}

# Prints the last line of FILE that says something, without what would upset a terminal.
last_line() {
  local file="$1"
  tail -c 4000 -- "${file}" 2>/dev/null | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 | tr -d '[:cntrl:]' | cut -c 1-160
}

# Prints "STEP ROLE" of each process of the job in FOLDER: the manifest's in its order, then steps that only have a log.
job_steps() {
  local folder="$1" line shown=' '
  while IFS= read -r line; do
    [[ "${line}" =~ ^[[:space:]]*\{\"step\":\ \"([a-z]+_?[0-9]*)\",\ \"role\":\ \"([a-z]+)\" ]] || continue
    [[ "${shown}" != *" ${BASH_REMATCH[1]} "* ]] || continue
    shown+="${BASH_REMATCH[1]} "
    printf '%s %s\n' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
  done <"${folder}/manifest.json"
  for line in bench eval; do
    [[ "${shown}" == *" ${line} "* || ! -e "${folder}/logs/${line}.log" ]] || printf '%s bench\n' "${line}"
  done
}
