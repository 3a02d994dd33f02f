"""Who may do what: pure modules, adapters and templates keep to their layers."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from shipped import ROOT, TEMPLATES

PACKAGE = ROOT / "gen" / "srtgen"
MODULES = {p.relative_to(PACKAGE).as_posix(): ast.parse(p.read_text(), str(p)) for p in sorted(PACKAGE.rglob("*.py"))}
# Only these see files, the environment, processes, or print: commands, what they share, and what reads or writes bundles.
WORLDLY = re.compile(r"commands/.*|(cli|compiled|console|options|bundle|folders|many|outcomes|resources|__main__)\.py")
FOREIGN = frozenset({"os", "time", "datetime", "subprocess", "socket", "shutil", "tempfile", "random", "platform", "getpass", "glob", "fcntl", "threading", "locale", "uuid", "secrets", "urllib", "http"})
CALLS = frozenset({"print", "open", "input", "exec", "eval", "__import__"})
METHODS = frozenset({"read_text", "read_bytes", "write_text", "write_bytes", "unlink", "mkdir", "getenv"})
ADAPTERS = re.compile(r"(engines|routers|runtimes)/.*|adapters\.py")
# Names of other projects' files, or of srtgen's own command line.
OTHER_NAMES = re.compile(r"inferencex/.*|commands/.*|layout1.*")
NAMES = frozenset(
    {"atom", "atomesh", "vllm", "sglang", "trtllm", "infera", "pyxis", "docker", "podman", "apptainer", "dynamo", "smg"}
)
PURE = [name for name in MODULES if not WORLDLY.fullmatch(name)]


def imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_touch_nothing(module: str) -> None:
    assert not imported(MODULES[module]) & FOREIGN
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in CALLS, f"{module}:{node.lineno}"
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            allowed = module in READS_TEMPLATES
            assert allowed, f"{module}:{node.lineno}: {node.attr}"


# The verbatim files of a bundle, and a flag table given by its path.
READS_TEMPLATES = frozenset({"render.py", "flags.py"})


@pytest.mark.parametrize("module", [name for name in MODULES if not ADAPTERS.fullmatch(name) and not OTHER_NAMES.fullmatch(name)])
def test_only_adapters_ask_which_engine_router_or_runtime_it_is(module: str) -> None:
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.Compare):
            words = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
            assert not words & NAMES - _client_names(node), f"{module}:{node.lineno}"


def _client_names(node: ast.Compare) -> set[str]:
    """`benchmark.client` has a value called atom, which is no engine."""
    return {"atom"} if "client" in ast.unparse(node) else set()


def test_engines_routers_and_runtimes_do_not_know_each_other() -> None:
    for module, tree in MODULES.items():
        if ADAPTERS.fullmatch(module) and module != "adapters.py":
            own = module.partition("/")[0]
            text = ast.unparse(tree)
            others = {"engines", "routers", "runtimes"} - {own}
            assert not re.search(rf"srtgen\.({'|'.join(others)})\b", text), module


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.j2")), ids=lambda p: p.name)
def test_templates_only_print_and_loop(path: Path) -> None:
    text = path.read_text()
    for statement in re.findall(r"{%-?\s*(.*?)\s*-?%}", text, re.DOTALL):
        assert re.fullmatch(r"for [a-z]+ in [a-z]+|endfor|if [a-z_.]+|else|endif", statement), statement
    for value in re.findall(r"{{-?\s*(.*?)\s*-?}}", text, re.DOTALL):
        assert re.fullmatch(r'[a-z_.]+( \| (plain|shargv|sharrays\("readonly"\)|shenv(\("(readonly|declare -rx)"\))?|shquote))?', value), value
    assert "{#" not in text or "{# " in text


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_small_and_say_what_they_are(module: str) -> None:
    tree = MODULES[module]
    assert ast.get_docstring(tree), module
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            if isinstance(node, ast.FunctionDef):
                assert node.returns is not None, f"{module}: {node.name} has no return type"
                missing = [a.arg for a in (*node.args.args, *node.args.kwonlyargs) if not a.annotation and a.arg not in ("self", "cls")]
                assert not missing, f"{module}: {node.name}: {missing}"


def project_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True)
    if listed.returncode:
        pytest.skip("no git checkout")
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def test_no_file_names_a_machine() -> None:
    """Paths of one machine, or of whoever wrote it, have no place in the project."""
    machine = re.compile(re.escape(str(ROOT).encode()) + rb"\b|/home/[a-z]+/")
    hits = {p.relative_to(ROOT).as_posix(): m.group() for p in project_files() if (m := machine.search(p.read_bytes()))}
    hits.pop("tests/test_layers.py", None)  # the pattern itself
    assert not hits


def test_bundle_files_name_no_generating_machine() -> None:
    from shipped import BUNDLES, made

    for name in BUNDLES:
        for path, file in made(name).files.items():
            assert str(ROOT).encode() not in file.content, (name, path)
