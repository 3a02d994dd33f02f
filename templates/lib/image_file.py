"""Image files: whether one is whole, by what its head says of its length."""

import os
import struct

# squashfs 4.0: the magic at 0, the bytes in use at 40. The file may be padded.
SQUASHFS_MAGIC = b"hsqs"
# SIF: a launcher line, the magic at 32, offset and length of the data at 112; all little-endian.
SIF_MAGIC = b"SIF_MAGIC"
HEAD = 128


def problem(path: str) -> str:
    """Why a file is no whole image, '' if it is one. OSError if it cannot be read."""
    length = os.path.getsize(path)
    with open(path, "rb") as stream:
        head = stream.read(HEAD)
    if not length:
        return "{} is empty".format(path)
    if len(head) == HEAD and head.startswith(SQUASHFS_MAGIC):
        wanted = struct.unpack_from("<Q", head, 40)[0]
    elif len(head) == HEAD and head[32:].startswith(SIF_MAGIC):
        wanted = sum(struct.unpack_from("<qq", head, 112))
    else:
        return "{} is no image: it begins with neither squashfs's nor SIF's mark".format(path)
    if length < wanted:
        return "{} has {} of its {} bytes".format(path, length, wanted)
    return ""
