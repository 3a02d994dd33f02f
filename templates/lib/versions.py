"""Prints the versions of the software in this container, one "srtgen-version NAME VALUE" line each."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess

# name in a recipe's `identity` -> names of its distribution, best first
DISTRIBUTIONS = {
    "atom": ("atom", "rocm-atom", "amd-atom"),
    "aiter": ("amd-aiter", "aiter"),
    "mooncake": ("mooncake-transfer-engine", "mooncake"),
    "torch": ("torch",),
    "triton": ("triton", "pytorch-triton-rocm"),
    "transformers": ("transformers",),
    "lmcache": ("lmcache",),
}


def distribution_version(names: "tuple[str, ...]") -> str:
    """Version of the first of the distributions that is installed, else ''."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def router_version() -> str:
    """The last word that `atomesh --version` prints, else ''."""
    if shutil.which("atomesh") is None:
        return ""
    try:
        done = subprocess.run(["atomesh", "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    words = done.stdout.decode("utf-8", "replace").split()
    return words[-1] if done.returncode == 0 and words else ""


def main() -> None:
    """All that is found; what is not there is left out."""
    for name, distributions in DISTRIBUTIONS.items():
        version = distribution_version(distributions)
        if version:
            print("srtgen-version", name, version, flush=True)
    # A program that is started, not looked up: once per job is enough, by the step that runs it.
    version = router_version() if os.environ.get("SRTGEN_TURN") == "1" else ""
    if version:
        print("srtgen-version", "atomesh", version, flush=True)


if __name__ == "__main__":
    main()
