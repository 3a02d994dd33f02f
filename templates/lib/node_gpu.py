"""Preflight of a node: GPUs, from sysfs, else from rocm-smi."""

from __future__ import annotations

import argparse
import glob
import json
import os
import shutil
import subprocess
import time
from typing import Any, Dict, List, Optional, Tuple

import node_engine

SYSFS = "/sys"
known_rows: "Dict[str, Dict[str, Any]]" = {}  # what rocm-smi said last
BUSY_BYTES = 8 << 30  # what a worker that ends leaves for a moment is below, what a leak leaves is above
POLL_S = 2.0


def read_number(path: str) -> "Optional[int]":
    """The integer in a file, None if there is none."""
    try:
        with open(path, encoding="ascii") as stream:
            return int(stream.read().strip() or "0")
    except (OSError, ValueError):
        return None


def sysfs_count() -> int:
    """GPUs that the kernel driver knows; CPUs are topology nodes with gpu_id 0."""
    return sum(1 for path in glob.glob(SYSFS + "/class/kfd/kfd/topology/nodes/*/gpu_id") if read_number(path))


def sysfs_used() -> "List[int]":
    """Bytes in use of each GPU, in the order of the cards."""
    pattern = SYSFS + "/class/drm/card[0-9]*/device/mem_info_vram_used"
    paths = [path for path in glob.glob(pattern) if "-" not in path.split("/class/drm/")[1].split("/")[0]]
    values = [read_number(path) for path in sorted(paths, key=lambda path: (len(path), path))]
    return [value for value in values if value is not None]


def smi() -> "Optional[Dict[str, Dict[str, Any]]]":
    """rocm-smi's rows by card, with memory, product, power cap and driver in one call, for it is slow; None if it does not tell."""
    if shutil.which("rocm-smi") is None:
        return None
    argv = ["rocm-smi", "--showmeminfo", "vram", "--showproductname", "--showmaxpower", "--showdriverversion", "--json"]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
        text = done.stdout.decode("utf-8", "replace")
        rows = json.loads(text[text.index("{"):])
        known = dict(rows.items())
    except (OSError, subprocess.TimeoutExpired, ValueError, AttributeError):
        return None
    known_rows.clear()
    known_rows.update(known)
    return known


def smi_used() -> "Optional[List[int]]":
    """Bytes in use of each GPU as rocm-smi says; None if it is missing or cannot be understood."""
    cards = smi()
    if cards is None:
        return None
    try:
        rows = [cards[name] for name in sorted(cards, key=lambda name: (len(name), name)) if name.startswith("card")]
        return [next(int(value) for key, value in row.items() if "used" in key.lower()) for row in rows]
    except (ValueError, StopIteration, AttributeError, TypeError):
        return None


def used_bytes() -> "Optional[List[int]]":
    """Bytes in use of each GPU; None if nothing can tell."""
    return (sysfs_used() or None) if sysfs_count() else smi_used()


_first_answer: "List[Optional[List[int]]]" = []  # rocm-smi is slow: the count's answer serves the memory's first look too


def check_count(plan: argparse.Namespace) -> "Tuple[str, str]":
    """At least as many GPUs as the plan takes of a node, which the user may open."""
    found = sysfs_count()
    if not found:
        used = smi_used()
        _first_answer.append(used)
        if used is None:
            return "fail", "no GPUs in sysfs, and rocm-smi does not tell"
        found = len(used)
    if found < plan.gpus:
        return "fail", "{} GPUs here, the plan needs {}".format(found, plan.gpus)
    closed = node_engine.closed_devices(plan, ["/dev/kfd", "/dev/dri/renderD*"])
    return ("fail", closed) if closed else ("ok", "{} GPUs".format(found))


def check_memory(plan: argparse.Namespace) -> "Tuple[str, str]":
    """No GPU holds 8 GiB or more; waits for memory that an earlier job is still giving back."""
    end = time.monotonic() + plan.drain
    while True:
        used = _first_answer.pop() if _first_answer else used_bytes()
        if used is None:
            return "fail", "cannot tell how much GPU memory is in use"
        busy = ["GPU {}: {:.1f} GiB".format(index, value / (1 << 30)) for index, value in enumerate(used) if value >= BUSY_BYTES]
        if not busy:
            return "ok", ""
        if time.monotonic() >= end:
            return "fail", "GPU memory is in use, also after {} s: {}{}".format(plan.drain, ", ".join(busy), owners())
        time.sleep(min(POLL_S, max(0.1, end - time.monotonic())))


def owners() -> str:
    """Processes that hold a GPU, as far as this user may see them."""
    found = []
    for path in glob.glob(SYSFS + "/class/kfd/kfd/proc/[0-9]*"):
        pid = os.path.basename(path)
        try:
            with open("/proc/{}/cmdline".format(pid), "rb") as stream:
                command = stream.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:
            command = ""
        found.append("pid {} {}".format(pid, command[:80]).strip())
    return "; held by " + "; ".join(found[:4]) if found else ""
