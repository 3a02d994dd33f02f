#!/usr/bin/env bash
# Starts one decode worker inside its container.
# Usage: roles/decode.sh INDEX   (0)
# Image: rocm/atom-dev:nightly_202607011530
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
    printf 'roles/decode.sh: there is no number %s\n' "${index}" >&2
    exit 2
    ;;
esac

# Everything that the process writes by itself stays below its own folder.
work=/tmp/srtgen-"${SLURM_JOB_ID}"/decode_"${index}"
export HOME="${work}"/home
export XDG_CACHE_HOME="${work}"/cache
export TRITON_CACHE_DIR="${work}"/cache/triton
export AITER_JIT_DIR="${work}"/cache/aiter-jit
export AITER_CACHE_DIR="${work}"/cache/aiter
export TORCHINDUCTOR_CACHE_DIR="${work}"/cache/inductor
export FLYDSL_RUNTIME_CACHE_DIR="${work}"/cache/flydsl
export ATOM_HOST_IP="${NODE_2_ADDR}"
export HIP_VISIBLE_DEVICES='0,1,2,3'
export ATOM_DP_MASTER_PORT=29500
export ATOM_DP_BASE_PORT=29700
export HF_HOME=/hf_hub_cache
export PYTHONUNBUFFERED=1
export PYTHONDONTWRITEBYTECODE=1
export SAFETENSORS_FAST_GPU=1
export AITER_LOG_LEVEL=WARNING
export AITER_QUICK_REDUCE_QUANTIZATION=INT4
export ATOM_FORCE_ATTN_TRITON=1

argv=(
  python3 -m atom.entrypoints.openai_server
  --model MiniMaxAI/MiniMax-M3-MXFP8
  --host 0.0.0.0
  --server-port 6100
  -tp 4
  --kv-transfer-config '{"kv_role":"kv_consumer","kv_connector":"mooncake","proxy_ip":"'"${NODE_2_ADDR}"'","handshake_port":5400}'
  --enable-dp-attention
  --trust-remote-code
  --kv_cache_dtype fp8
  --block-size 128
  --gpu-memory-utilization 0.8
  --max-num-seqs 1024
  --max-model-len 32768
  --max-num-batched-tokens 32768
  --no-enable_prefix_caching
  --online_quant_config '{"global_quant_config":"ptpc_fp8","exclude_layer":["lm_head","model.embed_tokens","vision_tower","multi_modal_projector","patch_merge_mlp","*.gate.*","*.block_sparse_moe.experts*"]}'
  --cudagraph-capture-sizes '[1,2,4,8,16,24,32,40,48,56,64,72,80,88,96,104,112,120,128,136,144,152,160,168,176,184,192,200,208,216,224,232,240,248,256]'
)

# shellcheck source-path=SCRIPTDIR/.. source=lib/role.sh
. "${here}/../lib/role.sh"
enter_role "decode_${index}"
exec "${argv[@]}" </dev/null
