"""One process at a time, whichever job it is of, and what all that works on the nodes prints."""

import errno
import fcntl
import os
import sys
import time

POLL_S = 1.0
SAID_EVERY = 5  # polls


def say(text: str) -> None:
    """One line, at once: the last one is a step's progress, or its reason."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def take_turn(path: str, what: str) -> int:
    """Waits until no other process holds the file; the handle's end, or the process's, gives the turn back.

    -1 where the file system has no locks (or another user's file none for us on NFS), which is said.
    """
    handle = _open(path)
    polls = 0
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if polls % SAID_EVERY == 0:
                say("waiting for another job that {} (lock {})".format(what, path))
            time.sleep(POLL_S)
            polls += 1
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            say("going on without a lock: {}: {}".format(path, error.strerror))
            os.close(handle)
            return -1


def _open(path: str) -> int:
    """The lock's file, for writing where that is allowed: NFS locks nothing else."""
    for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_RDONLY):
        try:
            return os.open(path, flags, 0o666)
        except (FileNotFoundError, PermissionError):
            pass
    return os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
