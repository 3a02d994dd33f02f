"""The checks that a schema cannot express. Each is a function over the facts of a recipe, with stable codes.

`schema/checks/<code>.yaml` explains a code; `srtgen explain` shows it. Errors end the generation, warnings and notes
stand in the bundle; a recipe silences those by code, with a reason.
"""

from __future__ import annotations

from typing import Callable, Mapping

from srtgen.profile import Profile
from srtgen.recipe import Recipe
from srtgen.report import Report
from srtgen.rules import accuracy, contract, dead, inputs, lengths, pairing, parallel, payloads, router, speculation
from srtgen.rules.facts import Facts, gather

Check = Callable[[Facts, Report], None]

# By the name of the engine or router that a check knows; "" for all.
CHECKS: Mapping[str, tuple[Check, ...]] = {
    "": (inputs.moving_images, inputs.offline_model, inputs.deadline, pairing.images, pairing.shared_node),
    "atom": (
        contract.engine_flags,
        payloads.extra_connectors,
        parallel.pipeline,
        parallel.prefill_context,
        parallel.decode_context,
        parallel.experts,
        speculation.method,
        speculation.acceptance,
        speculation.forced,
        pairing.same_blocks,
        pairing.index_cache,
        pairing.one_sided,
        lengths.model_length,
        lengths.concurrency,
        lengths.attention_sequences,
        lengths.capture_sizes,
        lengths.prefill_threshold,
        accuracy.dsv4_pair,
        accuracy.hf_overrides,
        accuracy.prefix_caching,
        accuracy.made_up,
        dead.environment,
        dead.python_path,
        dead.flags,
        dead.decode_overlap,
    ),
    "atomesh": (
        contract.router_flags,
        router.policies,
        router.ranks,
        router.address,
        router.second_tries,
        router.grace,
    ),
}


def run(recipe: Recipe, profile: Profile, report: Report) -> None:
    """Every check that concerns the recipe's engine and router."""
    facts = gather(recipe, profile)
    for name in ("", recipe.engine.type, recipe.frontend.type):
        for check in CHECKS.get(name, ()):
            check(facts, report)
