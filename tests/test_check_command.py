"""`srtgen check`: what it finds where, in which form, and with which exit code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from command_line import run_here, srtgen
from examples import ROOT, laid_over

RECIPES = ROOT / "recipes"
GOOD = ROOT / "tests" / "rules" / "base.yaml"
DATED = '  connector: mooncake\n  version: "2026-08-20"\n'
WARNED = GOOD.read_text().replace("nightly_202608201032", "latest").replace("  connector: mooncake\n", DATED)
WRONG = GOOD.read_text().replace("policy: random", "policy: prefix_hash")

Here = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]


def check(*words: str | Path, here: Here, said: Capture) -> tuple[int, str, str]:
    code, out = run_here(["check", *map(str, words)], here, said)
    return code, out.out, out.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a good recipe, one with a warning, a wrong one, a profile, and files of others."""
    (tmp_path / "sub").mkdir()
    shutil.copy(GOOD, tmp_path / "good.yaml")
    (tmp_path / "sub" / "warned.yml").write_text(WARNED)
    shutil.copy(RECIPES / "clusters" / "none.yaml", tmp_path / "sub" / "site.yaml")
    (tmp_path / "compose.yaml").write_text("services: 1\nvolumes: 2\n".replace("services", "version"))
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "wrong.yaml").write_text(WRONG)
    return tmp_path


def test_nothing_wrong(monkeypatch: Here, capsys: Capture) -> None:
    assert check(GOOD, here=monkeypatch, said=capsys) == (0, "", "1 file: nothing found\n")


def test_line_and_caret(tmp_path: Path, monkeypatch: Here, capsys: Capture) -> None:
    (tmp_path / "r.yaml").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    code, out, err = check("r.yaml", here=monkeypatch, said=capsys)
    first, line, caret = out.splitlines()
    assert (code, err) == (1, "1 file: 1 error\n")
    assert first.startswith("r.yaml:18:13: error: frontend.args.policy: ") and first.endswith(" [router-prefix-hash]")
    assert line == "   18 |     policy: prefix_hash"
    assert caret == "      |             ^"


def test_folder(folder: Path, monkeypatch: Here, capsys: Capture) -> None:
    monkeypatch.chdir(folder)
    code, out, err = check(".", here=monkeypatch, said=capsys)
    assert (code, err) == (0, "3 files: 1 warning\n")
    assert out.startswith("sub/warned.yml:6:14: warning: model.container: ")
    (folder / "wrong.yaml").write_text(WRONG)
    assert check(".", here=monkeypatch, said=capsys)[0] == 1


def test_pattern_and_files_once(folder: Path, monkeypatch: Here, capsys: Capture) -> None:
    monkeypatch.chdir(folder)
    assert check("*/w*.yml", here=monkeypatch, said=capsys)[2] == "1 file: 1 warning\n"
    assert check("**/*.y*ml", here=monkeypatch, said=capsys)[2].startswith("4 files: ")
    assert check("good.yaml", "good.yaml", ".", here=monkeypatch, said=capsys)[2] == "3 files: 1 warning\n"


@pytest.mark.parametrize("words", [["nothing/*.yaml"], ["--format", "xml", "x"], []])
def test_usage(words: list[str], tmp_path: Path) -> None:
    assert srtgen("check", *words, cwd=tmp_path).returncode == 2


def test_empty_folder_is_usage(tmp_path: Path) -> None:
    assert srtgen("check", ".", cwd=tmp_path).returncode == 2


def test_missing_file_is_an_error(tmp_path: Path, monkeypatch: Here, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = check("none.yaml", GOOD, here=monkeypatch, said=capsys)
    assert (code, out) == (1, "none.yaml:1:1: error: cannot be read: no such file or directory\n")


def test_profile_is_checked_as_profile(tmp_path: Path, monkeypatch: Here, capsys: Capture) -> None:
    (tmp_path / "site.yaml").write_text("cluster: x\ngpus_per_nod: 8\ndefault_partition: gpu\n")
    code, out, _ = check(tmp_path / "site.yaml", here=monkeypatch, said=capsys)
    assert code == 1 and "did you mean gpus_per_node?" in out and "[schema]" in out


def test_with_profile(tmp_path: Path, monkeypatch: Here, capsys: Capture) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        'cluster: x\ndefault_time_limit: "10"\nuse_segment_sbatch_directive: true\ncontainers: {img: "a/b:latest"}\n'
    )
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        json.dumps(laid_over("recipe", "slurm: null\nmodel: {container: img}\nengine: {version: '2026-08-20'}\n"))
    )
    code, out, err = check(recipe, recipe, "--cluster", site, here=monkeypatch, said=capsys)
    assert (code, err) == (0, "2 files: 2 warnings, 1 note\n")
    assert "[deadline-over-limit]" in out and "site.yaml:2:21" in out and "a/b:latest is a moving tag" in out


def test_strict(folder: Path, monkeypatch: Here, capsys: Capture) -> None:
    warned = folder / "sub" / "warned.yml"
    code, out, err = check(warned, "--strict", here=monkeypatch, said=capsys)
    assert (code, err) == (1, "1 file: 1 error\n")
    silenced = WARNED + "silence: [{code: image-latest, reason: the site freezes it}]\n"
    warned.write_text(silenced)
    code, out, err = check(warned, "--strict", here=monkeypatch, said=capsys)
    assert (code, err) == (0, "1 file: 1 silenced\n")
    assert "warning: model.container: " in out and "(silenced: the site freezes it) [image-latest]" in out


def test_shipped_recipes_and_profiles_are_clean_under_strict(monkeypatch: Here, capsys: Capture) -> None:
    code, out, _ = check(RECIPES, "--strict", here=monkeypatch, said=capsys)
    assert code == 0
    assert all("(silenced: " in line for line in out.splitlines() if ": warning: " in line)


def test_json(tmp_path: Path, monkeypatch: Here, capsys: Capture) -> None:
    (tmp_path / "r.yaml").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    code, out, _ = check("r.yaml", GOOD, "--format", "json", here=monkeypatch, said=capsys)
    made = json.loads(out)
    (one,) = made["findings"]
    assert code == 1 and made["schema"] == "srtgen/check/1" and made["files"] == ["r.yaml", str(GOOD)]
    assert list(one) == ["file", "line", "column", "path", "message", "severity", "code"]
    assert (one["line"], one["column"], one["severity"], one["code"]) == (18, 13, "error", "router-prefix-hash")


def test_github(tmp_path: Path, monkeypatch: Here, capsys: Capture) -> None:
    (tmp_path / "a,b.yaml").write_text(WRONG.replace("disable-retries: true", "disable-retries: false"))
    monkeypatch.chdir(tmp_path)
    code, out, _ = check("a,b.yaml", "--format", "github", here=monkeypatch, said=capsys)
    assert code == 1
    assert "::error file=a%2Cb.yaml,line=18,col=13,title=router-prefix-hash::frontend.args.policy: answers 503" in out


def test_overrides_and_selector_words(tmp_path: Path, monkeypatch: Here, capsys: Capture) -> None:
    code, out, _ = check(GOOD, "--set", "frontend.args.policy=prefix_hash", here=monkeypatch, said=capsys)
    assert code == 1 and out.startswith("--set frontend.args.policy=prefix_hash:1:22: error: ")


def test_sorted_and_nothing_twice(tmp_path: Path, monkeypatch: Here, capsys: Capture) -> None:
    for name in ("b.yaml", "a.yaml"):
        (tmp_path / name).write_text(WRONG.replace("cache: false", "cache: false") + "x: 1\n")
    monkeypatch.chdir(tmp_path)
    lines = [x for x in check("b.yaml", "a.yaml", here=monkeypatch, said=capsys)[1].splitlines() if ".yaml:" in x]
    places = [(x.split(":")[0], int(x.split(":")[1])) for x in lines]
    assert places == sorted(places) and len(set(lines)) == len(lines) == 4


def test_colour_only_on_a_terminal(tmp_path: Path) -> None:
    """A real terminal, since that is what decides."""
    (tmp_path / "r.yaml").write_text(WRONG)
    assert "\033[" in _on_terminal(tmp_path, {})
    assert "\033[" not in _on_terminal(tmp_path, {"NO_COLOR": "1"})
    assert "\033[" not in srtgen("check", "r.yaml", cwd=tmp_path).stdout


def _on_terminal(folder: Path, env: dict[str, str]) -> str:
    import os
    import pty
    import sys

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update({"PYTHONPATH": str(ROOT / "gen"), "TERM": "xterm", **env})
        if not env:
            os.environ.pop("NO_COLOR", None)
        os.execv(sys.executable, [sys.executable, "-m", "srtgen", "check", "r.yaml"])
    said = b""
    try:
        while piece := os.read(terminal, 4096):
            said += piece
    except OSError:
        pass
    os.waitpid(pid, 0)
    return said.decode()


def test_a_bundle_in_a_folder_counts_its_inputs_only(tmp_path: Path, monkeypatch: Here, capsys: Capture) -> None:
    assert srtgen(GOOD, "-o", tmp_path / "job").returncode == 0
    assert check(tmp_path, here=monkeypatch, said=capsys) == (0, "", "1 file: nothing found\n")


def test_generate_strict(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(WARNED)
    done = srtgen("r.yaml", "-o", "job", "--strict", cwd=tmp_path)
    assert done.returncode == 1 and not (tmp_path / "job").exists() and "error: model.container: " in done.stderr
    assert srtgen("r.yaml", "-o", "job", cwd=tmp_path).returncode == 0
    manifest = json.loads((tmp_path / "job" / "manifest.json").read_text())
    assert [f["code"] for f in manifest["findings"]] == ["image-latest"]


def test_silenced_in_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(WARNED + "silence: [{code: image-latest, reason: the site freezes it}]\n")
    assert srtgen("r.yaml", "-o", "job", "--strict", cwd=tmp_path).returncode == 0
    (finding,) = json.loads((tmp_path / "job" / "manifest.json").read_text())["findings"]
    assert (finding["severity"], finding["silenced"]) == ("warning", "the site freezes it")
    readme = (tmp_path / "job" / "README.md").read_text()
    assert "silenced: " in readme and "Reason: the site freezes it" in readme
