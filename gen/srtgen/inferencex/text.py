"""A draft as the text of a recipe, in the style of the recipes that are written by hand."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any, Iterator

from srtgen.document import yaml12
from srtgen.inferencex.draft import Draft, Item, Workers

WIDTH = 120
# For editors, from where the shipped recipes are.
SCHEMA_LINE = "# yaml-language-server: $schema=../../schema/recipe-2.schema.json"
_PLAIN = re.compile(r"[A-Za-z0-9_./~][A-Za-z0-9_./+@:~=-]*\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}\Z")  # no text to readers of YAML 1.1
_SAMPLING = (("random_range_ratio", "0.8"),)
_ROUTER = ("policy: random", "log-level: info", "disable-health-check: true", "disable-circuit-breaker: true")
_HEALTH = ("max_attempts: 720", "interval_seconds: 5")


def render(draft: Draft) -> str:
    """The whole file."""
    remarks = (line for remark in draft.remarks for line in _comment(remark))
    blocks = [
        [SCHEMA_LINE, *_comment(draft.title), *remarks, "schema: 2", f"name: {draft.name}"],
        ["model:", f"  path: hf:{draft.model}", f"  container: {draft.image}", f"  precision: {draft.precision}"],
        ["resources:", f"  gpu_type: {draft.gpu}", f"  gpus_per_node: {draft.gpus_per_node}"],
        ["slurm:", f'  time_limit: "{draft.time_limit}"'],
        ["engine:", *_engine(draft)],
        ["frontend:", *_frontend(draft)],
        ["environment:", *_entries(draft.environment, 2, quoted=True)],
        ["roles:", *(line for role in draft.roles for line in _role(role))],
        ["health_check:", *(f"  {line}" for line in _HEALTH)],
        ["benchmark:", *_benchmark(draft)],
        *([["silence:", *_silence(draft)]] if draft.silence else []),
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _comment(text: str, indent: int = 0) -> list[str]:
    margin = " " * indent + "# "
    return textwrap.wrap(text, WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)


def _engine(draft: Draft) -> Iterator[str]:
    yield "  type: atom"
    if len(draft.roles) > 1:
        yield "  connector: mooncake"
    if draft.version:
        yield from _entries((draft.version,), 2, quoted=True)


def _frontend(draft: Draft) -> Iterator[str]:
    yield "  type: atomesh"
    if draft.router_image != draft.image:
        yield from _comment("The workers' image may be older than AToMesh; this one is known to hold it.", 2)
        yield f"  container_image: {draft.router_image}"
    yield "  args:"
    yield from (f"    {line}" for line in _ROUTER)


def _role(role: Workers) -> Iterator[str]:
    yield f"  {role.role}:"
    yield f"    nodes: {role.nodes}"
    yield f"    workers: {role.workers}"
    yield f"    gpus: {role.gpus}"
    yield "    args:"
    yield from _entries(role.args, 6, quoted=False)


def _benchmark(draft: Draft) -> Iterator[str]:
    yield "  type: sa-bench"
    yield "  client: inferencex"
    yield f"  isl: {draft.isl}"
    yield f"  osl: {draft.osl}"
    yield from (f"  {key}: {value}" for key, value in _SAMPLING)
    if 1 in draft.concurrencies and len(draft.roles) == 1:
        yield from _comment("Concurrency 1 sends 16 prompts, the least of a point, where InferenceX sends 10.", 2)
    yield f"  concurrencies: {_flow(list(draft.concurrencies))}"
    if draft.chat_template:
        yield from _comment("Drafts are accepted as in real use only behind the chat template.", 2)
        yield "  use_chat_template: true"
    if draft.client_args:
        yield "  client_args:"
        yield from _entries(draft.client_args, 4, quoted=False)


def _silence(draft: Draft) -> Iterator[str]:
    for code, reason in draft.silence:
        yield f"  - code: {code}"
        yield f"    reason: {reason}"


def _entries(items: tuple[Item, ...], indent: int, quoted: bool) -> Iterator[str]:
    margin = " " * indent
    for item in items:
        if item.comment:
            yield from _comment(item.comment, indent)
        if isinstance(item.value, dict):
            yield f"{margin}{item.key}:"
            yield from (f"{margin}  {scalar(key, True)}: {_flow(value)}" for key, value in item.value.items())
        elif item.key:
            yield f"{margin}{item.key}: {_flow(item.value, quoted)}"


def _flow(value: Any, quoted: bool = True) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_flow(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(key, True)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else scalar(value, quoted)


def scalar(text: str, quoted: bool) -> str:
    """Text as a YAML scalar; what reads as a number is quoted only where that matters (`quoted`)."""
    value = yaml12.scalar(text) if text else None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and not quoted:
        return text
    bare = value == text and _PLAIN.match(text) and not text.endswith(":")
    if bare and not _DATE.match(text) and not yaml12.odd_number(text):
        return text
    return json.dumps(text, ensure_ascii=False)
