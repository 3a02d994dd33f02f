"""Compiled templates beside their sources, as Python keeps its modules: compiling costs more than printing."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from jinja2 import FileSystemBytecodeCache
from jinja2.bccache import Bucket

from srtgen import resources


class Compiled(FileSystemBytecodeCache):
    """What is stored belongs to the exact text of a template; a folder that cannot be written is gone without."""

    def __init__(self) -> None:
        super().__init__(str(resources.folder("templates") / "__pycache__"))

    def load_bytecode(self, bucket: Bucket) -> None:
        """What was stored; nothing if that is damaged, by whatever a reader of bytecode raises then."""
        try:
            super().load_bytecode(bucket)
        except Exception:
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store one template, where Python itself would store a module."""
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                os.makedirs(self.directory, exist_ok=True)
                super().dump_bytecode(bucket)
