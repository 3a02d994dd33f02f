"""Preflight of a node: tools, CPUs, limits, leftovers."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
from typing import Tuple

import node_engine

MEMLOCK_RDMA_BYTES = 64 << 30  # less cannot register the KV cache of a GPU


def check_tools(plan: argparse.Namespace) -> "Tuple[str, str]":
    """What runs on the host; bash, python3 and curl were looked for before."""
    missing = [tool for tool in plan.tool if shutil.which(tool) is None]
    problem = "{} is missing".format(", ".join(missing)) if missing else node_engine.problem(plan)
    return ("fail", problem) if problem else ("ok", "")


def step_cpus() -> int:
    """CPUs of this step: what Slurm says, less if this process is bound to fewer than the machine has."""
    bound = len(os.sched_getaffinity(0))
    slurm = int(os.environ.get("SLURM_CPUS_ON_NODE", "0") or 0)
    if slurm and bound >= (os.cpu_count() or 1):
        return slurm
    return min(bound, slurm) if slurm else bound


def check_cpus(plan: argparse.Namespace) -> "Tuple[str, str]":
    """At least half of the node, or what recipe or profile asks for: a step without its share gets one CPU."""
    mine = step_cpus()
    if plan.cpus_per_task:
        need = int(plan.cpus_per_task)
        return ("ok" if mine >= need else "fail"), "{} CPUs, cpus-per-task asks for {}".format(mine, need)
    host = os.environ.get("SLURMD_NODENAME", "")
    total = os.cpu_count() or 1
    for item in plan.node_cpus:
        name, _, count = item.partition("=")
        if name == host and count.isdigit():
            total = int(count)
    status = "ok" if mine * 2 >= total else "fail"
    return status, "{} of the node's {} CPUs{}".format(
        mine, total, "" if status == "ok" else ": add --exclusive or cpus-per-task to the directives")


def check_limits(plan: argparse.Namespace) -> "Tuple[str, str]":
    """Open files for all connections; locked memory where RDMA registers it. A daemon sets its own."""
    if node_engine.grants_rights(plan):
        return "ok", "set by {}".format(plan.runtime)
    need = max(4096, 4 * plan.concurrency + 1024)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files != resource.RLIM_INFINITY and files < need:
        return "fail", "at most {} open files, {} are needed".format(files, need)
    lock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    text = "open files {}, memlock {}".format(files, "unlimited" if lock == resource.RLIM_INFINITY else lock)
    if plan.transport == "rdma" and lock != resource.RLIM_INFINITY and lock < MEMLOCK_RDMA_BYTES:
        return "fail", "locked memory is limited to {} MiB, RDMA cannot register the KV cache".format(lock >> 20)
    return "ok", text


def check_containers(plan: argparse.Namespace) -> "Tuple[str, str]":
    """No leftovers of ours, and a container starts."""
    status, text = node_engine.remove_leftovers(plan)
    if status == "fail":
        return status, text
    error = node_engine.start_probes(plan)
    return ("fail", "no container starts: " + error) if error else (status, text)
