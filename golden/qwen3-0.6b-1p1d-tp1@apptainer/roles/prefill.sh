#!/usr/bin/env bash
# Starts one prefill worker inside its container.
# Usage: roles/prefill.sh INDEX   (0)
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
    printf 'roles/prefill.sh: there is no number %s\n' "${index}" >&2
    exit 2
    ;;
esac

# Everything that the process writes by itself stays below its own folder.
work=/tmp/srtgen-"${SLURM_JOB_ID}"/prefill_"${index}"
export HOME="${work}"/home
export XDG_CACHE_HOME="${work}"/cache
export TRITON_CACHE_DIR="${work}"/cache/triton
export AITER_JIT_DIR="${work}"/cache/aiter-jit
export AITER_CACHE_DIR="${work}"/cache/aiter
export TORCHINDUCTOR_CACHE_DIR="${work}"/cache/inductor
export FLYDSL_RUNTIME_CACHE_DIR="${work}"/cache/flydsl
export ATOM_HOST_IP="${NODE_0_ADDR}"
export HIP_VISIBLE_DEVICES=0
export MC_FORCE_TCP=true
export HF_HOME=/hf_hub_cache
export PYTHONUNBUFFERED=1
export OMP_NUM_THREADS=1

argv=(
  python3 -m atom.entrypoints.openai_server
  --model Qwen/Qwen3-0.6B
  --host 0.0.0.0
  --server-port 6100
  -tp 1
  --kv-transfer-config '{"kv_role":"kv_producer","kv_connector":"mooncake","proxy_ip":"'"${NODE_0_ADDR}"'","handshake_port":5400,"protocol":"tcp"}'
  --kv_cache_dtype fp8
  --gpu-memory-utilization 0.50
  --max-model-len 2048
  --max-num-seqs 8
  --block-size 16
  --enforce-eager
  --no-enable_prefix_caching
)

# shellcheck source-path=SCRIPTDIR/.. source=lib/role.sh
. "${here}/../lib/role.sh"
enter_role "prefill_${index}"
exec "${argv[@]}" </dev/null
