"""Preflight of a node: what must be there as a file."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from typing import List, Tuple

RESULTS_MIN_BYTES = 1 << 30  # logs and results of a long sweep
JIT_MIN_BYTES = 1 << 30      # compiled kernels of one image
TMP_MIN_BYTES = 1 << 30      # caches of the workers without a container, sockets, named pipes
PULL_TIMEOUT_S = 1800


def modified_files(bundle: str) -> "List[str]":
    """Files whose content is not what the manifest says, sorted; a missing file counts."""
    with open(os.path.join(bundle, "manifest.json"), "rb") as stream:
        files = json.loads(stream.read().decode("utf-8"))["files"]
    changed = []
    for path, entry in files.items():
        try:
            with open(os.path.join(bundle, path), "rb") as stream:
                same = hashlib.sha256(stream.read()).hexdigest() == entry["sha256"]
        except OSError:
            same = False
        if not same:
            changed.append(path)
    return sorted(changed)


def check_bundle(plan: argparse.Namespace) -> "Tuple[str, str]":
    """Visible (else this would not run) and as generated; an edited file fails only under SRTGEN_STRICT=1."""
    changed = plan.modified
    if not changed:
        return "ok", ""
    return ("fail" if plan.strict else "note"), "edited since generation: " + ", ".join(changed)


def check_image(plan: argparse.Namespace) -> "Tuple[str, str]":
    """An image file must be readable; what docker or podman has not yet is pulled now, once per node."""
    import image_file  # not above: srtgen verify reads this file alone
    import node_engine

    if plan.runtime == "none":
        return "ok", "runtime none"
    notes = []
    for image in sorted(set(plan.image)):
        if image.startswith(("/", "./")):
            if not os.access(image, os.R_OK):
                return "fail", "image file {} is missing or not readable".format(image)
            damage = image_file.problem(image) if image.endswith(".sif") and os.path.isfile(image) else ""
            if damage:
                return "fail", "image file " + damage
        elif node_engine.argv(plan):
            if node_engine.run(plan, ["image", "inspect", image], 60) == "":
                continue
            error = node_engine.run(plan, ["pull", "--quiet", image], PULL_TIMEOUT_S)
            if error:
                return "fail", "image {} is not here and {} pull failed: {}".format(image, plan.runtime, error)
            notes.append("pulled " + image)
        else:
            notes.append("{} comes from a registry: it is not checked, and imported at start".format(image))
    return ("note" if notes else "ok"), "; ".join(notes)


def weight_files(folder: str) -> "List[str]":
    """Names of the files that a local model needs besides config.json: by its index, else what weights are there."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index, "rb") as stream:
            return sorted(set(json.loads(stream.read().decode("utf-8"))["weight_map"].values()))
    return sorted(name for name in os.listdir(folder) if name.endswith((".safetensors", ".bin", ".gguf", ".pt")))


def check_model(plan: argparse.Namespace) -> "Tuple[str, str]":
    """A local model: all files of its index, none empty, every link resolving inside what containers see."""
    if not os.path.isdir(plan.model):
        return "fail", "model folder {} is missing".format(plan.model)
    problem = missing_files(plan.model)
    return ("fail", problem) if problem else check_links(plan, plan.model)


def missing_files(folder: str) -> str:
    """What a model folder lacks, '' if it is complete as far as its index tells."""
    try:
        names = ["config.json"] + weight_files(folder)
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # no JSON, or not of that shape
        return "{}/model.safetensors.index.json is broken: {}".format(folder, error)
    if len(names) == 1:
        return "{} holds no weights".format(folder)
    missing = [name for name in names if not os.path.exists(os.path.join(folder, name))]
    missing += [name for name in names if name not in missing and os.path.getsize(os.path.join(folder, name)) == 0]
    if missing:
        return "{} of {} files of {} are missing or empty: {}".format(
            len(missing), len(names), folder, ", ".join(missing[:3]))
    return ""


def host_path(path: str, mounts: "List[str]") -> str:
    """What a container's path is on the host, '' if it is in no mount (the longest mount point wins)."""
    best = ("", "")
    for mount in mounts:
        source, target = (mount.split(":") + [""])[:2]
        if (path == target or path.startswith(target.rstrip("/") + "/")) and len(target) > len(best[1]):
            best = (source, target)
    return best[0] + path[len(best[1].rstrip("/")):] if best[1] else ""


def dangles(path: str, mounts: "List[str]") -> bool:
    """True if the container's path leads, link by link, out of the mounts or to nothing."""
    for _ in range(40):  # as many links as the kernel follows
        host = host_path(path, mounts)
        if not host or not os.path.lexists(host):
            return True
        if not os.path.islink(host):
            return False
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(host)))
    return True


def check_links(plan: argparse.Namespace, folder: str) -> "Tuple[str, str]":
    """In a container a link out of the mounts dangles (a hub snapshot links into its sibling `blobs`)."""
    target = next((mount.split(":")[1] for mount in plan.mount if mount.split(":")[0] == folder), "")
    if plan.runtime == "none" or not target:
        return "ok", ""
    outside = [name for name in sorted(os.listdir(folder))
               if os.path.islink(os.path.join(folder, name)) and dangles(target + "/" + name, plan.mount)]
    if outside:
        return "fail", "links of {} lead out of the container's mounts: {}".format(folder, ", ".join(
            "{} -> {}".format(name, os.readlink(os.path.join(folder, name))) for name in outside[:3]))
    return "ok", ""


def check_mounts(plan: argparse.Namespace) -> "Tuple[str, str]":
    """Every source is there, or will be; a file can be written and removed in the folders that the job writes into."""
    for folder in filter(None, [plan.results, plan.jit_cache] + plan.writable + plan.own):
        probe = os.path.join(folder, ".write-{}-{}".format(os.environ.get("SLURMD_NODENAME", ""), os.getpid()))
        try:
            if folder in plan.own:
                os.makedirs(folder, exist_ok=True)
            with open(probe, "w", encoding="utf-8") as stream:
                stream.write("x")
            os.remove(probe)
        except OSError as error:
            return "fail", "cannot write into {}: {}".format(folder, error)
    sources = [mount.split(":")[0] for mount in plan.mount]
    missing = [source for source in sources if not os.path.exists(source) and source != plan.stage]
    if missing:
        return "fail", "not on this node: " + ", ".join(missing)
    return "ok", ""


def check_disk(plan: argparse.Namespace) -> "Tuple[str, str]":
    """Room for results and in /tmp."""
    for folder, least in ((plan.results, RESULTS_MIN_BYTES), ("/tmp", TMP_MIN_BYTES)):
        stat = os.statvfs(folder)
        free = stat.f_bavail * stat.f_frsize
        if free < least:
            return "fail", "{} has {} MiB free, {} are needed".format(folder, free >> 20, least >> 20)
        if stat.f_files and not stat.f_favail:
            return "fail", "{} has no inode free".format(folder)
    if plan.jit_cache:
        stat = os.statvfs(plan.jit_cache)
        if stat.f_bavail * stat.f_frsize < JIT_MIN_BYTES:
            return "note", "{} is nearly full: what this job compiles may not be kept".format(plan.jit_cache)
    return "ok", ""
