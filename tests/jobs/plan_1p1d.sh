# shellcheck shell=bash
# The data block of a job, as run.sbatch has it: one prefill, one decode, runtime none.
# shellcheck disable=SC2034  # read by the library
readonly PLAN_ID=ce00aeefc9cdd6c3bd064ee7fc317c758d85589b90284b601edc025ab76be6c7
readonly PLAN_NAME=qwen3-0.6b-1p1d-tp1
readonly PLAN_NODES=2
readonly PLAN_GPUS_PER_NODE=8
readonly PLAN_SERVED_MODEL=Qwen/Qwen3-0.6B
readonly PLAN_MODEL_KIND=hub
readonly PLAN_MODEL_SOURCE=Qwen/Qwen3-0.6B
readonly PLAN_MODEL_STAGED=''
readonly PLAN_MODEL_PREFETCH=none
readonly PLAN_HUB_CACHE=''
readonly PLAN_OFFLINE=0
readonly PLAN_RUNTIME=none
readonly PLAN_CONTAINER_ROOT=0
readonly PLAN_INTERFACE=''
readonly PLAN_OUTPUT_DIR=''
readonly PLAN_HEALTH_ATTEMPTS=180
readonly PLAN_HEALTH_INTERVAL_S=5
readonly PLAN_HEALTH_DEADLINE_S=900
readonly PLAN_GPU_DRAIN_TIMEOUT_S=300
readonly PLAN_CPUS_PER_TASK=''
readonly PLAN_TRANSPORT=tcp
readonly PLAN_TRANSPORT_EXPLICIT=1
readonly PLAN_RDMA_GID_INDEX=''
readonly PLAN_IB_DEVICE=''
readonly PLAN_ROUTER_STEP=atomesh_0
readonly PLAN_ROUTER_NODE=0
readonly PLAN_ROUTER_PORT=8000
readonly PLAN_ROUTER_METRICS_PORT=29000
readonly PLAN_ROUTER_RANKS=0
readonly PLAN_BENCH=sa-bench
readonly PLAN_EVAL=none
readonly PLAN_EVAL_OFFLINE=0
readonly PLAN_BENCH_NODE=0
readonly PLAN_BENCH_MAX_CONCURRENCY=4
readonly PLAN_PREAMBLE=''

readonly PLAN_WORKERS=(
  #step       role     index  node  http  handshake  ranks  gpus
  'prefill_0  prefill  0      0     6100  5400       1      0'
  'decode_0   decode   0      1     6100  5400       1      0'
)

# Images by role.
declare -rA PLAN_IMAGE=(
  [prefill]=rocm/atom-dev:nightly_202607231538
  [decode]=rocm/atom-dev:nightly_202607231538
  [atomesh]=rocm/atom-dev:nightly_202607231538
  [bench]=rocm/atom-dev:nightly_202607231538
)

readonly PLAN_MOUNTS=()
readonly PLAN_CONTAINER_OPTIONS=()
readonly PLAN_SRUN_OPTIONS=()
readonly PLAN_SRUN_OPTIONS_prefill=()
readonly PLAN_SRUN_OPTIONS_decode=()
readonly PLAN_PASS_ENV=()
readonly PLAN_REQUIRE_ENV=()
readonly PLAN_FATAL_MARKERS=(
  OutOfMemoryError
  'HIP out of memory'
  'Memory access fault by GPU'
  'Address already in use'
  'Segmentation fault'
)
readonly PLAN_FATAL_PATTERNS=()
readonly PLAN_IDENTITY=()
readonly PLAN_EVAL_PASS_ENV=()
readonly PLAN_PREFLIGHT_COMMANDS=()

# Every port of the plan: node, first, last, owner.
readonly PLAN_LISTEN=(
  '0  8000   8000   atomesh_0'
  '0  29000  29000  atomesh_0'
  '0  6100   6100   prefill_0'
  '0  5400   5400   prefill_0'
  '1  6100   6100   decode_0'
  '1  5400   5400   decode_0'
)

