"""The store of compiled kernels of one image and GPU type, whatever happens to its writers and to the disk.

objects/<xx>/<sha256>        contents, each under its own hash
lists/<where>/<sha256>.json  what one worker added: path -> [hash, bytes, mode, time in ns]; under its own hash as well
new/                         unfinished files

A file is there once a complete list names it, is served only if its content has the hash, and never changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
import uuid
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from jit_files import Found, age, copy_hashed, remove
from jit_lists import Entry, read_list
from jit_transfer import Done, transfer

OLD_S = 86400


class Store:
    """One image's and GPU type's part of the store. `where`: workers that find their files under the same paths."""

    def __init__(self, root: Path, where: str) -> None:
        self.root, self.where = root, where
        self.mode = stat.S_IMODE(os.stat(str(root.parent.parent)).st_mode)

    def entries(self) -> "Dict[str, Entry]":
        """Every file that can be served, by path. Of two the older one: somebody may have built upon it."""
        found = {}  # type: Dict[str, Entry]
        for _, path in sorted((path.stat().st_mtime, path) for path in (self.root / "lists" / self.where).glob("*.json")):
            for name, entry in read_list(path).items():
                if name not in found and self.holds(entry):
                    found[name] = entry
        return found

    def object(self, entry: Entry) -> Path:
        return self.root / "objects" / entry[0][:2] / entry[0]

    def holds(self, entry: Entry) -> bool:
        """True if the content is there, as far as its size tells."""
        try:
            return self.object(entry).stat().st_size == entry[1]
        except OSError:
            return False

    def load(self, folder: Path, end: float) -> Done:
        """Copies what the folder lacks into it, until `end` (monotonic seconds). A damaged content is removed."""
        wanted = sorted((path, entry) for path, entry in self.entries().items() if not (folder / path).exists())
        if wanted:
            self.touch()

        def fetch(item: "Tuple[str, Entry]") -> "Optional[int]":
            path, entry = item
            if time.monotonic() > end:
                return None
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            new = target.with_name(".srtgen-" + uuid.uuid4().hex)
            try:
                good = copy_hashed(self.object(entry), new)[0] == entry[0]
                if good:
                    os.chmod(str(new), entry[2])
                    os.utime(str(new), ns=(entry[3], entry[3]))
                    os.replace(str(new), str(target))
                else:
                    self.object(entry).unlink()
            finally:
                remove(new)
            return entry[1] if good else -1

        return transfer(fetch, wanted, end)

    def publish(self, found: "List[Found]", limit: int, end: float) -> Done:
        """Adds the files that no list names, as long as the store stays within `limit` bytes, until `end`."""
        known = self.entries()
        fresh = [file for file in found if file.path not in known]
        room = limit - sum(entry[1] for entry in known.values())
        fitting = []
        for file in fresh:
            room -= file.size
            if room >= 0:
                fitting.append(file)
        added = {}  # type: Dict[str, Entry]
        for folder in ("new", "lists/" + self.where):
            self.make(self.root / folder)
        self.sweep()

        def add(file: Found) -> "Optional[int]":
            if time.monotonic() > end:
                return None
            new = self.root / "new" / uuid.uuid4().hex
            try:
                digest, size = copy_hashed(file.source, new, sync=True)
                if not file.unchanged():
                    return -1
                entry = (digest, size, file.mode, file.mtime_ns)
                if not self.holds(entry):
                    self.make(self.object(entry).parent)
                    os.chmod(str(new), self.mode & 0o666)
                    os.replace(str(new), str(self.object(entry)))
                added[file.path] = entry
                return size
            finally:
                remove(new)

        done = transfer(add, fitting, end)
        if added:
            self.write_list(added)
            self.touch()
        return done._replace(problem=done.problem or ("the store is full" if len(fitting) < len(fresh) else ""))

    def write_list(self, added: "Dict[str, Entry]") -> None:
        content = json.dumps({"schema": "srtgen/jit/1", "files": added}, sort_keys=True, indent=0).encode()
        new = self.root / "new" / uuid.uuid4().hex
        try:
            with open(str(new), "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(str(new), self.mode & 0o666)
            name = hashlib.sha256(content).hexdigest() + ".json"
            os.replace(str(new), str(self.root / "lists" / self.where / name))
        finally:
            remove(new)

    def make(self, folder: Path) -> None:
        """A folder that those may write into who may write into the store."""
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            try:
                path.mkdir()
                os.chmod(str(path), self.mode)
            except FileExistsError:
                pass  # another worker was faster

    def touch(self) -> None:
        """Marks this part as used, for pruning."""
        try:
            os.utime(str(self.root))
        except OSError:
            pass  # somebody else's

    def sweep(self) -> None:
        """Removes what publishers left unfinished that were killed long ago."""
        for path in (self.root / "new").iterdir():
            if age(path) > OLD_S:
                remove(path)
