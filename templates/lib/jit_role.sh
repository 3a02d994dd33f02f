# shellcheck shell=bash
# Inside the container of a worker: compiled kernels of earlier jobs. Data: the SRTGEN_JIT_* variables of the role script.

readonly JIT_LIMIT_S=150 # a store that hangs; jit_cache.py stops by itself before

# The cache folders of a worker that goes without the store: below its work folder, as without one.
own_jit_folders() {
  local name work="$1"
  while IFS= read -r name; do
    [[ "${!name}" != "${SRTGEN_JIT_FOLDER}/"* ]] || export "${name}=${work}/cache/${!name#"${SRTGEN_JIT_FOLDER}/"}"
  done < <(compgen -e)
  make_own_folders "${work}/cache"
}

# Fills the worker's cache folders from the store, and leaves a process that stores new files when the job says so.
use_jit_cache() {
  local work="$1" lock code=0 words
  words=("${SRTGEN_JIT_STORE}" "${SRTGEN_JIT_IMAGE}" "${SRTGEN_JIT_FOLDER}" "${SRTGEN_JIT_MAX_GB}")
  # The server inherits the lock: the kernel opens it with the server's end, whatever end that is.
  if mkdir -p -- "${SRTGEN_JIT_FOLDER%/*}" 2>/dev/null && { exec {lock}>>"${SRTGEN_JIT_FOLDER}.lock"; } 2>/dev/null; then
    timeout -k 5 "${JIT_LIMIT_S}" python3 -E -s -B "${SRTGEN_BUNDLE}/lib/jit_cache.py" load "${words[@]}" "${lock}" </dev/null || code=$?
  else
    printf 'srtgen: jit cache: off: uid %s cannot write into %s\n' "${EUID}" "${SRTGEN_JIT_FOLDER%/*}"
    code=3
  fi
  if ((code != 0)); then
    ((code == 3)) || printf 'srtgen: jit cache: off: loading ended with exit code %s\n' "${code}"
    own_jit_folders "${work}"
    return 0
  fi
  make_own_folders "${SRTGEN_JIT_FOLDER}"
  # Forked twice, so that the server never sees a child that it did not make.
  (nice -n 19 python3 -E -s -B "${SRTGEN_BUNDLE}/lib/jit_cache.py" keep "${words[@]}" <&0 2>&1 {lock}>&- &)
}
