"""A model of the Hugging Face hub in a node's cache: preflight of an offline job, and the look after a prefetch.

node_hub.py ORG/NAME CACHE: waits for the model to be whole there, as a shared file system may show it late.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Tuple

import node_files

APPEARS_S = 90.0  # NFS clients remember for up to a minute that a folder was not there
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tiktoken.model")


def check_model(plan: argparse.Namespace) -> "Tuple[str, str]":
    """A local model's folder; offline, a hub model's snapshot. What is fetched in time needs no look."""
    if plan.model:
        return node_files.check_model(plan)
    if plan.offline and not plan.hub_cache:
        return "fail", ("offline, and the recipe's Hugging Face cache lies in no mount: mount a folder of the nodes there, "
                        "or write hf_cache into the cluster profile")
    if plan.offline:
        problem = missing(plan.hub_model, plan.hub_cache)
        return ("fail", "offline, and " + problem) if problem else ("ok", "")
    if plan.prefetch in ("shared", "local"):
        return "note", "a model of the hub: it is fetched before the load"
    return "note", "a model of the hub: its files are not checked"


def missing(name: str, cache: str, tokenizer: bool = True) -> str:
    """What the hub's cache lacks of the model's main revision, '' if it is complete."""
    folder = os.path.join(cache, "models--" + name.replace("/", "--"))
    if not os.path.isdir(folder):
        return "{} is not in {} (no {})".format(name, cache, os.path.basename(folder))
    reference = os.path.join(folder, "refs", "main")
    try:
        with open(reference, encoding="utf-8") as stream:
            commit = stream.read().strip()
    except OSError as error:
        return "{}: {}".format(reference, error.strerror)
    snapshot = os.path.join(folder, "snapshots", commit)
    if not commit or not os.path.isdir(snapshot):
        return "{} is missing, which {} names".format(snapshot, reference)
    problem = node_files.missing_files(snapshot)
    if not problem and tokenizer and not any(os.path.exists(os.path.join(snapshot, name)) for name in TOKENIZERS):
        problem = "{} holds no tokenizer ({})".format(snapshot, ", ".join(TOKENIZERS))
    return problem + half_done(folder) if problem else ""


def half_done(folder: str) -> str:
    """A remark on downloads that were cut short."""
    try:
        names = [name for name in os.listdir(os.path.join(folder, "blobs")) if name.endswith(".incomplete")]
    except OSError:
        names = []
    return "; {} downloads were cut short (blobs/*.incomplete)".format(len(names)) if names else ""


def main(name: str, cache: str) -> int:
    """The last line is the reason of a failure."""
    end = time.monotonic() + APPEARS_S
    problem = missing(name, cache, False)
    while problem and time.monotonic() < end:
        print("waiting:", problem, flush=True)
        time.sleep(5)
        problem = missing(name, cache, False)
    print(problem or "complete: {} in {}".format(name, cache), flush=True)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
