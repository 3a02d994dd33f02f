"""Fetches a model of the Hugging Face hub into the cache: prefetch_model.py --repo ORG/NAME [--ignore PATTERN]...

Runs in a worker's container, whose hub library resumes by itself what was cut short. The last line says what is wrong.
"""

import argparse
import errno
import os
import re
import sys
import threading
import time
from typing import Any, List, Optional

import turn

ATTEMPTS = 5       # the network of a long download breaks now and then
PAUSE_S = 5.0
PROGRESS_S = 10.0
STALLED_S = 600.0  # without one byte
STREAMS = 8
# Errors that another attempt does not change, by the names of their classes in every version of the library.
FINAL = {
    "GatedRepoError": "the token may not read it: is HF_TOKEN given ({from_submit: HF_TOKEN}), and was access granted?",
    "RepositoryNotFoundError": "there is no such model, or HF_TOKEN may not see it",
    "RevisionNotFoundError": "there is no such revision",
    "OfflineModeIsEnabled": "HF_HUB_OFFLINE is set",
    "HFValidationError": "this is no name of a model",
}
DENIED = "is HF_TOKEN given ({from_submit: HF_TOKEN}) and valid?"


class Download:
    """The one call of the library, in a thread so that its progress can be told."""

    def __init__(self, hub: Any, repo: str, ignored: List[str]) -> None:
        self.error = None  # type: Optional[BaseException]
        self.folder = ""
        self.hub, self.repo, self.ignored = hub, repo, ignored
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        """Leaves the snapshot's folder or the error."""
        try:
            self.folder = self.hub.snapshot_download(self.repo, ignore_patterns=self.ignored or None, max_workers=STREAMS)
        except BaseException as error:  # told by the main thread
            self.error = error


def say(text: str) -> None:
    """One line, told from the other words of the container."""
    turn.say("prefetch: " + text)


def cache_folder() -> str:
    """Where the library keeps models."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("HOME", "/root"), ".cache", "huggingface")
    return os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")


def present(folder: str) -> int:
    """Bytes of a model's files, whole and not."""
    total = 0
    for root, _, names in os.walk(os.path.join(folder, "blobs")):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                pass  # renamed just now
    return total


def gib(count: int) -> str:
    """Bytes as people read them."""
    return "{:.2f} GiB".format(count / (1 << 30))


def attempt(hub: Any, repo: str, ignored: List[str], blobs: str) -> Optional[BaseException]:
    """One call; its error, None once the model is there."""
    download = Download(hub, repo, ignored)
    download.thread.start()
    seen, moved = present(blobs), time.monotonic()
    while download.thread.is_alive():
        download.thread.join(PROGRESS_S)
        now = present(blobs)
        if now != seen:
            seen, moved = now, time.monotonic()
        elif download.thread.is_alive() and time.monotonic() - moved > STALLED_S:
            say("no byte for {:.0f} s; is a lock of a dead process in {}?".format(
                STALLED_S, os.path.join(os.path.dirname(blobs), ".locks")))
            os._exit(1)  # the thread cannot be ended
        if download.thread.is_alive():
            say("{} of {} are here".format(gib(now), repo))
    if download.error is None:
        say("complete: {} in {}, {}".format(repo, download.folder, gib(present(blobs))))
    return download.error


def names_of(error: BaseException) -> List[str]:
    """The error's classes."""
    return [kind.__name__ for kind in type(error).__mro__]


def final(error: BaseException) -> str:
    """What another attempt would not change, '' for an error that may pass."""
    for name in names_of(error):
        if name in FINAL:
            return FINAL[name]
    code = getattr(getattr(error, "response", None), "status_code", None)
    if code in (401, 403):
        return DENIED
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM):
        return "in " + cache_folder()
    return "" if isinstance(error, (OSError, RuntimeError)) or code else "this is an error of the library"


def words(error: BaseException) -> str:
    """The error in one line, without what may be a secret in an address."""
    text = re.sub(r"(https?://[^\s?]+)\?\S+", r"\1", " ".join(str(error).split()))
    return "{}: {}".format(type(error).__name__, text[:300])


def main() -> int:
    """Attempts until the model is there or nothing can change."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repo", required=True)
    parser.add_argument("--ignore", action="append", default=[])
    given = parser.parse_args()
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        import huggingface_hub as hub
    except ImportError as error:
        say("the image has no huggingface_hub: {}".format(error))
        return 1
    blobs = os.path.join(cache_folder(), "models--" + given.repo.replace("/", "--"))
    say("{} into {}, library {}".format(given.repo, cache_folder(), getattr(hub, "__version__", "of an unknown version")))
    try:
        os.makedirs(cache_folder(), exist_ok=True)
        # Beside the library's own locks, which it cannot take on every file system.
        turn.take_turn(os.path.join(cache_folder(), "." + os.path.basename(blobs) + ".lock"), "fetches this model")
    except OSError as error:
        say("{}: {}".format(cache_folder(), error.strerror))
        return 1
    for number in range(1, ATTEMPTS + 1):
        error = attempt(hub, given.repo, given.ignore, blobs)
        if error is None:
            return 0
        advice = final(error)
        if advice or number == ATTEMPTS:
            say("{}: {}".format(words(error), advice or "after {} attempts: can this node reach {}?".format(
                number, os.environ.get("HF_ENDPOINT") or "https://huggingface.co")))
            break
        say("attempt {} of {}: {}".format(number, ATTEMPTS, words(error)))
        time.sleep(PAUSE_S)
    return 1


if __name__ == "__main__":
    sys.exit(main())
