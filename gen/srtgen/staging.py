"""`model.stage_dir`: the node's own copy of a local model, and where it may lie."""

from __future__ import annotations

import hashlib
import posixpath
import re

from srtgen.environment import placeholder
from srtgen.errors import Path
from srtgen.recipe import Recipe
from srtgen.report import Report

_WHERE: Path = ("model", "stage_dir")
# Places of containers, which a folder of the node's disk is easily confused with, and the kernel's own.
_RESERVED = ("/model", "/srtgen", "/srtgen-results", "/logs", "/proc", "/sys", "/dev")
_MEMORY = "/dev/shm"
_UNSAFE = r"[^A-Za-z0-9._-]"


def destination(recipe: Recipe, source: str, report: Report) -> str:
    """The node's folder that the files of the model folder `source` are copied into; "" if they are not.

    It is named after the model, with a mark of its whole path: two models of one name never meet.
    """
    stage_dir = recipe.model.stage_dir
    if stage_dir is None:
        return ""
    if problem := _problem(stage_dir, source):
        report.error(recipe.document, _WHERE, problem)
    name = re.sub(_UNSAFE, "-", posixpath.basename(source))
    return f"{stage_dir}/{name}-{hashlib.sha256(source.encode()).hexdigest()[:8]}"


def refuse_hub(recipe: Recipe, report: Report) -> None:
    """A model of the hub has no folder to copy from."""
    if recipe.model.stage_dir is not None:
        message = (
            f"{recipe.model.path} is no folder that could be copied; for models of the Hugging Face hub write "
            "model_prefetch: local and hf_cache into the cluster profile"
        )
        report.error(recipe.document, _WHERE, message)


def _problem(stage_dir: str, source: str) -> str | None:
    plain = "/" + posixpath.normpath(stage_dir).lstrip("/")
    if (found := placeholder(stage_dir)) is not None:
        return f"{found} is not expanded; write the path itself"
    if plain == "/":
        return "the root folder is no place for a model; write a folder of the node's own disk"
    if plain != stage_dir:
        return f"write the folder as {plain}"
    if _below(plain, source):
        return f"{plain} is the model folder {source} itself or lies in it; the copy needs another place"
    for place in _RESERVED:
        if _below(plain, place) and not _below(plain, _MEMORY):
            return f"{place} is no place for a model; write a folder of the node's own disk"
    return None


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
