"""Look at a running point: requests finished so far by every source, and the peak use of KV memory."""

from __future__ import annotations

import time
from typing import Dict

import bench_run
from bench_metrics import Snapshot, snapshot
from bench_plan import Plan, Point
from bench_table import running_line

SETTLE_S = 6.0  # ATOM refreshes /metrics every 1 to 5 s
LINE_EVERY_S = 60.0


def say(line: str) -> None:
    """One line to the step's log, at once."""
    print(line, flush=True)


class Observer:
    """Looks at all sources of progress; keeps the peak KV use and prints a line a minute."""

    def __init__(self, plan: Plan, point: Point, before: Snapshot) -> None:
        self.plan, self.point, self.before = plan, point, before
        self.kv_peak: Dict[str, float] = {}
        self.log = plan.folder / (point.name + ".log")
        self.start = self.line_at = time.monotonic()

    def progress(self, now: Snapshot) -> bench_run.Progress:
        """Requests finished so far by every source."""
        client = bench_run.client_count(self.log, self.point.prompts)
        router = now.router.done if now.router else None
        return bench_run.Progress(now.finished(self.plan.workers), router, client)

    def look(self) -> bench_run.Progress:
        """Read all sources once."""
        now = snapshot(self.plan)
        for step, stats in now.workers.items():
            if stats is not None and "kv_usage" in stats.values:
                self.kv_peak[step] = max(self.kv_peak.get(step, 0.0), stats.values["kv_usage"])
        progress = self.progress(now)
        if time.monotonic() - self.line_at >= LINE_EVERY_S:
            self.line_at = time.monotonic()
            say(running_line(self.plan, self.point, progress.client, time.monotonic() - self.start))
        return progress


def settled(plan: Plan, point: Point, before: Snapshot) -> Snapshot:
    """Counters once the workers report all requests of the point, or after SETTLE_S."""
    deadline = time.monotonic() + SETTLE_S
    base = before.finished(plan.workers)
    while True:
        count = snapshot(plan).finished(plan.workers)
        complete = base is None or count is None or count - base >= point.prompts + point.warmups
        if complete or time.monotonic() >= deadline:
            return snapshot(plan, mtp_too=True)
        time.sleep(0.5)
