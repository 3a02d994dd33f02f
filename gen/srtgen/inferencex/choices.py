"""What the two files leave open, and the names and phrases that recipes get from a row."""

import re
from typing import NamedTuple, Sequence

from srtgen.inferencex.draft import Item
from srtgen.inferencex.master import Entry, Row

# The first image known to hold AToMesh; InferenceX 2026-08-22 runs its oldest disaggregated rows with it.
ROUTER_IMAGE = "rocm/atom-dev:nightly_202606101403"
ROUTER_DAY = "20260610"
_DAY = re.compile(r"20[0-9]{6}")
# InferenceX shortens the family, which has other members.
_MODELS = {"dsv4": "dsv4-pro"}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
LOW, HIGH = 128, 256


class Choices(NamedTuple):
    """The user's options. Empty text or 0: as the files say."""

    image: str = ""
    gpu: str = ""
    gpus_per_node: int = 8
    time_limit: str = "08:00:00"
    args: tuple[Item, ...] = ()
    env: tuple[Item, ...] = ()
    pack: bool = False


def image(entry: Entry, choices: Choices) -> str:
    return choices.image or entry.image


def gpu(entry: Entry, choices: Choices) -> str:
    if not (choices.gpu or entry.gpu):
        entry.at.refuse("neither runner nor key names the GPU; give --gpu-type")
    return choices.gpu or entry.gpu


def day(image: str) -> str:
    """The day in an image's tag as eight digits, "" for none."""
    found = _DAY.search(image.rsplit(":", 1)[-1])
    return found.group(0) if found else ""


def router_image(worker_image: str) -> str:
    """Another image for the router where the workers' may be older than AToMesh; else the same."""
    return worker_image if day(worker_image) >= ROUTER_DAY else ROUTER_IMAGE


def name(entry: Entry, choices: Choices, topology: str, row: Row) -> str:
    """The bundle's naming rule: model, precision, GPU, topology, lengths."""
    model = _MODELS.get(entry.prefix, entry.prefix)
    return f"{model}-{entry.precision}-{gpu(entry, choices)}-{topology}-{_lengths(row)}"


def _lengths(row: Row) -> str:
    if row.isl % 1024 or row.osl % 1024:
        return f"{row.isl}-{row.osl}"
    return f"{row.isl // 1024}k{row.osl // 1024}k"


def load(entry: Entry, choices: Choices, row: Row, concurrencies: Sequence[int]) -> str:
    """`DeepSeek-V4-Pro on MI355X, 8k in and 1k out, low concurrency`."""
    where = f"{entry.model.rsplit('/', 1)[-1]} on {gpu(entry, choices).upper()}"
    return f"{where}, {_tokens(row.isl)} in and {_tokens(row.osl)} out, {_concurrency(concurrencies)}"


def _tokens(count: int) -> str:
    return f"{count} tokens" if count % 1024 else f"{count // 1024}k"


def _concurrency(values: Sequence[int]) -> str:
    if len(values) == 1:
        return f"concurrency {values[0]}"
    if max(values) <= LOW:
        return "low concurrency"
    return "high concurrency" if min(values) >= HIGH else f"concurrency {min(values)} to {max(values)}"


def count(number: int, noun: str) -> str:
    """`one node`, `two nodes`."""
    word = _NUMBERS[number] if number < len(_NUMBERS) else str(number)
    return f"{word} {noun}{'' if number == 1 else 's'}"
