# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# Messages and time, without a fork.

log_file='' # job.log, once the results folder is there
clock_start=0

# Sets REPLY to centiseconds since clock_begin.
clock_cs() {
  local up
  if { read -r up _ </proc/uptime; } 2>/dev/null; then
    up="${up/./}"
    REPLY=$((10#${up} - clock_start))
  else
    REPLY=$((SECONDS * 100 - clock_start))
  fi
}

# The moment that all times of the job are counted from.
clock_begin() {
  clock_start=0
  clock_cs
  clock_start=${REPLY}
}

# Sets REPLY to CENTISECONDS as seconds with two decimals.
seconds_of() {
  local cs="$1"
  printf -v REPLY '%d.%02d' $((cs / 100)) $((cs % 100))
}

# Writes one line to the job's output and to job.log; a full disk must not end the job.
log() {
  local line
  printf -v line '%(%Y-%m-%dT%H:%M:%S%z)T %s' -1 "$*"
  printf '%s\n' "${line}" 2>/dev/null || :
  [[ -z "${log_file}" ]] || { printf '%s\n' "${line}" >>"${log_file}"; } 2>/dev/null || :
}
