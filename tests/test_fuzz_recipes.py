"""Lines of the shipped recipes and profiles changed at random: a bundle, or problems in words; no traceback, no hang.

SRTGEN_FUZZ_SECONDS (default 20) bounds the time, SRTGEN_FUZZ_SEED picks another series. `fuzz_long.py` covers the rest.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter

import pytest

from shipped import CLUSTERS, RECIPES, SMOKE, Source
from srtgen.errors import RecipeError
from srtgen.generate import bundle as generate

SECONDS = float(os.environ.get("SRTGEN_FUZZ_SECONDS", "20"))
SEED = os.environ.get("SRTGEN_FUZZ_SEED", "1")
LONGEST_S = 20.0

VALUES = (
    "", "~", "true", "no", "0", "-1", "8", "017", "0x10", "1_000", "8.0", "1e3", "1e400", ".nan", ".inf", "9" * 30, "[]", "{}",
    "[1, 2]", "[[]]", "{a: b}", "''", '"\\0"', '"\\n"', "'x y'", "*x", "&x [1]", "!t x", "<<", "2026-09-01", "12:00:00", "$HOME",
    "{job_id}", "hf:a/b", "/a/b", "/a/", "a: b", "- x", "@", "`", "%", "|", ">", "\t", "é", "🙂", "\u202e", "x" * 3000, "colocate",
    "-", "--", "rdma", "vllm",
)  # fmt: skip
KEYS = ("schema", "name", "roles", "prefill", "agg", "gpus", "args", "env", "<<", "tp", "model", "nodes", "x", "1", "true", "''", "é", "sweep")


def mutate(text: str, rng: random.Random) -> str:
    """One to four changes, of lines, values, keys, indentation or characters."""
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        lines = _changed(lines or [""], rng)
    return "\n".join(lines) + rng.choice(("\n", "", "\n\n"))


def _changed(lines: list[str], rng: random.Random) -> list[str]:
    at, other, kind = rng.randrange(len(lines)), rng.randrange(len(lines)), rng.randrange(9)
    line = lines[at]
    cut = rng.randrange(len(line) + 1)
    if kind == 0:
        return lines[:at] + lines[at + 1 :]
    if kind == 1:
        return [*lines[:at], lines[other], *lines[at:]]
    if kind == 8:
        return lines[: at + 1]
    changed = {
        2: f"{line.partition(': ')[0]}: {rng.choice(VALUES)}",
        3: f"{line.partition(': ')[0]}: {rng.choice(VALUES)}",
        4: re.sub(r"[\w-]+(?=:)", lambda _: rng.choice(KEYS), line, count=1),
        5: " " * rng.randrange(9) + line.lstrip(),
        6: lines[other],
        7: line[:cut] + rng.choice("\0\x07\r\ufeff:{}[]&*!|>'\"%@`#,-?éx") + line[cut + rng.randrange(2) :],
    }
    return [*lines[:at], changed[kind], *lines[at + 1 :]]


def outcome(recipe: bytes, cluster: bytes | None) -> str:
    """What generating came to; anything but a bundle or a RecipeError propagates."""
    site = Source("cluster.yaml", "cluster.yaml", cluster) if cluster is not None else None
    try:
        made = generate(Source("recipe.yaml", "recipe.yaml", recipe), site, [])
    except RecipeError as error:
        assert any(p.severity == "error" for p in error.problems)
        for problem in error.problems:
            assert problem.line >= 1 and problem.column >= 1 and problem.message and problem.text().isprintable()
        return "refused"
    assert "run.sbatch" in made.files
    return "made"


@pytest.mark.parametrize("what", ["recipes", "profiles"])
def test_mutations(what: str) -> None:
    rng = random.Random(f"{SEED} {what}")
    texts = [p.read_text() for p in (RECIPES if what == "recipes" else CLUSTERS).values()]
    smoke = RECIPES[SMOKE].read_bytes()
    count: Counter[str] = Counter()
    end = time.monotonic() + SECONDS * (0.75 if what == "recipes" else 0.25)
    while time.monotonic() < end:
        content = mutate(rng.choice(texts), rng).encode()
        begin = time.monotonic()
        try:
            result = outcome(content, None) if what == "recipes" else outcome(smoke, content)
        except Exception as error:
            raise AssertionError(f"seed {SEED}, input {sum(count.values())}: {content!r}") from error
        assert time.monotonic() - begin < LONGEST_S, content
        count[result] += 1
    print(f"{what}: {dict(count)}")
    assert count["made"] and count["refused"], count


def test_bytes() -> None:
    rng = random.Random(f"{SEED} bytes")
    texts = [p.read_bytes() for p in RECIPES.values()]
    for _ in range(300):
        content = bytearray(rng.choice(texts))
        for _ in range(rng.randrange(1, 5)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        outcome(bytes(content), None)
