"""Waits until the router has exactly the planned workers, all healthy, all under the served name.

    router_check.py --url URL --model NAME --deadline S --settle S --worker ROLE=URL=RANKS …

Prints events: "waiting" with the reason when it changes, "failed" with the reason. Exit code 0 or 1.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from typing import Any, Dict, List, Tuple

from http_json import Failure, read_json

POLL_S = 0.25
ANSWER_S = 10.0
ROUTER_ROLES = {"agg": "regular"}  # AToMesh's word for a worker that does both
Expected = Dict[Tuple[str, str], int]


def say(kind: str, text: str) -> None:
    """One event line."""
    sys.stdout.write("{}\trouter\t{}\n".format(kind, " ".join(text.split())[:600]))
    sys.stdout.flush()


def expected_workers(items: "List[str]") -> Expected:
    """(role, URL) -> entries that the router must list."""
    found: Expected = {}
    for item in items:
        role, url, ranks = item.split("=")
        found[(ROUTER_ROLES.get(role, role), url)] = int(ranks)
    return found


def compare(workers: "List[Dict[str, Any]]", expected: Expected, model: str) -> str:
    """'' if the router's list is the plan, else the first difference in words."""
    listed = collections.Counter((worker.get("worker_type", ""), worker.get("url", "").split("@")[0]) for worker in workers)
    for (role, url), count in expected.items():
        if listed[(role, url)] != count:
            return "it lists {} {} times as {}, {} planned".format(url, listed[(role, url)], role, count)
    for role, url in listed:
        if (role, url) not in expected:
            return "it lists {} as {}, which is not in the plan".format(url, role)
    for worker in workers:
        if worker.get("model_id") != model:
            return "{} serves the model {!r}, not {!r}".format(worker.get("url"), worker.get("model_id"), model)
        if worker.get("is_healthy") is not True:
            return "{} is not healthy".format(worker.get("url"))
    return ""


def check(url: str, expected: Expected, model: str) -> "Tuple[bool, str]":
    """(the router answers, what is wrong or '')."""
    end = time.monotonic() + ANSWER_S
    try:
        reply = read_json(url, "/workers", None, end)
        workers = reply["workers"]
    except Failure as failure:
        return False, str(failure)
    except (KeyError, TypeError):
        return True, "/workers has no list of workers"
    wrong = compare(workers, expected, model)
    if wrong:
        return True, wrong
    try:
        names = [entry.get("id") for entry in read_json(url, "/v1/models", None, end)["data"]]
    except Failure as failure:
        return True, "/v1/models: {}".format(failure)
    return True, "" if model in names else "/v1/models has {}, not {!r}".format(names, model)


def main(argv: "List[str]") -> int:
    """Polls until right; a router that answers has finished its registration, so a wrong list gets `settle` seconds only."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--deadline", type=float, required=True)
    parser.add_argument("--settle", type=float, required=True)
    parser.add_argument("--worker", action="append", default=[])
    arguments = parser.parse_args(argv)
    expected = expected_workers(arguments.worker)
    end = time.monotonic() + arguments.deadline
    said, up = "", False
    while True:
        answers, wrong = check(arguments.url, expected, arguments.model)
        if answers and not up:
            up, end = True, min(end, time.monotonic() + arguments.settle)
        if not wrong:
            return 0
        if wrong != said:
            say("waiting", wrong)
            said = wrong
        if time.monotonic() >= end:
            say("failed", wrong)
            return 1
        time.sleep(POLL_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
