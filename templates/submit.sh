#!/usr/bin/env bash
# Submits this bundle from anywhere: ./submit.sh [sbatch options]
set -Eeuo pipefail
shopt -s inherit_errexit

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
cd -- "${here}"
export SRTGEN_BUNDLE_DIR="${here}"

# These override the directives in run.sbatch: the user may want that, but should know.
for name in "${!SBATCH_@}"; do
  printf 'submit.sh: warning: %s=%s in the environment overrides run.sbatch\n' "${name}" "${!name}" >&2
done
if [[ -n "${SLURM_JOB_ID:-}" ]]; then
  printf 'submit.sh: warning: inside job %s, sbatch hands its SLURM_* settings on to the new job\n' "${SLURM_JOB_ID}" >&2
fi
exec sbatch "$@" run.sbatch
