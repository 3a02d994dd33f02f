"""A job of a table row: what is planned (Scenario), the job while it lives (Live), and what became of it (Outcome)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_cluster import ENDED, SlurmCluster

SHARED = "qwen3-0.6b-1p1d-shared-node"


@dataclass(frozen=True)
class Scenario:
    """One job and what must become of it. `fault` is a STANDIN_FAULT text, `act` runs beside the job."""

    name: str
    code: int = 0
    reason: str = ""
    phase: str = ""
    step: str = ""
    state: str = ""
    recipe: str = SHARED
    profile: str = "none"
    sets: tuple[str, ...] = ()
    fault: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    nodes: int = 1
    seconds: float = 60.0
    waits: bool = False
    own_bundle: bool = False
    keeps: tuple[str, ...] = ()  # work folders of steps whose node died under them
    prepare: Callable[[Live], None] | None = None
    act: Callable[[Live], None] | None = None
    submit: Callable[[Live], str] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def slurm_state(self) -> str:
        """Slurm's word for the end that is expected."""
        return self.state or ("FAILED" if self.code else "COMPLETED")


@dataclass
class Outcome:
    """A job that has ended, and what it left."""

    live: Live
    state: str = ""
    exit_code: int = -1
    left: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()

    @property
    def result(self) -> dict[str, Any]:
        return self.live.result()

    @property
    def output(self) -> str:
        """What the batch script printed."""
        return self.live.output()

    @property
    def seconds(self) -> float:
        """The job's own time from its start to its verdict."""
        return float(self.result["phases"][-1]["start_s"])

    def log(self, step: str) -> str:
        return self.live.log(step)

    def lasted(self, phase: str) -> float:
        return sum(row["seconds"] for row in self.result["phases"] if row["name"] == phase)


class Live:
    """A scenario's job while it lives: its nodes, bundle and results."""

    def __init__(self, scenario: Scenario, cluster: SlurmCluster, nodes: Sequence[str], folder: Path) -> None:
        self.scenario = scenario
        self.cluster = cluster
        self.nodes = list(nodes)
        self.folder = folder
        self.bundle = folder / "bundle"
        self.cwd = folder
        self.job = ""
        self.env: dict[str, str] = {}
        self.script: str | Path = ""
        self.args: list[str] = []
        self.results_root: Path | None = None
        self.notes: dict[str, Any] = {}
        self.undo: list[Callable[[], object]] = []
        self.strangers: list[socket.socket] = []

    # -- looking ------------------------------------------------------------

    @property
    def results(self) -> Path:
        return (self.results_root or self.bundle / "results") / self.job

    def result(self) -> dict[str, Any]:
        return dict(json.loads((self.results / "result.json").read_text()))

    def manifest(self) -> dict[str, Any]:
        return dict(json.loads((self.bundle / "manifest.json").read_text()))

    def steps(self) -> list[str]:
        """Names of the logs that there are."""
        return sorted(path.stem for path in (self.results / "logs").glob("*.log"))

    def output(self) -> str:
        path = self.cwd / f"slurm-{self.job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def log(self, step: str) -> str:
        path = self.results / "logs" / f"{step}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def ended(self) -> bool:
        return self.cluster.job(self.job).state in ENDED

    def until(self, what: str, check: Callable[[], Any], timeout: float = 60) -> Any:
        """Polls until check is true; TimeoutError with the job's output else, also when the job ends before."""
        end = time.monotonic() + timeout
        while not (value := check()):
            if time.monotonic() > end or (self.job and self.ended() and not check()):
                raise TimeoutError(f"{self.scenario.name}: not seen: {what}\n{self.output()[-3000:]}")
            time.sleep(0.2)
        return value

    def phase(self, name: str, timeout: float = 60) -> None:
        """Waits until the job is in a phase."""
        self.until(f"phase {name}", lambda: (self.results / "result.json").exists() and self.result()["phase"] == name,
                   timeout)

    def logged(self, step: str, text: str, timeout: float = 60) -> None:
        self.until(f"{text!r} in {step}'s log", lambda: text in self.log(step), timeout)

    def pids(self, node: str, text: str) -> list[int]:
        """Processes of a node whose command line holds a text."""
        return [pid for pid, line in self.cluster.processes(node).items() if text in line]

    # -- acting -------------------------------------------------------------

    def scancel(self, *options: str) -> None:
        self.cluster.run(["scancel", *options, self.job])

    def occupy(self, node: str, port: int) -> None:
        """Somebody else (this process) listens on a port of a node until the scenario is over."""
        self.strangers.append(self.cluster.listener(node, port))
        assert port in self.cluster.listening(node)

    def mount_tmpfs(self, node: str, path: Path, size: str = "4m") -> None:
        """An empty small file system over a folder, seen on one node only, for as long as the cluster lives."""
        self.cluster.node("exec", node, "mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path))

    def small_results(self, size: str) -> None:
        """The results lie in a small file system of the (only) node."""
        folder = self.folder / "results"
        folder.mkdir()
        self.env["SRTGEN_RESULTS_DIR"] = str(folder)
        self.mount_tmpfs(self.nodes[0], folder, size)
        self.results_root = Path(f"/proc/{self.cluster._space(self.nodes[0])}/root{folder}")

    def end_strangers(self) -> None:
        for taken in self.strangers:
            taken.close()
        self.strangers.clear()

    def clean_up(self) -> None:
        self.end_strangers()
        for step in reversed(self.undo):
            step()
