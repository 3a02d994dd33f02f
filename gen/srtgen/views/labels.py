"""What results are labelled with, for readers of InferenceX's files."""

from __future__ import annotations

from typing import Any

from srtgen.plan import Plan


def labels(plan: Plan) -> dict[str, Any]:
    """What the results are labelled with for readers of InferenceX's files."""
    recipe = plan.recipe
    roles = {
        g.name: {
            "tp": g.parallel["tp"],
            "pp": g.parallel["pp"],
            "dcp_size": g.parallel["dcp"],
            "pcp_size": g.parallel["pcp"],
            "ep": 1,
            "dp_attention": g.parallel["dp_attention"],
            "num_workers": len(g.processes),
        }
        for g in plan.groups
    }
    return {
        "hw": recipe.gpu_type or "",
        "image": plan.groups[0].processes[0].image,
        "framework": recipe.engine.type,
        "precision": recipe.model.precision,
        "spec_decoding": _speculation(plan),
        "router": {"name": recipe.frontend.type},
        **({"kv_p2p_transfer": recipe.engine.connector} if plan.transport else {}),
        "is_multinode": plan.placement.nodes > 1,
        **roles,
    }


def _speculation(plan: Plan) -> str:
    found = [s.source for r in plan.recipe.roles for s in r.args if s.key == "method" and isinstance(s.value, str)]
    return found[0] if found else "none"
