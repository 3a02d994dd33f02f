"""The known engines, routers and runtimes, by the name that a recipe or profile uses."""

from __future__ import annotations

from typing import Mapping

from srtgen.engines import Engine
from srtgen.engines.atom import Atom
from srtgen.routers import Router
from srtgen.routers.atomesh import AtoMesh
from srtgen.runtimes import RUNTIMES

ENGINES: Mapping[str, Engine] = {"atom": Atom()}
ROUTERS: Mapping[str, Router] = {"atomesh": AtoMesh()}
# Names of srt-slurm's recipes that this version refuses by name instead of calling them unknown.
LATER_ENGINES = frozenset({"infera", "vllm", "sglang", "trtllm", "mocker", "tilert", "tokenspeed"})
LATER_ROUTERS = frozenset(
    {"infera", "dynamo", "sglang-router", "sglang", "vllm-router", "vllm", "atom", "trtllm_serve", "none", "nginx"}
    | {"smg", "llm-d", "tilert-router"}
)

__all__ = ["ENGINES", "LATER_ENGINES", "LATER_ROUTERS", "ROUTERS", "RUNTIMES"]
