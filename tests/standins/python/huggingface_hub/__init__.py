"""Stands for the Hugging Face hub library of a worker's image: the hub is a folder, STANDIN_HUB/ORG/NAME/files.

Its cache has the library's layout, downloads go on where they were cut short, and without the hub it hands out what
the cache has, whole or not, as the library does. A repository with a file .gated wants the token that stands in it.
"""

from __future__ import annotations

import hashlib
import os
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import List, NoReturn, Optional

from standin.faults import Faults

from .errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

__all__ = ["snapshot_download"]
__version__ = "0.36.0"
CHUNK = 64 << 10
faults = Faults(os.environ.get("STANDIN_FAULT", ""), os.environ.get("SRTGEN_STEP", ""))


def _cache() -> Path:
    home = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub")


def _files(repo: Path) -> List[str]:
    paths = (path for path in sorted(repo.rglob("*")) if path.is_file())
    return [name for name in (str(path.relative_to(repo)) for path in paths) if not name.startswith(".")]


def _commit(repo: Path) -> str:
    digest = hashlib.sha1()
    for name in _files(repo):
        digest.update(name.encode() + (repo / name).read_bytes())
    return digest.hexdigest()


def _repository(repo_id: str) -> Path:
    """The hub's side of it; OSError when the hub cannot be reached."""
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        raise ConnectionError("offline mode is enabled")
    if "no_network" in faults:
        raise ConnectionError("Failed to resolve 'huggingface.co' ([Errno -3] Temporary failure in name resolution)")
    repo = Path(os.environ["STANDIN_HUB"]) / repo_id
    address = f"https://huggingface.co/api/models/{repo_id}/revision/main?signature=secret"
    if not repo.is_dir():
        raise RepositoryNotFoundError(f"401 Client Error. (Request ID: Root=1)\n\nRepository Not Found for url: {address}.", 401)
    if "denied" in faults:
        raise HfHubHTTPError(f"401 Client Error: Unauthorized for url: {address}", 401)
    gate = repo / ".gated"
    if gate.exists() and os.environ.get("HF_TOKEN") != gate.read_text().strip():
        raise GatedRepoError(f"401 Client Error. (Request ID: Root=1)\n\nCannot access gated repo for url {address}.", 401)
    return repo


def _known(folder: Path, error: OSError) -> str:
    """What the cache has without the hub."""
    reference = folder / "refs" / "main"
    if reference.exists() and (folder / "snapshots" / reference.read_text()).is_dir():
        return str(folder / "snapshots" / reference.read_text())
    raise LocalEntryNotFoundError(
        "An error happened while trying to locate the files on the Hub and we cannot find the appropriate snapshot folder for "
        "the specified revision on the local disk. Please check your internet connection and try again.") from error


def _break(done: int) -> Optional[NoReturn]:
    if "drop_after" in faults and done >= faults.number("drop_after"):
        raise ConnectionResetError(104, "Connection reset by peer")
    return None


def _download(source: Path, blob: Path) -> None:
    """One file; what an earlier run left of it is kept."""
    half = blob.with_name(blob.name + ".incomplete")
    with source.open("rb") as stream, half.open("ab", buffering=0) as out:
        stream.seek(out.tell())
        begun = out.tell()
        while chunk := stream.read(CHUNK):
            out.write(chunk)
            time.sleep(faults.number("chunk_s"))
            _break(out.tell() - begun)
    half.rename(blob)


def snapshot_download(repo_id: str, *, revision: Optional[str] = None, ignore_patterns: Optional[List[str]] = None,
                      max_workers: int = 8) -> str:
    """The snapshot's folder, once all its files are there."""
    assert repo_id.count("/") == 1 and revision in (None, "main") and max_workers > 0
    folder = _cache() / ("models--" + repo_id.replace("/", "--"))
    try:
        repo = _repository(repo_id)
    except ConnectionError as error:
        return _known(folder, error)
    commit = _commit(repo)
    snapshot = folder / "snapshots" / commit
    for place in (folder / "blobs", folder / "refs", snapshot):
        place.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    for name in _files(repo):
        if any(fnmatchcase(name, pattern) for pattern in ignore_patterns or ()):
            continue
        blob = folder / "blobs" / hashlib.sha256((repo / name).read_bytes()).hexdigest()
        if not blob.exists():
            _download(repo / name, blob)
        link = snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(os.path.relpath(blob, link.parent))
    return str(snapshot)
