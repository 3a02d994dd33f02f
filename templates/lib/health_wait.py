"""Asks workers for their health, all at once, and prints what changes as events (KIND, NAME, TEXT by tabs).

    health_wait.py wait  --worker NAME=HOST:PORT … --log NAME=FILE … --marker TEXT … --pattern REGEX …
        every second until each has answered 200: "ready", "waiting" with the reason, "fatal" with the log's line
    health_wait.py watch --worker NAME=HOST:PORT …
        every 5 s for ever: "lost" after two refusals in a row or 30 s without an answer
    health_wait.py judge --worker NAME=HOST:PORT …
        at once, three times: "lost" if none gave an answer; tells a failed client from a failed server
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import sys
import threading
import time
from typing import Dict, List, Optional, Pattern, Tuple

WAIT_POLL_S = 1.0
WAIT_ANSWER_S = 3.0
WATCH_POLL_S = 5.0
WATCH_ANSWER_S = 30.0
REFUSALS = 2
JUDGE_TRIES = 3
JUDGE_POLL_S = 0.5
CHUNK = 1 << 20

say_lock = threading.Lock()


def say(kind: str, name: str, text: str) -> None:
    """One event, in one write."""
    line = "{}\t{}\t{}\n".format(kind, name, " ".join(text.split())[:400])
    with say_lock:
        os.write(1, line.encode("utf-8", "replace"))


def ask(address: str, limit_s: float) -> str:
    """'' if GET /health answers 2xx within the limit, 'timeout' if nothing comes, else what went wrong."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=limit_s)  # never through a proxy
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
        return "" if 200 <= status < 300 else "HTTP {}".format(status)
    except TimeoutError:
        return "timeout"
    except (OSError, http.client.HTTPException) as error:
        if "timed out" in str(error):
            return "timeout"
        return "connection refused" if isinstance(error, ConnectionRefusedError) else str(error) or type(error).__name__
    finally:
        connection.close()


def wait_for(name: str, address: str) -> None:
    """Until the worker is ready; says each new reason once."""
    said = ""
    while True:
        start = time.monotonic()
        reason = ask(address, WAIT_ANSWER_S)
        if not reason:
            say("ready", name, "")
            return
        reason = "no answer in {:.0f} s".format(WAIT_ANSWER_S) if reason == "timeout" else reason
        if reason != said:
            say("waiting", name, reason)
            said = reason
        time.sleep(max(0.0, WAIT_POLL_S - (time.monotonic() - start)))


def watch(name: str, address: str) -> None:
    """Until the worker is lost."""
    refusals = 0
    while True:
        start = time.monotonic()
        reason = ask(address, WATCH_ANSWER_S)
        if reason == "timeout":
            say("lost", name, "/health gave no answer for {:.0f} s".format(WATCH_ANSWER_S))
            return
        refusals = refusals + 1 if reason else 0
        if refusals == REFUSALS:
            say("lost", name, "/health failed {} times in a row: {}".format(REFUSALS, reason))
            return
        time.sleep(max(0.0, WATCH_POLL_S - (time.monotonic() - start)))


def judge(name: str, address: str) -> None:
    """Says "lost" unless one of a few quick questions is answered."""
    reason = ""
    for _ in range(JUDGE_TRIES):
        reason = ask(address, WAIT_ANSWER_S / JUDGE_TRIES)
        if not reason:
            return
        time.sleep(JUDGE_POLL_S)
    say("lost", name, "no answer to /health" if reason == "timeout" else "/health: " + reason)


class LogReader:
    """New lines of a growing log; one that is not there yet is empty."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.rest = b""

    def new_lines(self) -> "List[str]":
        """What was completed since the last call, at most 1 MiB at a time."""
        try:
            with open(self.path, "rb") as stream:
                stream.seek(self.offset)
                data = stream.read(CHUNK)
        except OSError:
            return []
        self.offset += len(data)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()[-CHUNK:]
        return [line.decode("utf-8", "replace") for line in lines]


def fatal_line(lines: "List[str]", markers: "List[str]", patterns: "List[Pattern[str]]") -> "Optional[str]":
    """The first line that holds a marker or matches a pattern."""
    for line in lines:
        if any(marker in line for marker in markers) or any(pattern.search(line) for pattern in patterns):
            return line
    return None


def watch_logs(readers: "Dict[str, LogReader]", markers: "List[str]", patterns: "List[Pattern[str]]") -> None:
    """Says the first fatal line of each log, for ever."""
    while readers:
        for name in list(readers):
            line = fatal_line(readers[name].new_lines(), markers, patterns)
            if line is not None:
                say("fatal", name, line)
                del readers[name]
        time.sleep(WAIT_POLL_S / 2)


def pairs(items: "List[str]") -> "List[Tuple[str, str]]":
    """NAME=VALUE words as pairs."""
    return [(name, value) for name, _, value in (item.partition("=") for item in items)]


def main(argv: "List[str]") -> int:
    """Starts a thread per worker; ends with 0 when all have come to their end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["wait", "watch", "judge"])
    for name in ("worker", "log", "marker", "pattern"):
        parser.add_argument("--" + name, action="append", default=[])
    arguments = parser.parse_args(argv)
    if arguments.mode == "wait" and (arguments.marker or arguments.pattern):
        readers = {name: LogReader(path) for name, path in pairs(arguments.log)}
        patterns = [re.compile(pattern) for pattern in arguments.pattern]
        threading.Thread(target=watch_logs, args=(readers, arguments.marker, patterns), daemon=True).start()
    work = {"wait": wait_for, "watch": watch, "judge": judge}[arguments.mode]
    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in pairs(arguments.worker)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
