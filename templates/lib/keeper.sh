# shellcheck shell=bash
# The text of this file runs on every other node of a job whose bundle travels in run.sbatch:
#   keep FOLDER SHA256 UNPACK JOBS   unpack FOLDER.sbatch into FOLDER, say so, and remove it when the input or the job ends
#   old JOBS                         only remove bundles of jobs that are not among JOBS ("all": none is removed)
# It says one line: node, ok or fail, text; separated by tabs.
set -uo pipefail
folder=''

# Slurm kills everything a few seconds after TERM.
remove() {
  trap '' TERM INT HUP
  rm -rf -- "${folder}" "${folder}.sbatch"
}

# Bundles of this user's jobs that have ended without a chance to remove them.
remove_old() {
  local jobs="$1" path job
  [[ "${jobs}" != all ]] || return 0
  for path in /tmp/srtgen-bundle-*; do
    job="${path#/tmp/srtgen-bundle-}"
    job="${job%%.*}"
    [[ ! -O "${path}" || " ${jobs//$'\n'/ } " == *" ${job} "* ]] || rm -rf -- "${path}"
  done
}

say() {
  printf '%s\t%s\t%s\n' "${SLURMD_NODENAME:-}" "$1" "$2"
}

keep() {
  local sha256="$1" unpack="$2" said
  trap 'remove; exit 143' TERM INT HUP
  if ! said="$(mkdir -m 700 -- "${folder}" 2>&1 && python3 -E -s -c "${unpack}" "${folder}.sbatch" "${sha256}" "${folder}" 2>&1 &&
    mkdir -p -- "${folder}/results/logs" "${folder}/results/bench" "${folder}/results/eval" 2>&1)"; then
    say fail "${said##*$'\n'}"
    remove
    exit 1
  fi
  rm -f -- "${folder}.sbatch"
  say ok ''
  cat >/dev/null <&0 &
  wait "$!"
  remove
}

case "$1" in
  keep)
    folder="$2"
    remove_old "$5"
    keep "$3" "$4"
    ;;
  old) remove_old "$2" ;;
esac
