"""Prefill and decode: what has to be the same on both, because nothing checks it when blocks are copied."""

from __future__ import annotations

from srtgen.recipe import Setting
from srtgen.report import Report
from srtgen.rules.facts import Facts, Place, Worker

# ATOM's own runner and InferenceX give these to both roles; sizes and overlap differ on purpose.
_SHARED_FLAGS = (
    "trust_remote_code",
    "max_model_len",
    "enable_prefix_caching",
    "online_quant_config",
    "method",
    "num_speculative_tokens",
    "draft_model",
    "enable_expert_parallel",
    "moe_backend",
    "chat_template",
    "default_chat_template_kwargs",
    "load_dummy",
    "index_cache_dtype",
)
# Set on one role by the recipes that are known to work.
_ONE_SIDED_ENV = ("GPU_MAX_HW_QUEUES", "ATOM_NUMA_BIND")


def same_blocks(facts: Facts, report: Report) -> None:
    """pd-block-size, pd-kv-dtype, pd-model."""
    if facts.pair is None:
        return
    prefill, decode = facts.pair
    sizes = [w.program.effective("block_size") for w in facts.pair]
    if sizes[0] != sizes[1] and not facts.dsv4:  # DeepSeek-V4 uses 256 whatever is asked for
        message = f"prefill has blocks of {sizes[0]:g} tokens, decode of {sizes[1]:g}: block ids are copied as they are"
        report.put("error", *_place(decode, prefill, "block_size"), message, "pd-block-size")
    types = [w.program.text("kv_cache_dtype") or "bf16" for w in facts.pair]
    if types[0] != types[1]:
        message = f"prefill keeps its KV cache as {types[0]}, decode as {types[1]}: blocks are copied as they are"
        report.put("error", *_place(decode, prefill, "kv_cache_dtype"), message, "pd-kv-dtype")
    if prefill.program.value("hf_overrides") != decode.program.value("hf_overrides"):
        message = "prefill and decode would run different models: hf-overrides differ"
        report.put("warning", *_place(decode, prefill, "hf_overrides"), message, "pd-model")


def index_cache(facts: Facts, report: Report) -> None:
    """dsv4-index-fp4: ATOM 2026-08-22 has not implemented the transfer of this cache."""
    for worker in facts.workers:
        setting = worker.program.flags.get("index_cache_dtype")
        transfers = worker.role.name != "agg" or any(s.key == "extra-kv-connectors" for s in worker.role.args)
        if setting and setting.value == "fp4" and facts.dsv4 and transfers:
            message = "an fp4 index cache cannot be transferred on DeepSeek-V4; write fp8, or remove the key"
            report.put("error", setting.document, setting.path, message, "dsv4-index-fp4", at_key=False)


def images(facts: Facts, report: Report) -> None:
    """pd-image: two versions of an engine have no promise to understand each other."""
    if facts.pair is None:
        return
    prefill, decode = facts.pair
    if prefill.role.container != decode.role.container:
        path = next(
            (*w.role.path, "container") for w in (decode, prefill) if w.role.container != facts.recipe.model.container
        )
        message = "prefill and decode run different images; their KV transfer has no version of its own to check"
        report.put("warning", facts.document, path, message, "pd-image")


def one_sided(facts: Facts, report: Report) -> None:
    """role-only-flag, role-only-env: given to one role, where it usually belongs to both."""
    if facts.pair is None:
        return
    for one, other in (facts.pair, facts.pair[::-1]):
        lonely = [key for key in _SHARED_FLAGS if key in one.program.flags and key not in other.program.flags]
        if lonely:
            setting = one.program.flags[lonely[0]]
            names = ", ".join(one.program.flags[key].key for key in lonely)
            report.put("note", setting.document, setting.path, f"not on {other.role.name}: {names}", "role-only-flag")
        given = {s.key for s in other.role.env}
        alone: list[Setting] = [s for s in one.role.env if s.key not in given and not _one_sided(s.key)]
        if alone:
            message = f"not on {other.role.name}: {', '.join(s.key for s in alone)}"
            report.put("note", alone[0].document, alone[0].path, message, "role-only-env")


def _one_sided(name: str) -> bool:
    return name in _ONE_SIDED_ENV or "PREFILL" in name or "DECODE" in name


def shared_node(facts: Facts, report: Report) -> None:
    """shared-node-transfer: on one node the transfer may take another path than between nodes."""
    decode = facts.recipe.role("decode")
    if decode is not None and decode.nodes is None:
        message = (
            "prefill and decode share a node: transfer figures are not those of a network, check the output as well"
        )
        severity = "note" if facts.recipe.engine.mooncake_protocol == "tcp" else "warning"
        report.put(severity, facts.document, (*decode.path, "nodes"), message, "shared-node-transfer")


def _place(first: Worker, second: Worker, key: str) -> Place:
    """Where the first of two roles that says something about the flag says it."""
    for worker in (first, second):
        if setting := worker.program.flags.get(key):
            return setting.document, setting.path
    return first.place
