"""What the client needs and can be known before the weights load. A fault ends the job with 10 (preflight)."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import List, Optional

from bench_plan import Plan, PlanError, load

PREFLIGHT = 10
SPARE_FILES = 256  # beside one socket a request: the interpreter, its libraries, tokenizer workers' pipes
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tiktoken.model")
# find_spec of the package alone: importing it would load the whole engine.
FIND_CLIENT = """
import importlib.util, pathlib, sys
spec = importlib.util.find_spec("atom")
places = list(spec.submodule_search_locations or []) if spec else []
sys.exit(not any((pathlib.Path(place) / "benchmarks" / "benchmark_serving.py").exists() for place in places))
"""


def highest(plan: Plan) -> int:
    """Largest concurrency of this run."""
    return max([point.concurrency for point in plan.chosen], default=0)


def open_files(plan: Plan) -> List[str]:
    """Each open stream holds a socket."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = highest(plan) + SPARE_FILES
    if hard != resource.RLIM_INFINITY and hard < need:
        return ["open files: the hard limit is %d, concurrency %d needs %d" % (hard, highest(plan), need)]
    if soft != resource.RLIM_INFINITY and soft < need:
        return ["open files: the soft limit stayed at %d, concurrency %d needs %d" % (soft, highest(plan), need)]
    return []


def local_ports(plan: Plan) -> List[str]:
    """One local port a connection to the router, which is a single destination."""
    try:
        first, last = (int(word) for word in PORT_RANGE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return []
    count = last - first + 1
    print("bench: %d local ports (%d to %d), highest concurrency %d" % (count, first, last, highest(plan)))
    if count < highest(plan) + SPARE_FILES:
        return ["local ports: %d to %d are too few for concurrency %d" % (first, last, highest(plan))]
    return []


def client(plan: Plan) -> List[str]:
    """The benchmark client is there."""
    if plan.client == "inferencex" and not Path(plan.client_path).is_file():
        return ["client inferencex: %s is not there; mount it" % plan.client_path]
    if plan.client == "atom" and subprocess.call(["python3", "-c", FIND_CLIENT], stdin=subprocess.DEVNULL) != 0:
        return ["client atom: python3 finds no atom.benchmarks.benchmark_serving"]
    return []


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def hub_folder() -> Path:
    """Where the hub library keeps snapshots."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("HOME", "/root"), ".cache", "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub"))


def cached_tokenizer(name: str) -> Optional[Path]:
    """Snapshot of a hub id in the local cache that holds a tokenizer."""
    snapshots = hub_folder() / ("models--" + name.replace("/", "--")) / "snapshots"
    try:
        return next((folder for folder in sorted(snapshots.iterdir()) if _has_tokenizer(folder)), None)
    except OSError:
        return None


def tokenizer(plan: Plan) -> List[str]:
    """A tokenizer given by path exists; offline, one given by name is in the cache."""
    name = plan.tokenizer or plan.model
    if name.startswith("/"):
        return [] if _has_tokenizer(Path(name)) else ["tokenizer: %s holds none of %s" % (name, ", ".join(TOKENIZER_FILES))]
    if plan.offline and cached_tokenizer(name) is None:
        return ["tokenizer: offline, and %s is not in %s" % (name, hub_folder())]
    return []


def main() -> int:
    """Run the checks, write the verdict of a failed one."""
    try:
        plan = load()
        checks = (open_files, local_ports, client, tokenizer) if plan.kind == "sa-bench" else ()
        problems = [problem for check in checks for problem in check(plan)]
    except PlanError as error:
        problems = [str(error)]
    if not problems:
        return 0
    for problem in problems:
        print("bench: %s" % problem, file=sys.stderr)
    folder = Path(os.environ["SRTGEN_RESULTS"]) / "bench"
    verdict = {"code": PREFLIGHT, "reason": "; ".join(problems), "points": None, "valid": None, "client_exit_code": None}
    (folder / "verdict.json").write_text(json.dumps(verdict, sort_keys=True) + "\n", encoding="utf-8")
    return PREFLIGHT


if __name__ == "__main__":
    sys.exit(main())
