"""The enroot stand-in: import only, strict about its options, folders and names.

Settings: ENROOT_STANDIN_STATE (calls.jsonl), _IMAGES (patterns of what the registry has, default *), _SIZE (bytes of an
image, default 1 MiB), _IMPORT_S (seconds an import takes), _HANG=1 (writes half and stays).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from standin import images, program


def die(text: str) -> NoReturn:
    print(f"[ERROR] {text}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def folder(name: str) -> Path:
    """A folder of enroot's, which must be writable; the runtime's it makes itself."""
    path = Path(os.environ.get(name) or die(f"the stand-in has no {name} of its own"))
    if name == "ENROOT_RUNTIME_PATH":
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            die(f"mkdir: cannot create directory '{path}': {error.strerror}")
    if not os.access(path, os.W_OK):
        die(f"No such file or directory: {path}")
    return path


def main() -> None:
    argv = sys.argv[1:]
    program.record(argv)
    if argv == ["version"]:
        print("3.5.0")
        return
    if len(argv) != 4 or argv[0] != "import" or argv[1] not in ("-o", "--output") or not argv[3].startswith("docker://"):
        die(f"Invalid argument: {' '.join(argv)} (the stand-in knows: import -o FILE docker://REFERENCE)")
    output, reference = argv[2], argv[3][len("docker://"):]
    folder("ENROOT_RUNTIME_PATH")
    temp = folder("ENROOT_TEMP_PATH")
    if os.path.exists(output):
        die(f"File already exists: {output}")
    print(f"[INFO] Querying registry for permission grant\n[INFO] Fetching image manifest of {reference}", file=sys.stderr, flush=True)
    if not program.image_is_there(reference):
        die(f"URL https://registry-1.docker.io/v2/{reference} returned error code: 404 Not Found")
    if program.setting("HANG") == "1":
        Path(output).write_bytes(bytes(4096))
        (temp / "layer").write_bytes(bytes(4096))
        time.sleep(600)
    try:
        images.write(output, "squashfs", int(program.setting("SIZE", str(1 << 20))), float(program.setting("IMPORT_S", "0")))
    except OSError as error:
        die(f"mksquashfs: {error.strerror}: {output}")
