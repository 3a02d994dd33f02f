# Prints the folders that may be the bundle, best guess first.
bundle_candidates() {
  local line command='' folder="${SLURM_SUBMIT_DIR:-}"
  [[ -z "${SRTGEN_BUNDLE_DIR:-}" ]] || printf '%s\n' "${SRTGEN_BUNDLE_DIR}"
  if in_allocation; then
    command="$(readlink -f -- "${BASH_SOURCE[0]}")" || command=''
    printf '%s\n' "${command%/*}"
    return 0
  fi
  while IFS= read -r line; do
    [[ ! "${line}" =~ ^[[:space:]]*Command=(.*)$ ]] || command="${BASH_REMATCH[1]}"
    [[ -n "${folder}" || ! "${line}" =~ ^[[:space:]]*WorkDir=(.*)$ ]] || folder="${BASH_REMATCH[1]}"
  done <<<"${job_text}"
  if [[ -n "${command}" && "${command}" != '(null)' ]]; then
    [[ "${command}" == /* ]] || command="${folder}/${command}"
    [[ -f "${command}" ]] || command="${command%%.sbatch *}.sbatch" # Slurm appends the script's arguments
    printf '%s\n' "${command%/*}"
    command="$(readlink -f -- "${command}")" || command=''
    printf '%s\n' "${command%/*}"
  fi
  printf '%s\n' "${folder}"
}

# Sets BUNDLE to the first candidate that is the bundle this script was generated with.
find_bundle() {
  local folder manifest other=''
  while IFS= read -r folder; do
    [[ -n "${folder}" && -f "${folder}/lib/srtgen.sh" ]] || continue
    [[ ! -e "${folder}/.srtgen-writing" ]] ||
      refuse "${folder} is half written (.srtgen-writing is there): generate it again"
    [[ -r "${folder}/manifest.json" ]] || continue # a failing $(<…) ends the script, also before ||
    manifest="$(<"${folder}/manifest.json")"
    if [[ "${manifest}" == *"\"id\": \"${PLAN_ID}\""* ]]; then
      BUNDLE="$(cd -- "${folder}" && pwd -P)" || continue
      readonly BUNDLE
      return 0
    fi
    other="${folder}"
  done < <(bundle_candidates)
  [[ -z "${other}" ]] || refuse "the bundle in ${other} was regenerated since submission: submit it again"
  ! in_allocation || refuse 'the bundle of this file is not beside it: run the run.sbatch of a generated folder'
  refuse 'the bundle of this job is not found. Submit its file, not its text (no "sbatch < run.sbatch"), or use submit.sh'
}

[[ -n "${SLURM_JOB_ID:-}" ]] || refuse 'this is a Slurm batch script: start it with sbatch run.sbatch (or submit.sh)'
job_text="$(scontrol show job "${SLURM_JOB_ID}" 2>/dev/null)" || job_text=''
find_bundle
# shellcheck source-path=SCRIPTDIR source=lib/srtgen.sh
source "${BUNDLE}/lib/srtgen.sh"
main
