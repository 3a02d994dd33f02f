"""Preflight of one node, run there on the host: prints a line per check and the node's addresses.

Lines are tab separated: node, "check", name, ok|fail|note|skip, text; node, "address", interface, address, network;
node, "modified", file of the bundle; node, "fact", name, value.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Callable, List, Tuple

import node_facts
import node_files
import node_gpu
import node_hub
import node_net
import node_stage
import node_system

Check = Callable[[argparse.Namespace], Tuple[str, str]]

CHECKS: "List[Tuple[str, Check]]" = [
    ("bundle", node_files.check_bundle),
    ("tools", node_system.check_tools),
    ("image", node_files.check_image),
    ("model", node_hub.check_model),
    ("mounts", node_files.check_mounts),
    ("disk", node_stage.check_disk),
    ("ports", node_net.check_ports),
    ("gpu_count", node_gpu.check_count),
    ("cpus", node_system.check_cpus),
    ("limits", node_system.check_limits),
    ("rdma", node_net.check_rdma),
    ("containers", node_system.check_containers),
    ("gpu_memory", node_gpu.check_memory),
]


def say(*words: str) -> None:
    """One report line; blanks inside a text are single, so that it stays one line."""
    line = [os.environ.get("SLURMD_NODENAME", "")] + [" ".join(word.split()) for word in words]
    sys.stdout.write("\t".join(line) + "\n")
    sys.stdout.flush()


def run_check(name: str, check: Check, plan: argparse.Namespace) -> None:
    """Reports one check; a crash of the check itself is a failure that says so."""
    if name in plan.skip:
        say("check", name, "skip", "SRTGEN_SKIP_CHECKS")
        return
    try:
        status, text = check(plan)
    except Exception as error:  # a check that breaks has not passed
        status, text = "fail", "the check itself failed: {}: {}".format(type(error).__name__, error)
    say("check", name, status, text)


def profile_check(command: str) -> Check:
    """A check of the cluster profile: a shell command that must exit 0 within 60 s."""
    def check(plan: argparse.Namespace) -> "Tuple[str, str]":
        done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60)
        text = done.stdout.decode("utf-8", "replace").strip()[-300:]
        return ("ok", text) if done.returncode == 0 else ("fail", "exit code {}: {}".format(done.returncode, text))
    return check


def parse_arguments(argv: "List[str]") -> argparse.Namespace:
    """The plan as preflight.sh passes it."""
    parser = argparse.ArgumentParser()
    for name in ("bundle", "results", "runtime", "interface", "transport", "ib-device", "gid-index", "model",
                 "cpus-per-task", "stage", "hub-model", "hub-cache", "prefetch", "weight-hosts", "jit-cache"):
        parser.add_argument("--" + name, default="")
    for name in ("gpus", "drain", "concurrency", "strict", "offline"):
        parser.add_argument("--" + name, type=int, default=0)
    for name in ("image", "mount", "listen", "host", "skip", "node-cpus", "command", "running-job", "own",
                 "writable", "engine-option", "probe", "tool"):
        parser.add_argument("--" + name, action="append", default=[])
    plan = parser.parse_args(argv)
    if os.environ.get("SLURMD_NODENAME", "") not in plan.weight_hosts.split(","):
        plan.mount = [mount for mount in plan.mount if mount.split(":")[0] != plan.stage]
        plan.stage, plan.own, plan.writable = "", [], []
    return plan


def main(argv: "List[str]") -> int:
    """Runs all checks; never fails by itself, the reader of the report decides."""
    plan = parse_arguments(argv)
    for interface, address, network in node_net.addresses(plan.interface):
        say("address", interface, address, network)
    plan.modified = node_files.modified_files(plan.bundle)
    for path in plan.modified:
        say("modified", path)
    for name, check in CHECKS:
        run_check(name, check, plan)
    for name, value in node_facts.facts(plan):
        say("fact", name, value)
    for item in plan.command:
        name, _, command = item.partition("\t")
        run_check(name, profile_check(command), plan)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
