"""What a node is: GPU model, power cap, driver and ROCm versions, image digests. Facts for the results, never a check."""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import subprocess
from typing import Any, Dict, Iterator, List, Optional, Tuple

import node_engine
import node_gpu

SYSFS = "/sys"
ROCM_VERSION = "/opt/rocm/.info/version"
SMI_TIMEOUT_S = 30


def read_text(path: str) -> str:
    """The first line of a file, '' if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readline().strip()
    except OSError:
        return ""


def run(argv: "List[str]") -> str:
    """What a program prints, '' if it is missing, fails or hangs."""
    if shutil.which(argv[0]) is None:
        return ""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=SMI_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def values(rows: "Dict[str, Dict[str, Any]]", word: str) -> "List[str]":
    """The values of all cards whose key holds a word."""
    return [str(value) for row in rows.values() for key, value in row.items() if word in key.lower()]


def same(found: "List[str]") -> "Optional[str]":
    """One value where all cards agree, else all of them."""
    return found[0] if len(set(found)) == 1 else "; ".join(found) or None


def power_caps() -> "List[str]":
    """Power caps in W as the kernel driver has them (sysfs: microwatts)."""
    paths = sorted(glob.glob(SYSFS + "/class/drm/card[0-9]*/device/hwmon/hwmon*/power1_cap"))
    texts = [read_text(path) for path in paths]
    return [str(int(text) // 1000000) for text in texts if text.isdigit()]


def digests(plan: argparse.Namespace) -> "Iterator[Tuple[str, str]]":
    """Digests of the images, where the runtime tells."""
    engine = node_engine.argv(plan)
    for image in sorted(set(plan.image)) if engine else ():
        digest = run(engine + ["image", "inspect", "--format", "{{.Id}}", image]).strip()
        if digest:
            yield "image {}".format(image), digest


def facts(plan: argparse.Namespace) -> "Iterator[Tuple[str, str]]":
    """Name and value of each fact that this node tells."""
    rows = node_gpu.known_rows or node_gpu.smi() or {}
    rows = {name: row for name, row in rows.items() if isinstance(row, dict)}
    rows_of_cards = {name: row for name, row in rows.items() if name.startswith("card")}
    found = [
        ("gpu_model", same(values(rows_of_cards, "card series"))),
        ("power_cap_w", same(power_caps() or values(rows_of_cards, "power"))),
        ("driver", read_text(SYSFS + "/module/amdgpu/version") or same(values(rows, "driver version"))),
        ("rocm", read_text(ROCM_VERSION)),
        ("kernel", os.uname().release),
    ]
    for name, value in found:
        if value:
            yield name, value
    for pair in digests(plan):
        yield pair
