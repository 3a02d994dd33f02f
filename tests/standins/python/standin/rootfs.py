"""The root folder of a container: system folders, devices and mounts, put together in a mount namespace of its own."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path
from typing import Any, Optional

NEW_MOUNTS = 0x00020000
READ_ONLY, NO_SUID, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 32, 4096, 16384, 1 << 18
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LIMITS = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "nproc": resource.RLIMIT_NPROC,
          "stack": resource.RLIMIT_STACK, "core": resource.RLIMIT_CORE}
libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: Optional[str], flags: int, data: Optional[str] = None) -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind)]
    checked(libc.mount(*words, ctypes.c_ulong(flags), data.encode() if data else None), f"mount {source} at {target}")


def show(root: str, source: str, target: str, read_only: bool) -> None:
    """Binds a host path into the root folder."""
    to = root + target
    if os.path.isdir(source):
        os.makedirs(to, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if not os.path.exists(to):
            Path(to).touch()
    mount(source, to, None, BIND | RECURSIVE)
    if read_only:
        mount("none", to, None, BIND | REMOUNT | READ_ONLY)


def build_dev(root: str, devices: list[str]) -> None:
    """A /dev of its own, with the devices that every container has and those that were asked for."""
    os.mkdir(root + "/dev")
    mount("tmpfs", root + "/dev", "tmpfs", NO_SUID, "mode=755")
    for path in [f"/dev/{name}" for name in DEVICES] + [path for path in devices if os.path.exists(path)]:
        show(root, path, path, False)
    os.mkdir(root + "/dev/shm", 0o1777)
    os.chmod(root + "/dev/shm", 0o1777)
    os.symlink("/proc/self/fd", root + "/dev/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")


def build_root(spec: dict[str, Any], root: str) -> None:
    """The container's view of the machine; runs inside its namespaces."""
    checked(libc.unshare(NEW_MOUNTS), "unshare")
    mount("none", "/", None, RECURSIVE | PRIVATE)
    mount("tmpfs", root, "tmpfs", 0, "mode=755")
    for path in SYSTEM:
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        elif os.path.exists(path):
            show(root, path, path, True)
    show(root, "/sys", "/sys", True)
    build_dev(root, spec["devices"])
    os.makedirs(root + "/proc")
    mount("proc", root + "/proc", "proc", NO_SUID)
    os.makedirs(root + "/root")
    os.mkdir(root + "/tmp")
    os.chmod(root + "/tmp", 0o1777)
    for path in spec["rootfs"]:
        show(root, path, path, True)
    for source, target, read_only in spec["mounts"]:
        show(root, source, target, read_only)
    for target in spec["tmpfs"]:
        os.makedirs(root + target, exist_ok=True)
        mount("tmpfs", root + target, "tmpfs", 0, "mode=1777")


def become(spec: dict[str, Any], root: str) -> None:
    """Enters the root folder as the container's user."""
    os.chroot(root)
    os.makedirs(spec["workdir"], exist_ok=True)
    os.chdir(spec["workdir"])
    for name, soft, hard in spec["ulimits"]:
        try:
            resource.setrlimit(LIMITS[name], (soft, hard))
        except (ValueError, OSError):
            pass  # this machine's own limit is lower: not the container's fault
    os.setgroups(spec["groups"])
    os.setgid(spec["gid"])
    os.setuid(spec["uid"])
