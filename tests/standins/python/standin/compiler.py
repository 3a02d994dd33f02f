"""What a worker compiles while it loads, in the shape of Triton's and AITER's caches (STANDIN_COMPILE=N kernels)."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

from standin.faults import setting
from standin.setup import fail

KERNEL_S = 0.05


def compile_kernels() -> None:
    """Finds or makes N kernels and one module; a lock that nobody holds would be waited for without end."""
    count = int(setting("STANDIN_COMPILE", 0))
    if not count:
        return
    triton, aiter = Path(os.environ["TRITON_CACHE_DIR"]), Path(os.environ["AITER_JIT_DIR"])
    locks = [path for folder in (triton, aiter) for path in folder.rglob("*lock*")]
    if locks:
        fail(f"waiting for {locks[0]}, which nobody holds", 9)
    made = [kernel(triton, number) for number in range(count)] + [module(aiter)]
    print(f"compiled {made.count(True)}, found {made.count(False)}", flush=True)


def kernel(folder: Path, number: int) -> bool:
    """One kernel: found by its group file, which names its parts by absolute paths. True if it had to be made."""
    own = folder / hashlib.sha256(str(number).encode()).hexdigest()[:32]
    group = own / f"__grp__kernel{number}.json"
    if group.exists() and all(Path(path).exists() for path in json.loads(group.read_text())["child_paths"].values()):
        return False
    time.sleep(KERNEL_S)
    own.mkdir(parents=True, exist_ok=True)
    parts = {name: own / name for name in (f"kernel{number}.hsaco", f"kernel{number}.json")}
    for path in parts.values():
        path.write_bytes(hashlib.sha256(path.name.encode()).digest() * 256)
    group.write_text(json.dumps({"child_paths": {name: str(path) for name, path in parts.items()}}))
    (own / f"kernel{number}.lock").touch()
    return True


def module(folder: Path) -> bool:
    """One extension module, found by its name. A lock lies beside it while it is built."""
    target = folder / "module_norm.so"
    if target.exists():
        if not os.access(target, os.X_OK):
            fail(f"{target}: failed to map segment from shared object", 9)
        return False
    (folder / "build" / "module_norm").mkdir(parents=True, exist_ok=True)
    lock = folder / "build" / "lock_module_norm"
    lock.touch()
    time.sleep(KERNEL_S)
    (folder / "build" / "module_norm" / "norm.o").write_bytes(b"o" * 1000)
    target.write_bytes(b"so" * 50000)
    target.chmod(0o755)
    lock.unlink()
    return True
