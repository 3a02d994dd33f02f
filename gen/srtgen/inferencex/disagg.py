"""Multi-node keys: the argv that InferenceX' launcher gives prefill and decode workers (server_atom.sh, 2026-08-22)."""

from __future__ import annotations

import json
from typing import Any

from srtgen.inferencex import choices as choose
from srtgen.inferencex import phrases
from srtgen.inferencex.choices import Choices
from srtgen.inferencex.draft import Draft, Item, Workers
from srtgen.inferencex.master import Entry, Row, Side
from srtgen.inferencex.models import Model
from srtgen.recipe import COLOCATE

ROLES = ("prefill", "decode")
# Defaults of the launcher where a model's entry says nothing.
BLOCK_SIZE, MEMORY, SEQUENCES = "16", "0.85", "256"
CONTEXT_MARGIN = 256  # what CI adds to ISL + OSL for --max-model-len
CAPTURE_SIZES = [1, 2, 4, *range(8, 257, 8)]
_SHARED = (("shared-node-transfer", "workers that share a node are what this recipe is for"),)
# The launcher also sets variables that ATOM never reads (VLLM_LOG_LEVEL and the like); they are left out.
COMMON = (
    Item("HF_HOME", "/hf_hub_cache"),
    Item("PYTHONUNBUFFERED", "1"),
    Item("PYTHONDONTWRITEBYTECODE", "1"),
    Item("SAFETENSORS_FAST_GPU", "1"),
    Item("AITER_LOG_LEVEL", "WARNING"),
)
_ACCURACY = "ATOM_MOE_GU_ITLV"
_AFFINITY = "ATOM_CPU_AFFINITY"


def drafts(entry: Entry, model: Model, choices: Choices) -> list[Draft]:
    """One recipe a row, and with `pack` another one for each row whose workers can share nodes."""
    found: list[Draft] = []
    for row in entry.rows:
        found.append(_draft(entry, model, choices, row, packed=False))
        if choices.pack and _packable(row, choices.gpus_per_node):
            found.append(_draft(entry, model, choices, row, packed=True))
    return found


def _packable(row: Row, gpus_per_node: int) -> bool:
    """Whether workers that share nodes need fewer of them."""
    if any(side.tp > gpus_per_node for side in row.sides):
        return False
    packed = _nodes(row, gpus_per_node)
    return sum(n for n in packed if isinstance(n, int)) < sum(side.nodes for side in row.sides)


def _draft(entry: Entry, model: Model, choices: Choices, row: Row, packed: bool) -> Draft:
    nodes = _nodes(row, choices.gpus_per_node) if packed else tuple(side.nodes for side in row.sides)
    image = choose.image(entry, choices)
    roles = tuple(
        Workers(role, place, side.workers, side.tp, (*_args(role, side, row, model), *choices.args))
        for role, side, place in zip(ROLES, row.sides, nodes)
    )
    suffix = "-shared-node" if packed else ""
    return Draft(
        name=choose.name(entry, choices, f"{phrases.topology(row)}{suffix}", row),
        title=f"{choose.load(entry, choices, row, row.concurrencies)}: {phrases.layout(row, roles)}.",
        remarks=phrases.remarks(row, choices, packed),
        model=entry.model,
        image=image,
        router_image=image,
        precision=entry.precision,
        gpu=choose.gpu(entry, choices),
        gpus_per_node=choices.gpus_per_node,
        time_limit=choices.time_limit,
        version=None,
        environment=(*COMMON, *_environment(row, model), *choices.env),
        roles=roles,
        isl=row.isl,
        osl=row.osl,
        concurrencies=row.concurrencies,
        chat_template=row.speculative and entry.prefix != "dsv4",
        client_args=_client(entry, row),
        silence=_SHARED if COLOCATE in nodes else (),
    )


def _nodes(row: Row, gpus_per_node: int) -> tuple[int | str, int | str]:
    """As few nodes as prefill fits on; a single decode worker goes behind it where there is room."""
    prefill, decode = row.sides
    first = -(-prefill.workers // (gpus_per_node // prefill.tp))
    left = first * gpus_per_node - prefill.workers * prefill.tp
    if decode.workers * decode.tp <= left:
        return first, COLOCATE
    return first, -(-decode.workers // (gpus_per_node // decode.tp))


def _args(role: str, side: Side, row: Row, model: Model) -> tuple[Item, ...]:
    decode = role == "decode"
    most = max(row.concurrencies)
    sequences = Item("max-num-seqs", most, "the highest concurrency of the sweep")
    given = Item("max-num-seqs", model.text("max_num_seqs", SEQUENCES))
    context = Item("max-model-len", row.isl + row.osl + CONTEXT_MARGIN, f"ISL + OSL + {CONTEXT_MARGIN}")
    if length := model.text("max_model_len"):
        context = Item("max-model-len", length)
    elif decode:
        context = context._replace(comment="")
    return (
        *_parallel(role, side, model),
        Item("trust-remote-code", True),
        *model.args("kv_cache_flags"),
        Item("block-size", model.text("block_size", BLOCK_SIZE)),
        Item("gpu-memory-utilization", model.text("mem_frac_static", MEMORY)),
        sequences if decode else given,
        context,
        *_optional(model, "max_num_batched_tokens", "scheduler_delay_factor"),
        Item("no-enable_prefix_caching", True),
        *_quantization(side, model),
        *_speculation(row, model),
        *([Item("cudagraph-capture-sizes", CAPTURE_SIZES)] if decode else []),
    )


def _parallel(role: str, side: Side, model: Model) -> tuple[Item, ...]:
    if side.dp_attention:
        return model.dp_args(role, "ep" if side.ep > 1 else "tp")
    return (Item("enable-expert-parallel", True),) if side.ep > 1 else ()


def _optional(model: Model, *keys: str) -> tuple[Item, ...]:
    return tuple(Item(key.replace("_", "-"), text) for key in keys if (text := model.text(key)))


def _quantization(side: Side, model: Model) -> tuple[Item, ...]:
    text = model.text("online_quant_config")
    if side.dp_attention:
        text = model.text("online_quant_dpa_config", text)
    return (Item("online_quant_config", structured(text)),) if text else ()


def structured(text: str) -> Any:
    """A JSON text as data where srtgen would write exactly this text again, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    same = json.dumps(value, ensure_ascii=False, separators=(",", ":")) == text
    return value if same and isinstance(value, dict) and value else text


def _speculation(row: Row, model: Model) -> tuple[Item, ...]:
    """The file's flags end with the one that takes the number of tokens."""
    if not row.speculative:
        return ()
    flags = model.args("mtp_flags")
    if not flags or flags[-1].value is not True:
        row.at.refuse("the model's entry has no mtp_flags that end with the flag for the number of tokens")
    return (*flags[:-1], flags[-1]._replace(value=row.speculative_tokens))


def _environment(row: Row, model: Model) -> tuple[Item, ...]:
    own = [
        item._replace(comment=f"Without these two {_plain(model)} loses accuracy and says nothing.")
        if item.key == _ACCURACY
        else item
        for item in model.env("env")
    ]
    if not any(side.dp_attention for side in row.sides):
        return tuple(own)
    kind = "ep" if any(side.dp_attention and side.ep > 1 for side in row.sides) else "tp"
    more = model.env(f"{kind}_dp_env")
    note = "Settings of data-parallel attention"
    affinity = f"; {_AFFINITY} is read by images before 2026-06-24" if any(i.key == _AFFINITY for i in more) else ""
    return (*own, *(i._replace(comment=f"{note}{affinity}." if n == 0 else "") for n, i in enumerate(more)))


def _plain(model: Model) -> str:
    return str(model.at.path[-1])


def _client(entry: Entry, row: Row) -> tuple[Item, ...]:
    """DeepSeek-V4 ships no chat template; the client has an encoder of its own for it."""
    first = [] if row.speculative else [Item("trust-remote-code", True)]
    if row.speculative and entry.prefix == "dsv4":
        first = [Item("dsv4", True)]
    return (*first, Item("tokenizer", entry.model))
