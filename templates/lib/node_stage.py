"""Preflight of a node: room for its own copy of the model."""

from __future__ import annotations

import argparse
import os
from typing import Tuple

import node_files
import stage_files


def check_disk(plan: argparse.Namespace) -> "Tuple[str, str]":
    """What every job needs, then what the node's copy of the model still lacks."""
    status, text = node_files.check_disk(plan)
    if status == "fail" or not plan.stage:
        return status, text
    try:
        least = stage_files.needed(stage_files.listing(plan.model), plan.stage)
    except stage_files.StageError as error:
        return "fail", str(error)
    folder = os.path.dirname(plan.stage)
    os.makedirs(folder, exist_ok=True)
    if os.stat(folder).st_dev == os.stat("/tmp").st_dev:
        least += node_files.TMP_MIN_BYTES
    free = stage_files.free(folder)
    if free < least:
        return "fail", "{} has {} free, the model needs {}".format(folder, stage_files.size(free), stage_files.size(least))
    return "ok", ""
