"""Preflight of a node: tools, CPUs, limits, leftovers."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
from typing import List, Tuple

MEMLOCK_RDMA_BYTES = 64 << 30  # less cannot register the KV cache of a GPU


def check_tools(plan: argparse.Namespace) -> "Tuple[str, str]":
    """What runs on the host; bash, python3 and curl were looked for before."""
    if plan.runtime in ("docker", "podman", "apptainer") and shutil.which(plan.runtime) is None:
        return "fail", "{} is missing".format(plan.runtime)
    if plan.runtime == "docker":
        try:
            done = subprocess.run(["docker", "ps", "--quiet"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, timeout=30)
        except subprocess.TimeoutExpired:
            return "fail", "docker does not answer"
        if done.returncode:
            return "fail", "docker ps fails: " + done.stderr.decode("utf-8", "replace").strip()[-200:]
    return "ok", ""


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
    """Open files for all connections; locked memory where RDMA registers it. Docker sets its own."""
    if plan.runtime == "docker":
        return "ok", "set by docker"
    need = max(4096, 4 * plan.concurrency + 1024)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files != resource.RLIM_INFINITY and files < need:
        return "fail", "at most {} open files, {} are needed".format(files, need)
    lock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    text = "open files {}, memlock {}".format(files, "unlimited" if lock == resource.RLIM_INFINITY else lock)
    if plan.transport == "rdma" and lock != resource.RLIM_INFINITY and lock < MEMLOCK_RDMA_BYTES:
        return "fail", "locked memory is limited to {} MiB, RDMA cannot register the KV cache".format(lock >> 20)
    return "ok", text


def leftover_containers(uid: int, running: "List[str]") -> "List[str]":
    """Ids of this user's containers whose job is over."""
    done = subprocess.run(
        ["docker", "ps", "--all", "--filter", "label=srtgen.uid={}".format(uid),
         "--format", "{{.ID}} {{.Label \"srtgen.job\"}}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    rows = [line.split() for line in done.stdout.decode("utf-8", "replace").splitlines()]
    return [row[0] for row in rows if len(row) == 2 and row[1] not in running]


def check_containers(plan: argparse.Namespace) -> "Tuple[str, str]":
    """Removes our own containers of jobs that are over; those of running jobs and of others stay."""
    if plan.runtime != "docker":
        return "ok", ""
    if not plan.running_job:
        return "note", "the running jobs are not known: leftovers are not looked for"
    left = leftover_containers(os.getuid(), plan.running_job)
    if not left:
        return "ok", ""
    subprocess.run(["docker", "rm", "--force"] + left, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=120)
    still = leftover_containers(os.getuid(), plan.running_job)
    if still:
        return "fail", "containers of ended jobs cannot be removed: " + " ".join(still)
    return "note", "removed containers of ended jobs: " + " ".join(left)
