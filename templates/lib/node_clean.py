"""Ends and removes what is left of a job on this node: node_clean.py JOB RUNTIME RUN OPTION... Prints what it found."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Dict, List

import node_engine

GRACE_S = 1.0


def environment(pid: int) -> "Dict[str, str]":
    """A process's start environment, {} if it is not this user's or gone."""
    try:
        with open("/proc/{}/environ".format(pid), "rb") as stream:
            words = stream.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return {}
    return dict(word.partition("=")[::2] for word in words if "=" in word)


def name_of(pid: int) -> str:
    """The process's short name, '' if it is gone."""
    try:
        with open("/proc/{}/comm".format(pid), encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def leftovers(run: str) -> "List[int]":
    """Processes of this run's steps; srun on the batch node carries the same environment and is not one."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        names = environment(int(entry))
        if names.get("SRTGEN_RUN") == run and names.get("SRTGEN_STEP") and names.get("SLURM_STEP_ID"):
            if name_of(int(entry)) not in ("srun", "slurmstepd", ""):
                found.append(int(entry))
    return found


def send(pids: "List[int]", number: int) -> None:
    """Signals all that are still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def end_processes(run: str) -> None:
    """TERM, a moment, KILL."""
    pids = leftovers(run)
    if not pids:
        return
    print("ending", ", ".join("{} ({})".format(pid, name_of(pid)) for pid in pids), "on", os.uname().nodename, flush=True)
    send(pids, signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while leftovers(run) and time.monotonic() < end:
        time.sleep(0.05)
    send(leftovers(run), signal.SIGKILL)


def remove_containers(job: str, engine: "List[str]") -> None:
    """Those of this job only."""
    done = subprocess.run(engine + ["ps", "--all", "--quiet", "--filter", "label=srtgen.job=" + job],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=10)
    names = done.stdout.decode().split()
    if names:
        print("removing containers", " ".join(names), flush=True)
        subprocess.run(engine + ["rm", "--force"] + names, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=10)


def remove_jit_folders() -> None:
    """Cache folders of containers that share this node's /tmp (jit_role.sh), unless a worker holds their lock."""
    for lock in glob.glob("/tmp/srtgen-jit/*.lock"):
        try:
            with open(lock, "r+b") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock[:-len(".lock")], ignore_errors=True)
                os.unlink(lock)
            os.rmdir(os.path.dirname(lock))
        except OSError:
            continue


def main(job: str, runtime: str, run: str, options: "List[str]") -> None:
    """Processes, containers, the work folder. The options are those of a runtime that keeps containers."""
    if runtime in node_engine.ENGINES:
        remove_containers(job, [runtime] + options)
    end_processes(run)
    shutil.rmtree("/tmp/srtgen-" + job, ignore_errors=True)
    remove_jit_folders()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
