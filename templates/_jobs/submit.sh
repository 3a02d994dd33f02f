#!/usr/bin/env bash
# Submits the bundles of this folder in the order of index.tsv, each exactly once, however often this is interrupted.
# Usage: ./submit.sh [--at-most N] [--dry-run] [--changed] [-- sbatch options]
#        ./submit.sh --status
#        ./submit.sh --resolve NAME JOBID|none
#
# submitted.tsv is the journal. An intent with a token is on disk before sbatch starts, and the token is the job's
# comment: where the job id did not get into the journal, Slurm is asked for the token before anything is repeated.
set -Eeuo pipefail
shopt -s inherit_errexit

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
readonly here
readonly JOURNAL="${here}/submitted.tsv"
readonly POLL_S="${SRTGEN_SUBMIT_POLL_S:-15}"     # between two looks at the queue
readonly SETTLE_S="${SRTGEN_SUBMIT_SETTLE_S:-10}" # a request that a killed sbatch sent may still be on its way
readonly LOCK_S="${SRTGEN_SUBMIT_LOCK_S:-60}"     # an sbatch whose submit.sh was killed may still be at work

names=()               # in order
declare -A wanted=()   # name -> id of the bundle in the index
declare -A job_of=()   # name -> job id
declare -A id_of=()    # name -> id of the bundle when it was submitted
declare -A token_of=() # name -> token of an intent that is neither a job nor failed
declare -A time_of=()  # name -> when that was, in seconds
stopped=''

say() {
  printf 'submit.sh: %s\n' "$*" >&2
}

die() {
  say "$*"
  exit 1
}

usage() {
  sed -n '3,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

read_index() {
  local name id
  [[ ! -e "${here}/.srtgen-writing" ]] || die "${here} is half written (.srtgen-writing is there): generate it again"
  while IFS=$'\t' read -r name id; do
    names+=("${name}")
    wanted["${name}"]="${id}"
  done <"${here}/index.tsv"
}

# A line: kind, name, token, then job id (job), bundle id and time (intent), or words (failed). Torn lines count for nothing.
read_journal() {
  local kind name token detail time
  job_of=() id_of=() token_of=() time_of=()
  [[ -e "${JOURNAL}" ]] || return 0
  while IFS=$'\t' read -r kind name token detail time; do
    [[ -n "${name}" && -n "${token}" && -n "${detail}" ]] || continue
    case "${kind}" in
      intent)
        token_of["${name}"]="${token}"
        time_of["${name}"]="${time:-0}"
        id_of["${name}"]="${detail}"
        ;;
      job)
        job_of["${name}"]="${detail}"
        unset -v "token_of[${name}]"
        ;;
      failed) unset -v "token_of[${name}]" ;;
      *) say "${JOURNAL}: a line of unknown kind ${kind}" ;;
    esac
  done <"${JOURNAL}"
}

# Appends one line in one write, and waits until it is on the disk.
record() {
  local line
  printf -v line '%s\t' "$@"
  [[ ! -s "${JOURNAL}" || -z "$(tail -c 1 -- "${JOURNAL}" | tr -d '\n')" ]] || line=$'\n'"${line}"
  printf '%s\n' "${line%$'\t'}" >>"${JOURNAL}" || die "cannot write ${JOURNAL}"
  sync -- "${JOURNAL}" 2>/dev/null || sync || :
}

# The lock is inherited by sbatch: while one that lost its submit.sh is at work, nobody else submits.
take_lock() {
  command -v flock >/dev/null || die 'flock is missing (util-linux): without it two of these could submit at once'
  exec 9>"${here}/.submit.lock"
  flock -w "${LOCK_S}" 9 || die 'another submit.sh, or an sbatch that it started, is still at work on this folder'
}

# Prints the ids of this user's jobs that Slurm's controller knows, with their comments.
known_jobs() {
  squeue --noheader --all --states=all --user="$(id -un)" --format='%A %k' 9>&-
}

# Prints how many seconds the controller remembers a job that has ended.
memory_s() {
  local line
  while IFS= read -r line; do
    [[ ! "${line}" =~ ^MinJobAge[[:space:]]*=[[:space:]]*([0-9]+) ]] || printf '%s\n' "${BASH_REMATCH[1]}"
  done < <(scontrol show config 2>/dev/null 9>&-)
}

# Prints the first job id in standard input, a line of which holds TOKEN.
id_with() {
  local token="$1" line
  while IFS= read -r line; do
    [[ "${line}" != *"${token}"* || ! "${line}" =~ ^([0-9]+) ]] || {
      printf '%s\n' "${BASH_REMATCH[1]}"
      return 0
    }
  done
  return 1
}

# Prints the job with TOKEN, submitted at or after SINCE; 1 there is none, 2 nobody can tell.
find_job() {
  local token="$1" since="$2" now listing age start
  listing="$(known_jobs)" || return 2
  id_with "${token}" <<<"${listing}" && return 0
  printf -v now '%(%s)T' -1
  printf -v start '%(%Y-%m-%dT%H:%M:%S)T' "$((since - 60))"
  if listing="$(sacct -n -P -X -S "${start}" -o JobIDRaw,Comment,SubmitLine 2>/dev/null 9>&-)"; then
    id_with "${token}" <<<"${listing}"
    return
  fi
  age="$(memory_s)"
  ((now - since < ${age:-0})) || return 2
  return 1
}

# Finds out what became of an intent without an outcome, and records it. Returns 1 if it was not submitted.
settle() {
  local name="$1" token="${token_of[$1]}" since="${time_of[$1]}" try id code=0
  for try in 1 2; do
    code=0
    id="$(find_job "${token}" "${since}")" || code=$?
    if ((code == 0)); then
      record job "${name}" "${token}" "${id}"
      say "${name}: job ${id} (found by its comment)"
      return 0
    fi
    ((code == 1)) || die "${name}: whether it was submitted is not known, as Slurm does not tell. Run this again later, or look" \
      "for a job with ${token} in its comment and say: ./submit.sh --resolve ${name} JOBID|none"
    ((try == 2)) || sleep "${SETTLE_S}" 9>&-
  done
  record failed "${name}" "${token}" 'Slurm knows no such job'
  return 1
}

# Waits until fewer than LIMIT of this folder's jobs are in the queue.
wait_for_room() {
  local limit="$1" listing name active shown=''
  while :; do
    read_journal
    listing=" $(squeue --noheader --user="$(id -un)" --format=%A 9>&- | tr '\n' ' ') " ||
      die 'squeue does not answer; run this again later'
    active=0
    for name in "${!job_of[@]}"; do
      [[ "${listing}" != *" ${job_of[${name}]} "* ]] || active=$((active + 1))
    done
    ((active >= limit)) || return 0
    [[ "${shown}" == "${active}" ]] || say "${active} in the queue: waiting for one of them to end"
    shown="${active}"
    sleep "${POLL_S}" 9>&-
    [[ -z "${stopped}" ]] || die 'interrupted; run this again to go on'
  done
}

check_bundle() {
  local name="$1" manifest folder="${here}/$1"
  [[ ! -e "${folder}/.srtgen-writing" ]] || die "${folder} is half written: generate it again"
  [[ -r "${folder}/manifest.json" ]] || die "${folder} holds no bundle"
  manifest="$(<"${folder}/manifest.json")"
  [[ "${manifest}" == *"\"id\": \"${wanted[${name}]}\""* ]] ||
    die "${folder} is another bundle than the index says: generate the whole folder again"
}

submit() {
  local name="$1" token id comment now code=0
  shift
  check_bundle "${name}"
  token="srtgen-$(od -An -N8 -tx8 /dev/urandom | tr -d ' \n')"
  comment="$(sed -n 's/^#SBATCH --comment=//p' "${here}/${name}/run.sbatch")"
  printf -v now '%(%s)T' -1
  record intent "${name}" "${token}" "${wanted[${name}]}" "${now}"
  id="$(
    trap '' INT # an interrupted sbatch leaves open whether it submitted
    exec "${here}/${name}/submit.sh" --parsable "--comment=${comment:+${comment},}${token}" "$@"
  )" || code=$?
  if ((code == 0)) && [[ "${id}" =~ ^([0-9]+)(;.*)?$ ]]; then
    record job "${name}" "${token}" "${BASH_REMATCH[1]}"
    say "${name}: job ${BASH_REMATCH[1]}"
    return 0
  fi
  say "${name}: sbatch ended with ${code}${id:+ and said ${id}}; asking Slurm whether it got the job"
  token_of["${name}"]="${token}"
  time_of["${name}"]="${now}"
  settle "${name}" || die "${name}: not submitted. Mend what sbatch complained about, then run this again"
}

# The folder's own record and Slurm's or the job's word for each bundle.
show_status() {
  local name listing line state result
  declare -A states=()
  read_journal
  listing="$(squeue --noheader --all --states=all --user="$(id -un)" --format='%A %T' 2>/dev/null)" || listing=''
  while read -r line state; do [[ -z "${line}" ]] || states["${line}"]="${state}"; done <<<"${listing}"
  for name in "${names[@]}"; do
    line="${job_of[${name}]:-}"
    state="${states[${line:--}]:-}"
    [[ -z "${token_of[${name}]:-}" ]] || state='unknown: interrupted while it was submitted'
    result="${SRTGEN_RESULTS_DIR:-${here}/${name}/results}/${line:--}/result.json"
    [[ ! -r "${result}" || ! "$(<"${result}")" =~ \"verdict\":\"([a-z]+)\",\"reason\":\"(([^\"\\]|\\.)*)\" ]] ||
      state="${state:+${state}, }${BASH_REMATCH[1]}: ${BASH_REMATCH[2]}"
    printf '%s\t%s\t%s\n' "${name}" "${line:--}" "${state:-${line:+no longer in the queue}}"
  done
}

resolve() {
  local name="$1" outcome="$2"
  take_lock
  read_journal
  [[ -n "${token_of[${name}]:-}" ]] || die "${name}: nothing is open"
  case "${outcome}" in
    none) record failed "${name}" "${token_of[${name}]}" 'so says the operator' ;;
    *[!0-9]* | '') usage ;;
    *) record job "${name}" "${token_of[${name}]}" "${outcome}" ;;
  esac
}

# True if bundle NAME still has to be submitted.
due() {
  local name="$1" changed="$2"
  [[ -n "${job_of[${name}]:-}" ]] || return 0
  [[ "${id_of[${name}]:-}" != "${wanted[${name}]}" ]] || return 1
  ((changed == 0)) || return 0
  say "${name}: job ${job_of[${name}]} ran an earlier version of this bundle; --changed submits the new one"
  return 1
}

main() {
  local limit=0 dry=0 changed=0 name
  read_index
  while (($#)); do
    case "$1" in
      --at-most)
        [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || usage
        limit="$2"
        shift
        ;;
      --dry-run) dry=1 ;;
      --changed) changed=1 ;;
      --status)
        show_status
        exit 0
        ;;
      --resolve)
        (($# == 3)) || usage
        resolve "$2" "$3"
        exit 0
        ;;
      --)
        shift
        break
        ;;
      *) usage ;;
    esac
    shift
  done
  take_lock
  trap 'stopped=1' INT TERM
  read_journal
  for name in "${names[@]}"; do
    [[ -z "${stopped}" ]] || die 'interrupted; run this again to go on'
    if [[ -n "${token_of[${name}]:-}" ]] && settle "${name}"; then continue; fi
    due "${name}" "${changed}" || continue
    if ((dry)); then
      printf '%s\n' "${name}"
      continue
    fi
    ((limit == 0)) || wait_for_room "${limit}"
    submit "${name}" "$@"
  done
}

main "$@"
