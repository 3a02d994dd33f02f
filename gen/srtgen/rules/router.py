"""Settings of AToMesh that do something else than they seem to (AToMesh 2026-08-22)."""

from __future__ import annotations

from srtgen.report import Report
from srtgen.rules.facts import Facts

POLICIES = ("policy", "prefill_policy", "decode_policy")
KILL_WAIT_S = 30  # Slurm's default between SIGTERM and SIGKILL


def policies(facts: Facts, report: Report) -> None:
    """router-prefix-hash, router-cache-aware, router-power-of-two."""
    for key in POLICIES:
        setting = facts.router.flags.get(key)
        if setting is None:
            continue
        if setting.value == "prefix_hash":
            message = "answers 503 to every request over HTTP, where it sees no tokens; take another policy"
            report.put("error", setting.document, setting.path, message, "router-prefix-hash", at_key=False)
        elif setting.value == "cache_aware" and facts.pair:
            message = "its trees are never filled with prefill and decode apart: it acts as random; write random"
            report.put("warning", setting.document, setting.path, message, "router-cache-aware", at_key=False)
        elif setting.value == "power_of_two":
            _power_of_two(facts, key, report)
    if facts.pair and not any(key in facts.router.flags for key in POLICIES):
        message = "the default policy, cache_aware, acts as random with prefill and decode apart; write policy: random"
        report.put("note", facts.document, ("frontend",), message, "router-cache-aware")


def _power_of_two(facts: Facts, key: str, report: Report) -> None:
    setting = facts.router.flags[key]
    concerned = {"policy": ("prefill", "decode", "agg"), "prefill_policy": ("prefill",), "decode_policy": ("decode",)}[
        key
    ]
    fewest = min((w.role.workers for w in facts.workers if w.role.name in concerned), default=2)
    if fewest < 2:
        message = "needs two workers of each role that it chooses from; the router does not start"
        report.put("error", setting.document, setting.path, message, "router-power-of-two", at_key=False)
    else:
        message = "ATOM reports no load to the router: it acts as random"
        report.put("note", setting.document, setting.path, message, "router-power-of-two", at_key=False)


def ranks(facts: Facts, report: Report) -> None:
    """router-dp-aware, router-rank-mapping."""
    aware = facts.router.switched("dp_aware")
    if aware and all(worker.ranks == 1 for worker in facts.workers):
        setting = facts.router.flags["dp_aware"]
        message = "no worker has data-parallel ranks; a worker that does not tell them is never registered; remove it"
        report.put("warning", setting.document, setting.path, message, "router-dp-aware")
    mapping = facts.router.flags.get("atom_pd_rank_mapping_policy")
    if mapping and mapping.value == "idx2idx" and not aware:
        report.put(
            "warning",
            mapping.document,
            mapping.path,
            "idx2idx needs dp-aware: true",
            "router-rank-mapping",
            at_key=False,
        )


def address(facts: Facts, report: Report) -> None:
    """router-address: a name is not looked up; the port is then open on every address."""
    setting = facts.router.flags.get("prometheus_host")
    if setting and isinstance(setting.value, str) and not _is_ipv4(setting.value):
        message = f"{setting.value[:60]} is no IPv4 address: the metrics port would be open on all addresses"
        report.put("warning", setting.document, setting.path, message, "router-address", at_key=False)


def _is_ipv4(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 4 and all(p.isascii() and p.isdigit() and len(p) <= 3 and int(p) <= 255 for p in parts)


def second_tries(facts: Facts, report: Report) -> None:
    """router-retries: a request that fails is sent again, and the figures count it as one slow success."""
    if not facts.measures:
        return
    left = [f for f in ("disable_retries", "disable_circuit_breaker") if not facts.router.switched(f)]
    if left:
        names = " and ".join(f"{f.replace('_', '-')}: true" for f in left)
        message = (
            f"failed requests are repeated, or workers shut off, without the client seeing it; {names} in frontend.args"
        )
        report.put("note", facts.document, ("frontend", "args"), f"{message} shows every failure", "router-retries")


def grace(facts: Facts, report: Report) -> None:
    """router-grace: longer than Slurm waits before it kills."""
    period = facts.router.number("shutdown_grace_period_secs")
    if period is not None and period > KILL_WAIT_S:
        setting = facts.router.flags["shutdown_grace_period_secs"]
        message = f"Slurm kills {KILL_WAIT_S} s after SIGTERM (KillWait) where the site has no other value; write less"
        report.put("note", setting.document, setting.path, message, "router-grace", at_key=False)
