"""Imports images into files of this node: stage_image.py HOSTS FILE REFERENCE... The step stage_image, once a node.

A file is there once it has its name: it is imported into a folder beside it, checked, then renamed. The folder, with all
that the import leaves, belongs to whoever has the lock; the next one starts over.
"""

import os
import shutil
import subprocess
import sys
import time
from typing import Dict, List, NamedTuple, Tuple

import image_file
from stage_files import PART, StageError, free, size
from turn import say, take_turn

LEAST_BYTES = 4 << 30  # an image of a serving engine has more; what an import needs in all nobody knows before
ATTEMPTS = 2
PAUSE_S = 5.0


class Importer(NamedTuple):
    """A program's command, before file and reference, and the folders that it works in, by its own variables."""

    command: Tuple[str, ...]
    folders: Tuple[str, ...]


# Its folders lie beside the file: in the home folder or in /tmp there is seldom room for all layers of an image.
IMPORTERS = {
    ".sqsh": Importer(("enroot", "import", "-o"), ("ENROOT_TEMP_PATH", "ENROOT_CACHE_PATH", "ENROOT_RUNTIME_PATH")),
    ".sif": Importer(("apptainer", "build", "--disable-cache"), ("APPTAINER_TMPDIR",)),
}


def environment(importer: Importer, part: str) -> Dict[str, str]:
    """The job's own, with a folder for each variable that nobody has set."""
    env = dict(os.environ)
    for name in importer.folders:
        if not env.get(name):
            env[name] = os.path.join(part, name.lower())
            os.mkdir(env[name], 0o700)
    return env


def run(command: List[str], env: Dict[str, str], lock: int) -> str:
    """Runs the import, showing what it says; '' if it succeeds, else its last words."""
    last = ""
    # The lock goes along: if this process is killed, an import that is still writing keeps its folder.
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          pass_fds=(lock,) if lock >= 0 else ()) as process:
        assert process.stdout is not None
        for line in process.stdout:
            text = " ".join(line.decode("utf-8", "replace").split())
            if text:
                last = text
                say(text)
    return "" if process.returncode == 0 else last or "exit code {}".format(process.returncode)


def attempt(file: str, reference: str, part: str, lock: int) -> str:
    """One import into a fresh folder; '' if the file is in its place, else why not."""
    importer = IMPORTERS[os.path.splitext(file)[1]]
    shutil.rmtree(part, ignore_errors=True)
    os.mkdir(part, 0o700)
    made = os.path.join(part, "image")
    try:
        error = run([*importer.command, made, reference], environment(importer, part), lock)
        error = error or image_file.problem(made)
        if error:
            return "({} free) {}".format(size(free(part)), error)
        os.chmod(made, 0o644)  # for the jobs of others
        with open(made, "rb") as stream:
            os.fsync(stream.fileno())
        os.rename(made, file)
        return ""
    finally:
        shutil.rmtree(part, ignore_errors=True)


def stage(file: str, reference: str) -> None:
    """Leaves a good image in its place; StageError or OSError says why not."""
    folder, name = os.path.split(file)
    os.makedirs(folder, exist_ok=True)
    lock = take_turn(os.path.join(folder, "." + name + ".lock"), "imports {}".format(reference))
    part = os.path.join(folder, "." + name + PART)
    if lock < 0:  # nobody waits for anybody: a folder of one's own
        part += "-{}-{}".format(os.environ.get("SLURMD_NODENAME", ""), os.getpid())
    if os.path.isdir(part):
        say("removing what an import that was cut short has left")
        shutil.rmtree(part)
    if os.path.exists(file):
        damage = image_file.problem(file)
        if not damage:
            say("{} is there: {}".format(file, size(os.path.getsize(file))))
            give_back(lock)
            return
        say("importing again: {}".format(damage))
        os.remove(file)
    room = free(folder)
    if room < LEAST_BYTES:
        raise StageError("{} has {} free, an import needs {} at least".format(folder, size(room), size(LEAST_BYTES)))
    begin = time.monotonic()
    error = attempt(file, reference, part, lock)
    for _ in range(ATTEMPTS - 1):
        if error:
            say("again in {:.0f} s: {}".format(PAUSE_S, error))  # a registry that many nodes ask at once
            time.sleep(PAUSE_S)
            error = attempt(file, reference, part, lock)
    if error:
        raise StageError("cannot import {} into {} {}".format(reference, folder, error))
    say("{} imported in {:.0f} s: {}".format(file, time.monotonic() - begin, size(os.path.getsize(file))))
    give_back(lock)


def give_back(lock: int) -> None:
    """The turn, if there was one."""
    if lock >= 0:
        os.close(lock)


def main(words: List[str]) -> int:
    """The last line is the reason of a failure."""
    host = os.environ.get("SLURMD_NODENAME", "")
    try:
        for hosts, file, reference in zip(*[iter(words)] * 3):
            if host in hosts.split(","):
                stage(file, reference)
    except StageError as error:
        say(str(error))
        return 1
    except OSError as error:
        say("{}: {}".format(error.filename or "stage_image", error.strerror))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
