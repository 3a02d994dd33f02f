"""A bundle's folder against generated files, and against its own manifest. Reads files; writes nothing."""

import difflib
import importlib.util
import json
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any, Mapping, NamedTuple

from srtgen import manifest, resources
from srtgen.bundle import MARKER
from srtgen.manifest import File


class Unreadable(Exception):
    """A folder that is no bundle; the message says why."""


class Difference(NamedTuple):
    """One file that is not as generated: `what` is missing, edited, stale or mode."""

    path: str
    what: str


def manifest_of(folder: Path) -> dict[str, Any]:
    """The folder's manifest. Raises Unreadable."""
    try:
        content = json.loads((folder / manifest.NAME).read_bytes())
        if not isinstance(content, dict) or not isinstance(content.get("files"), dict):
            raise ValueError("not a manifest")
    except FileNotFoundError:
        half = ", only a generation that was broken off" if (folder / MARKER).exists() else ""
        raise Unreadable(f"{folder} holds no bundle{half}: no {manifest.NAME}") from None
    except (OSError, ValueError) as error:
        raise Unreadable(f"{folder / manifest.NAME} cannot be read: {error}") from None
    return content


def differences(folder: Path, files: Mapping[str, File]) -> list[Difference]:
    """How the folder is not what `files` would make it, by path."""
    found = [Difference(path, what) for path, file in files.items() if (what := _state(folder / path, file))]
    try:
        listed = set(manifest_of(folder)["files"])
    except Unreadable:
        listed = set()
    found += [Difference(p, "stale") for p in listed - set(files) if (folder / p).exists()]
    if (folder / MARKER).exists():
        found.append(Difference(MARKER, "stale"))
    return sorted(found)


def _state(path: Path, file: File) -> str:
    try:
        content = path.read_bytes()
    except OSError:
        return "missing"
    if content != file.content:
        return "edited"
    return "" if os.access(path, os.X_OK) == file.executable else "mode"


def unified(path: str, before: bytes, after: bytes, labels: tuple[str, str]) -> str:
    """The unified diff of one file."""
    texts = [content.decode("utf-8", "replace").splitlines() for content in (before, after)]
    return "\n".join(difflib.unified_diff(*texts, f"{labels[0]}/{path}", f"{labels[1]}/{path}", lineterm=""))


def verify(folder: Path) -> list[str]:
    """What keeps the folder from being the bundle that its manifest describes, in words; [] if nothing does.

    Edited and missing files are found by the code that the job itself runs at its start.
    """
    content = manifest_of(folder)
    problems = []
    if (folder / MARKER).exists():
        problems.append(f"{MARKER} is there: the last generation was broken off, jobs refuse this folder")
    wanted = manifest.identity(content)
    if content.get("id") != wanted:
        problems.append(f"{manifest.NAME} was edited: its id is not that of its content")
    script = _script_id(folder)
    if script is not None and script != content.get("bundle", content.get("id")):
        problems.append(f"{manifest.JOB_SCRIPT} belongs to another generation than {manifest.NAME}: a job would refuse to start")
    for path in _start_up_check().modified_files(str(folder)):
        problems.append(f"{path} was {'edited' if (folder / path).exists() else 'removed'} since generation")
    for path, entry in content["files"].items():
        if (folder / path).is_file() and os.access(folder / path, os.X_OK) != entry.get("executable"):
            problems.append(f"{path} {'is not' if entry.get('executable') else 'is'} executable")
    return problems


def bundles_of(folder: Path) -> list[Path]:
    """The bundles in a folder of many, by its index; [] for a bundle. Raises Unreadable."""
    index = folder / "index.json"
    if not index.exists() or manifest_of(folder).get("schema") == manifest.SCHEMA:
        return []
    try:
        return [folder / job["folder"] for job in json.loads(index.read_bytes())["jobs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"{index} cannot be read: {error}") from None


def _script_id(folder: Path) -> str | None:
    """The id that run.sbatch carries; None where the file cannot be read."""
    try:
        text = (folder / manifest.JOB_SCRIPT).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"^readonly PLAN_ID=([0-9a-f]*)$", text, re.MULTILINE)
    return match[1] if match else ""


def _start_up_check() -> ModuleType:
    """The job's own module, from the library that srtgen puts into bundles."""
    place = resources.folder("templates") / "lib" / "node_files.py"
    spec = importlib.util.spec_from_file_location("srtgen_node_files", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
