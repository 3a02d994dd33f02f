"""Layout 1 rewritten in layout 2: the same plan, every comment, the author's order and spelling."""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from command_line import GEN, run_here, srtgen
from srtgen import document, generate, migration
from srtgen.migration import proof as migration_proof
from srtgen.errors import RecipeError
from srtgen.generate import Bundle, Source

TESTS = Path(__file__).resolve().parent
CASES = TESTS / "migrate"
NAMES = sorted(path.name.removesuffix(".old.yaml") for path in CASES.glob("*.old.yaml"))
REAL = sorted((TESTS.parents[1] / "shared" / "data" / "recipes").glob("*.yaml"))
LAYOUT_1 = [*sorted((TESTS / "layout1").glob("*.1.yaml")), *sorted(CASES.glob("*.old.yaml"))]
PROFILE = Source("site.yaml", "site.yaml", b"cluster: site\ngpus_per_node: 8\ndefault_time_limit: '02:00:00'\n")
OF_THE_TEXT = {"manifest.json", "recipe.yaml", "README.md"}


def source(content: bytes) -> Source:
    return Source("old.yaml", "old.yaml", content)


def migrated(content: bytes) -> str:
    return migration.migrate(source(content), PROFILE).content.decode()


def bundles(content: bytes) -> list[Bundle]:
    of = generate.family(source(content), PROFILE)
    return [generate.make(of, point) for point in of.points]


def facts(bundle: Bundle) -> dict[str, Any]:
    manifest = json.loads(bundle.files["manifest.json"].content)
    kept = {key: manifest[key] for key in ("name", "recipe", "served_model", "nodes", "processes")}
    files = {p: re.sub(rb"PLAN_ID=\S+", b"", f.content) for p, f in bundle.files.items() if p not in OF_THE_TEXT}
    return {**kept, **files}


def comments(text: str) -> list[str]:
    return sorted(found.strip() for found in re.findall(r"(?:^|\s)(#.*)", text))


@pytest.mark.parametrize("name", NAMES)
def test_the_text_is_this(name: str) -> None:
    assert migrated((CASES / f"{name}.old.yaml").read_bytes()) == (CASES / f"{name}.new.yaml").read_text()


@pytest.mark.parametrize("path", LAYOUT_1, ids=lambda path: path.name)
def test_plans_are_equal(path: Path) -> None:
    old, new = bundles(path.read_bytes()), bundles(migrated(path.read_bytes()).encode())
    assert len(old) == len(new)
    for one, two in zip(old, new):
        assert facts(one) == facts(two)


@pytest.mark.parametrize("path", LAYOUT_1, ids=lambda path: path.name)
def test_every_comment_survives(path: Path) -> None:
    text = path.read_text()
    made = migrated(text.encode())
    assert not [one for one in comments(text) if one not in made]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_recipes_that_people_have(path: Path) -> None:
    content = path.read_bytes()
    try:
        old = bundles(content)
    except RecipeError as refused:
        with pytest.raises(RecipeError) as caught:
            migrated(content)
        errors = {p for p in refused.problems if p.severity == "error" and "infera" in p.message}
        assert errors <= set(caught.value.problems)
        return
    if migration.layout(document.load("old.yaml", content).data) == 2:
        with pytest.raises(RecipeError, match="the recipe is in layout 2 already"):
            migrated(content)
        return
    made = migrated(content)
    assert [facts(one) for one in bundles(made.encode())] == [facts(one) for one in old]
    assert comments(made) == comments(content.decode())


def with_comments(text: str, step: int) -> str:
    """The text with a comment above every line and behind it, wherever that changes no value."""
    data = document.load("x", text.encode()).data
    lines = text.splitlines()
    for number in reversed(range(len(lines))):
        indentation = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
        above = [*lines[:number], f"{indentation}# above-{number}.", *lines[number:]]
        behind = [*lines[:number], f"{lines[number]}  # behind-{number}.", *lines[number + 1 :]]
        for kind, changed in ((0, behind), (1, above)):
            if (number + kind) % step:
                continue
            try:
                same = document.load("x", "\n".join(changed).encode()).data == data
            except RecipeError:
                continue
            lines = changed if same else lines
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("path", LAYOUT_1, ids=lambda path: path.name)
def test_comments_anywhere_survive(path: Path, step: int) -> None:
    text = with_comments(path.read_text(), step)
    made = migrated(text.encode())
    put = re.findall(r"# (?:above|behind)-[0-9]+\.", text)
    assert len(put) > 2 and sorted(re.findall(r"# (?:above|behind)-[0-9]+\.", made)) == sorted(put)


@pytest.mark.parametrize("path", LAYOUT_1, ids=lambda path: path.name)
def test_line_ends_and_byte_order_mark_stay(path: Path) -> None:
    content = path.read_bytes()
    expected = migration.migrate(source(content), PROFILE).content
    windows = b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")
    assert migration.migrate(source(windows), PROFILE).content == b"\xef\xbb\xbf" + expected.replace(b"\n", b"\r\n")


BASE = (TESTS / "layout1" / "pd-dpa-custom.1.yaml").read_text()
SHARED = (TESTS / "layout1" / "pd-shared-node.1.yaml").read_text()
VARIANTS = (CASES / "variants.old.yaml").read_text()
# A change to a recipe, and the text that the result has to have.
KEPT = {
    "trailing zero": (SHARED, "prefill: {enable", "prefill: {gpu-memory-utilization: 0.850, enable", "{gpu-memory-utilization: 0.850, enable"),
    "list as written": (SHARED, "concurrencies: [1, 4]", "concurrencies: [1,4]", "concurrencies: [1,4]\n"),
    "quoted number": (BASE, 'BOUND: "0"', "BOUND: '00'", "      AITER_BF16_FP8_MOE_BOUND: '00'\n"),
    "escape": (BASE, 'MODE: "full"', 'MODE: "f\\u00fcll\\t"', '    MODE: "f\\u00fcll\\t"\n'),
    "tag": (BASE, 'MODE: "full"', "MODE: !!str 1", "    MODE: !!str 1\n"),
    "blanks before a value": (BASE, "block-size: 16", "block-size:   16", "      block-size: 16\n"),
    "empty text": (BASE, 'exclusive: ""', "exclusive: ''", "  exclusive: ''\n"),
    "long line": (BASE, 'MODE: "full"', f"MODE: {'long ' * 60}end", f"    MODE: {'long ' * 60}end\n"),
    "text over lines": (BASE, 'MODE: "full"', "MODE: 'one\n      two'", "    MODE: 'one\n      two'\n"),
    "last lines kept": (BASE, '    MODE: "full"\n', "    MODE: |+\n      full\n\n\n", "    MODE: |+\n      full\n\n\n"),
    "colocated": (SHARED, "decode_nodes: 0", "decode_nodes: 0  # behind", "    nodes: colocate  # behind\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", KEPT)
def test_spelling_is_kept(case: str) -> None:
    text, old, new, expected = KEPT[case]
    assert text.count(old) >= 1
    assert expected in migrated(text.replace(old, new, 1).encode())


# A recipe that cannot become layout 2, and the line that says why.
REFUSED = {
    "other engine": (
        BASE.replace("  type: atom\n", "  type: vllm\n"),
        "old.yaml:44:9: error: backend.type: the engine vllm is not supported yet; known: atom",
    ),
    "unknown key": (
        BASE.replace("gpus_per_decode: 8", "gpus_per_decod: 8"),
        "old.yaml:28:3: error: resources.gpus_per_decod: unknown key; did you mean gpus_per_decode?",
    ),
    "layout 2": ("schema: 2\nname: x\n", "old.yaml:1:1: error: the recipe is in layout 2 already"),
    "variants of nothing": (
        "override_a: {name: x}\n", "old.yaml:1:1: error: overrides without a base: missing key base",
    ),
    "no recipe": ("a: 1\n", "old.yaml:1:1: error: this is no recipe"),
    "not YAML": ("a: [1\n", "old.yaml:2:1: error: not valid YAML: the list that opens on line 1 lacks a comma or its closing bracket"),
    "mounts merged by key": (
        VARIANTS.replace("base:\n", "base:\n  container_mounts: {/a: /a}\n").replace(
            "override_wide:\n", "override_wide:\n  container_mounts: {/b: /b}\n"
        ),
        "old.yaml:1:1: error: cannot be written in layout 2 with the same plan: the manifest's recipe",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_reason_and_nothing_written(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text, expected = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    Path("old.yaml").write_text(text)
    Path("site.yaml").write_bytes(PROFILE.content)
    for words in (["-o", "new.yaml"], ["--in-place"]):
        code, said = run_here(["migrate", "old.yaml", "--cluster", "site.yaml", *words], monkeypatch, capsys)
        assert code == 1
        assert expected in [re.sub(r" \[[a-z0-9-]+\]$", "", line) for line in said.err.splitlines()]
        assert sorted(os.listdir()) == ["old.yaml", "site.yaml"]
        assert Path("old.yaml").read_text() == text


# A change to the new text that changes the plan, and words of the finding.
CHANGED = {
    "argv": ("max-num-seqs: 2048", "max-num-seqs: 2047", "decode: argv: ~ --max-num-seqs 2048 -> 2047"),
    "spelling of a number": ("0.850", "0.85", "argv: ~ --gpu-memory-utilization 0.850 -> 0.85"),
    "environment": ('ATOM_MOE_GU_ITLV: "1"', 'ATOM_MOE_GU_ITLV: "0"', "env: ~ ATOM_MOE_GU_ITLV 1 -> 0"),
    "directive": ('cpus-per-task: "128"', 'cpus-per-task: "64"', "job: directives: ~ --cpus-per-task 128 -> 64"),
    "model": ("hf:deepseek-ai/DeepSeek-V4-Pro", "hf:deepseek-ai/Other", "job: facts: ~ served_model"),
    "port": ("29100", "29101", "metrics=29101"),
    "custom command": ("set -eu", "set -u", "the file bench_command.sh"),
    "identity": ("    repo: deepseek-ai/DeepSeek-V4-Pro", "    repo: deepseek-ai/Other", "the manifest's recipe"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGED)
def test_the_proof_sees(case: str) -> None:
    old, new, words = CHANGED[case]
    made = migrated(BASE.encode())
    assert made.count(old) >= 1
    (one,), (two,) = bundles(BASE.encode()), bundles(made.encode())
    (other,) = bundles(made.replace(old, new, 1).encode())
    assert migration_proof.differences(one, two) == []
    assert any(words in line for line in migration_proof.differences(one, other))


def test_gpus_that_layout_1_works_out_are_written_and_said() -> None:
    uneven = migration.migrate(source((TESTS / "layout1" / "agg-floor.1.yaml").read_bytes()), PROFILE)
    assert b"    workers: 3\n    gpus: 2\n" in uneven.content
    assert "old.yaml:9:1: note: gpus: 2 is written for the agg workers, as layout 1 works it out" in [
        remark.text() for remark in uneven.remarks
    ]
    even = migrated((TESTS / "layout1" / "pd-whole-nodes.1.yaml").read_bytes())
    assert "gpus:" not in even


def test_one_file_to_stdout_to_a_new_file_and_in_place(tmp_path: Path) -> None:
    old = tmp_path / "old.yaml"
    old.write_text(SHARED)
    old.chmod(0o640)
    shown = srtgen("migrate", old)
    assert shown.returncode == 0 and shown.stdout.startswith("# No nodes for decode")
    assert srtgen("migrate", old, "-o", tmp_path / "sub" / "new.yaml").returncode == 0
    assert (tmp_path / "sub" / "new.yaml").read_text() == shown.stdout
    again = srtgen("migrate", old, "-o", tmp_path / "sub" / "new.yaml")
    assert again.returncode == 1 and "exists; --force writes over it" in again.stderr
    assert srtgen("migrate", old, "-o", tmp_path / "sub" / "new.yaml", "--force").returncode == 0
    assert srtgen("migrate", old, "-o", "x", "--in-place").returncode == 2
    link = tmp_path / "link.yaml"
    link.symlink_to("old.yaml")
    assert srtgen("migrate", link, "--in-place").returncode == 0
    assert link.is_symlink() and old.read_text() == shown.stdout and old.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link.yaml", "old.yaml", "sub"]


def test_a_folder_goes_on_behind_what_fails(tmp_path: Path) -> None:
    recipes, site = tmp_path / "recipes", tmp_path / "site.yaml"
    (recipes / "deep").mkdir(parents=True)
    site.write_bytes(PROFILE.content)
    (recipes / "a-bad.yaml").write_text(REFUSED["other engine"][0])
    (recipes / "deep" / "b.yml").write_text(SHARED)
    (recipes / "c-new.yaml").write_text("schema: 2\nname: x\n")
    (recipes / "d-profile.yaml").write_bytes(PROFILE.content)
    (recipes / "e-text.txt").write_text(SHARED)
    assert srtgen(recipes / "deep" / "b.yml", "-o", recipes / "job").returncode == 0
    kept = (recipes / "job" / "recipe.yaml").read_text()
    tried = srtgen("migrate", recipes, "--cluster", site)
    assert tried.returncode == 1 and "1 migrated, 1 failed, 2 left as they are" in tried.stderr
    assert "backend.type: the engine vllm is not supported yet" in tried.stderr
    assert (recipes / "deep" / "b.yml").read_text() == SHARED
    written = srtgen("migrate", recipes, "-o", tmp_path / "new")
    assert written.returncode == 1
    assert [p.relative_to(tmp_path).as_posix() for p in (tmp_path / "new").rglob("*") if p.is_file()] == ["new/deep/b.yml"]
    (recipes / "a-bad.yaml").unlink()
    assert srtgen("migrate", recipes, "--in-place").returncode == 0
    assert (recipes / "deep" / "b.yml").read_text() == (tmp_path / "new" / "deep" / "b.yml").read_text()
    assert (recipes / "job" / "recipe.yaml").read_text() == kept
    assert "0 migrated, 0 failed, 3 left as they are" in srtgen("migrate", recipes).stderr


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "ruamel").mkdir()
    (tmp_path / "ruamel" / "__init__.py").touch()  # hides the real one
    (tmp_path / "old.yaml").write_text(SHARED)
    ended = srtgen("migrate", tmp_path / "old.yaml", env={"PYTHONPATH": os.pathsep.join([str(tmp_path), str(GEN)])})
    assert ended.returncode == 1 and ended.stdout == ""
    assert ended.stderr == "srtgen: migrate needs ruamel.yaml; pip install 'srtgen[migrate]'\n"


def test_only_one_module_imports_ruamel() -> None:
    importers = set()
    for path in (GEN / "srtgen").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None) or ""]
            if any(name.partition(".")[0] == "ruamel" for name in names):
                importers.add(path.relative_to(GEN / "srtgen").as_posix())
    assert importers == {"migration/nodes.py"}


def test_migrating_again_is_refused_and_the_order_is_the_authors() -> None:
    made = migrated(BASE.encode())
    with pytest.raises(RecipeError, match="in layout 2 already"):
        migrated(made.encode())
    keys = re.findall(r"^([a-z_]+):", made, re.MULTILINE)
    old = [{"backend": "engine"}.get(k, k) for k in re.findall(r"^([a-z_]+):", BASE, re.MULTILINE) if k != "dynamo"]
    assert [key for key in keys if key not in ("schema", "roles")] == old
    assert keys[0] == "schema"
