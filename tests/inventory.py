"""The ATOM configurations that InferenceX has run on MI355X, as recipes: what was fine there must be fine here.

From SemiAnalysisAI/InferenceX of 2026-08-22: 82 rows of 26 configurations with 12 images. Agentic rows replay a trace
with a client of their own, so their benchmark is a custom command.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_RELEASE = "rocm/atom:rocm7.2.{}_ubuntu24.04_py3.12_pytorch_release_2.10.0_"
# Reference to image and, where its tag tells one, the day.
IMAGES: dict[str, tuple[str, str | None]] = {
    "I1": ("rocm/atom-dev:nightly_202606101403", "2026-06-10"),
    "I2": (_RELEASE.format(3) + "atom20260511", "2026-05-11"),
    "I3": (_RELEASE.format(2) + "atom0.1.2.post", None),
    "I4": (_RELEASE.format(4) + "atom0.1.3", None),
    "I5": ("rocm/atom-dev:nightly_202607231538", "2026-07-23"),
    "I6": ("rocm/atom-dev:ubuntu24.04_py3.12_pytorch_release_2.10.0_kimi_k3_agentic_0820", None),
    "I7": ("rocm/atom-dev:nightly_202608201032", "2026-08-20"),
    "I8": ("rocm/atom-dev:ubuntu24.04_py3.12_pytorch_release_2.10.0_glm52_agentic_0813", None),
    "I9": ("rocm/atom-dev:nightly_202607011530", "2026-07-01"),
    "I10": (_RELEASE.format(4) + "atomesh_202607121715", "2026-07-12"),
    "I11": (_RELEASE.format(4) + "atom0.1.4_202607091539", "2026-07-09"),
    "I12": ("rocm/atom-dev:nightly_202606161823", "2026-06-16"),
}

# id | configuration | image | workers x role : tensor-parallel size, +dpa with DP attention | isl/osl | concurrencies
ROWS = """
R01 | dsv4-fp4-mi355x-atom-disagg | I1 | 2xP:tp8+dpa 1xD:tp8+dpa | 8192/1024 | 256,512,768,1024,2048
R02 | dsv4-fp4-mi355x-atom-disagg | I1 | 1xP:tp8 1xD:tp8 | 8192/1024 | 4,8,16,32,64,128
R03 | dsr1-fp4-mi355x-atom | I2 | agg:tp4 | 8192/1024 | 4,8,16,32,64,128,256
R04 | dsr1-fp4-mi355x-atom | I2 | agg:tp8 | 8192/1024 | 4
R05 | dsr1-fp4-mi355x-atom-mtp | I2 | agg:tp8 | 8192/1024 | 4,8,16,32,64,128,256
R06 | qwen3.5-fp8-mi355x-atom | I2 | agg:tp2 | 8192/1024 | 4,8,16,32,64,128,256
R07 | qwen3.5-fp8-mi355x-atom | I2 | agg:tp4 | 8192/1024 | 4,8,16,32,64,128,256
R08 | qwen3.5-fp8-mi355x-atom | I2 | agg:tp8 | 8192/1024 | 4,8,16,32,64,128,256
R09 | qwen3.5-fp8-mi355x-atom-mtp | I3 | agg:tp4 | 8192/1024 | 4,8,16,32,64,128,256
R10 | qwen3.5-fp8-mi355x-atom-mtp | I3 | agg:tp8 | 8192/1024 | 4,8,16,32,64,128,256
R11 | qwen3.5-fp4-mi355x-atom | I3 | agg:tp2 | 8192/1024 | 4,8,16,32,64,128,256
R12 | qwen3.5-fp4-mi355x-atom | I3 | agg:tp4 | 8192/1024 | 4,8,16
R13 | dsr1-fp8-mi355x-atom | I2 | agg:tp8 | 8192/1024 | 4,8,16,32,64,128
R14 | dsr1-fp8-mi355x-atom-mtp | I4 | agg:tp8 | 8192/1024 | 4,8,16,32,64,128,256
R15 | dsv4-fp4-mi355x-atom | I5 | agg:tp4 | 8192/1024 | 1,2,4,8,16,32,64
R16 | dsv4-fp4-mi355x-atom | I5 | agg:tp4+dpa | 8192/1024 | 16,32,64,128
R17 | dsv4-fp4-mi355x-atom | I5 | agg:tp8 | 8192/1024 | 1,2,4,8,16,32,64
R18 | dsv4-fp4-mi355x-atom | I5 | agg:tp8+dpa | 8192/1024 | 64,128,256,512,1024,2048
R19 | dsv4-fp4-mi355x-atom-mtp | I5 | agg:tp8 | 8192/1024 | 4,8,16,32,64,128,256
R20 | dsv4-fp4-mi355x-atom-mtp | I5 | agg:tp8+dpa | 8192/1024 | 32,64,128,256,512,1024
R21 | kimik3-fp4-mi355x-atom-agentic-mtp | I6 | agg:tp8 | trace | 1,4
R22 | kimik3-fp4-mi355x-atom-agentic-mtp | I6 | agg:tp8 | trace | 8,10 lmc
R23 | dsv4-fp4-mi355x-atom-agentic-mtp | I7 | agg:tp8 | trace | 1,2,4,8,16,32,48
R24 | glm5.2-fp4-mi355x-atom-agentic-mtp | I8 | agg:tp4 | trace | 2,4,8,10 lmc
R25 | glm5.2-fp4-mi355x-atom-agentic-mtp | I8 | agg:tp8 | trace | 1,2,4
R26 | dsv4-fp4-mi355x-atom-disagg | I1 | 1xP:tp8 1xD:tp8 | 1024/1024 | 4,8,16,32,64,128,256,512,1024
R27 | minimaxm3-fp8-mi355x-atom-disagg | I9 | 1xP:tp4 1xD:tp4 | 1024/1024 | 1,2,4,8,16,32,64,128,256
R28 | minimaxm3-fp4-mi355x-atom-disagg | I9 | 1xP:tp4 1xD:tp4 | 1024/1024 | 1,2,4,8,16,32,64,128,256
R29 | kimik2.5-fp4-mi355x-atom-disagg | I10 | 1xP:tp4 1xD:tp4 | 8192/1024 | 16,32,64,128,256
R30 | kimik2.5-fp4-mi355x-atom-disagg | I10 | 1xP:tp4 2xD:tp8 | 8192/1024 | 1,2,4,8,16
R31 | minimaxm3-fp8-mi355x-atom-disagg | I9 | 1xP:tp4 1xD:tp4 | 8192/1024 | 1,2,4,8,16,32,64,128,256
R32 | minimaxm3-fp8-mi355x-atom-disagg | I9 | 2xP:tp4+dpa 1xD:tp4+dpa | 8192/1024 | 256,512,768,1024
R33 | minimaxm3-fp4-mi355x-atom-disagg | I9 | 1xP:tp4 1xD:tp4 | 8192/1024 | 1,2,4,8,16,32,64,128,256
R34 | minimaxm3-fp4-mi355x-atom-disagg | I9 | 2xP:tp4+dpa 1xD:tp4+dpa | 8192/1024 | 256,512,768,1024
R35 | dsr1-fp4-mi355x-atom | I2 | agg:tp4 | 1024/1024 | 32,64,128,256
R36 | dsr1-fp4-mi355x-atom | I2 | agg:tp8 | 1024/1024 | 4,8,16,32
R37 | dsr1-fp4-mi355x-atom-mtp | I2 | agg:tp4 | 1024/1024 | 4,8,16,32,64,128,256
R38 | dsr1-fp4-mi355x-atom-mtp | I2 | agg:tp8 | 1024/1024 | 4,8,16,32,64,128,256
R39 | qwen3.5-fp8-mi355x-atom | I2 | agg:tp2 | 1024/1024 | 4,8,16,32,64,128,256
R40 | qwen3.5-fp8-mi355x-atom | I2 | agg:tp4 | 1024/1024 | 4,8,16,32,64,128,256
R41 | qwen3.5-fp8-mi355x-atom | I2 | agg:tp8 | 1024/1024 | 4,8,16,32,64,128,256
R42 | qwen3.5-fp8-mi355x-atom-mtp | I3 | agg:tp4 | 1024/1024 | 4,8,16,32,64,128,256
R43 | qwen3.5-fp8-mi355x-atom-mtp | I3 | agg:tp8 | 1024/1024 | 4,8,16,32,64,128,256
R44 | qwen3.5-fp4-mi355x-atom | I3 | agg:tp2 | 1024/1024 | 4,8,16,32,64,128,256
R45 | qwen3.5-fp4-mi355x-atom | I3 | agg:tp4 | 1024/1024 | 4,8,16
R46 | glm5-fp8-mi355x-atom | I3 | agg:tp4 | 1024/1024 | 4,8,16,32,64,128,256
R47 | glm5-fp8-mi355x-atom | I3 | agg:tp8 | 1024/1024 | 4,8,16,32,64,128,256
R48 | glm5.1-fp4-mi355x-atom | I3 | agg:tp4 | 1024/1024 | 4,8,16,32,64,128,256
R49 | kimik2.5-fp4-mi355x-atom | I11 | agg:tp4 | 1024/1024 | 4,8,16,32,64,128
R50 | dsr1-fp8-mi355x-atom | I2 | agg:tp8 | 1024/1024 | 4,8,16,32,64,128
R51 | dsr1-fp8-mi355x-atom-mtp | I4 | agg:tp8 | 1024/1024 | 4,8,16,32,64,128,256,512
R52 | dsv4-fp4-mi355x-atom | I12 | agg:tp8 | 1024/1024 | 1,2,4,8,16,32,64
R53 | dsv4-fp4-mi355x-atom | I12 | agg:tp8+dpa | 1024/1024 | 64,128,256,512,1024,2048
R54 | dsv4-fp4-mi355x-atom-mtp | I4 | agg:tp8 | 1024/1024 | 1,2,4,8,16,32,64,128,256,512,1024
R55 | minimaxm3-fp4-mi355x-atom | I9 | agg:tp4 | 1024/1024 | 1,2,4,8,16,32,64,128,256
R56 | minimaxm3-fp4-mi355x-atom-mtp | I9 | agg:tp4 | 1024/1024 | 1,2,4,8,16,32,64,128,256
R57 | minimaxm3-fp8-mi355x-atom | I9 | agg:tp4 | 1024/1024 | 1,2,4,8,16,32,64,128,256
R58 | minimaxm3-fp8-mi355x-atom-mtp | I9 | agg:tp4 | 1024/1024 | 1,2,4,8,16,32,64,128,256
R59 | glm5-fp8-mi355x-atom | I3 | agg:tp4 | 8192/1024 | 4,8,16,32,64,128,256
R60 | glm5-fp8-mi355x-atom | I3 | agg:tp8 | 8192/1024 | 4,8,16,32,64,128,256
R61 | glm5.1-fp4-mi355x-atom | I3 | agg:tp4 | 8192/1024 | 4,8,16,32,64,128,256
R62 | gptoss-fp4-mi355x-atom | I3 | agg:tp1 | 1024/1024 | 16,32,64,128,256
R63 | gptoss-fp4-mi355x-atom | I3 | agg:tp8 | 1024/1024 | 4,8,16,32
R64 | gptoss-fp4-mi355x-atom | I3 | agg:tp1 | 8192/1024 | 4,8,16,32,64,128,256
R65 | gptoss-fp4-mi355x-atom | I3 | agg:tp8 | 8192/1024 | 4,8,16
R66 | kimik2.5-fp4-mi355x-atom | I11 | agg:tp4 | 8192/1024 | 4,8,16,32,64,128
R67 | minimaxm2.5-fp8-mi355x-atom | I3 | agg:tp2 | 1024/1024 | 4,8,16,32,64,128,256
R68 | minimaxm2.5-fp8-mi355x-atom | I3 | agg:tp4 | 1024/1024 | 4,8,16,32,64,128,256
R69 | minimaxm2.5-fp8-mi355x-atom | I3 | agg:tp2 | 8192/1024 | 4,8,16,32,64,128,256
R70 | minimaxm2.5-fp8-mi355x-atom | I3 | agg:tp4 | 8192/1024 | 4,8,16,32,64,128,256
R71 | minimaxm2.5-fp4-mi355x-atom | I3 | agg:tp1 | 1024/1024 | 4,8,16,32,64,128,256,512,1024
R72 | minimaxm2.5-fp4-mi355x-atom | I3 | agg:tp2 | 1024/1024 | 4,8,16,32,64,128,256,512,1024
R73 | minimaxm2.5-fp4-mi355x-atom | I3 | agg:tp4 | 1024/1024 | 4,8,16,32,64,128
R74 | minimaxm2.5-fp4-mi355x-atom | I3 | agg:tp8 | 1024/1024 | 4,8,16
R75 | minimaxm2.5-fp4-mi355x-atom | I3 | agg:tp1 | 8192/1024 | 4,8,16,32,64,128,256,512,1024
R76 | minimaxm2.5-fp4-mi355x-atom | I3 | agg:tp2 | 8192/1024 | 4,8,16,32,64,128,256,512,1024
R77 | minimaxm2.5-fp4-mi355x-atom | I3 | agg:tp4 | 8192/1024 | 4,8,16,32,64,128
R78 | minimaxm2.5-fp4-mi355x-atom | I3 | agg:tp8 | 8192/1024 | 4,8,16
R79 | minimaxm3-fp4-mi355x-atom | I9 | agg:tp4 | 8192/1024 | 1,2,4,8,16,32,64,128,256
R80 | minimaxm3-fp4-mi355x-atom-mtp | I9 | agg:tp4 | 8192/1024 | 1,2,4,8,16,32,64,128,256
R81 | minimaxm3-fp8-mi355x-atom | I9 | agg:tp4 | 8192/1024 | 1,2,4,8,16,32,64,128,256
R82 | minimaxm3-fp8-mi355x-atom-mtp | I9 | agg:tp4 | 8192/1024 | 1,2,4,8,16,32,64,128,256
"""


class Row(NamedTuple):
    """One row of ROWS."""

    id: str
    config: str
    image: str
    shape: str
    load: str
    concurrencies: tuple[int, ...]
    offload: bool

    @property
    def long(self) -> bool:
        return self.load.startswith("8192")


def rows() -> list[Row]:
    """All rows, in order."""
    found = []
    for line in ROWS.strip().splitlines():
        *head, points = (part.strip() for part in line.split("|"))
        numbers, _, extra = points.partition(" ")
        found.append(Row(*head, tuple(map(int, numbers.split(","))), extra == "lmc"))
    return found


KV: dict[str, Any] = {"kv_cache_dtype": "fp8"}
TRUST: dict[str, Any] = {"trust-remote-code": True}
NO_PREFIX: dict[str, Any] = {"no-enable_prefix_caching": True}
MTP3: dict[str, Any] = {"method": "mtp", "num-speculative-tokens": 3}
EAGLE: dict[str, Any] = {"method": "eagle3", "draft-model": "Inferact/MiniMax-M3-EAGLE3", "num-speculative-tokens": 3}
STEPS = [1, 2, 4, *range(8, 257, 8)]
V4 = {"ATOM_MOE_GU_ITLV": "1", "AITER_BF16_FP8_MOE_BOUND": "0"}
QR4 = {"AITER_QUICK_REDUCE_QUANTIZATION": "INT4"}
M3_ENV = {**QR4, "ATOM_FORCE_ATTN_TRITON": "1"}
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
LMCACHE = {
    "PYTHONHASHSEED": "0",
    "LMCACHE_LOCAL_CPU": "True",
    "LMCACHE_MAX_LOCAL_CPU_SIZE": "200",
    "LMCACHE_CHUNK_SIZE": "256",
}
OFFLOAD: dict[str, Any] = {"extra-kv-connectors": [{"kv_connector": "lmcache_offload", "kv_role": "offload"}]}


def quantised(*excluded: str) -> dict[str, Any]:
    """ptpc_fp8 while loading, but for some layers."""
    return {
        "online_quant_config": {
            "global_quant_config": "ptpc_fp8",
            "exclude_layer": ["lm_head", "model.embed_tokens", *excluded],
        }
    }


M3_QUANT = quantised("vision_tower", "multi_modal_projector", "patch_merge_mlp", "*block_sparse_moe")
M3: dict[str, Any] = {
    **KV, "block-size": 128, "gpu-memory-utilization": 0.8, "max-model-len": 32768, "max-num-batched-tokens": 32768,
    **NO_PREFIX, **M3_QUANT, **TRUST,
}  # fmt: skip
K25: dict[str, Any] = {**M3, "block-size": 16, "gpu-memory-utilization": 0.9}
del K25["online_quant_config"]
V4_PD: dict[str, Any] = {
    **KV,
    "block-size": 16,
    "gpu-memory-utilization": 0.85,
    **NO_PREFIX,
    **TRUST,
    "max-model-len": 9472,
}
V4_AGG: dict[str, Any] = {
    **KV,
    "gpu-memory-utilization": 0.9,
    **NO_PREFIX,
    **TRUST,
    "cudagraph-capture-sizes": [1, 2, 4, 8, 16, 32, 48, 64, 128, 256, 512],
}
V4_MTP: dict[str, Any] = {**KV, **NO_PREFIX, **TRUST, **MTP3}
V4_AGENT: dict[str, Any] = {
    "kv-cache-dtype": "fp8", "index-cache-dtype": "fp4", "enable-prefix-caching": True, "gpu-memory-utilization": 0.9,
    "max-num-batched-tokens": 16384, "attn-prefill-chunk-size": 16384, "state-checkpoint-interval-tokens": 8192, "level": 3,
    "cudagraph-mode": "FULL", **MTP3, "spec-decode-acceptance-length": 2.49, "served-model-name": "deepseek-ai/DeepSeek-V4-Pro",
}  # fmt: skip
K3: dict[str, Any] = {
    **KV, "block-size": 128, "enable_prefix_caching": True, **TRUST, "state-checkpoint-interval-tokens": -1, "max-num-seqs": 32,
    **quantised("*self_attn.[qkv]_conv1d*", "*block_sparse_moe.experts*"), "max-num-batched-tokens": 8192,
    "gpu-memory-utilization": 0.88, "method": "dspark", "draft-model": "Inferact/Kimi-K3-DSpark", "num-speculative-tokens": 6,
    "spec-decode-acceptance-length": 3.75,
}  # fmt: skip
GLM52: dict[str, Any] = {
    **KV, "max-num-batched-tokens": 16384, **quantised("*.mlp.gate", "*expert*"), "cudagraph-capture-sizes": [1, 2, 4], **MTP3,
    "spec-decode-acceptance-rate": 0.6633,
}  # fmt: skip
GLM5: dict[str, Any] = {
    **KV,
    "gpu-memory-utilization": 0.9,
    "default-chat-template-kwargs": {"enable_thinking": False},
    **TRUST,
}
LEN_10K = "10k"  # max-model-len 10240 with 8192 tokens of input, unset otherwise


class Config(NamedTuple):
    """One configuration: model, environment, flags of every worker, and which row-dependent flags it adds."""

    model: str
    env: dict[str, str]
    flags: dict[str, Any]
    adds: str = ""


CONFIGS: dict[str, Config] = {
    "dsv4-fp4-mi355x-atom-disagg": Config("deepseek-ai/DeepSeek-V4-Pro", V4, V4_PD, "tbo-both"),
    "dsr1-fp4-mi355x-atom": Config("amd/DeepSeek-R1-0528-MXFP4-Preview", ONE_THREAD, {**KV, "block-size": 16}, LEN_10K),
    "dsr1-fp4-mi355x-atom-mtp": Config(
        "amd/DeepSeek-R1-0528-MXFP4", {**ONE_THREAD, "AMDGCN_USE_BUFFER_OPS": "1"}, {**KV, "method": "mtp"}, LEN_10K
    ),
    "qwen3.5-fp8-mi355x-atom": Config(
        "Qwen/Qwen3.5-397B-A17B-FP8", ONE_THREAD, {**KV, "gpu-memory-utilization": 0.9, **TRUST}, LEN_10K
    ),
    "qwen3.5-fp8-mi355x-atom-mtp": Config(
        "Qwen/Qwen3.5-397B-A17B-FP8", ONE_THREAD, {**KV, "gpu-memory-utilization": 0.9, **MTP3, **TRUST}, LEN_10K
    ),
    "qwen3.5-fp4-mi355x-atom": Config(
        "amd/Qwen3.5-397B-A17B-MXFP4", ONE_THREAD, {**KV, "gpu-memory-utilization": 0.9, **TRUST}, LEN_10K
    ),
    "dsr1-fp8-mi355x-atom": Config("deepseek-ai/DeepSeek-R1-0528", ONE_THREAD, {**KV, "block-size": 16}, LEN_10K),
    "dsr1-fp8-mi355x-atom-mtp": Config("deepseek-ai/DeepSeek-R1-0528", ONE_THREAD, {**KV, **MTP3, **NO_PREFIX}),
    "dsv4-fp4-mi355x-atom": Config(
        "deepseek-ai/DeepSeek-V4-Pro", {**V4, "ATOM_DISABLE_MMAP": "true"}, V4_AGG, "tbo-agg"
    ),
    "dsv4-fp4-mi355x-atom-mtp": Config(
        "deepseek-ai/DeepSeek-V4-Pro", {**V4, "ATOM_DISABLE_MMAP": "true"}, V4_MTP, "tbo-agg"
    ),
    "kimik3-fp4-mi355x-atom-agentic-mtp": Config(
        "moonshotai/Kimi-K3", {**QR4, "AITER_LOG_LEVEL": "WARNING", "AITER_SITUV2_A4W4": "1"}, K3, "slots"
    ),
    "dsv4-fp4-mi355x-atom-agentic-mtp": Config(
        "deepseek-ai/DeepSeek-V4-Pro", {**V4, "ATOM_DISABLE_MMAP": "true"}, V4_AGENT, "twice"
    ),
    "glm5.2-fp4-mi355x-atom-agentic-mtp": Config(
        "amd/GLM-5.2-MXFP4", {**QR4, "AITER_USE_FLYDSL_MOE_SORTING": "1"}, GLM52, "twice"
    ),
    "minimaxm3-fp8-mi355x-atom-disagg": Config("MiniMaxAI/MiniMax-M3-MXFP8", M3_ENV, M3, "tbo-prefill"),
    "minimaxm3-fp4-mi355x-atom-disagg": Config("amd/MiniMax-M3-MXFP4", M3_ENV, M3, "tbo-prefill"),
    "kimik2.5-fp4-mi355x-atom-disagg": Config("amd/Kimi-K2.5-MXFP4", {**QR4, "AITER_MXFP4_INTERMEDIATE": "1"}, K25),
    "glm5-fp8-mi355x-atom": Config("zai-org/GLM-5-FP8", ONE_THREAD, GLM5, LEN_10K),
    "glm5.1-fp4-mi355x-atom": Config("amd/GLM-5.1-MXFP4", ONE_THREAD, GLM5, LEN_10K),
    "kimik2.5-fp4-mi355x-atom": Config(
        "amd/Kimi-K2.5-MXFP4",
        {**ONE_THREAD, **QR4, "ATOM_DISABLE_MMAP": "true"},
        {**KV, "scheduler-delay-factor": 1, **TRUST},
        LEN_10K,
    ),
    "minimaxm3-fp4-mi355x-atom": Config("amd/MiniMax-M3-MXFP4", M3_ENV, {**M3, "max-num-seqs": 256}),
    "minimaxm3-fp4-mi355x-atom-mtp": Config("amd/MiniMax-M3-MXFP4", M3_ENV, {**M3, "max-num-seqs": 256, **EAGLE}),
    "minimaxm3-fp8-mi355x-atom": Config("MiniMaxAI/MiniMax-M3-MXFP8", M3_ENV, {**M3, "max-num-seqs": 256}),
    "minimaxm3-fp8-mi355x-atom-mtp": Config("MiniMaxAI/MiniMax-M3-MXFP8", M3_ENV, {**M3, "max-num-seqs": 256, **EAGLE}),
    "gptoss-fp4-mi355x-atom": Config(
        "openai/gpt-oss-120b",
        {**ONE_THREAD, "ATOM_GPT_OSS_MODEL": "1"},
        {**KV, "block-size": 16, "gpu-memory-utilization": 0.9},
        LEN_10K,
    ),
    "minimaxm2.5-fp8-mi355x-atom": Config(
        "MiniMaxAI/MiniMax-M2.5", ONE_THREAD, {**KV, "gpu-memory-utilization": 0.9, **TRUST}, LEN_10K
    ),
    "minimaxm2.5-fp4-mi355x-atom": Config("amd/MiniMax-M2.5-MXFP4", ONE_THREAD, {**KV, **TRUST}, LEN_10K),
}


def recipe(row: Row) -> dict[str, Any]:
    """A row as a recipe of layout 2."""
    config = CONFIGS[row.config]
    roles = dict(_role(part, row, config) for part in row.shape.split())
    env = dict(config.env)
    if "dpa" in row.shape and config.adds.startswith(("tbo-both", "tbo-agg")):
        env["GPU_MAX_HW_QUEUES"] = "5"
    if "dpa" in row.shape and config.adds == "tbo-both":
        env["ATOM_CPU_AFFINITY"] = "1"
    if row.offload:
        env.update(LMCACHE)
    isl, _, osl = row.load.partition("/")
    load = (
        {"type": "sa-bench", "isl": int(isl), "osl": int(osl), "concurrencies": list(row.concurrencies)} if osl else {}
    )
    return {
        "schema": 2,
        "name": f"{row.id}-{row.config}",
        "model": {"path": f"hf:{config.model}", "container": IMAGES[row.image][0]},
        "resources": {"gpu_type": "mi355x", "gpus_per_node": 8},
        "slurm": {"time_limit": "08:00:00"},
        "engine": {"type": "atom", "connector": "mooncake"},
        "frontend": {
            "type": "atomesh",
            "args": {"policy": "random", "disable-health-check": True, "disable-circuit-breaker": True},
        },
        "environment": env,
        "roles": roles,
        "benchmark": load or {"type": "custom", "argv": ["aiperf", "profile"]},
    }


def _role(part: str, row: Row, config: Config) -> tuple[str, dict[str, Any]]:
    head, _, size = part.partition(":")
    tp, dpa = int(size[2]), size.endswith("+dpa")
    name = {"P": "prefill", "D": "decode", "g": "agg"}[head[-1]]
    workers = 1 if name == "agg" else int(head[0])
    args = {**config.flags, **_by_role(name, dpa, row, config), **_by_row(dpa, row, config)}
    return name, {"nodes": workers, "workers": workers, "gpus": tp, "args": args}


def _by_role(name: str, dpa: bool, row: Row, config: Config) -> dict[str, Any]:
    found: dict[str, Any] = {"enable-dp-attention": True} if dpa else {}
    if dpa and config.adds == "tbo-both":
        found["enable-tbo"] = True
    if dpa and config.adds == "tbo-prefill" and name == "prefill":
        found["enable-tbo"] = "prefill"
    if dpa and config.adds == "tbo-agg":
        found["enable-tbo"] = True
    if name == "prefill":
        found["max-num-seqs"] = 256
    if name == "decode":
        found.update({"max-num-seqs": max(row.concurrencies), "cudagraph-capture-sizes": STEPS})
    return found


def _by_row(dpa: bool, row: Row, config: Config) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if config.adds == LEN_10K and row.long:
        found["max-model-len"] = 10240
    if config.adds == "tbo-agg" and (dpa or max(row.concurrencies) >= 64):
        found["max-num-seqs"] = max(row.concurrencies)
    if config.adds == "twice":
        found["max-num-seqs"] = 2 * max(row.concurrencies)
    if config.adds == "slots" and row.offload:
        found.update({"max-num-seqs": 16, "state-checkpoint-slots": 16})
    return {**found, **(OFFLOAD if row.offload else {})}
