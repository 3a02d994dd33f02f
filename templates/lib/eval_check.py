"""Runs in the environment that has lm-eval: does it import from there, and does every task load?

Arguments: folder of task definitions, then task names. Prints one JSON object as its last line."""

import importlib.metadata
import json
import pathlib
import sys


def main():
    """Load every task and count its documents."""
    import lm_eval
    from lm_eval.tasks import TaskManager, get_task_dict

    own = {path.stem for path in pathlib.Path(sys.argv[1]).glob("*.yaml")}
    # Reading lm-eval's own thousands of definitions takes seconds; only tasks that are not ours need it.
    manager = TaskManager(include_path=sys.argv[1], include_defaults=not own.issuperset(sys.argv[2:]))
    counts = {}
    for name, task in get_task_dict(sys.argv[2:], manager).items():
        name = getattr(name, "group", name)
        documents = task.eval_docs if hasattr(task, "eval_docs") else None
        counts[str(name)] = len(documents) if documents is not None else None
    report = {
        "prefix": sys.prefix, "python": "%d.%d.%d" % sys.version_info[:3], "lm_eval_file": lm_eval.__file__,
        "lm_eval": importlib.metadata.version("lm_eval"), "documents": counts,
        "packages": sorted("%s==%s" % (d.metadata["Name"], d.version) for d in importlib.metadata.distributions()),
    }
    print(json.dumps(report))


main()
