"""Golden bundles: what a template or a decision changes shows in `golden/` in the same commit.

`golden/<recipe>/` holds the rendered files of the recipe without a profile, `golden/<recipe>@<profile>/` those with one.
The library and the inputs are copied byte for byte, so they are compared with `templates/` and `recipes/` instead of being
stored again. The stored files are the true output but for one thing: an edit of a library file would change its hash in
every manifest, and with it every manifest's id, so the ids and the hashes of verbatim files and of run.sbatch (which
carries the id) are stored as VERBATIM and ID. `test_roles_run.py` checks the true ones.
"""

from __future__ import annotations

import ast
import re

import pytest
from syrupy.assertion import SnapshotAssertion

from golden_file import BundleFile, left_over
from shipped import BUNDLES, TEMPLATES, is_input, is_verbatim, made
from srtgen import render

RENDERED = {
    f"{name}/{path}": (name, path)
    for name in BUNDLES
    for path in made(name).files
    if not is_verbatim(path) and not is_input(path)
}
_HASH = re.compile(r'^  "(?P<path>[^"]+)": \{"sha256": "(?P<hash>[0-9a-f]{64})"', re.MULTILINE)
_ID = re.compile(r'(?m)^( "id": "|readonly PLAN_ID=)[0-9a-f]{64}')


def stable(path: str, text: str) -> str:
    """The text as it is stored."""
    if path == "manifest.json":
        text = _HASH.sub(_stable_hash, text)
    return _ID.sub(r"\g<1>ID", text) if path in ("manifest.json", "run.sbatch") else text


def _stable_hash(entry: re.Match[str]) -> str:
    changes = is_verbatim(entry["path"]) or entry["path"] == "run.sbatch"
    return entry[0].replace(entry["hash"], "VERBATIM") if changes else entry[0]


@pytest.mark.parametrize("name", RENDERED)
def test_file(name: str, golden: SnapshotAssertion) -> None:
    bundle, path = RENDERED[name]
    assert stable(path, made(bundle).files[path].content.decode()) == golden


def test_nothing_is_left_over(request: pytest.FixtureRequest) -> None:
    assert left_over(BundleFile, set(RENDERED), request.config.option.update_snapshots) == []


@pytest.mark.parametrize("name", BUNDLES)
def test_verbatim_files(name: str) -> None:
    copies = {path: file.content for path, file in made(name).files.items() if is_verbatim(path)}
    assert copies == {path: (TEMPLATES / path).read_bytes() for path in copies}
    library = {p.relative_to(TEMPLATES).as_posix() for p in (TEMPLATES / "lib").iterdir() if p.is_file()}
    optional = (*render._RUNTIME_SCRIPTS, *(start for starts, _ in render._OPTIONAL for start in starts))
    assert {path for path in library if not path.startswith(optional)} <= set(copies)
    assert {"submit.sh", "wait.sh"} <= set(copies)


@pytest.mark.parametrize("name", BUNDLES)
def test_what_a_library_imports_is_in_the_bundle(name: str) -> None:
    files = {path: file for path, file in made(name).files.items() if path.startswith("lib/") and path.endswith(".py")}
    for path, file in files.items():
        found = [alias.name for node in ast.walk(ast.parse(file.content)) if isinstance(node, ast.Import) for alias in node.names]
        found += [node.module or "" for node in ast.walk(ast.parse(file.content)) if isinstance(node, ast.ImportFrom)]
        ours = {f"lib/{module}.py" for module in found if (TEMPLATES / "lib" / f"{module}.py").exists()}
        assert ours <= set(files), path


@pytest.mark.parametrize("name", BUNDLES)
def test_inputs_are_kept_as_they_are(name: str) -> None:
    recipe, cluster = BUNDLES[name]
    files = made(name).files
    assert files["recipe.yaml"].content == recipe.read_bytes()
    assert ("cluster.yaml" in files) == (cluster is not None)
    if cluster:
        assert files["cluster.yaml"].content == cluster.read_bytes()


@pytest.mark.parametrize("name", BUNDLES)
def test_scripts_are_executable_and_libraries_are_not(name: str) -> None:
    files = made(name).files
    roles = {path for path in files if path.startswith("roles/")}
    executable = {path for path, file in files.items() if file.executable}
    assert {"run.sbatch", "submit.sh", "bench.sh", "wait.sh", *roles} <= executable
    assert not {path for path in executable if path.startswith("lib/") or path.endswith((".json", ".yaml", ".md", ".py"))}
