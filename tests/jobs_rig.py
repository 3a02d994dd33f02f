"""Real jobs of generated bundles: a table row becomes a bundle, a Slurm job, and an outcome to look at."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs_live import SHARED, Live, Outcome, Scenario
from slurm_cluster import STANDINS, program_env, rootfs_env, standins_env

__all__ = ["SHARED", "Live", "Outcome", "Scenario"]  # of jobs_live, for the tests

ROOT = Path(__file__).resolve().parent.parent
PROFILES = Path(__file__).resolve().parent / "profiles"
RECIPES = ROOT / "recipes" / "atom"
PAIR = "qwen3-0.6b-1p1d-tp1"
AGGREGATE = "qwen3-0.6b-agg-2w"
DSV4 = "dsv4-pro-fp4-mi355x-2p1d-dpa-tp8-8k1k"
# Small but whole: every phase, one point of 16 requests. What loads and waits is real, only shorter.
SMALL = ("benchmark.isl=32", "benchmark.osl=8", "benchmark.concurrencies=[2]", "gpu_drain_timeout_s=2",
         "health_check.max_attempts=60", "health_check.interval_seconds=1")
FAST = {"STANDIN_ROUTER_SCALE": "0.1", "STANDIN_LOAD_S": "0.2"}
PROGRAMS = ("docker", "podman", "apptainer")
JOB_LIMIT_S = 150.0
CLEAN_S = 8.0


def generate(recipe: str, profile: str, sets: Sequence[str], out: Path, force: bool = False) -> Path:
    """Writes a recipe's bundle, as the command does; sets are --set texts, one that starts with - is an --unset."""
    argv = [sys.executable, "-m", "srtgen", str(RECIPES / f"{recipe}.yaml"), "-o", str(out),
            "--cluster", profile if profile.endswith(".yaml") else str(PROFILES / f"{profile}.yaml"),
            *(["--force"] if force else [])]
    for text in sets:
        argv += ["--unset", text[1:]] if text.startswith("-") else ["--set", text]
    done = subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(ROOT / "gen")}, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return out


_pristine_bundles: dict[tuple[object, ...], Path] = {}
_generating = threading.Lock()


def _pristine(recipe: str, profile: str, sets: tuple[str, ...], store: Path) -> Path:
    """One generated bundle per kind; jobs that do not touch theirs share it."""
    key = (recipe, profile, sets, store)
    with _generating:
        if key not in _pristine_bundles:
            out = store / f"{recipe}-{profile}-{len(_pristine_bundles)}"
            _pristine_bundles[key] = generate(recipe, profile, sets, out)
        return _pristine_bundles[key]


def runtime_of(scenario: Scenario) -> str:
    """The container runtime of a scenario's profile."""
    match = re.search(r"(?m)^  type: (\w+)$", (PROFILES / f"{scenario.profile}.yaml").read_text())
    assert match, scenario.profile
    return match[1]


def calls(live: Live, word: str) -> list[list[str]]:
    """The command lines, with this command in them, by which the scenario's job called the container program."""
    lines = (live.folder / runtime_of(live.scenario) / "calls.jsonl").read_text().splitlines()
    return [row["argv"] for row in map(json.loads, lines) if word in row["argv"][:8]]


def engine(live: Live) -> list[str]:
    """The words by which the scenario's container program is called on its node, as the job calls it."""
    name = runtime_of(live.scenario)
    own = f"/tmp/standin-podman/srtgen-{os.getuid()}"
    options = ["--root", f"{own}/storage", "--runroot", f"{own}/run"] if name == "podman" else []
    return ["exec", live.nodes[0], "env", *(f"{name}={value}" for name, value in live.env.items()), name, *options]


def environment(scenario: Scenario, state: Path) -> dict[str, str]:
    """The submit environment by which a job finds the stand-ins; state is for that of a program such as docker."""
    # The system's own python3 first: a version manager's wrapper costs more than the stand-ins themselves.
    more = {"PATH": f"{STANDINS}/bin:/usr/bin:{os.environ.get('PATH', '')}:/usr/sbin:/sbin", **FAST, **scenario.env}
    if scenario.fault:
        more["STANDIN_FAULT"] = scenario.fault
    runtime = runtime_of(scenario)
    if runtime == "none":
        return standins_env(**more)
    if runtime in PROGRAMS:
        return program_env(runtime, state, {name: value for name, value in more.items() if name.startswith("STANDIN_")}, **more)
    return {**rootfs_env(**{name: value for name, value in more.items() if name != "FAKEPYXIS_MODE"}), **more}


def prepare(live: Live, store: Path) -> None:
    """Everything before sbatch: bundle, environment, whatever the scenario wants to find broken."""
    scenario = live.scenario
    live.folder.mkdir(parents=True)
    pristine = _pristine(scenario.recipe, scenario.profile, SMALL + scenario.sets, store)
    live.bundle = pristine
    if scenario.own_bundle:
        live.bundle = live.folder / "bundle"
        shutil.copytree(pristine, live.bundle, ignore=shutil.ignore_patterns("results"))
    live.env = environment(scenario, live.folder / runtime_of(scenario))
    for name in scenario.env:
        live.env[name] = live.env[name].replace("{node}", live.nodes[0]).replace("{folder}", str(live.folder))
    live.script = live.bundle / "run.sbatch"
    live.args = [f"--nodelist={','.join(live.nodes)}", *scenario.args]
    if scenario.prepare:
        scenario.prepare(live)


def submit(live: Live) -> str:
    return live.cluster.sbatch(live.script, env=live.env, cwd=live.cwd, args=live.args)


def run(live: Live, store: Path) -> Outcome:
    """A scenario from its bundle to its outcome; leaves the nodes clean for the next one."""
    scenario = live.scenario
    try:
        prepare(live, store)
        live.job = (scenario.submit or submit)(live)
        if scenario.act:
            scenario.act(live)
        state, code = live.cluster.wait(live.job, JOB_LIMIT_S)
        live.end_strangers()
        outcome = Outcome(live, state, int(code.split(":")[0]), left=leftovers(live), files=work_files(live))
    finally:
        live.clean_up()
        if live.job:
            live.cluster.run(["scancel", "--quiet", live.job], check=False)
    return outcome


def leftovers(live: Live) -> dict[str, Any]:
    """Processes, ports and containers on the job's nodes, once it had a moment to be gone."""
    end = time.monotonic() + CLEAN_S
    while True:
        left: dict[str, Any] = {}
        for node in live.nodes:
            row = {"processes": live.cluster.processes(node), "ports": live.cluster.listening(node)}
            if any(row.values()):
                left[node] = row
        containers = [str(path) for name in PROGRAMS for path in (live.folder / name).glob("**/spec.json")]
        if containers:
            left["containers"] = containers
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.2)


def work_files(live: Live) -> list[str]:
    """Work folders of the job's steps that are still in /tmp of the nodes (which all share it); removed now."""
    left = []
    for path in Path("/tmp").glob(f"srtgen-*{live.job}*") if live.job else ():
        if re.fullmatch(rf"srtgen-(run-)?{live.job}(\..*)?", path.name):
            left += [child.name for child in path.iterdir() if child.is_dir()] or [path.name]
            shutil.rmtree(path, ignore_errors=True)
    return sorted(left)
