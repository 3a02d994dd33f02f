"""Copies a model folder to this node's own disk: stage_model.py SOURCE TARGET. The step stage_model, once a node.

A file is there once it has its name: it is written under another one, checked, then renamed. So a copy that was cut
short goes on where it was, and one that is complete costs a look at each file (and its hash, if the model has sums).
"""

import errno
import os
import sys
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Dict, List, Optional

from stage_files import CHUNK, PART, Item, StageError, checksums, free, is_there, leftovers, listing, needed, sha256, size
from turn import say, take_turn

STREAMS = 4
PROGRESS_S = 5.0
STALLED_S = 300.0  # without one byte: a shared file system that hangs


class Copy:
    """One copy in the making."""

    def __init__(self, items: List[Item], target: str, sums: Dict[str, str]) -> None:
        self.items = items
        self.target = target
        self.sums = sums
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.copied = self.checked = 0  # bytes
        self.files = self.done = 0

    def tick(self, count: int) -> None:
        """Hashed bytes."""
        if self.stop.is_set():
            raise StageError("stopped")
        with self.lock:
            self.checked += count

    def settle(self, item: Item) -> None:
        """Leaves the item whole in its place."""
        place = os.path.join(self.target, item.name)
        wanted = self.sums.get(item.name)
        if not is_there(item, self.target) or (wanted and sha256(place, self.tick) != wanted):
            part = os.path.join(os.path.dirname(place), "." + os.path.basename(place) + PART)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            try:
                self.write(item, part, wanted)
                os.rename(part, place)
            except BaseException:
                if os.path.exists(part):
                    os.remove(part)
                raise
            with self.lock:
                self.files += 1
        with self.lock:
            self.done += 1

    def write(self, item: Item, part: str, wanted: Optional[str]) -> None:
        """The item's bytes, on the disk and checked."""
        with open(item.path, "rb", buffering=0) as source, open(part, "wb", buffering=CHUNK) as out:
            while not self.stop.is_set():
                chunk = source.read(CHUNK)
                if not chunk:
                    break
                out.write(chunk)
                with self.lock:
                    self.copied += len(chunk)
            out.flush()
            os.fsync(out.fileno())
            os.fchmod(out.fileno(), item.mode | 0o600)
        if self.stop.is_set():
            raise StageError("stopped")
        if os.path.getsize(part) != item.size:
            raise StageError("{} gave {} bytes instead of {}".format(item.path, os.path.getsize(part), item.size))
        if wanted and sha256(part, self.tick) != wanted:
            raise StageError("{} does not have the sha256 of the model's checksum file".format(item.path))
        os.utime(part, ns=(item.mtime_ns, item.mtime_ns))

    def run(self) -> None:
        """All items, a few at once; the first failure stops the others."""
        total = sum(item.size for item in self.items)
        begin = moved = time.monotonic()
        seen = 0
        with ThreadPoolExecutor(STREAMS) as pool:
            # The largest first: none of them is left for the end.
            waiting = {pool.submit(self.settle, item) for item in sorted(self.items, key=lambda item: -item.size)}
            while waiting:
                ended, waiting = wait(waiting, PROGRESS_S, FIRST_EXCEPTION)
                failed = [future.exception() for future in ended if future.exception()]
                if failed:
                    self.stop.set()
                    for future in waiting:
                        future.cancel()
                    raise failed[0]
                now = time.monotonic()
                if self.copied + self.checked > seen or ended:
                    seen, moved = self.copied + self.checked, now
                elif now - moved > STALLED_S:
                    say("no byte for {:.0f} s: is the file system of the model or of {} stuck?".format(now - moved, self.target))
                    os._exit(1)  # a thread that hangs in a read cannot be joined
                say("{} of {} files, copied {} of {}, checked {}, {}/s".format(
                    self.done, len(self.items), size(self.copied), size(total), size(self.checked),
                    size(int(self.copied / max(now - begin, 0.1)))))


def stage(source: str, target: str) -> None:
    """The whole of it; StageError or OSError says why not."""
    folder, name = os.path.split(target)
    os.makedirs(folder, exist_ok=True)
    handle = take_turn(os.path.join(folder, "." + name + ".lock"), "copies this model here")
    items = listing(source)
    if not items:
        raise StageError("{} holds no files".format(source))
    need, room = needed(items, target), free(target)
    if need > room:
        raise StageError("{} has {} free, {} are needed".format(folder, size(room), size(need)))
    os.makedirs(target, mode=os.stat(source).st_mode & 0o777 | 0o700, exist_ok=True)
    for path in leftovers(items, target):
        say("removing {}, which the model does not have".format(path))
        os.remove(path)
    copy = Copy(items, target, checksums(items))
    copy.run()
    if handle >= 0:
        os.close(handle)
    say("complete: {} files, {}, {} of them copied now, {} with a checksum".format(
        len(items), size(sum(item.size for item in items)), copy.files, sum(item.name in copy.sums for item in items)))


def main(source: str, target: str) -> int:
    """The last line is the reason of a failure."""
    try:
        stage(source, target)
    except StageError as error:
        say(str(error))
    except OSError as error:
        where = target if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.filename or target
        say("{}: {}".format(where, error.strerror))
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
