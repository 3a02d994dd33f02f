"""Results of a node as an archive: pack FOLDER [NAME...] (to stdout), unpack FOLDER (from stdin), save FOLDER FILE."""

from __future__ import annotations

import os
import sys
import tarfile
from typing import BinaryIO, List


OF_THE_JOB = ("manifest.json", "result.json", "nodes.tsv", "identity.json")  # a node's are copies of the first node's


def pack(folder: str, names: "List[str]", out: BinaryIO) -> None:
    """The named files that are there; without names all but the job's own and hidden ones, marks of a running step."""
    with tarfile.open(fileobj=out, mode="w|") as archive:
        for place, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted(files):
                path = os.path.relpath(os.path.join(place, name), folder)
                if path in names if names else path not in OF_THE_JOB and not name.startswith("."):
                    archive.add(os.path.join(folder, path), path)


def unpack(folder: str, stream: BinaryIO) -> None:
    """Files of an archive into a folder, which is made; nothing outside of it."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if not member.isreg() or member.name.startswith("/") or ".." in member.name.split("/"):
                continue
            path = os.path.join(folder, member.name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            source = archive.extractfile(member)
            assert source is not None
            with open(path + ".new", "wb") as out:
                out.write(source.read())
            os.replace(path + ".new", path)


def save(folder: str, path: str) -> None:
    """The folder as a compressed archive under its own name: whole, or not there."""
    new = path + ".new"
    try:
        with tarfile.open(new, "w:gz") as archive:
            archive.add(folder, os.path.basename(folder))
        os.replace(new, path)
    except BaseException:
        if os.path.exists(new):
            os.remove(new)
        raise


def main(argv: "List[str]") -> None:
    """As the module's text says."""
    verb, folder, rest = argv[0], argv[1], argv[2:]
    try:
        if verb == "pack":
            pack(folder, rest, sys.stdout.buffer)
        elif verb == "unpack":
            unpack(folder, sys.stdin.buffer)
        else:
            save(folder, rest[0])
    except (OSError, tarfile.TarError) as error:  # a full disk; a node that went away in the middle
        sys.exit("results_tar.py: {} {}: {}".format(verb, folder, error))


if __name__ == "__main__":
    main(sys.argv[1:])
