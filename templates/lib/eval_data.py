"""The tasks' own data as local files: from the bundle, from a folder or URL that is named, or from the hub."""

from __future__ import annotations

import hashlib
import json
import shutil
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import Any, Dict, List, Optional

from eval_plan import LOCAL_TASKS, EvalError, EvalPlan, clean_environment

SPLITS = ("train", "test")
FIELDS = ("question", "answer")
HUB = {"gsm8k": ("openai/gsm8k", "main")}
EXPORT = """
import json, sys
import datasets
loaded = datasets.load_dataset(sys.argv[1], sys.argv[2])
for split in ("train", "test"):
    with open("%s/%s.jsonl" % (sys.argv[3], split), "w", encoding="utf-8") as stream:
        for row in loaded[split]:
            stream.write(json.dumps({"question": row["question"], "answer": row["answer"]}, ensure_ascii=False) + "\\n")
"""


def check_file(path: Path) -> int:
    """Number of documents of a data file; raises EvalError if it is not what the task reads."""
    count = 0
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            document = json.loads(line)
            if not all(isinstance(document.get(name), str) for name in FIELDS):
                raise EvalError("%s: a line without %s" % (path, " and ".join(FIELDS)))
            count += 1
    except (OSError, ValueError, AttributeError) as error:
        raise EvalError("%s can't be used: %s" % (path, error)) from None
    if not count:
        raise EvalError("%s is empty" % path)
    return count


def _download(url: str, target: Path, ca_file: str) -> None:
    try:
        context = ssl.create_default_context(cafile=ca_file or None) if url.startswith("https:") else None
    except OSError as error:
        raise EvalError("eval.ca_file %s can't be used: %s" % (ca_file, error)) from None
    try:
        with urllib.request.urlopen(url, timeout=60, context=context) as reply, target.open("wb") as stream:
            shutil.copyfileobj(reply, stream)
    except OSError as error:
        raise EvalError("task data: %s: %s" % (url.rpartition("@")[2], error)) from None


def _from_named(source: str, task: str, folder: Path, ca_file: str) -> None:
    for split in SPLITS:
        name, target = "%s/%s.jsonl" % (task, split), folder / (split + ".jsonl")
        if source.startswith(("http://", "https://")):
            _download(source.rstrip("/") + "/" + name, target, ca_file)
            continue
        path = Path(source) / name
        if not path.is_file():
            raise EvalError("task data: %s is missing" % path)
        shutil.copyfile(str(path), str(target))


def _from_hub(python: str, task: str, folder: Path, env: Dict[str, str]) -> None:
    argv = [python, "-I", "-c", EXPORT, *HUB[task], str(folder)]
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, errors="replace")
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()] or ["no output"]
        raise EvalError("task data: %s from the hub: %s; SRTGEN_TASK_DATA may name a folder or URL" % (HUB[task][0], lines[-1]))


def source_of(plan: EvalPlan) -> str:
    """Where the data comes from: a folder, a URL, or '' for the hub."""
    bundled = plan.bundle / "offline" / "task-data"
    if plan.offline:
        return str(bundled)
    if plan.task_data:
        return plan.task_data
    return str(bundled) if bundled.is_dir() else ""


def fetch(plan: EvalPlan, python: Optional[str], task: str, folder: Path, source: str) -> Dict[str, Any]:
    """Bring one task's files into `folder`; returns what they are, for the record."""
    temporary = folder.with_name(folder.name + ".part")
    shutil.rmtree(str(temporary), ignore_errors=True)
    temporary.mkdir(parents=True)
    if source:
        _from_named(source, task, temporary, plan.ca_file)
    elif python is not None:
        _from_hub(python, task, temporary, clean_environment(plan, offline=False))
    else:
        raise EvalError("task data: no source for %s" % task)
    files = {split: temporary / (split + ".jsonl") for split in SPLITS}
    counts = {split: check_file(path) for split, path in files.items()}
    hashes = {split: hashlib.sha256(path.read_bytes()).hexdigest() for split, path in files.items()}
    shutil.rmtree(str(folder), ignore_errors=True)
    temporary.rename(folder)
    shown = source.rpartition("@")[2] if "://" in source else source
    return {"source": shown or HUB[task][0], "documents": counts, "sha256": hashes}


def fetch_all(plan: EvalPlan, python: str) -> Dict[str, Any]:
    """Data of every task of ours, under the work folder's task-data."""
    tasks: List[str] = [task for task in plan.tasks if task in LOCAL_TASKS]
    if plan.offline and not plan.local:
        foreign = [task for task in plan.tasks if task not in LOCAL_TASKS]
        raise EvalError("offline: no local data is known for %s" % " ".join(foreign))
    return {task: fetch(plan, python, task, plan.work / "task-data" / task, source_of(plan)) for task in tasks}
