"""Parallel sizes that ATOM refuses together, or that quietly turn each other off (ATOM 2026-08-22)."""

from __future__ import annotations

from srtgen.report import Report
from srtgen.rules.facts import Facts, Worker


def pipeline(facts: Facts, report: Report) -> None:
    """pp-with-dp, pp-with-dp-attention, pp-needs-eager, dsv4-pp-transfer."""
    for worker in facts.workers:
        if worker.sizes.pp <= 1:
            continue
        if worker.sizes.dp > 1:
            _error(
                worker,
                "pipeline_parallel_size",
                "pipeline stages exclude data parallelism; set one of them to 1",
                "pp-with-dp",
                report,
            )
        if worker.sizes.dp_attention:
            message = "pipeline stages exclude data-parallel attention; remove enable-dp-attention"
            _error(worker, "pipeline_parallel_size", message, "pp-with-dp-attention", report)
        if not worker.program.switched("enforce_eager"):
            message = "pipeline stages run without captured graphs only; add enforce-eager: true"
            _error(worker, "pipeline_parallel_size", message, "pp-needs-eager", report)
        if facts.dsv4 and worker.role.name != "agg":
            message = "DeepSeek-V4 with KV transfer refuses pipeline stages; set them to 1"
            _error(worker, "pipeline_parallel_size", message, "dsv4-pp-transfer", report)


def prefill_context(facts: Facts, report: Report) -> None:
    """pcp-with-dp-attention, pcp-producer, tbo-with-pcp."""
    key = "prefill_context_parallel_size"
    for worker in facts.workers:
        if worker.sizes.pcp <= 1:
            continue
        if worker.sizes.dp_attention:
            message = "prefill context parallelism excludes data-parallel attention; remove enable-dp-attention"
            _error(worker, key, message, "pcp-with-dp-attention", report)
        if worker.role.name == "prefill":
            message = "the handshake ports of a producer do not count these ranks: two of them would bind one port"
            _say(worker, "warning", key, message, "pcp-producer", report)
        if worker.program.switched("enable_tbo"):
            _tbo(worker, report)


def _tbo(worker: Worker, report: Report) -> None:
    if worker.tp > 1:
        message = "ATOM turns two-batch overlap off without a word beside prefill context parallelism with tp above 1"
        _say(worker, "warning", "enable_tbo", message, "tbo-with-pcp", report)
    elif worker.tp == 1 and worker.program.text("enable_tbo") == "all":
        message = "prefill context parallelism with tp 1 refuses enable-tbo: all; write prefill"
        _error(worker, "enable_tbo", message, "tbo-with-pcp", report)


def decode_context(facts: Facts, report: Report) -> None:
    """dcp-divides-tp, dcp-speculation, dcp-interleave."""
    from srtgen.rules.payloads import given

    for worker in facts.workers:
        dcp, key = worker.sizes.dcp, "decode_context_parallel_size"
        if dcp > 1 and worker.tp and worker.tp % dcp:
            _error(
                worker, key, f"{dcp} does not divide the tensor-parallel size, {worker.tp}", "dcp-divides-tp", report
            )
        gpu = (facts.recipe.gpu_type or "").casefold()
        speculates = bool(worker.program.text("method"))
        if dcp > 1 and speculates and gpu and not gpu.startswith(("mi350", "mi355")):
            message = f"decode context parallelism with speculation runs on gfx950 (MI350, MI355) only, not on {gpu}"
            _error(worker, key, message, "dcp-speculation", report)
        interleave = given(worker.program, "dcp_config").get("interleave_size")
        if type(interleave) is not int or interleave <= 1:
            continue
        block = int(worker.program.effective("block_size"))
        if block and block % interleave:
            _error(
                worker,
                "dcp_config",
                f"interleave_size {interleave} does not divide the block size, {block}",
                "dcp-interleave",
                report,
            )
        elif dcp <= 1 or speculates:
            message = "interleave_size above 1 needs decode context parallelism, and no speculation"
            _error(worker, "dcp_config", message, "dcp-interleave", report)


def experts(facts: Facts, report: Report) -> None:
    """moe-mega, eplb-without-ep, mori-shmem-mode."""
    for worker in facts.workers:
        program = worker.program
        if program.switched("enable_expert_parallel"):
            mode = worker.env.get("MORI_SHMEM_MODE")
            if worker.sizes.dp_attention and not (mode and mode.value == "ISOLATION"):
                message = "with data-parallel attention warm-up runs out of memory unless MORI_SHMEM_MODE is ISOLATION"
                _say(worker, "warning", "enable_expert_parallel", message, "mori-shmem-mode", report)
            continue
        if program.value("moe_backend") == "mega":
            _error(worker, "moe_backend", "mega needs enable-expert-parallel: true", "moe-mega", report)
        if program.switched("eplb_enable"):
            _error(worker, "eplb_enable", "needs enable-expert-parallel: true", "eplb-without-ep", report)


def _error(worker: Worker, key: str, message: str, code: str, report: Report) -> None:
    _say(worker, "error", key, message, code, report)


def _say(worker: Worker, severity: str, key: str, message: str, code: str, report: Report) -> None:
    setting = worker.program.flags[key]
    report.put(severity, setting.document, setting.path, message, code)
