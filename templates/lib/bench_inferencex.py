"""The valid points once more, under InferenceX's file names and keys, for tools that read those.

InferenceX 2026-08-21: `concurrency_C_req_rate_R_gpus_N_ctx_P_gen_D.json` in `<engine>_isl_I_osl_O/`, whose GPU
counts readers take from the name, and one `agg_*.json` with per-GPU rates and times in seconds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict, Mapping

from bench_gate import read_result
from bench_plan import Plan, Point

ROLE_KEYS = ("tp", "pp", "dcp_size", "pcp_size", "ep", "dp_attention", "num_workers")
META_KEYS = ("hw", "framework", "precision", "spec_decoding", "router", "kv_p2p_transfer", "is_multinode")


def stem(plan: Plan, point: Point) -> str:
    """File name without its ending; an aggregate has no ctx and gen shares."""
    suffix = point.name[len("c%d" % point.concurrency):]
    text = "concurrency_%d_req_rate_%s_gpus_%d" % (point.concurrency, plan.request_rate, plan.worker_gpus)
    if plan.gpus["prefill"]:
        text += "_ctx_%d_gen_%d" % (plan.gpus["prefill"], plan.gpus["decode"])
    return text + suffix


def _times(result: Mapping[str, Any]) -> Dict[str, float]:
    """All `*_ms` in seconds without the suffix; each time per output token also as interactivity."""
    out: Dict[str, float] = {}
    for key, value in result.items():
        if not key.endswith("_ms") or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        name = key[:-len("_ms")]
        out[name] = value / 1000.0
        if "tpot" in name and value:
            out[name.replace("tpot", "intvty")] = 1000.0 / value
    return out


def aggregate(plan: Plan, point: Point, result: Mapping[str, Any], row: Mapping[str, Any], identity: Mapping[str, Any]) -> Dict[str, Any]:
    """One agg file's content."""
    meta, disagg = plan.meta, plan.gpus["prefill"] > 0
    data: Dict[str, Any] = {key: meta.get(key) for key in META_KEYS if meta.get(key) is not None}
    data.update(
        conc=point.concurrency, model=plan.model, image=meta.get("image"),
        infmax_model_prefix=meta.get("model_prefix"), disagg=disagg, isl=plan.isl, osl=plan.osl,
        recipe_fingerprint=identity.get("recipe_sha256"),
        num_prefill_gpu=plan.prefill_gpus, num_decode_gpu=plan.decode_gpus,
        tput_per_gpu=row["total_tok_s_per_gpu"], output_tput_per_gpu=row["output_tok_s_per_decode_gpu"],
        input_tput_per_gpu=row["input_tok_s_per_prefill_gpu"],
    )
    for role in ("prefill", "decode"):
        settings = meta.get(role) or meta.get("agg") or {}
        data.update({"%s_%s" % (role, key): settings[key] for key in ROLE_KEYS if key in settings})
    data.update(_times(result))
    return data


def write(plan: Plan, point: Point, row: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Copy a valid point's raw file and write its aggregate; an invalid point must not reach such a reader."""
    raw = plan.folder / str(row["raw"])
    result, unreadable = read_result(raw)
    if unreadable:
        return
    engine = str(plan.meta.get("framework") or "atom")
    folder: Path = plan.folder / "inferencex" / ("%s_isl_%d_osl_%d" % (engine, plan.isl, plan.osl))
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(str(raw), str(folder / (stem(plan, point) + ".json")))
    text = json.dumps(aggregate(plan, point, result, row, identity), indent=2) + "\n"
    (folder / ("agg_" + stem(plan, point) + ".json")).write_text(text, encoding="utf-8")
