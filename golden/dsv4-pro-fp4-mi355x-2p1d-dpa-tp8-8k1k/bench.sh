#!/usr/bin/env bash
# The client of dsv4-pro-fp4-mi355x-2p1d-dpa-tp8-8k1k: runs inside its container once the router serves every worker.
set -Eeuo pipefail
shopt -s inherit_errexit

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"

# What is measured.
declare -rx BENCH_TYPE=sa-bench
declare -rx BENCH_NAME=dsv4-pro-fp4-mi355x-2p1d-dpa-tp8-8k1k
declare -rx BENCH_MODEL=deepseek-ai/DeepSeek-V4-Pro
declare -rx BENCH_CLIENT=inferencex
declare -rx BENCH_CLIENT_PATH=/infmax-workspace/utils/bench_serving/benchmark_serving.py
declare -rx BENCH_TOKENIZER=''
declare -rx BENCH_OFFLINE=0
declare -rx BENCH_ISL=8192
declare -rx BENCH_OSL=1024
declare -rx BENCH_RATIO=0.8
declare -rx BENCH_REQUEST_RATE=inf
declare -rx BENCH_CHAT_TEMPLATE=0
declare -rx BENCH_MAX_FAILED_RATIO=0
declare -rx BENCH_STALL_TIMEOUT_S=600
declare -rx BENCH_CONCURRENCIES='256 512 768 1024 2048'
declare -rx BENCH_PROMPTS='2560 5120 7680 10240 20480'
declare -rx BENCH_WARMUPS='512 1024 1536 2048 4096'
declare -rx BENCH_CWD=''
declare -rx BENCH_GPUS_PREFILL=16
declare -rx BENCH_GPUS_DECODE=8
declare -rx BENCH_GPUS_AGG=0
declare -rx BENCH_GPUS_ALLOCATED=24
declare -rx BENCH_ROUTER_METRICS_PORT=29000
declare -rx BENCH_META='{"hw":"mi355x","image":"rocm/atom-dev:nightly_202606101403","framework":"atom","precision":"fp4","spec_decoding":"none","router":{"name":"atomesh"},"kv_p2p_transfer":"mooncake","is_multinode":true,"prefill":{"tp":8,"pp":1,"dcp_size":1,"pcp_size":1,"ep":1,"dp_attention":true,"num_workers":2},"decode":{"tp":8,"pp":1,"dcp_size":1,"pcp_size":1,"ep":1,"dp_attention":true,"num_workers":1}}'

# shellcheck source-path=SCRIPTDIR source=lib/role.sh
. "${here}/lib/role.sh"
# shellcheck source-path=SCRIPTDIR source=lib/bench.sh
. "${here}/lib/bench.sh"

# Everything that the client writes, but for its results, stays below its own folder.
work=/tmp/srtgen-"${SLURM_JOB_ID}"/bench
export HOME="${work}"/home
export XDG_CACHE_HOME="${work}"/cache
export HF_HOME=/hf_hub_cache
export PYTHONUNBUFFERED=1
export PYTHONDONTWRITEBYTECODE=1
export SAFETENSORS_FAST_GPU=1
export AITER_LOG_LEVEL=WARNING
export ATOM_MOE_GU_ITLV=1
export AITER_BF16_FP8_MOE_BOUND=0
export GPU_MAX_HW_QUEUES=5
export ATOM_CPU_AFFINITY=1


bench_check
enter_role bench
bench_begin

# Point 1 of 5: concurrency 256, 2560 prompts behind 512 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model deepseek-ai/DeepSeek-V4-Pro
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 8192
  --random-output-len 1024
  --random-range-ratio 0.8
  --num-prompts 2560
  --max-concurrency 256
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 512
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c256.json
  --trust-remote-code
  --tokenizer deepseek-ai/DeepSeek-V4-Pro
)
bench_point c256 256 2560 "${argv[@]}"

# Point 2 of 5: concurrency 512, 5120 prompts behind 1024 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model deepseek-ai/DeepSeek-V4-Pro
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 8192
  --random-output-len 1024
  --random-range-ratio 0.8
  --num-prompts 5120
  --max-concurrency 512
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 1024
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c512.json
  --trust-remote-code
  --tokenizer deepseek-ai/DeepSeek-V4-Pro
)
bench_point c512 512 5120 "${argv[@]}"

# Point 3 of 5: concurrency 768, 7680 prompts behind 1536 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model deepseek-ai/DeepSeek-V4-Pro
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 8192
  --random-output-len 1024
  --random-range-ratio 0.8
  --num-prompts 7680
  --max-concurrency 768
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 1536
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c768.json
  --trust-remote-code
  --tokenizer deepseek-ai/DeepSeek-V4-Pro
)
bench_point c768 768 7680 "${argv[@]}"

# Point 4 of 5: concurrency 1024, 10240 prompts behind 2048 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model deepseek-ai/DeepSeek-V4-Pro
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 8192
  --random-output-len 1024
  --random-range-ratio 0.8
  --num-prompts 10240
  --max-concurrency 1024
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 2048
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c1024.json
  --trust-remote-code
  --tokenizer deepseek-ai/DeepSeek-V4-Pro
)
bench_point c1024 1024 10240 "${argv[@]}"

# Point 5 of 5: concurrency 2048, 20480 prompts behind 4096 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model deepseek-ai/DeepSeek-V4-Pro
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 8192
  --random-output-len 1024
  --random-range-ratio 0.8
  --num-prompts 20480
  --max-concurrency 2048
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 4096
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c2048.json
  --trust-remote-code
  --tokenizer deepseek-ai/DeepSeek-V4-Pro
)
bench_point c2048 2048 20480 "${argv[@]}"

bench_finish
