#!/usr/bin/env bash
# Starts one agg worker inside its container.
# Usage: roles/agg.sh INDEX   (0)
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
    printf 'roles/agg.sh: there is no number %s\n' "${index}" >&2
    exit 2
    ;;
esac

# Everything that the process writes by itself stays below its own folder.
work=/tmp/srtgen-"${SLURM_JOB_ID}"/agg_"${index}"
export HOME="${work}"/home
export XDG_CACHE_HOME="${work}"/cache
export TRITON_CACHE_DIR="${work}"/cache/triton
export AITER_JIT_DIR="${work}"/cache/aiter-jit
export AITER_CACHE_DIR="${work}"/cache/aiter
export TORCHINDUCTOR_CACHE_DIR="${work}"/cache/inductor
export FLYDSL_RUNTIME_CACHE_DIR="${work}"/cache/flydsl
export ATOM_HOST_IP="${NODE_0_ADDR}"
export ATOM_DP_MASTER_PORT=29500
export ATOM_DP_BASE_PORT=29700
export HF_HOME=/hf_hub_cache
export PYTHONUNBUFFERED=1
export ATOM_MOE_GU_ITLV=1
export AITER_BF16_FP8_MOE_BOUND=0
export ATOM_DISABLE_MMAP=true

argv=(
  python3 -m atom.entrypoints.openai_server
  --model deepseek-ai/DeepSeek-V4-Pro
  --host 0.0.0.0
  --server-port 6100
  -tp 8
  --enable-dp-attention
  --trust-remote-code
  --kv_cache_dtype fp8
  --max-num-seqs 128
  --no-enable_prefix_caching
  --method mtp
  --num-speculative-tokens 3
)

# shellcheck source-path=SCRIPTDIR/.. source=lib/role.sh
. "${here}/../lib/role.sh"
enter_role "agg_${index}"
exec "${argv[@]}" </dev/null
