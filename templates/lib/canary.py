"""Shows that completions come out before anything is measured.

    canary.py --url ROUTER --model NAME --deadline S [--ranks-listed] --worker NAME=ROLE=URL=RANKS …

Each prefill-decode pair once, by the exchange that the router makes (AToMesh 2026-08: prefill with
do_remote_decode, its kv_transfer_params handed to decode), made on the workers directly; aggregate workers
once each; then one plain and one streamed completion through the router.
Prints "progress" events, and "failed" with the half that failed. Exit code 0 or 1.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import json
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional

from http_json import Failure, connect, explain, read_json

TOKENS = 8
PROMPT = "The following is a short story about a lighthouse keeper. " * 8
PARALLEL = 16


class Worker(NamedTuple):
    """One server: step, role, URL, DP ranks."""

    name: str
    role: str
    url: str
    ranks: int


def say(kind: str, text: str) -> None:
    """One event line."""
    sys.stdout.write("{}\tcanary\t{}\n".format(kind, " ".join(text.split())[:600]))
    sys.stdout.flush()


def request_body(model: str) -> "Dict[str, Any]":
    """A completion whose answer has tokens whatever the model thinks of the prompt."""
    return {"model": model, "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}


def require_tokens(reply: Any) -> None:
    """Fails unless the completion has text or counted tokens, and says why it may not."""
    choice = (reply.get("choices") or [{}])[0]
    tokens = (reply.get("usage") or {}).get("completion_tokens") or 0
    if not (choice.get("text") and tokens > 0):
        raise Failure("the completion has no tokens (finish_reason {!r}, completion_tokens {})".format(
            choice.get("finish_reason"), tokens))


def try_pair(prefill: Worker, decode: Worker, model: str, ranks_listed: bool, deadline: float) -> "Optional[str]":
    """None if the pair works, else which half failed and how."""
    where = "{} -> {}".format(prefill.name, decode.name)
    body = request_body(model)
    first = dict(body, max_tokens=1, stream=False,
                 kv_transfer_params={"do_remote_decode": True, "do_remote_prefill": False})
    try:
        info = read_json(prefill.url, "/kv_transfer_info", None, deadline)
        reply = read_json(prefill.url, "/v1/completions", first, deadline)
        params = reply.get("kv_transfer_params")
        if not isinstance(params, dict):
            raise Failure("its answer has no kv_transfer_params ({!r})".format(params))
    except Failure as failure:
        return "{}: the prefill half ({}) failed: {}".format(where, prefill.name, failure)
    params = dict(params, remote_tp_size=info.get("tp_size"), remote_dp_rank=params.get("dp_rank") or 0,
                  remote_dp_size=prefill.ranks if ranks_listed else 1)
    try:
        require_tokens(read_json(decode.url, "/v1/completions", dict(body, stream=False, kv_transfer_params=params), deadline))
    except Failure as failure:
        return "{}: the decode half ({}) or the KV transfer failed: {}".format(where, decode.name, failure)
    return None


def try_worker(worker: Worker, model: str, deadline: float) -> "Optional[str]":
    """None if an aggregate worker completes, else how it failed."""
    try:
        require_tokens(read_json(worker.url, "/v1/completions", dict(request_body(model), stream=False), deadline))
    except Failure as failure:
        return "{} failed: {}".format(worker.name, failure)
    return None


def streamed_text(url: str, model: str, deadline: float) -> str:
    """The text of a streamed completion; Failure if the stream breaks, errs or has no end mark."""
    connection, response = connect(url, "/v1/completions", dict(request_body(model), stream=True), deadline)
    text, ended = "", False
    try:
        if response.status != 200:
            raise Failure("HTTP {}: {}".format(response.status, response.read(300).decode("utf-8", "replace")))
        for raw in response:
            line = raw.decode("utf-8", "replace").strip()
            if time.monotonic() > deadline:
                raise Failure("the stream did not end in time")
            if line == "data: [DONE]":
                ended = True
                break
            if line.startswith("data: "):
                choices = json.loads(line[6:]).get("choices") or [{}]
                text += choices[0].get("text") or ""
    except (OSError, http.client.HTTPException) as error:
        raise Failure(explain(error)) from error
    except ValueError as error:
        raise Failure("the stream holds {}".format(line[:200])) from error
    finally:
        connection.close()
    if not ended:
        raise Failure("the stream ended without [DONE]")
    return text


def try_router(url: str, model: str, deadline: float) -> "Optional[str]":
    """None if the router completes, plain and streamed, else how it failed."""
    try:
        require_tokens(read_json(url, "/v1/completions", dict(request_body(model), stream=False), deadline))
    except Failure as failure:
        return "the completion through the router failed: {}".format(failure)
    try:
        if not streamed_text(url, model, deadline):
            raise Failure("no tokens")
    except Failure as failure:
        return "the streamed completion through the router failed: {}".format(failure)
    return None


def try_workers(workers: "List[Worker]", model: str, ranks_listed: bool, deadline: float) -> "Optional[str]":
    """The first failure of the direct exchanges, None if all came through."""
    prefills = [worker for worker in workers if worker.role == "prefill"]
    decodes = [worker for worker in workers if worker.role == "decode"]
    singles = [worker for worker in workers if worker.role == "agg"]
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        jobs = [pool.submit(try_pair, prefill, decode, model, ranks_listed, deadline) for prefill in prefills for decode in decodes]
        jobs += [pool.submit(try_worker, worker, model, deadline) for worker in singles]
        failures = [failure for failure in (job.result() for job in jobs) if failure]
    for failure in failures:
        say("progress", failure)
    if not failures:
        say("progress", "{} direct exchanges came through".format(len(jobs)))
        return None
    return failures[0] + (" (and {} more of {})".format(len(failures) - 1, len(jobs)) if len(failures) > 1 else "")


def main(argv: "List[str]") -> int:
    """Direct exchanges first: they name the half; the router last."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--deadline", type=float, required=True)
    parser.add_argument("--ranks-listed", action="store_true")
    parser.add_argument("--worker", action="append", default=[])
    arguments = parser.parse_args(argv)
    deadline = time.monotonic() + arguments.deadline
    workers = [Worker(name, role, url, int(ranks)) for name, role, url, ranks in (item.split("=") for item in arguments.worker)]
    failure = try_workers(workers, arguments.model, arguments.ranks_listed, deadline)
    failure = failure or try_router(arguments.url, arguments.model, deadline)
    if failure:
        say("failed", failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
