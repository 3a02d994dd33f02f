"""Preflight of a node: the program that starts containers, on the host."""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import subprocess
from typing import List, Tuple

ENGINES = ("docker", "podman")        # keep images, and containers that outlive what started them
OWN_RIGHTS = ("podman", "apptainer")  # have no daemon: devices and limits are the user's
SHARED_FILE_SYSTEMS = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "wekafs")  # no overlays there
PROBE_TIMEOUT_S = 120


def argv(plan: argparse.Namespace) -> "List[str]":
    """The program with its own options, [] where the runtime keeps no containers."""
    return [plan.runtime] + plan.engine_option if plan.runtime in ENGINES else []


def last_words(command: "List[str]", timeout_s: int) -> str:
    """Runs a command; '' if it succeeds, else its last words."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return "no answer within {} s".format(timeout_s)
    except OSError as error:
        return str(error)[-300:]
    text = done.stdout.decode("utf-8", "replace").strip()[-300:]
    return "" if done.returncode == 0 else text or "exit code {}".format(done.returncode)


def run(plan: argparse.Namespace, words: "List[str]", timeout_s: int) -> str:
    """Runs the program; '' if it succeeds, else its last words."""
    return last_words(argv(plan) + words, timeout_s)


def grants_rights(plan: argparse.Namespace) -> bool:
    """True for a daemon, which gives a container limits and groups that the user has not."""
    return plan.runtime in ENGINES and plan.runtime not in OWN_RIGHTS


def closed_devices(plan: argparse.Namespace, patterns: "List[str]") -> str:
    """Devices that this user may not open, in words; '' if there are none or a daemon opens them."""
    if plan.runtime not in OWN_RIGHTS:
        return ""
    closed = ["{} (group {})".format(path, os.stat(path).st_gid) for pattern in patterns
              for path in sorted(glob.glob(pattern)) if not os.access(path, os.R_OK | os.W_OK)]
    return "uid {} may not open {}: the user must be in that group".format(os.getuid(), ", ".join(closed[:3])) if closed else ""


def file_system(path: str) -> str:
    """The type of the file system that a path is or will be on, by the longest mount point."""
    best = ("", "")
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            point, kind = line.split()[1:3]
            if (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best[0]):
                best = (point, kind)
    return best[1]


def storage_problem(plan: argparse.Namespace) -> str:
    """What is wrong with the folder that --root names; '' if nothing is or there is none."""
    if "--root" not in plan.engine_option:
        return ""
    folder = os.path.dirname(plan.engine_option[plan.engine_option.index("--root") + 1])
    if os.path.exists(folder) and os.stat(folder).st_uid != os.getuid():
        return "{} belongs to uid {}".format(folder, os.stat(folder).st_uid)
    kind = file_system(os.path.realpath(folder))
    if kind in SHARED_FILE_SYSTEMS:
        return "{} is on {}: container_runtime.storage must be a folder on the node's own disk".format(folder, kind)
    return ""


def problem(plan: argparse.Namespace) -> str:
    """Why the program does not work here; '' if it does."""
    if plan.runtime not in ENGINES + OWN_RIGHTS:
        return ""
    if shutil.which(plan.runtime) is None:
        return "{} is missing".format(plan.runtime)
    found = storage_problem(plan)
    if found:
        return found
    words = ["ps", "--quiet"] if plan.runtime in ENGINES else ["--version"]
    error = last_words((argv(plan) or [plan.runtime]) + words, 30)
    return "{} {} fails: {}".format(plan.runtime, words[0], error) if error else ""


def leftover_containers(plan: argparse.Namespace, uid: int, running: "List[str]") -> "List[str]":
    """Ids of this user's containers whose job is over."""
    done = subprocess.run(
        argv(plan) + ["ps", "--all", "--filter", "label=srtgen.uid={}".format(uid),
                      "--format", "{{.ID}} {{.Label \"srtgen.job\"}}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    rows = [line.split() for line in done.stdout.decode("utf-8", "replace").splitlines()]
    return [row[0] for row in rows if len(row) == 2 and row[1] not in running]


def remove_leftovers(plan: argparse.Namespace) -> "Tuple[str, str]":
    """Removes our own containers of jobs that are over; those of running jobs and of others stay."""
    if not argv(plan):
        return "ok", ""
    if not plan.running_job:
        return "note", "the running jobs are not known: leftovers are not looked for"
    left = leftover_containers(plan, os.getuid(), plan.running_job)
    if not left:
        return "ok", ""
    run(plan, ["rm", "--force"] + left, 120)
    still = leftover_containers(plan, os.getuid(), plan.running_job)
    if still:
        return "fail", "containers of ended jobs cannot be removed: " + " ".join(still)
    return "note", "removed containers of ended jobs: " + " ".join(left)


def start_probes(plan: argparse.Namespace) -> str:
    """Starts the containers that end at once; the last words of the first one that does not start."""
    command: "List[str]" = []
    for word in plan.probe:
        if word:
            command.append(word)
            continue
        error = last_words(["env", "SRTGEN_STEP=probe"] + command, PROBE_TIMEOUT_S)
        if error:
            return error
        command = []
    return ""
