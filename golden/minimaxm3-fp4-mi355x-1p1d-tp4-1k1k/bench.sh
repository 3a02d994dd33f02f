#!/usr/bin/env bash
# The client of minimaxm3-fp4-mi355x-1p1d-tp4-1k1k: runs inside its container once the router serves every worker.
set -Eeuo pipefail
shopt -s inherit_errexit

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"

# What is measured.
declare -rx BENCH_TYPE=sa-bench
declare -rx BENCH_NAME=minimaxm3-fp4-mi355x-1p1d-tp4-1k1k
declare -rx BENCH_MODEL=amd/MiniMax-M3-MXFP4
declare -rx BENCH_CLIENT=inferencex
declare -rx BENCH_CLIENT_PATH=/infmax-workspace/utils/bench_serving/benchmark_serving.py
declare -rx BENCH_TOKENIZER=''
declare -rx BENCH_OFFLINE=0
declare -rx BENCH_ISL=1024
declare -rx BENCH_OSL=1024
declare -rx BENCH_RATIO=0.8
declare -rx BENCH_REQUEST_RATE=inf
declare -rx BENCH_CHAT_TEMPLATE=0
declare -rx BENCH_MAX_FAILED_RATIO=0
declare -rx BENCH_STALL_TIMEOUT_S=600
declare -rx BENCH_CONCURRENCIES='1 2 4 8 16 32 64 128 256'
declare -rx BENCH_PROMPTS='16 20 40 80 160 320 640 1280 2560'
declare -rx BENCH_WARMUPS='2 4 8 16 32 64 128 256 512'
declare -rx BENCH_CWD=''
declare -rx BENCH_GPUS_PREFILL=4
declare -rx BENCH_GPUS_DECODE=4
declare -rx BENCH_GPUS_AGG=0
declare -rx BENCH_GPUS_ALLOCATED=16
declare -rx BENCH_ROUTER_METRICS_PORT=29000
declare -rx BENCH_META='{"hw":"mi355x","image":"rocm/atom-dev:nightly_202607011530","framework":"atom","precision":"fp4","spec_decoding":"none","router":{"name":"atomesh"},"kv_p2p_transfer":"mooncake","is_multinode":true,"prefill":{"tp":4,"pp":1,"dcp_size":1,"pcp_size":1,"ep":1,"dp_attention":false,"num_workers":1},"decode":{"tp":4,"pp":1,"dcp_size":1,"pcp_size":1,"ep":1,"dp_attention":false,"num_workers":1}}'

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
export AITER_QUICK_REDUCE_QUANTIZATION=INT4
export ATOM_FORCE_ATTN_TRITON=1


bench_check
enter_role bench
bench_begin

# Point 1 of 9: concurrency 1, 16 prompts behind 2 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model amd/MiniMax-M3-MXFP4
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 1024
  --random-output-len 1024
  --random-range-ratio 0.8
  --num-prompts 16
  --max-concurrency 1
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 2
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c1.json
  --trust-remote-code
  --tokenizer amd/MiniMax-M3-MXFP4
)
bench_point c1 1 16 "${argv[@]}"

# Point 2 of 9: concurrency 2, 20 prompts behind 4 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model amd/MiniMax-M3-MXFP4
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 1024
  --random-output-len 1024
  --random-range-ratio 0.8
  --num-prompts 20
  --max-concurrency 2
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 4
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c2.json
  --trust-remote-code
  --tokenizer amd/MiniMax-M3-MXFP4
)
bench_point c2 2 20 "${argv[@]}"

# Point 3 of 9: concurrency 4, 40 prompts behind 8 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model amd/MiniMax-M3-MXFP4
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 1024
  --random-output-len 1024
  --random-range-ratio 0.8
  --num-prompts 40
  --max-concurrency 4
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 8
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c4.json
  --trust-remote-code
  --tokenizer amd/MiniMax-M3-MXFP4
)
bench_point c4 4 40 "${argv[@]}"

# Point 4 of 9: concurrency 8, 80 prompts behind 16 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model amd/MiniMax-M3-MXFP4
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 1024
  --random-output-len 1024
  --random-range-ratio 0.8
  --num-prompts 80
  --max-concurrency 8
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 16
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c8.json
  --trust-remote-code
  --tokenizer amd/MiniMax-M3-MXFP4
)
bench_point c8 8 80 "${argv[@]}"

# Point 5 of 9: concurrency 16, 160 prompts behind 32 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model amd/MiniMax-M3-MXFP4
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 1024
  --random-output-len 1024
  --random-range-ratio 0.8
  --num-prompts 160
  --max-concurrency 16
  --request-rate inf
  --ignore-eos
  --save-result
  --num-warmups 32
  --percentile-metrics 'ttft,tpot,itl,e2el'
  --metric-percentiles '90,99'
  --result-dir "${SRTGEN_RESULTS}"/bench
  --result-filename c16.json
  --trust-remote-code
  --tokenizer amd/MiniMax-M3-MXFP4
)
bench_point c16 16 160 "${argv[@]}"

# Point 6 of 9: concurrency 32, 320 prompts behind 64 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model amd/MiniMax-M3-MXFP4
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 1024
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
  --tokenizer amd/MiniMax-M3-MXFP4
)
bench_point c32 32 320 "${argv[@]}"

# Point 7 of 9: concurrency 64, 640 prompts behind 128 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model amd/MiniMax-M3-MXFP4
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 1024
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
  --tokenizer amd/MiniMax-M3-MXFP4
)
bench_point c64 64 640 "${argv[@]}"

# Point 8 of 9: concurrency 128, 1280 prompts behind 256 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model amd/MiniMax-M3-MXFP4
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 1024
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
  --tokenizer amd/MiniMax-M3-MXFP4
)
bench_point c128 128 1280 "${argv[@]}"

# Point 9 of 9: concurrency 256, 2560 prompts behind 512 warm-up requests.
argv=(
  python3 /infmax-workspace/utils/bench_serving/benchmark_serving.py
  --model amd/MiniMax-M3-MXFP4
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 1024
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
  --tokenizer amd/MiniMax-M3-MXFP4
)
bench_point c256 256 2560 "${argv[@]}"

bench_finish
