"""Rules that every shell file of the bundle keeps, and the in-container part (role.sh)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs.shell import LIB, PLAN, TEMPLATES, bash, stub

FILES = sorted(TEMPLATES.rglob("*.sh"))
# The heads of run.sbatch are parts of it: test_shell.py checks the whole.
ALONE = [path for path in FILES if not path.name.startswith("_")]
FORBIDDEN = {
    "eval": r"(^|[;&|(]|\bthen|\bdo)\s*eval\s", "bash 5.1's wait -p": r"\bwait\b.*\s-\w*p", "wait -n with ids": r"\bwait -n\s+[^\s;&|)]", "bash 5": r"EPOCH(SECONDS|REALTIME)|SRANDOM",
    "an increment that ends the script": r"^\s*\(\((\w+\+\+|\+\+\w+)\)\)\s*$", "echo": r"(^|[;&|]\s*)echo\s", "single brackets": r"(^|\s)\[\s",
    "a masked failure": r"^\s*(local|readonly|export|declare)\s+\w+=\"?\$\((?!\()", "parsed ls": r"\$\(ls\b", "kill -9 by number": r"kill -9",
    "a here-document": r"<<-?\s*['\"]?[A-Z]", "an expansion of bash 5": r"\$\{\w+@[UuLKk]\}",
}
SHELLCHECK = Path(sys.executable).parent / "shellcheck"


def code_of(path: Path) -> list[str]:
    return [re.sub(r"(^|\s)#.*", "", line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_forbidden_feature(path: Path) -> None:
    found = [f"{number}: {line.strip()} ({what})" for number, line in enumerate(code_of(path), 1)
             for what, pattern in FORBIDDEN.items() if re.search(pattern, line)]
    assert found == []


@pytest.mark.parametrize("line", ["eval x", "wait -n -p pid", 'wait -n "${a}"', "x=$EPOCHSECONDS", "  ((i++))", "echo x", "if [ -n x ]; then",
                                  'local x="$(f)"', "for f in $(ls x)", "kill -9 1", "cat <<END", "${x@U}"])
def test_the_rules_find_what_they_are_for(line: str) -> None:
    assert any(re.search(pattern, line) for pattern in FORBIDDEN.values())


# A folder of jobs has one script, whole.
@pytest.mark.parametrize("path", [path for path in FILES if path.parent.name != "_jobs"], ids=lambda path: path.name)
def test_a_file_is_small_and_its_functions_say_what_they_do(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 200
    starts = [index for index, line in enumerate(lines) if re.match(r"\w+\(\) \{$", line)]
    for start in starts:
        assert lines.index("}", start) - start <= 42, lines[start]


def test_shellcheck_of_the_library_as_one_program(tmp_path: Path) -> None:
    """The files share state, so each alone has a waiver for it; together they need none."""
    (tmp_path / "lib").mkdir()
    for path in LIB.glob("*.sh"):
        kept = [line for line in path.read_text().splitlines(True) if not line.startswith("# shellcheck disable=SC2034,SC2154  # the state")]
        (tmp_path / "lib" / path.name).write_text("".join(kept))
    shutil.copy(PLAN, tmp_path / "plan.sh")
    (tmp_path / "all.sh").write_text(
        "#!/usr/bin/env bash\n# shellcheck source=plan.sh\nsource plan.sh\nreadonly BUNDLE=.\n"
        "export SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n1\nrefuse() { exit 10; }\njob_text=''\nin_allocation() { false; }\nreadonly BUNDLE_SHA256=x UNPACK=x SINGLE_FILE=''\n# shellcheck source=lib/srtgen.sh\nsource lib/srtgen.sh\nmain\n")
    options = "quote-safe-variables,deprecate-which,check-unassigned-uppercase,require-double-brackets,require-variable-braces"
    done = subprocess.run([SHELLCHECK, "-x", "-a", "-P", "lib:.", "-S", "style", "-o", options, "all.sh"], cwd=tmp_path, capture_output=True,
                          text=True, timeout=120)
    assert done.stdout == ""


@pytest.mark.parametrize("path", ALONE, ids=lambda path: path.name)
def test_shellcheck_of_each_file(path: Path) -> None:
    done = subprocess.run([SHELLCHECK, "-x", "-S", "style", str(path)], capture_output=True, text=True, timeout=60)
    assert done.stdout == ""


@pytest.mark.parametrize("path", sorted(path for path in LIB.glob("*.py") if not path.name.startswith("eval")), ids=lambda path: path.name)
def test_programs_are_for_old_pythons_and_need_nothing(path: Path) -> None:
    import ast
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    names = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {other.stem for other in LIB.glob("*.py")}
    of_the_image = {"huggingface_hub"} if path.name == "prefetch_model.py" else set()
    assert names - own - sys.stdlib_module_names == of_the_image


ROLE = "mkdir -p r/logs bundle\nexport SRTGEN_BUNDLE=${PWD}/bundle SRTGEN_RESULTS=${PWD}/r\n"


def role(tmp_path: Path, text: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return bash(ROLE + text, tmp_path, ["role"], {"SLURM_JOB_ID": f"t{os.getpid()}", **(env or {})}, stdin=stdin)


@pytest.fixture
def work() -> object:
    folder = Path(f"/tmp/srtgen-t{os.getpid()}")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_a_role_enters_its_own_folder(tmp_path: Path, work: Path) -> None:
    env = {"SLURMD_NODENAME": "n3", "HIP_VISIBLE_DEVICES": "2,3", "XDG_CACHE_HOME": f"{work}/agg_0/cache/x", "TMPDIR": "/nowhere"}
    done = role(tmp_path, 'enter_role agg_0\nprintf "%s %s\\n" "${PWD}" "${TMPDIR}"', env=env)
    identity, last = done.stdout.splitlines()
    assert last == f"{work}/agg_0 /tmp"
    assert re.match(r"srtgen: agg_0 on n3, uid \d+, Python 3\S+, open files \d+, memlock \S+, GPUs 2,3$", identity)
    assert (work / "agg_0" / "cache" / "x").is_dir()
    assert list((tmp_path / "r" / "logs").iterdir()) == []


def test_a_role_raises_its_open_files(tmp_path: Path, work: Path) -> None:
    done = role(tmp_path, 'ulimit -Sn 100\nenter_role agg_0 >/dev/null\n[[ "$(ulimit -Sn)" == "$(ulimit -Hn)" ]] && printf same')
    assert done.stdout == "same"


@pytest.mark.parametrize(("stdin", "code", "out"), [("go\n", 0, "on\n"), ("other\ngo\nrest\n", 0, "on\n"), ("", 143, ""), ("go", 143, "")])
def test_a_turn(stdin: str, code: int, out: str, tmp_path: Path, work: Path) -> None:
    done = role(tmp_path, "enter_role atomesh_0 >/dev/null\nprintf 'on\\n'", stdin, {"SRTGEN_TURN": "1"})
    assert (done.returncode, done.stdout) == (code, out)


def test_a_role_that_cannot_write_its_results_says_so(tmp_path: Path, work: Path) -> None:
    done = role(tmp_path, "export SRTGEN_RESULTS=/proc\nenter_role agg_0")
    assert done.returncode == 72 and "cannot write into the results folder /proc" in done.stderr


def test_a_python_of_the_image_that_does_not_run_is_told(tmp_path: Path, work: Path) -> None:
    stub(tmp_path / "bin", "python3", "printf 'no such interpreter\\n' >&2; exit 126")
    done = role(tmp_path, "enter_role agg_0")
    assert "python3 of the image does not run for uid" in done.stdout and "no such interpreter" in done.stdout


def test_versions_of_the_container(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "atom-0.1.4.dist-info").mkdir(parents=True)
    (site / "atom-0.1.4.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: atom\nVersion: 0.1.4\n")
    stub(tmp_path / "bin", "atomesh", "printf 'atomesh 0.1.0\\n'")
    env = {"PYTHONPATH": str(site), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    for turn in ("0", "1"):  # the router's and the client's steps have a turn, and start the program; workers do not
        done = subprocess.run([sys.executable, "-B", str(LIB / "versions.py")], capture_output=True, text=True, timeout=30,
                              env=env | {"SRTGEN_TURN": turn})
        assert "srtgen-version atom 0.1.4\n" in done.stdout and done.stderr == ""
        assert ("srtgen-version atomesh 0.1.0\n" in done.stdout) == (turn == "1")


def test_the_client_beats_while_it_lives(tmp_path: Path, work: Path) -> None:
    beat = tmp_path / "r/logs/.bench.alive"
    done = role(tmp_path, f"enter_role bench\nfor n in {{1..50}}; do [[ -s {beat} ]] && break; sleep 0.1; done\ncat {beat}")
    assert done.stdout.splitlines()[-1] == "0"
    end = time.monotonic() + 10
    while beat.exists():
        assert time.monotonic() < end
        time.sleep(0.1)
