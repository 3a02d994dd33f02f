"""Lengths and limits against the load that the benchmark makes (ATOM 2026-08-22)."""

from __future__ import annotations

import json

from srtgen.report import Report
from srtgen.rules.facts import Facts, Program


def model_length(facts: Facts, report: Report) -> None:
    """max-model-len: prompt and answer beyond it are refused with 400."""
    bench = facts.recipe.benchmark
    if bench.type != "sa-bench":
        return
    for worker in facts.workers:
        length = worker.program.number("max_model_len")
        if length is not None and 0 < length < bench.isl + bench.osl:
            setting = worker.program.flags["max_model_len"]
            message = f"{length:g} tokens are fewer than isl + osl, {bench.isl + bench.osl}: the longest are refused"
            report.put("error", setting.document, setting.path, message, "max-model-len", at_key=False)


def concurrency(facts: Facts, report: Report) -> None:
    """concurrency-over-seqs: requests beyond the limit wait, and the curve flattens like hardware would."""
    bench = facts.recipe.benchmark
    highest = max(bench.concurrencies, default=0)
    for worker in facts.workers:
        if worker.role.name == "prefill" or bench.type != "sa-bench":
            continue
        seqs, workers, ranks = worker.program.effective("max_num_seqs"), worker.role.workers, worker.ranks
        if 0 < seqs * workers * ranks < highest:
            message = (
                f"concurrency {highest} is above {seqs * workers * ranks:g} = max-num-seqs {seqs:g} x {workers} "
                f"{worker.role.name} workers x {ranks} ranks: requests wait for a place"
            )
            report.put("warning", facts.document, ("benchmark", "concurrencies"), message, "concurrency-over-seqs")


def attention_sequences(facts: Facts, report: Report) -> None:
    """dp-attention-seqs: each rank keeps a whole KV pool, and the default limit runs out of memory."""
    for worker in facts.workers:
        if worker.sizes.dp_attention and "max_num_seqs" not in worker.program.flags:
            setting = worker.program.flags["enable_dp_attention"]
            default = worker.program.effective("max_num_seqs")
            message = f"the default max-num-seqs, {default:g} a rank, runs out of memory; write the highest concurrency"
            report.put("warning", setting.document, setting.path, message, "dp-attention-seqs")


def capture_sizes(facts: Facts, report: Report) -> None:
    """capture-sizes: ATOM drops what the scheduler cannot reach and stops when nothing is left."""
    for worker in facts.workers:
        program = worker.program
        sizes = _sizes(program)
        if not sizes or program.switched("enforce_eager"):
            continue
        drafts = program.effective("num_speculative_tokens") if program.text("method") else 0
        bound = min(
            program.effective("max_num_seqs"), program.effective("max_num_batched_tokens") // (max(drafts, 0) + 1)
        )
        if min(sizes) > bound > 0:
            setting = program.flags["cudagraph_capture_sizes"]
            message = f"every size is above {bound:g}, the most sequences of a step: none is left and the start fails"
            report.put("error", setting.document, setting.path, message, "capture-sizes", at_key=False)


def _sizes(program: Program) -> list[int]:
    value = program.value("cudagraph_capture_sizes")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) and all(type(item) is int for item in value) else []


def prefill_threshold(facts: Facts, report: Report) -> None:
    """long-prefill-threshold: 0, or from the block size to max-model-len."""
    for worker in facts.workers:
        program = worker.program
        threshold = program.number("long_prefill_token_threshold")
        if not threshold or threshold < 0:
            continue
        block, longest = program.effective("block_size"), program.number("max_model_len")
        if threshold < block or (longest and threshold > longest):
            setting = program.flags["long_prefill_token_threshold"]
            message = f"expected 0, or from the block size ({block:g}) to max-model-len"
            report.put("error", setting.document, setting.path, message, "long-prefill-threshold", at_key=False)
