#!/usr/bin/env bash
# Starts the router inside its container.
# Usage: roles/atomesh.sh INDEX   (0)
# Image: rocm/atom-dev:nightly_202607231538
set -Eeuo pipefail
shopt -s inherit_errexit

index="${1:-0}"
here="${BASH_SOURCE[0]%/*}"
[[ "${BASH_SOURCE[0]}" == */* ]] || here=.

# Masks and switches of the submitting shell or of Slurm would change what the program does.
unset ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL USE_ATOMESH_ENTRYPOINTS

# What differs between the processes of this role.
case "${index}" in
  0) ;;
  *)
    printf 'roles/atomesh.sh: there is no number %s\n' "${index}" >&2
    exit 2
    ;;
esac

# Everything that the process writes by itself stays below its own folder.
work=/tmp/srtgen-"${SLURM_JOB_ID}"/atomesh_"${index}"
export HOME="${work}"/home
export XDG_CACHE_HOME="${work}"/cache
export HF_HOME=/hf_hub_cache
export PYTHONUNBUFFERED=1
export OMP_NUM_THREADS=1

argv=(
  atomesh launch
  --pd-disaggregation
  --prefill http://"${NODE_0_ADDR}":6100
  --decode http://"${NODE_1_ADDR}":6100
  --host 0.0.0.0
  --port 8000
  --backend atom
  --policy random
  --disable-health-check
  --disable-circuit-breaker
)

# shellcheck source-path=SCRIPTDIR/.. source=lib/role.sh
. "${here}/../lib/role.sh"
enter_role "atomesh_${index}"
exec "${argv[@]}" </dev/null
