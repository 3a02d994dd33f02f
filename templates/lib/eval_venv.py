"""The job's own Python environment with lm-eval: built node-locally under a temporary name, or one that exists."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence

from eval_plan import EvalError, EvalPlan, clean_environment, machine, requirements_name

MARKER = ".srtgen-requirements"
SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
PROBE = ("import json, platform, sys; print(json.dumps([sys.prefix, sys.base_prefix, "
         "'%d.%d' % sys.version_info[:2], platform.system() + ' ' + platform.machine()]))")


class Interpreter(NamedTuple):
    """A Python and what it says of itself."""

    path: str
    prefix: str
    version: str
    platform: str


def run(argv: Sequence[str], env: Dict[str, str], what: str) -> str:
    """Output of a command; raises EvalError with its last lines."""
    try:
        done = subprocess.run(list(argv), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True, errors="replace")
    except OSError as error:
        raise EvalError("%s: %s: %s" % (what, argv[0], error.strerror)) from None
    if done.returncode != 0:
        tail = [line for line in done.stdout.splitlines() if line.strip()][-6:]
        raise EvalError("%s failed (%d): %s" % (what, done.returncode, " / ".join(tail)[-900:]))
    return done.stdout


def interpreter(path: str, env: Dict[str, str]) -> Interpreter:
    """Ask a Python for its version and prefix."""
    words = json.loads(run([path, "-I", "-c", PROBE], env, "eval.python").splitlines()[-1])
    return Interpreter(path, words[0], words[2], words[3])


def requirements(plan: EvalPlan, base: Interpreter) -> Path:
    """The pinned list for this Python: the bundle's for `index`, the folder's own for `wheels`."""
    if base.version not in SUPPORTED:
        raise EvalError("lm-eval's pinned packages are for Python %s, %s is %s" % (", ".join(SUPPORTED), base.path, base.version))
    if plan.packages == "wheels":
        path = plan.wheels / requirements_name(base.version)
        if not path.is_file():
            raise EvalError("%s is missing: fill the folder with prefetch.sh for Python %s" % (path, base.version))
        return path
    if base.platform != "Linux x86_64":
        raise EvalError("the pinned packages are for Linux x86_64, this is %s: use packages wheels or existing" % machine())
    return plan.bundle / "eval" / requirements_name(base.version)


def key(plan: EvalPlan, base: Interpreter, listing: Path) -> str:
    """Hash that a finished environment must carry: the list and all that decides what it becomes."""
    words = "%s %s %s %s\n" % (base.prefix, base.version, plan.packages, plan.system_site_packages)
    return hashlib.sha256(words.encode() + listing.read_bytes()).hexdigest()


def valid(folder: Path, wanted: str) -> bool:
    """True for an environment that was finished from exactly this list."""
    try:
        return (folder / MARKER).read_text(encoding="ascii").strip() == wanted
    except OSError:
        return False


def pip_command(plan: EvalPlan, venv: Path, env: Dict[str, str]) -> List[str]:
    """A pip that installs into the environment: Python's bundled one, one in the wheel folder, or the image's."""
    python = str(venv / "bin" / "python")
    try:
        run([python, "-I", "-m", "ensurepip"], env, "ensurepip")
        return [python, "-I", "-m", "pip"]
    except EvalError:
        pass
    for wheel in sorted(plan.wheels.glob("pip-*.whl"), reverse=True) if plan.packages == "wheels" else []:
        return [python, str(wheel / "pip")]
    try:
        run([plan.python, "-m", "pip", "--python", python, "--version"], env, "pip")
    except EvalError:
        raise EvalError("%s has neither ensurepip nor a pip of 22.3 or later: set eval.python, or use packages existing" % plan.python) from None
    return [plan.python, "-m", "pip", "--python", python]


def install(plan: EvalPlan, venv: Path, listing: Path, env: Dict[str, str]) -> None:
    """Install the list, all of it and nothing else: hashes checked, no dependency looked up."""
    argv = pip_command(plan, venv, env) + ["install", "--require-hashes", "--no-deps", "--no-compile", "-r", str(listing)]
    if plan.packages == "wheels":
        argv += ["--no-index", "--find-links", str(plan.wheels)]
    elif plan.index_url:
        # By the environment, not by a flag: an index URL may hold a password, and flags are public.
        env = dict(env, PIP_INDEX_URL=plan.index_url)
    run(argv, env, "installing lm-eval (packages: %s)" % plan.packages)


def build(plan: EvalPlan) -> Path:
    """The finished environment's folder; builds it unless a valid one is there. Safe against a second builder."""
    env = clean_environment(plan)
    base = interpreter(plan.python, env)
    listing = requirements(plan, base)
    wanted, final = key(plan, base, listing), plan.work / "venv"
    if valid(final, wanted):
        return final
    folder = Path(tempfile.mkdtemp(prefix="venv.building-", dir=str(plan.work)))
    try:
        options = ["--system-site-packages"] if plan.system_site_packages else []
        run([plan.python, "-I", "-m", "venv", "--without-pip"] + options + [str(folder)], env, "making the venv")
        install(plan, folder, listing, env)
        (folder / MARKER).write_text(wanted + "\n", encoding="ascii")
        put(folder, final, wanted)
    finally:
        shutil.rmtree(str(folder), ignore_errors=True)
    return final


def put(folder: Path, final: Path, wanted: str) -> None:
    """Give a finished environment its name; one that another builder finished meanwhile stays."""
    if final.exists() and not valid(final, wanted):
        os.rename(str(final), str(folder) + ".old")
        shutil.rmtree(str(folder) + ".old", ignore_errors=True)
    try:
        os.rename(str(folder), str(final))
    except OSError:
        if not valid(final, wanted):
            raise EvalError("%s can't be put in place" % final) from None


def existing(plan: EvalPlan) -> str:
    """Python of a prepared environment: packages_path is a venv's folder or a Python itself."""
    path = Path(plan.packages_path)
    for candidate in (path / "bin" / "python", path / "bin" / "python3", path):
        if candidate.is_file() and os.access(str(candidate), os.X_OK):
            return str(candidate)
    raise EvalError("eval.packages_path %r is neither a venv nor a Python" % plan.packages_path)


def python(plan: EvalPlan) -> str:
    """The Python that has lm-eval."""
    plan.work.mkdir(parents=True, exist_ok=True)
    (plan.work / "home").mkdir(exist_ok=True)
    return existing(plan) if plan.packages == "existing" else str(build(plan) / "bin" / "python")


def frozen(text: str) -> List[str]:
    """`name==version` lines of a requirement list."""
    return re.findall(r"^[A-Za-z0-9_.\-]+==[^ \\\n]+", text, re.M)
