"""Drives the local Slurm of tests/slurm from Python: start, submit, wait, break nodes, look for leftovers."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parent / "slurm"
STANDINS = Path(__file__).resolve().parent / "standins"
LIBC = ctypes.CDLL(None, use_errno=True)
NEW_NET = 0x40000000
NET = "10.77.0"
ENDED = frozenset("BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED TIMEOUT".split())
# A caller's own job or cluster must not reach into this one.
FOREIGN = re.compile(r"^(SLURM|SBATCH|SRUN|SALLOC|SQUEUE|SINFO|SCANCEL|FAKEPYXIS|SRTGEN|SRT|STANDIN)_")
LISTENING = "0A"
FIRST_EPHEMERAL = 32768  # srun listens on such ports while it runs


class ClusterError(RuntimeError):
    """The cluster did not do what a test needs, such as start."""


def missing() -> str | None:
    """Why no local Slurm can be started here, None if one can."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    for tool in ("slurmctld", "slurmd", "munged", "ip", "gcc"):
        if shutil.which(tool, path=path) is None:
            return f"{tool} is missing (Debian: slurm-wlm munge libslurm-dev gcc iproute2)"
    allowed = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, check=False)
    return None if allowed.returncode == 0 else "namespaces are not allowed here (root is needed)"


def require_slurm() -> None:
    """Skips the test where no local Slurm can run; in CI (CI=true) that is a failure."""
    reason = missing()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"no local Slurm in CI: {reason}")
    pytest.skip(f"no local Slurm: {reason}")


@dataclass(frozen=True)
class Job:
    """What scontrol says of a job; code is "exit code:signal" as Slurm prints it."""

    state: str
    code: str
    fields: Mapping[str, str]

    @property
    def exit_code(self) -> int:
        return int(self.code.split(":")[0])


class SlurmCluster:
    """A context manager around one cluster. Nodes are node01, node02, ...; "hub" is the controller's side."""

    def __init__(self, nodes: int = 4, netns: bool = True, settings: Mapping[str, str] | None = None,
                 private: Sequence[str] = ()) -> None:
        """settings: SLURM_LOCAL_* of start.sh. private: folders that each node gets its own empty copy of."""
        self.count = nodes
        self.netns = netns
        self.nodes = [f"node{number:02d}" for number in range(1, nodes + 1)]
        self._settings = dict(settings or {})
        self._private = list(private)
        self.dir = Path()
        self.env: dict[str, str] = {}

    def __enter__(self) -> SlurmCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- life ---------------------------------------------------------------

    def start(self) -> SlurmCluster:
        """Starts the daemons and waits until all nodes are idle; raises ClusterError."""
        env = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
        if self.netns:
            env["SLURM_LOCAL_NET"] = NET
        if self._private:
            # The state folder must lie outside of what the nodes have their own copy of.
            env.update(SLURM_LOCAL_PRIVATE=" ".join(self._private), TMPDIR="/var/tmp")
        argv = [str(SCRIPTS / "start.sh"), "--netns" if self.netns else "--hosts", str(self.count)]
        done = subprocess.run(argv, env=env | self._settings, capture_output=True, text=True, check=False)
        if done.returncode:
            # Daemons that did not come up are the machine's trouble, not what is tested: said, and tried once more.
            warnings.warn(f"the cluster is started once more: {done.stderr}", stacklevel=2)
            done = subprocess.run(argv, env=env | self._settings, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(done.stderr)
        exports = dict(re.findall(r"^export (\w+)=(.*)$", done.stdout, re.MULTILINE))
        self.dir = Path(exports["SLURM_LOCAL_DIR"])
        self.env = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
        self.env.update(SLURM_LOCAL_DIR=str(self.dir), SLURM_CONF=exports["SLURM_CONF"])
        self.env["PATH"] = f"{self.dir}/bin:" + os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        return self

    def stop(self) -> None:
        """Ends all that runs in the cluster and removes its state folder. May be called twice."""
        if (self.dir / "local.conf").exists():
            subprocess.run([SCRIPTS / "stop.sh", self.dir], env=self.env, check=True, capture_output=True)

    # -- commands -----------------------------------------------------------

    def _space(self, name: str) -> int:
        """The process that holds the namespaces of a node or of the hub."""
        return int((self.dir / "pids" / f"ns-{name}").read_text().split()[0])

    def _hub(self, argv: Sequence[str | Path]) -> list[str]:
        words = [str(word) for word in argv]
        return ["nsenter", f"--target={self._space('hub')}", "--net", "--", *words] if self.netns else words

    def run(self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None,
            check: bool = True, timeout: float = 60, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command on the controller's side, where it reaches the nodes' addresses."""
        done = subprocess.run(self._hub(argv), env=self.env | dict(env or {}), cwd=cwd, capture_output=True,
                              text=True, timeout=timeout, check=False, input=input)
        if check and done.returncode:
            raise ClusterError(f"{argv[0]} ended with {done.returncode}: {done.stderr}{done.stdout}")
        return done

    def popen(self, argv: Sequence[str | Path], **options: Any) -> subprocess.Popen[str]:
        """As run, without waiting."""
        options["env"] = self.env | dict(options.get("env") or {})
        return subprocess.Popen(self._hub(argv), text=True, **options)

    def sbatch(self, script: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None,
               args: Sequence[str] = (), check: bool = True) -> str:
        """Submits a script from a folder; returns the job id."""
        done = self.run(["sbatch", "--parsable", *args, script], env=env, cwd=cwd, check=check)
        return done.stdout.strip().split(";")[0]

    # -- jobs ---------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        text = self.run(["scontrol", "-o", "show", "job", job_id]).stdout
        fields = dict(re.findall(r"(\S+?)=(.*?)(?=\s+\S+?=|\s*$)", text))
        return Job(fields["JobState"], fields["ExitCode"], fields)

    def wait(self, job_id: str, timeout: float = 60) -> tuple[str, str]:
        """State and "code:signal" of a job once it has ended; TimeoutError with its last state."""
        job = self.wait_for(job_id, ENDED, timeout)
        return job.state, job.code

    def wait_for(self, job_id: str, states: frozenset[str] | set[str], timeout: float = 60) -> Job:
        """Polls until a job is in one of some states, such as {"RUNNING"}."""
        end = time.monotonic() + timeout
        while True:
            job = self.job(job_id)
            if job.state in states:
                return job
            if time.monotonic() > end:
                raise TimeoutError(f"job {job_id} is {job.state} ({job.fields.get('Reason')}) after {timeout} s")
            time.sleep(0.1)

    # -- nodes --------------------------------------------------------------

    def node(self, action: str, node: str, *command: str) -> str:
        """kill, crash, cut, join, start, pids, addr or exec, as node.sh; returns what it prints."""
        done = subprocess.run([SCRIPTS / "node.sh", action, node, *command], env=self.env, capture_output=True,
                              text=True, check=False)
        if done.returncode:
            raise ClusterError(f"node.sh {action} {node}: {done.stderr}{done.stdout}")
        return done.stdout.strip()

    def restart_limited(self, node: str, files: int | None) -> None:
        """A node's slurmd anew, with a hard limit of open files for itself and all that it starts; None: our own."""
        limits = [] if files is None else ["prlimit", f"--nofile={files}:{files}", "--"]
        self.node("kill", node)
        subprocess.run([*limits, str(SCRIPTS / "node.sh"), "start", node], env=self.env, check=True, capture_output=True)
        # A launch that finds the daemon not listening yet is repeated by Slurm only after minutes.
        end = time.monotonic() + 30
        while self.run(["srun", f"--nodelist={node}", "--ntasks=1", "true"], check=False).returncode:
            if time.monotonic() > end:
                raise TimeoutError(f"{node} takes no step after its slurmd was started again")
            time.sleep(0.2)

    def address(self, node: str) -> str:
        return self.node("addr", node)

    def idle(self, timeout: float = 30) -> None:
        """Waits until every node is idle again, for example after a node came back."""
        end = time.monotonic() + timeout
        while True:
            states = self.run(["sinfo", "-h", "-N", "-o", "%T"]).stdout.split()
            if states == ["idle"] * self.count:
                return
            if time.monotonic() > end:
                raise TimeoutError(f"nodes are {states} after {timeout} s")
            time.sleep(0.1)

    def processes(self, node: str) -> dict[int, str]:
        """Command lines by pid of all that runs on a node, but for Slurm's own daemons."""
        space, uts = self._space(node), os.readlink(f"/proc/{self._space(node)}/ns/uts")
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == space:
                continue
            try:
                if os.readlink(entry / "ns" / "uts") != uts or "Z" == (entry / "stat").read_text().split(") ")[1][0]:
                    continue
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if line and not line.startswith(("slurmd ", "slurmstepd: ", "/usr/sbin/slurmstepd")):
                found[int(entry.name)] = line
        return found

    def pids(self, node: str) -> list[int]:
        return sorted(self.processes(node))

    def listening(self, node: str) -> set[int]:
        """TCP ports that something listens on in a node's network, but for slurmd's and those the kernel chose."""
        ports = set()
        for name in ("tcp", "tcp6"):
            for line in Path(f"/proc/{self._space(node)}/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
        return {port for port in ports if port < FIRST_EPHEMERAL} - {self._slurmd_port()}

    def listener(self, node: str, port: int = 0) -> socket.socket:
        """A listening socket of this process in the network of a node (or "hub"); port 0: any free one."""
        found: list[socket.socket] = []

        def listen() -> None:
            with open(f"/proc/{self._space(node)}/ns/net") as space:
                if LIBC.setns(space.fileno(), NEW_NET):  # of this thread alone; the socket stays there
                    raise OSError("cannot enter the node's network")
            opened = socket.socket()
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(("0.0.0.0", port))
            opened.listen(8)
            found.append(opened)

        thread = threading.Thread(target=listen)
        thread.start()
        thread.join()
        return found[0]

    def _slurmd_port(self) -> int:
        match = re.search(r"\bport=(\d+)", (self.dir / "local.conf").read_text())
        return int(match[1]) + 1 if match else 0

    def leftovers(self) -> dict[str, Any]:
        """Processes and ports of each node that has any; empty once a job has cleaned up."""
        rows = {node: {"processes": self.processes(node), "ports": self.listening(node)} for node in self.nodes}
        return {node: row for node, row in rows.items() if row["processes"] or row["ports"]}

    def clean(self, timeout: float = 10) -> dict[str, Any]:
        """Waits until nothing is left on any node; returns what still is."""
        end = time.monotonic() + timeout
        while True:
            left = self.leftovers()
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.1)


@contextmanager
def cluster(nodes: int = 4, **options: Any) -> Iterator[SlurmCluster]:
    """A started cluster; skips where there can be none."""
    require_slurm()
    with SlurmCluster(nodes, **options) as started:
        yield started


PREFIXES = {"podman": "CONTAINERS"}  # of the program's own variables, where it is not its name


def standins_env(**more: str) -> dict[str, str]:
    """Environment by which a job of runtime none finds the stand-ins; more goes on top."""
    path = f"{STANDINS}/bin:" + os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    # Compiled once, not at each start of each stand-in, whatever the caller's shell says.
    return {"PATH": path, "PYTHONPATH": f"{STANDINS}/python", "PYTHONDONTWRITEBYTECODE": "", **more}


def rootfs_env(pass_names: Sequence[str] = (), **more: str) -> dict[str, str]:
    """The same for pyxis jobs whose containers are root folders of the SPANK plugin.

    Only names in SRTGEN_PASS_ENV get into a container's step: the plugin's settings, the stand-ins' and PYTHONPATH.
    """
    env = standins_env(FAKEPYXIS_MODE="rootfs", FAKEPYXIS_ROOTFS=str(STANDINS), **more)
    names = {"PYTHONPATH", *pass_names}
    names |= {name for name in env if name.startswith(("FAKEPYXIS_", "STANDIN_"))}
    return env | {"SRTGEN_PASS_ENV": " ".join(sorted(names))}


def docker_env(state: Path, image_env: Mapping[str, str] | None = None, **more: str) -> dict[str, str]:
    """The same for docker jobs; see program_env."""
    return program_env("docker", state, image_env, **more)


def program_env(program: str, state: Path, image_env: Mapping[str, str] | None = None, **more: str) -> dict[str, str]:
    """The same for jobs of docker, podman or apptainer. The stand-ins lie in the image, whose environment image_env completes.

    state is a folder that all nodes see: calls.jsonl, and the containers by node. STANDIN_* belongs into image_env.
    """
    image = {"PATH": f"{STANDINS}/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": f"{STANDINS}/python"}
    image |= dict(image_env or {})
    settings = {"STATE": str(state), "ENV": "\n".join(f"{name}={value}" for name, value in image.items()),
                "ROOTFS": str(STANDINS), "DEVICES": "/dev/kfd /dev/dri"}
    return standins_env(**{f"{PREFIXES.get(program, program.upper())}_STANDIN_{name}": value for name, value in settings.items()}, **more)


def write_image(path: str, kind: str, size: int = 1 << 16) -> None:
    """A container image file (squashfs or sif), as far as its head tells; whole at once."""
    part = f"{path}.{uuid.uuid4().hex}"
    text = f"from standin import images; images.write({part!r}, {kind!r}, {size}, 0)"
    subprocess.run([sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": f"{STANDINS}/python"}, check=True)
    os.replace(part, path)
