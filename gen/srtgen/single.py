"""A bundle in one file: a run.sbatch that carries all others, for clusters whose nodes share no file system."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
from typing import Any, Mapping

from srtgen import manifest, render
from srtgen.errors import Problem
from srtgen.generate import Bundle
from srtgen.manifest import File
from srtgen.plan import Plan
from srtgen.views.job import head, job_view
from srtgen.views.readme import readme_view

KEY = "bundle"  # of the folder's manifest: the id of the bundle that run.sbatch carries
_SHOWN = (".gitignore", "recipe.yaml", "cluster.yaml")
_MARK = "# ---- The carried bundle: tar.gz in base64, one comment a line; unpack_bundle reads it ----"


def wrap(made: Bundle) -> Bundle:
    """The same bundle as a folder whose run.sbatch needs none of the other files."""
    inner: dict[str, Any] = json.loads(made.files[manifest.NAME].content)
    archive = _archive(made.files)
    files = {path: made.files[path] for path in _SHOWN if path in made.files}
    files["README.md"] = File(render.page("README.md.j2", readme_view(made.plan, _findings(inner), single=True)))
    outer = {**inner, "id": "", KEY: inner["id"], "files": {}}
    outer["files"] = {path: manifest.entry(files[path]) for path in sorted(files)}
    outer["id"] = manifest.identity(outer)
    job = File(_script(made.plan, inner["id"], archive), True)
    files[manifest.JOB_SCRIPT] = job
    files[manifest.NAME] = File(manifest.finish(outer, job))
    return made._replace(files=files)


def _script(plan: Plan, identity: str, archive: bytes) -> bytes:
    view = job_view(plan, identity)
    view["constants"] = {**dict(view["constants"]), "BUNDLE_SHA256": manifest.sha256(archive)}.items()
    view["find_bundle"] = head("_unpack_bundle.sh")
    lines = base64.encodebytes(archive).decode().splitlines()
    return render.page("run.sbatch.j2", view) + "\n".join(["", _MARK, *(f"#{line}" for line in lines), ""]).encode()


def _archive(files: Mapping[str, File]) -> bytes:
    """The same bytes for the same files: no time, no owner, sorted."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(files[path].content), 0o755 if files[path].executable else 0o644
            archive.addfile(entry, io.BytesIO(files[path].content))
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, packed, mtime=0) as stream:
        stream.write(plain.getvalue())
    return packed.getvalue()


def _findings(inner: Mapping[str, Any]) -> tuple[Problem, ...]:
    """The findings as the bundle's manifest records them."""
    return tuple(
        Problem(f["file"], f["line"], f["column"], f["path"], f["message"], f["severity"], f["code"], f.get("silenced", ""))
        for f in inner["findings"]
    )
