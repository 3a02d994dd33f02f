"""A model folder of the size of a test, as downloads and conversions leave them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

SHARD = 1 << 20


def model_folder(folder: Path, shards: int = 3, size: int = SHARD) -> Path:
    """Weights by an index, config and tokenizer; a link to a file elsewhere, hidden folders, code in a subfolder."""
    folder.mkdir(parents=True)
    names = [f"model-{n:05}-of-{shards:05}.safetensors" for n in range(1, shards + 1)]
    for number, name in enumerate(names):
        (folder / name).write_bytes(bytes([number + 1]) * size)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {f"w{n}": name for n, name in enumerate(names)}}))
    (folder / "config.json").write_text("{}")
    blob = folder.parent / "blobs" / "tokenizer"
    blob.parent.mkdir()
    blob.write_text("[]")
    (folder / "tokenizer.json").symlink_to("../blobs/tokenizer")
    (folder / "code").mkdir()
    (folder / "code" / "modeling.py").write_text("# its own\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "packed").write_bytes(b"x" * size)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """What a copy of the model must hold, or what one does."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = {path: path.relative_to(folder) for path in files}
    return {str(name): path.read_bytes() for path, name in names.items() if not str(name).startswith(".")}


def sums(folder: Path, name: str = "SHA256SUMS") -> Path:
    """A checksum file of the model's weights."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.glob("*.safetensors"))]
    (folder / name).write_text("".join(lines))
    return folder / name
