#!/usr/bin/env bash
# The client of qwen3-0.6b-1p1d-tp1: runs inside its container once the router serves every worker.
set -Eeuo pipefail
shopt -s inherit_errexit

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"

# What is measured.
declare -rx BENCH_TYPE=sa-bench
declare -rx BENCH_NAME=qwen3-0.6b-1p1d-tp1
declare -rx BENCH_MODEL=Qwen/Qwen3-0.6B
declare -rx BENCH_CLIENT=atom
declare -rx BENCH_CLIENT_PATH=''
declare -rx BENCH_TOKENIZER=''
declare -rx BENCH_OFFLINE=0
declare -rx BENCH_ISL=128
declare -rx BENCH_OSL=32
declare -rx BENCH_RATIO=0.8
declare -rx BENCH_REQUEST_RATE=inf
declare -rx BENCH_CHAT_TEMPLATE=0
declare -rx BENCH_MAX_FAILED_RATIO=0
declare -rx BENCH_STALL_TIMEOUT_S=600
declare -rx BENCH_CONCURRENCIES='1 4'
declare -rx BENCH_PROMPTS='16 40'
declare -rx BENCH_WARMUPS='2 8'
declare -rx BENCH_CWD=''
declare -rx BENCH_GPUS_PREFILL=1
declare -rx BENCH_GPUS_DECODE=1
declare -rx BENCH_GPUS_AGG=0
declare -rx BENCH_GPUS_ALLOCATED=16
declare -rx BENCH_ROUTER_METRICS_PORT=29000
declare -rx BENCH_META='{"hw":"mi355x","image":"rocm/atom-dev:nightly_202607231538","framework":"atom","precision":"bf16","spec_decoding":"none","router":{"name":"atomesh"},"kv_p2p_transfer":"mooncake","is_multinode":true,"prefill":{"tp":1,"pp":1,"dcp_size":1,"pcp_size":1,"ep":1,"dp_attention":false,"num_workers":1},"decode":{"tp":1,"pp":1,"dcp_size":1,"pcp_size":1,"ep":1,"dp_attention":false,"num_workers":1}}'

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
export OMP_NUM_THREADS=1


bench_check
enter_role bench
bench_begin

# Point 1 of 2: concurrency 1, 16 prompts behind 2 warm-up requests.
argv=(
  python3 -m atom.benchmarks.benchmark_serving
  --model Qwen/Qwen3-0.6B
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 128
  --random-output-len 32
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
)
bench_point c1 1 16 "${argv[@]}"

# Point 2 of 2: concurrency 4, 40 prompts behind 8 warm-up requests.
argv=(
  python3 -m atom.benchmarks.benchmark_serving
  --model Qwen/Qwen3-0.6B
  --backend openai
  --base-url http://"${NODE_0_ADDR}":8000
  --endpoint /v1/completions
  --dataset-name random
  --random-input-len 128
  --random-output-len 32
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
)
bench_point c4 4 40 "${argv[@]}"

bench_finish
