"""The bundles of the recipes in `recipes/`, generated in this process, and folders made of them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from srtgen.generate import Bundle, Source
from srtgen.generate import bundle as generate
from srtgen.manifest import File

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = ROOT / "templates"
RECIPES = {p.stem: p for p in sorted((ROOT / "recipes").glob("*/*.yaml")) if p.parent.name != "clusters"}
CLUSTERS = {p.stem: p for p in sorted((ROOT / "recipes" / "clusters").glob("*.yaml"))}
SMOKE = "qwen3-0.6b-1p1d-tp1"
# Every recipe without a profile; the smoke recipe with each profile, as `recipe@profile`.
BUNDLES: dict[str, tuple[Path, Path | None]] = {
    **{name: (path, None) for name, path in RECIPES.items()},
    **{f"{SMOKE}@{name}": (RECIPES[SMOKE], path) for name, path in CLUSTERS.items()},
}


def source(path: Path) -> Source:
    """An input as the command line would hand it over, under its base name."""
    return Source(path.name, path.name, path.read_bytes())


@cache
def made(name: str) -> Bundle:
    """The bundle of one name of BUNDLES."""
    recipe, cluster = BUNDLES[name]
    return generate(source(recipe), source(cluster) if cluster else None, [])


def from_text(recipe: str, cluster: str | None = None, *changes: tuple[str, str]) -> Bundle:
    """The bundle of a recipe given as text."""
    site = Source("cluster.yaml", "cluster.yaml", cluster.encode()) if cluster is not None else None
    return generate(Source("recipe.yaml", "recipe.yaml", recipe.encode()), site, list(changes))


def is_verbatim(path: str) -> bool:
    """Whether a file of a bundle is a file of templates/, copied as it is."""
    return (TEMPLATES / path).is_file()


def is_input(path: str) -> bool:
    """Whether a file of a bundle is one of its inputs."""
    return path in ("recipe.yaml", "cluster.yaml")


def put(files: dict[str, File] | Bundle, folder: Path) -> Path:
    """Write the files without the ceremony of an output folder."""
    given = files.files if isinstance(files, Bundle) else files
    for path, file in given.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        os.chmod(target, 0o755 if file.executable else 0o644)
    return folder
