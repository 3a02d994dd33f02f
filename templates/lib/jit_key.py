"""What compiled kernels belong to: the image as it really is, and the type of this node's GPUs."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import sys
from typing import Iterator, Optional

import node_gpu

ROCM_VERSION = "/opt/rocm/.info/version"
RECORDS = {".dist-info": "METADATA", ".egg-info": "PKG-INFO", ".egg-link": "", ".pth": ""}


def gfx_name(version: int) -> str:
    """The kernel driver's gfx_target_version (90500) as compilers write it (gfx950)."""
    return "gfx{}{:x}{:x}".format(version // 10000, version // 100 % 100, version % 100)


def properties(path: str) -> "dict[str, int]":
    """A topology node's properties, {} if it has none."""
    try:
        with open(path, encoding="ascii") as stream:
            words = [line.split() for line in stream]
    except (OSError, UnicodeDecodeError):
        return {}
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


def sysfs_types() -> "Iterator[str]":
    """The type of each GPU that the kernel driver knows. Compute units count: MI300X and MI308X are both gfx942."""
    for path in sorted(glob.glob(node_gpu.SYSFS + "/class/kfd/kfd/topology/nodes/*/properties")):
        found = properties(path)
        if found.get("gfx_target_version"):
            units = found.get("simd_count", 0) // (found.get("simd_per_cu") or 1)
            yield "{}-{}cu".format(gfx_name(found["gfx_target_version"]), units)


def gpu_type() -> "Optional[str]":
    """The one type of this node's GPUs; None where nothing tells, or where they differ."""
    types = set(sysfs_types())
    if not types:
        rows = [row for name, row in (node_gpu.smi() or {}).items() if name.startswith("card") and isinstance(row, dict)]
        types = {str(row.get("GFX Version") or row.get("Card Series") or "") for row in rows}
    return readable(types.pop()) or None if len(types) == 1 else None


def readable(text: str) -> str:
    """Text as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[-80:]


def programs() -> "Iterator[str]":
    """What is installed here: Python, ROCm, and each package's record with its size and time."""
    yield sys.version
    for path in [ROCM_VERSION] + [folder + "/" + name for folder in sorted(set(sys.path)) for name in listing(folder)]:
        path = os.path.join(path, RECORDS.get(os.path.splitext(path)[1], "")).rstrip("/")
        try:
            stat = os.stat(path)
        except OSError:
            continue
        yield "{} {} {}".format(path, stat.st_size, int(stat.st_mtime))


def listing(folder: str) -> "list[str]":
    """Names of package records in a folder of Python's."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(tuple(RECORDS)))
    except OSError:
        return []


def image_key(image: str) -> str:
    """A folder's name for the image: its reference, and a hash that also tells a tag that moved."""
    text = "\n".join([image] + list(programs()))
    return "{}-{}".format(readable(image), hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16])
