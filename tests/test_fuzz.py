"""A few seconds of tests/fuzz_long.py: broken inputs of every kind end in a bundle or in words."""

from __future__ import annotations

import pytest

from fuzz_long import Case, Fuzzer, _run

SEEDS = range(25)
# Inputs that once ended in a traceback.
FOUND = [
    b'{"schema": 2, "ports": {"rout": 1}, %s}',
    b'{"schema": 2, %s, "roles": {"rol": {}}}',
]
BASE = b'"name": "x", "model": {"path": "hf:a/b", "container": "a:1"}, "engine": "atom", "roles": {"agg": {"nodes": 1, "workers": 1}}, "benchmark": {"type": "manual"}'


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    return Fuzzer(0, tmp_path_factory.mktemp("fuzz") / "work")


@pytest.mark.parametrize("kind", ["recipe", "profile", "set", "manifest", "folder"])
def test_kind(kind: str, fuzzer: Fuzzer) -> None:
    for seed in SEEDS:
        fuzzer.random.seed(seed)
        fuzzer.draw(kind)()
    assert fuzzer.counts[kind] == len(SEEDS)


@pytest.mark.parametrize("content", FOUND)
def test_found_before(content: bytes) -> None:
    _run(Case("recipe", content % BASE))
