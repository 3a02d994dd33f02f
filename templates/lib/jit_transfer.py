"""Many small files at once: on a network file system the round trips overlap."""

from __future__ import annotations

import concurrent.futures
import time
from typing import Any, Callable, NamedTuple, Optional, Sequence

THREADS = 8


class Done(NamedTuple):
    """What a transfer did; `problem` is why it stopped early, '' if it did not."""

    files: int
    size: int
    bad: int
    problem: str


def transfer(action: "Callable[[Any], Optional[int]]", items: "Sequence[object]", end: float) -> Done:
    """Runs the action on all items: bytes, -1 for a bad one, None for one left out. Of its errors the first is told."""
    results, problem = [], ""
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(action, item) for item in items]:
            try:
                results.append(future.result())
            except OSError as error:
                problem = problem or str(error)
    good = [size for size in results if size is not None and size >= 0]
    if not problem and time.monotonic() > end:
        problem = "the time for it is over"
    return Done(len(good), sum(good), results.count(-1), problem)
