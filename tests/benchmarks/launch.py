#!/usr/bin/env python3
"""What the launcher itself costs, measured on the local Slurm: python tests/benchmarks/launch.py [--rounds 3] [ROW ...]

Prints medians of the job's own waits beside their limits, and what a hand-written launcher waits at the same places
(poll every 10 s, one srun per address, sleep 60 at the end; measured with the same Slurm where it is not a plain sleep).
All nodes share this machine's processors: where many engines load, they do so at the lowest priority, as each node's own
processors would be there for them.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from jobs_rig import PAIR, Live, Scenario, prepare, submit  # noqa: E402
from slurm_cluster import LIBC, NEW_NET, SlurmCluster  # noqa: E402

POLL_S = 10.0  # of the hand-written launcher
SLEEP_S = 60.0


@dataclass
class Figure:
    """A row of the table: medians of what was measured, against a limit in seconds."""

    name: str
    limit: float
    by_hand: str
    values: list[float]

    def line(self) -> str:
        median = statistics.median(self.values)
        spread = f"{min(self.values):.2f}-{max(self.values):.2f}"
        verdict = "ok" if median <= self.limit else "NOT OK"
        return f"{self.name:<58} {median:>7.2f} {spread:>13} {self.limit:>6.1f}  {verdict:<7} {self.by_hand}"


def grid(nodes: int, prefill: int, workers_per_node: int) -> tuple[str, ...]:
    """Sets for prefill and decode workers over so many nodes."""
    decode = nodes - prefill
    return (f"roles.prefill.nodes={prefill}", f"roles.prefill.workers={prefill * workers_per_node}",
            f"roles.decode.nodes={decode}", f"roles.decode.workers={decode * workers_per_node}")


class Run:
    """One job, watched from outside."""

    def __init__(self, cluster: SlurmCluster, folder: Path, scenario: Scenario) -> None:
        self.live = Live(scenario, cluster, cluster.nodes[:scenario.nodes], folder / scenario.name)
        prepare(self.live, folder)
        self.live.job = submit(self.live)
        self.work = Path(f"/tmp/srtgen-{self.live.job}")
        self.workers = [process["step"] for process in self.live.manifest()["processes"]
                        if process["role"] in ("prefill", "decode", "agg")]

    def wait(self, what: str, check: Callable[[], object], limit: float = 120) -> float:
        """The moment at which check became true."""
        end = time.time() + limit
        while not check():
            if time.time() > end:
                raise TimeoutError(f"{what}\n{self.live.output()[-2000:]}")
            time.sleep(0.02)
        return time.time()

    def began(self) -> float:
        """When the batch script had made its results folder, the first thing it does."""
        path = self.live.results / "manifest.json"
        self.wait("the start", path.exists)
        return path.stat().st_mtime

    def last_worker(self) -> float:
        """When the last role script was about to become its server: then it has made its home folder."""
        homes = [self.work / step / "home" for step in self.workers]
        self.wait("the workers", lambda: all(path.exists() for path in homes))
        return max(path.stat().st_mtime for path in homes)

    def client_pids(self) -> list[int]:
        return self.live.pids(self.live.nodes[0], "atom.benchmarks.benchmark_serving")

    def ended(self) -> float:
        """When result.json got its verdict."""
        path = self.live.results / "result.json"
        self.wait("the end", lambda: path.exists() and '"phase":"done"' in path.read_text())
        moment = path.stat().st_mtime
        self.live.cluster.wait(self.live.job, 60)
        return moment


def fetch(address: str, port: int, path: str) -> str:
    """The beginning of an HTTP answer, as seen from the calling thread's network; '' if there is none."""
    try:
        with socket.create_connection((address, port), 1) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            data = b""
            connection.settimeout(0.2)
            try:
                while piece := connection.recv(65536):
                    data += piece
            except TimeoutError:
                pass  # it keeps the connection open
            return data.decode(errors="replace")
    except OSError:
        return ""


class Watch(threading.Thread):
    """Sees, from the controller's network, when the last worker is healthy and when the router gets its requests."""

    def __init__(self, run: Run) -> None:
        super().__init__(daemon=True)
        self.run_ = run
        self.healthy = 0.0
        self.first_request = 0.0
        self.stopped = False

    def run(self) -> None:
        live = self.run_.live
        with open(f"/proc/{live.cluster._space('hub')}/ns/net") as space:
            assert LIBC.setns(space.fileno(), NEW_NET) == 0
        self.run_.wait("the plan's addresses", (live.results / "nodes.tsv").exists)
        waiting = {(live.cluster.address(live.nodes[int(node)]), int(port)) for node, port in self.places()}
        while waiting and not self.stopped:
            waiting = {place for place in waiting if " 200 " not in fetch(*place, "/health")[:20]}
            time.sleep(0.05)
        assert not self.stopped, "the workers were never seen healthy"
        self.healthy = time.time()
        router = live.cluster.address(live.nodes[0])
        while not self.stopped and requests_of(fetch(router, 29000, "/metrics")) <= 2:  # the canary's two
            time.sleep(0.05)
        self.first_request = time.time()

    def places(self) -> list[tuple[str, str]]:
        text = (self.run_.live.bundle / "run.sbatch").read_text()
        block = text.split("readonly PLAN_WORKERS=(", 1)[1].split("\n)", 1)[0]
        rows = [line.strip().strip("'").split() for line in block.splitlines() if line.strip() and "#" not in line]
        return [(row[3], row[4]) for row in rows]


def requests_of(text: str) -> int:
    for line in text.splitlines():
        if line.startswith("standin_router_requests "):
            return int(line.split()[1])
    return 0


# -- the rows ---------------------------------------------------------------


def start_of(nodes: int, per_node: int, limit: float) -> Callable[[SlurmCluster, Path, int], list[Figure]]:
    def measure(cluster: SlurmCluster, folder: Path, rounds: int) -> list[Figure]:
        prefill = max(1, nodes * 3 // 4)
        starts, requests = [], []
        for number in range(rounds):
            run = Run(cluster, folder, Scenario(
                f"start-{nodes}-{per_node}-{number}", recipe=PAIR, nodes=nodes, sets=grid(nodes, prefill, per_node),
                env={"STANDIN_LOAD_S": "2", "STANDIN_ROUTER_SCALE": "1", "STANDIN_NICE": "19"}))
            starts.append(-run.began() + run.last_worker())
            run.ended()
            result = run.live.result()
            assert result["verdict"] == "passed", run.live.output()[-3000:]
            rows = {row["name"]: row["start_s"] for row in result["phases"]}
            requests.append(rows["bench"] - rows["router"])
        hand = f"{by_hand_addresses(cluster, nodes):.1f} for the addresses alone"
        name = f"{nodes} nodes" if per_node == 1 else f"{nodes * per_node} workers on {nodes} nodes"
        figures = [Figure(f"{name}: batch start -> last worker started", limit, hand, starts)]
        if per_node > 1:
            figures.append(Figure(f"{name}: last worker seen healthy -> client's turn", 6, "", requests))
        return figures
    return measure


def first_request(delay: int) -> Callable[[SlurmCluster, Path, int], list[Figure]]:
    def measure(cluster: SlurmCluster, folder: Path, rounds: int) -> list[Figure]:
        values = []
        for number in range(rounds):
            env = {"STANDIN_LOAD_S": "3", "STANDIN_ROUTER_SCALE": "1"} | ({"FAKEPYXIS_DELAY": str(delay)} if delay else {})
            run = Run(cluster, folder, Scenario(f"request-{delay}-{number}", recipe=PAIR, nodes=2,
                                                profile="pyxis" if delay else "none", env=env))
            watch = Watch(run)
            watch.start()
            run.ended()
            watch.stopped = True
            watch.join()
            assert run.live.result()["verdict"] == "passed", run.live.output()[-3000:]
            values.append(watch.first_request - watch.healthy)
        name = "last worker healthy -> first benchmark request" + (f", FAKEPYXIS_DELAY={delay}" if delay else "")
        return [Figure(name, 3, f"{POLL_S:.0f} on average, up to {2 * POLL_S:.0f}" + (f", + {delay} container" if delay else ""),
                       values)]
    return measure


def death(cluster: SlurmCluster, folder: Path, rounds: int) -> list[Figure]:
    """kill -9 to the decode worker while the client is at work."""
    stopped, ended = [], []
    for number in range(rounds):
        run = Run(cluster, folder, Scenario(f"death-{number}", recipe=PAIR, nodes=2, fault="decode_0:tpot_s=0.3"))
        live = run.live
        live.phase("bench")
        live.until("the client", run.client_pids)
        client, worker = run.client_pids(), live.pids(live.nodes[1], "openai_server")
        began = time.time()
        for pid in worker:
            os.kill(pid, 9)
        stopped.append(run.wait("the client's end", lambda: not any(Path(f"/proc/{pid}").exists() for pid in client)) - began)
        ended.append(run.ended() - began)
        assert live.result()["exit_code"] == 11
    return [Figure("worker death -> client stopped", 2, "never (the client runs on)", stopped),
            Figure("worker death -> job ended", 2 + 20, f"the benchmark's rest + {SLEEP_S:.0f}", ended)]


def benchmark_end(cluster: SlurmCluster, folder: Path, rounds: int) -> list[Figure]:
    values = []
    for number in range(rounds):
        run = Run(cluster, folder, Scenario(f"end-{number}", recipe=PAIR, nodes=2))
        ended = run.ended()
        values.append(ended - (run.live.results / "bench" / "verdict.json").stat().st_mtime)
    return [Figure("benchmark end -> job ended", 3, f"{SLEEP_S:.0f} + one probe of {POLL_S:.0f}", values)]


def by_hand_addresses(cluster: SlurmCluster, nodes: int) -> float:
    """Seconds that one srun per node takes to ask for its address, as a hand-written launcher does."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "job.sh"
        script.write_text("""#!/usr/bin/env bash
start=${EPOCHREALTIME/./}
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  srun --overlap --nodes=1 --ntasks=1 --nodelist="$host" hostname -I
done >/dev/null
printf '%s\\n' "$((${EPOCHREALTIME/./} - start))" >taken
""")
        job = cluster.sbatch(script, cwd=folder, args=[f"-N{nodes}", "--exclusive", "--output=/dev/null"])
        cluster.wait(job, 120)
        return int((folder / "taken").read_text()) / 1e6


ROWS: dict[str, Callable[[SlurmCluster, Path, int], list[Figure]]] = {
    "start4": start_of(4, 1, 3.0),
    "start16": start_of(16, 1, 6.0),
    "request": first_request(0),
    "request-delay": first_request(5),
    "death": death,
    "end": benchmark_end,
    "start64": start_of(16, 4, 12.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("rows", nargs="*", choices=[[], *ROWS], default=[])
    args = parser.parse_args()
    print(f"{'seconds, median of ' + str(args.rounds):<58} {'median':>7} {'range':>13} {'limit':>6}  {'':<7} by hand", flush=True)
    with tempfile.TemporaryDirectory(prefix="launch-") as name, SlurmCluster(16) as cluster:
        for row in args.rows or ROWS:
            for figure in ROWS[row](cluster, Path(name), args.rounds):
                print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
