# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# result.json: the state of the job in shell variables, written whole and atomically at every change.

result_file=''
result_phase=start
result_verdict=running
result_reason=''
result_code=null
result_failed=null       # JSON
result_versions='{}'     # JSON
result_transport='{}'    # JSON
result_bench=null        # JSON
result_eval=null         # JSON
result_phases=()         # JSON objects of the phases that are over
result_skipped=()        # names of checks
result_warnings=()
result_modified=()       # files of the bundle that were edited
result_nodes=()          # JSON objects
phase_start_cs=0
result_lost=0            # 1: the last write failed

# Sets REPLY to TEXT without bytes that are not valid UTF-8.
utf8_only() {
  local LC_ALL=C text="$1" out=''
  REPLY="${text}"
  [[ "${text}" == *[$'\x80'-$'\xff']* ]] || return 0
  local t=$'[\x80-\xbf]'
  local two=$'[\xc2-\xdf]'"${t}" three=$'[\xe1-\xec\xee\xef]'"${t}${t}" four=$'[\xf1-\xf3]'"${t}${t}${t}"
  local edge=$'\xe0[\xa0-\xbf]'"${t}|"$'\xed[\x80-\x9f]'"${t}|"$'\xf0[\x90-\xbf]'"${t}${t}|"$'\xf4[\x80-\x8f]'"${t}${t}"
  local good="^([^"$'\x80'-$'\xff'"]+|${two}|${three}|${edge}|${four})"
  while [[ -n "${text}" ]]; do
    if [[ "${text}" =~ ${good} ]]; then
      out+="${BASH_REMATCH[1]}"
      text="${text:${#BASH_REMATCH[1]}}"
    else
      out+='?'
      text="${text:1}"
    fi
  done
  REPLY="${out}"
}

# Sets REPLY to TEXT as a JSON string.
json_string() {
  local text code char
  utf8_only "$1"
  text="${REPLY//\\/\\\\}"
  text="${text//\"/\\\"}"
  text="${text//$'\n'/\\n}"
  text="${text//$'\t'/\\t}"
  text="${text//$'\r'/\\r}"
  if [[ "${text}" == *[$'\x01'-$'\x1f\x7f']* ]]; then
    for code in 01 02 03 04 05 06 07 08 0b 0c 0e 0f 10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f 7f; do
      printf -v char '%b' "\\x${code}"
      text="${text//"${char}"/\\u00${code}}"
    done
  fi
  REPLY="\"${text}\""
}

# Sets REPLY to the arguments as a JSON list of strings.
json_list() {
  local item out=''
  for item in "$@"; do
    json_string "${item}"
    out+="${out:+,}${REPLY}"
  done
  REPLY="[${out}]"
}

# Sets REPLY to the arguments, which are JSON already, as a JSON list.
json_join() {
  local item out=''
  for item in "$@"; do out+="${out:+,}${item}"; done
  REPLY="[${out}]"
}

# Sets REPLY to the whole document.
result_text() {
  local text key value
  json_string "${SLURM_JOB_ID}"
  text="{\"schema\":\"srtgen/result/1\",\"job_id\":${REPLY},\"attempt\":${attempt:-1}"
  for key in name phase verdict reason; do
    case "${key}" in
      name) value="${PLAN_NAME}" ;;
      phase) value="${result_phase}" ;;
      verdict) value="${result_verdict}" ;;
      *) value="${result_reason}" ;;
    esac
    json_string "${value}"
    text+=",\"${key}\":${REPLY}"
  done
  json_join "${result_phases[@]}"
  text+=",\"exit_code\":${result_code},\"phases\":${REPLY},\"failed\":${result_failed}"
  json_list "${result_skipped[@]}"
  text+=",\"checks_skipped\":${REPLY}"
  json_list "${result_warnings[@]}"
  text+=",\"warnings\":${REPLY}"
  json_list "${result_modified[@]}"
  text+=",\"bundle_modified\":${REPLY}"
  json_join "${result_nodes[@]}"
  text+=",\"nodes\":${REPLY},\"versions\":${result_versions},\"transport\":${result_transport}"
  REPLY="${text},\"bench\":${result_bench},\"eval\":${result_eval}}"
}

# Replaces result.json; a full disk is no reason to stop (result_lost says so), the verdict also stands in the job's output.
write_result() {
  [[ -n "${result_file}" ]] || return 0
  local new="${result_file}.new"
  result_text
  result_lost=0
  { printf '%s\n' "${REPLY}" >"${new}" && mv -f -- "${new}" "${result_file}"; } 2>/dev/null || {
    result_lost=1
    rm -f -- "${new}" 2>/dev/null || :
    log "warning: cannot write ${result_file}"
  }
}

# Ends the current phase and begins PHASE.
begin_phase() {
  local phase="$1" now start
  clock_cs
  now=${REPLY}
  seconds_of "${phase_start_cs}"
  start="${REPLY}"
  seconds_of $((now - phase_start_cs))
  result_phases+=("{\"name\":\"${result_phase}\",\"start_s\":${start},\"seconds\":${REPLY}}")
  result_phase="${phase}"
  phase_start_cs=${now}
  log "phase ${phase}"
  write_result
}

# Notes something that people should know and that does not end the job.
warn() {
  log "warning: $*"
  result_warnings+=("$*")
}
