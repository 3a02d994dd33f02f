"""Image files as the real programs make them, as far as anybody looks: head, sizes in the head, length."""

from __future__ import annotations

import os
import struct
import time

SQUASHFS_MAGIC = b"hsqs"
SIF_MAGIC = b"SIF_MAGIC"
SIF_LAUNCH = b"#!/usr/bin/env run-singularity\n"


def squashfs(size: int) -> bytes:
    """The superblock of a squashfs 4.0 of so many bytes (bytes_used stands at 40)."""
    return (SQUASHFS_MAGIC + struct.pack("<IIII6H", 1, 0, 131072, 0, 1, 17, 0, 1, 4, 0) + struct.pack("<QQ", 0, size)).ljust(96, b"\0")


def sif(size: int) -> bytes:
    """The global header of a SIF of so many bytes (offset and length of its data stand at 112)."""
    head = SIF_LAUNCH.ljust(32, b"\0") + SIF_MAGIC.ljust(10, b"\0") + b"01\0" + b"02\0" + bytes(16)
    return head + struct.pack("<8q", 0, 0, 47, 48, 128, 4096, 4096, size - 4096)


def write(path: str, kind: str, size: int, seconds: float) -> None:
    """Writes a file bit by bit, taking so long, and without its head first: OSError where the disk is full."""
    head = {"squashfs": squashfs, "sif": sif}[kind](size)
    piece = bytes(max(1, size // 20))
    with open(path, "xb") as out:
        out.write(bytes(len(head)))
        while out.tell() < size:
            out.write(piece[:size - out.tell()])
            out.flush()
            time.sleep(seconds / 20)
        out.seek(0)
        out.write(head)
        out.flush()
        os.fsync(out.fileno())


def is_sif(path: str) -> bool:
    with open(path, "rb") as stream:
        return stream.read(42)[32:41] == SIF_MAGIC
