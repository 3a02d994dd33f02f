"""Fill a bundle's offline/ folder: wheels for EVAL_TARGET_PYTHON, the tasks' data, and checksums of all of it.

Works in offline/.part and puts the finished parts in place; what pip fetched before an interruption stays in its
cache there. Exits 0 when offline/ is complete, 1 with a reason otherwise."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from pathlib import Path
from typing import Dict, List, Tuple

import eval_data
import eval_offline
import eval_venv
from eval_plan import LOCAL_TASKS, EvalError, EvalPlan, clean_environment, load, requirements_name

GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_24", "manylinux_2_17", "manylinux2014",
         "manylinux_2_12", "manylinux2010", "manylinux_2_5", "manylinux1", "linux")
SOURCE_MARK = "# source"


def lists(plan: EvalPlan, version: str) -> Tuple[List[str], List[str]]:
    """Requirement lines that have wheels, and those that must be built from source."""
    folder = plan.bundle / "eval"
    path = folder / requirements_name(version)
    if not path.is_file():
        raise EvalError("no pinned packages for Python %s (there are: %s)" % (version, ", ".join(eval_venv.SUPPORTED)))
    text = (folder / "requirements-pip.txt").read_text(encoding="utf-8") + path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line for line in lines if SOURCE_MARK not in line], [line for line in lines if SOURCE_MARK in line]


def pip(arguments: List[str], lines: List[str], plan: EvalPlan, what: str) -> None:
    """Run the local pip over a list, hashes checked, without anyone's configuration."""
    listing = plan.work / "list.txt"
    listing.write_text("\n".join(lines) + "\n", encoding="utf-8")
    env = clean_environment(plan, offline=False)
    if plan.index_url:
        env["PIP_INDEX_URL"] = plan.index_url
    argv = [sys.executable, "-m", "pip"] + arguments + ["--no-deps", "--require-hashes", "-r", str(listing)]
    eval_venv.run(argv, env, what)


def fetch_wheels(plan: EvalPlan, version: str, folder: Path) -> None:
    """All wheels for the target, built where there are none, and the list of what the folder holds."""
    ready, source = lists(plan, version)
    tag = "cp" + version.replace(".", "")
    target = ["--only-binary=:all:", "--python-version", version, "--implementation", "cp"]
    for abi in (tag, "abi3", "none"):
        target += ["--abi", abi]
    for glibc in GLIBC:
        target += ["--platform", glibc + "_x86_64"]
    pip(["download", "--dest", str(folder)] + target, ready, plan, "fetching wheels")
    pip(["wheel", "--wheel-dir", str(folder)], source, plan, "building what has no wheel")
    write_list(folder, version)


def write_list(folder: Path, version: str) -> None:
    """Requirement list of the folder itself, as `packages: wheels` reads it."""
    lines = ["# Python %s on x86-64 Linux: what this folder holds." % version]
    for path in sorted(folder.glob("*.whl")):
        name, release, tags = path.name.split("-", 2)
        if name == "pip":
            continue
        if "none-any" not in tags and "x86_64" not in tags:
            raise EvalError("%s is not for x86-64 Linux" % path.name)
        lines.append("%s==%s --hash=sha256:%s" % (name.lower(), release, eval_offline.digest(path)))
    (folder / requirements_name(version)).write_text("\n".join(lines) + "\n", encoding="utf-8")


def fetch_data(plan: EvalPlan, folder: Path) -> Dict[str, Dict[str, int]]:
    """Data of the plan's tasks; from the hub with a throw-away environment when no source is named."""
    foreign = [task for task in plan.tasks if task not in LOCAL_TASKS]
    if foreign:
        raise EvalError("no local data is known for %s" % " ".join(foreign))
    python = None if plan.task_data else eval_venv.python(plan)
    return {task: eval_data.fetch(plan, python, task, folder / task, plan.task_data)["documents"] for task in plan.tasks}


def put(part: Path, final: Path) -> None:
    """Replace a folder by its finished successor."""
    old = part.with_name(part.name + ".old")
    shutil.rmtree(str(old), ignore_errors=True)
    if final.exists():
        os.rename(str(final), str(old))
    os.rename(str(part), str(final))
    shutil.rmtree(str(old), ignore_errors=True)


def write_sums(offline: Path) -> None:
    """Checksums of everything, last: their presence says that the folder is complete."""
    files = sorted(path for name in eval_offline.NEEDED for path in (offline / name).rglob("*") if path.is_file())
    lines = ["%s  %s" % (eval_offline.digest(path), path.relative_to(offline).as_posix()) for path in files]
    temporary = offline / (eval_offline.SUMS + ".tmp")
    temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(str(temporary), str(offline / eval_offline.SUMS))


def complete(plan: EvalPlan, version: str) -> bool:
    """True if an earlier run left everything, unaltered and for this Python."""
    offline = plan.bundle / "offline"
    return not eval_offline.problems(offline) and (offline / "wheels" / requirements_name(version)).is_file() and all(
        (offline / "task-data" / task / "test.jsonl").is_file() for task in plan.tasks)


def prefetch(plan: EvalPlan, version: str) -> None:
    """Do what is left to do."""
    offline = plan.bundle / "offline"
    if complete(plan, version):
        print("offline/ is complete for Python %s" % version)
        return
    (plan.work / "home").mkdir(parents=True, exist_ok=True)
    (offline / eval_offline.SUMS).unlink() if (offline / eval_offline.SUMS).exists() else None
    wheels, data = plan.work / "wheels", plan.work / "task-data"
    for part in (wheels, data):
        shutil.rmtree(str(part), ignore_errors=True)
        part.mkdir()
    documents = fetch_data(plan, data)
    fetch_wheels(plan, version, wheels)
    put(wheels, offline / "wheels")
    put(data, offline / "task-data")
    write_sums(offline)
    shutil.rmtree(str(plan.work), ignore_errors=True)
    count = len(list((offline / "wheels").glob("*.whl")))
    print("offline/: %d wheels for Python %s, task data %s" % (count, version, documents))


def main() -> int:
    """Entry point; see the module's text."""
    version = os.environ.get("EVAL_TARGET_PYTHON") or "3.12"
    try:
        plan = load()
        # The local Python only runs pip and, for the hub, the datasets library: not the container's settings.
        plan = dataclasses.replace(plan, work=plan.bundle / "offline" / ".part", packages="index", python=sys.executable, offline=False)
        prefetch(plan, version)
    except (EvalError, OSError) as error:
        print("prefetch.sh: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
