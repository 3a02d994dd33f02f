"""What the steps' logs prove: versions against the recipe's `identity`, the KV transport against the recipe.

    evidence.py versions  --expect NAME=VERSION … --log FILE …
    evidence.py transport --expect rdma|tcp [--explicit] --log STEP=FILE …

Prints a line "ok|mismatch", a tab, a sentence (mismatch only), then one line of JSON for result.json.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Dict, List, NamedTuple, Optional, Tuple

HEAD_BYTES = 64 << 20  # start-up is at the beginning of a log

# What Mooncake's transfer engine (2024-12 to 2026-08) and ATOM's connector log once a transport is in place.
TRANSPORT_LINES = (
    ("rdma", re.compile(r"installTransport, type=rdma|RDMA device: \S+, LID|Using RDMA transport|\binstalled rdma\b")),
    ("tcp", re.compile(r"TcpTransport: listen on port|using TCP transport only|\binstalled tcp\b")),
)
HEX = re.compile(r"[0-9a-f]{7,40}\Z")


class Version(NamedTuple):
    """A version taken apart: release ('' if none) and commit ('' if none)."""

    release: str
    commit: str


def parse_version(text: str) -> Version:
    """`0.1.4.dev113+g5837907f3` has both, `v0.1.6` only a release, `087b82d9…` only a commit."""
    text = text.strip().lower()
    if HEX.match(text) and not text.isdigit():
        return Version("", text)
    release, _, local = text.partition("+")
    match = re.search(r"g([0-9a-f]{7,40})", local)
    return Version(release.lstrip("v"), match.group(1) if match else "")


def same_commit(one: str, other: str) -> bool:
    """True if the shorter is the beginning of the longer."""
    short, long = sorted((one, other), key=len)
    return long.startswith(short)


def compare_version(expected: str, seen: str) -> str:
    """match, mismatch or unverified; like with like only."""
    want, have = parse_version(expected), parse_version(seen)
    results = []
    if want.commit and have.commit:
        results.append(same_commit(want.commit, have.commit))
    if want.release and have.release:
        results.append(want.release == have.release)
    if not results:
        return "unverified"
    return "match" if all(results) else "mismatch"


def read_head(path: str) -> str:
    """The beginning of a log, '' if it is not there."""
    try:
        with open(path, "rb") as stream:
            return stream.read(HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def seen_versions(texts: "List[str]") -> "Dict[str, List[str]]":
    """Name -> the different versions in the "srtgen-version" lines."""
    found: Dict[str, List[str]] = {}
    for text in texts:
        for name, value in re.findall(r"^srtgen-version (\S+) (\S+)$", text, re.M):
            if value not in found.setdefault(name, []):
                found[name].append(value)
    return found


def check_versions(expected: "Dict[str, str]", texts: "List[str]") -> "Tuple[str, Dict[str, object]]":
    """('' or the mismatch in words, entries of result.json)."""
    seen = seen_versions(texts)
    wrong, report = "", {}
    for name in sorted(set(expected) | set(seen)):
        values = seen.get(name, [])
        status = "unverified"
        if name in expected and values:
            results = [compare_version(expected[name], value) for value in values]
            status = "mismatch" if "mismatch" in results else "unverified" if "unverified" in results else "match"
        report[name] = {"expected": expected.get(name), "seen": values, "status": status if name in expected else "not compared"}
        if status == "mismatch" and not wrong:
            wrong = "{} is {}, the recipe's identity says {}".format(name, " and ".join(values), expected[name])
    return wrong, report


def transports(text: str) -> "List[str]":
    """The transports that a log says are installed."""
    return [name for name, pattern in TRANSPORT_LINES if pattern.search(text)]


def judge_transport(expected: str, seen: "List[str]") -> "Optional[bool]":
    """True as the recipe says, False against it, None if the log does not tell."""
    if not seen:
        return None
    # Beside rdma a tcp listener may exist; rdma where tcp was asked for is always wrong.
    return expected in seen and not (expected == "tcp" and "rdma" in seen)


def check_transport(expected: str, explicit: bool, logs: "Dict[str, str]") -> "Tuple[str, Dict[str, object]]":
    """('' or the contradiction in words, entry of result.json). Without a protocol in the recipe nothing contradicts."""
    wrong, per_step = "", {}
    for step, text in logs.items():
        seen = transports(text)
        verdict = judge_transport(expected, seen)
        status = "unverified" if verdict is None else "match" if verdict else "mismatch" if explicit else "differs from the default"
        per_step[step] = {"seen": seen, "status": status}
        if status == "mismatch" and not wrong:
            wrong = "{} installed {}, the recipe says {}".format(step, " and ".join(seen), expected)
    return wrong, {"expected": expected, "explicit": explicit, "steps": per_step}


def main(argv: "List[str]") -> int:
    """Always 0; the first word of the output is the verdict."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["versions", "transport"])
    parser.add_argument("--expect", action="append", default=[])
    parser.add_argument("--explicit", action="store_true")
    parser.add_argument("--log", action="append", default=[])
    arguments = parser.parse_args(argv)
    if arguments.what == "versions":
        expected = dict(item.partition("=")[::2] for item in arguments.expect)
        wrong, report = check_versions(expected, [read_head(path) for path in arguments.log])
    else:
        logs = {name: read_head(path) for name, _, path in (item.partition("=") for item in arguments.log)}
        wrong, report = check_transport(arguments.expect[0], arguments.explicit, logs)
    print("{}\t{}".format("mismatch" if wrong else "ok", wrong))
    print(json.dumps(report, separators=(",", ":")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
