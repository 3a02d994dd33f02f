# shellcheck shell=bash
# Inside the container (or on the host, without one): what every process of the job does before its own command.

# Raises the limit of open files as far as the system allows.
raise_limits() {
  local hard
  hard="$(ulimit -Hn)"
  ulimit -Sn "${hard}" 2>/dev/null || :
}

# Prints to the log what people ask when a worker misbehaves, in one line.
print_identity() {
  local step="$1" python
  python="$(python3 --version 2>&1)" || python="python3 of the image does not run for uid ${EUID}: ${python}"
  printf 'srtgen: %s on %s, uid %s, %s, open files %s, memlock %s, GPUs %s\n' \
    "${step}" "${SLURMD_NODENAME:-$(uname -n)}" "${EUID}" "${python}" \
    "$(ulimit -Sn)" "$(ulimit -l)" "${HIP_VISIBLE_DEVICES:-all}"
}

# Prints "srtgen-version NAME VALUE" lines beside the starting server, which must not wait for it.
# Forked twice, so that the server never sees a child that it did not make.
print_versions() {
  local lister="${SRTGEN_BUNDLE}/lib/versions.py"
  [[ -r "${lister}" ]] || return 0
  (nice -n 19 timeout 30 python3 -B "${lister}" </dev/null 2>/dev/null &)
}

# Waits for the line "go"; an end of the input means that the job is over.
wait_turn() {
  local line=''
  [[ "${SRTGEN_TURN:-0}" == 1 ]] || return 0
  printf 'srtgen: waiting for the workers\n'
  until [[ "${line}" == go ]]; do
    IFS= read -r line || {
      printf 'srtgen: the job ended before the turn of this step\n' >&2
      exit 143
    }
  done
}

# Makes the folders below FOLDER that the environment names (HOME, caches): not every program does.
make_own_folders() {
  local folder="$1" name own=()
  while IFS= read -r name; do
    [[ "${!name}" != "${folder}/"* ]] || own+=("${!name}")
  done < <(compgen -e)
  ((${#own[@]} == 0)) || mkdir -p -- "${own[@]}"
}

# Sets REPLY to the slurmstepd that process PID runs under; fails where a container hides it.
find_stepd() {
  local pid="$1" name stat
  while ((pid > 1)); do
    { read -r name <"/proc/${pid}/comm" && read -r stat <"/proc/${pid}/stat"; } 2>/dev/null || return 1
    REPLY="${pid}"
    [[ "${name}" != slurmstepd* ]] || return 0
    read -r _ pid _ <<<"${stat##*) }"
  done
  return 1
}

# True while process PID lives; a zombie does not.
lives() {
  local pid="$1" stat
  { read -r stat <"/proc/${pid}/stat"; } 2>/dev/null && [[ "${stat##*) }" != Z* ]]
}

# Shows that process PID of step STEP lives, by a file that changes every 5 s and says "orphan" once slurmstepd is gone.
# A dead slurmstepd makes its srun hang without a word; servers are asked for their health, the client has only this.
# Waits on an empty pipe: no forks.
keep_beating() {
  local step="$1" pid="$2" file="${SRTGEN_RESULTS}/logs/.$1.alive" count=0 idle stepd=''
  ! find_stepd "${pid}" || stepd="${REPLY}"
  exec {idle}<> <(:)
  while kill -0 "${pid}" 2>/dev/null; do
    [[ -z "${stepd}" ]] || lives "${stepd}" || {
      printf 'orphan\n' 2>/dev/null >"${file}" || :
      return 0
    }
    ((count % 10)) || printf '%s\n' "${count}" 2>/dev/null >"${file}" || :
    count=$((count + 1))
    read -r -t 0.5 -u "${idle}" || :
  done
  rm -f -- "${file}"
}

# The one call of a role script: own writable work folder, limits, identity, turn.
enter_role() {
  local step="$1" folder probe
  folder="/tmp/srtgen-${SLURM_JOB_ID}/${step}"
  probe="${SRTGEN_RESULTS}/logs/.${step}.write"
  [[ -d "${TMPDIR:-}" && -w "${TMPDIR:-}" && "${#TMPDIR}" -lt 40 ]] || export TMPDIR=/tmp # sockets lie below it
  if ! mkdir -p -- "${folder}" || ! cd -- "${folder}"; then
    printf 'srtgen: uid %s cannot write in /tmp of %s\n' "${EUID}" "${SLURMD_NODENAME:-here}" >&2
    exit 72
  fi
  if ! { : >"${probe}" && rm -f -- "${probe}"; }; then
    printf 'srtgen: uid %s cannot write into the results folder %s from here\n' "${EUID}" "${SRTGEN_RESULTS}" >&2
    exit 72
  fi
  make_own_folders "${folder}"
  raise_limits
  print_identity "${step}"
  [[ "${step}" == prefetch_0 ]] || print_versions # the last line of its log is its own
  [[ "${step}" != bench ]] || (keep_beating "${step}" "$$" </dev/null >/dev/null 2>&1 &)
  wait_turn
}
