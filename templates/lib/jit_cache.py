"""Compiled kernels of earlier jobs: jit_cache.py load|keep STORE IMAGE FOLDER MAX_GB [LOCK_FD]

load fills the worker's own folder; 0: done, 3: this job works without the store. keep waits for a line on its input
and then stores what the worker has compiled. Neither fails the job; each prints one line, which the job shows.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from pathlib import Path
from typing import List

import jit_key
from jit_files import finished_files
from jit_prune import prune
from jit_store import Store
from jit_transfer import Done

LOAD_S = 120.0
KEEP_S = 45.0
OFF = 3


class Off(Exception):
    """Why this worker goes without the store."""


def say(text: str) -> None:
    """The line that the job looks for in the worker's log."""
    print("srtgen: jit cache: " + text, flush=True)


def part(store: str, image: str, folder: str) -> Store:
    """The part of the store that belongs to this image on this node's GPUs."""
    gpu = jit_key.gpu_type()
    if gpu is None:
        raise Off("the type of the GPUs is not known here")
    if not Path(store).is_dir():
        raise Off("{} is not there".format(store))
    return Store(Path(store, jit_key.image_key(image), gpu), Path(folder).name)


def shown(done: Done, what: str, seconds: float) -> str:
    text = "{} {} files ({:.1f} MiB) in {:.1f} s".format(what, done.files, done.size / (1 << 20), seconds)
    if done.bad:
        text += ", {} {}".format(done.bad, "damaged ones were removed" if what == "loaded" else "changed meanwhile")
    return text + (", not all: " + done.problem if done.problem else "")


def load(store: str, image: str, folder: str, lock: int) -> int:
    """Takes the folder and fills it."""
    begin = time.monotonic()
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = os.fstat(lock).st_ino == os.stat(folder + ".lock").st_ino
    except OSError:
        held = False
    if not held:
        raise Off("{} is in use by another job on this node".format(folder))
    shutil.rmtree(folder, ignore_errors=True)  # of a job whose /tmp was this one's
    Path(folder).mkdir(parents=True)
    found = part(store, image, folder)
    done = found.load(Path(folder), begin + LOAD_S)
    say("{} from {}".format(shown(done, "loaded", time.monotonic() - begin), found.root))
    return 0


def keep(store: str, image: str, folder: str, max_bytes: int) -> int:
    """Waits for its turn and publishes; an end of the input means that there is nothing to keep."""
    if not sys.stdin.readline():
        return 0
    begin = time.monotonic()
    found = part(store, image, folder)
    done = found.publish(list(finished_files(Path(folder))), max_bytes, begin + KEEP_S)
    say(shown(done, "stored", time.monotonic() - begin))
    prune(Path(store), found.root, max_bytes)
    return 0


def main(argv: "List[str]") -> int:
    """Entry point; see the module's text."""
    action, store, image, folder, max_gb = argv[:5]
    try:
        if action == "load":
            return load(store, image, folder, int(argv[5]))
        return keep(store, image, folder, int(max_gb) << 30)
    except (Off, OSError) as error:
        say("off: {}".format(error) if action == "load" else "nothing stored: {}".format(error))
        return OFF


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
