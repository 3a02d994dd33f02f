"""What makes numbers comparable, gathered from the files that the job keeps beside them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, Dict, List


def _object(path: Path) -> Dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _table(path: Path) -> List[Dict[str, Any]]:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return [dict(row) for row in csv.DictReader(stream, delimiter="\t")]
    except (OSError, csv.Error):
        return []


def _images(processes: List[Dict[str, Any]]) -> Dict[str, Any]:
    return {process.get("step", "").rsplit("_", 1)[0]: process.get("image") for process in processes}


def _recipe(manifest: Dict[str, Any]) -> Any:
    inputs = manifest.get("inputs", [])
    return inputs[0].get("sha256") if inputs else None


def gather(results: Path) -> Dict[str, Any]:
    """Recipe, images, versions, nodes and worker commands from manifest.json, result.json, nodes.tsv and identity.json."""
    manifest, result = _object(results / "manifest.json"), _object(results / "result.json")
    processes = [process for process in manifest.get("processes", []) if isinstance(process, dict)]
    return {
        "job_id": result.get("job_id"), "attempt": result.get("attempt"),
        "bundle_id": manifest.get("id"), "srtgen": manifest.get("srtgen"),
        "recipe_sha256": _recipe(manifest), "inputs": manifest.get("inputs", []),
        "overrides": manifest.get("overrides", []), "bundle_modified": result.get("bundle_modified", []),
        "images": _images(processes),
        "versions": result.get("versions", {}), "transport": result.get("transport", {}),
        "nodes": _table(results / "nodes.tsv") or result.get("nodes", []),
        "machine": _object(results / "identity.json"),
        "argv": {process.get("step", "?"): process.get("argv") for process in processes},
        "checks_skipped": result.get("checks_skipped", []),
    }
