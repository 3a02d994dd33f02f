#!/usr/bin/env bash
# The client of dsv4-pro-fp4-mi355x-agg-dpa-tp8-mtp-8k1k: runs inside its container once the router serves every worker.
set -Eeuo pipefail
shopt -s inherit_errexit

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"

# What is measured.
declare -rx BENCH_TYPE=sa-bench
declare -rx BENCH_NAME=dsv4-pro-fp4-mi355x-agg-dpa-tp8-mtp-8k1k
declare -rx BENCH_MODEL=deepseek-ai/DeepSeek-V4-Pro
declare -rx BENCH_CLIENT=inferencex
declare -rx BENCH_CLIENT_PATH=/infmax-workspace/utils/bench_serving/benchmark_serving.py
declare -rx BENCH_TOKENIZER=''
declare -rx BENCH_OFFLINE=0
declare -rx BENCH_ISL=8192
declare -rx BENCH_OSL=1024
declare -rx BENCH_RATIO=0.8
declare -rx BENCH_REQUEST_RATE=inf
declare -rx BENCH_CHAT_TEMPLATE=1
declare -rx BENCH_MAX_FAILED_RATIO=0
declare -rx BENCH_STALL_TIMEOUT_S=600
declare -rx BENCH_CONCURRENCIES='32 64 128'
declare -rx BENCH_PROMPTS='320 640 1280'
declare -rx BENCH_WARMUPS='64 128 256'
declare -rx BENCH_CWD=''
declare -rx BENCH_GPUS_PREFILL=0
declare -rx BENCH_GPUS_DECODE=0
declare -rx BENCH_GPUS_AGG=8
declare -rx BENCH_GPUS_ALLOCATED=8
declare -rx BENCH_ROUTER_METRICS_PORT=29000
declare -rx BENCH_META='{"hw":"mi355x","image":"rocm/atom-dev:nightly_202607231538","framework":"atom","precision":"fp4","spec_decoding":"mtp","router":{"name":"atomesh"},"is_multinode":false,"agg":{"tp":8,"pp":1,"dcp_size":1,"pcp_size":1,"ep":1,"dp_attention":true,"num_workers":1}}'

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
export ATOM_MOE_GU_ITLV=1
export AITER_BF16_FP8_MOE_BOUND=0
export ATOM_DISABLE_MMAP=true


bench_check
enter_role bench
bench_begin

# Point 1 of 3: concurrency 32, 320 prompts behind 64 warm-up requests.
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
  --num-prompts 320
  --max-concurrency 32
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 64
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c32.json
  --trust-remote-code
  --dsv4
)
bench_point c32 32 320 "${argv[@]}"

# Point 2 of 3: concurrency 64, 640 prompts behind 128 warm-up requests.
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
  --num-prompts 640
  --max-concurrency 64
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 128
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c64.json
  --trust-remote-code
  --dsv4
)
bench_point c64 64 640 "${argv[@]}"

# Point 3 of 3: concurrency 128, 1280 prompts behind 256 warm-up requests.
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
  --num-prompts 1280
  --max-concurrency 128
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 256
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c128.json
  --trust-remote-code
  --dsv4
)
bench_point c128 128 1280 "${argv[@]}"

bench_finish
