"""Images, models and time: what the job would find out late."""

from __future__ import annotations

from srtgen import hub, model, slurm
from srtgen.errors import Path
from srtgen.planning import HEALTH_DEFAULTS
from srtgen.report import Report
from srtgen.rules.facts import Facts


def moving_images(facts: Facts, report: Report) -> None:
    """image-latest: the same recipe would run something else tomorrow."""
    for container, path in model.image_places(facts.recipe):
        image = facts.profile.containers.get(container, container)
        if image.startswith(("/", ".")) or "@" in image:
            continue
        _, colon, tag = image.rsplit("/", 1)[-1].partition(":")
        if not colon or tag == "latest":
            what = "has no tag, which means latest" if not colon else "is a moving tag"
            message = f"{image[:80]} {what}: the same recipe may run another version tomorrow; write a fixed tag"
            report.put("warning", facts.document, path, message, "image-latest", at_key=False)


def offline_model(facts: Facts, report: Report) -> None:
    """offline-hub-model: offline, a Hugging Face id is found in a cache or not at all."""
    recipe = facts.recipe
    if not recipe.model.offline or not facts.model.startswith("hf:"):
        return
    cache = hub.find(recipe, facts.profile)
    if cache.host:
        message = f"the model must be in {cache.host} of every node; preflight looks for it"
        message += "; model_prefetch does not apply" if facts.profile.prefetch != "none" else ""
        report.put("note", facts.document, ("model", "offline"), message, "offline-hub-model")
    elif cache.seen:
        message = f"the model must be in {cache.seen}, which is in no mount: containers find nothing there"
        report.put("warning", facts.document, ("model", "offline"), message, "offline-hub-model")


def deadline(facts: Facts, report: Report) -> None:
    """deadline-over-limit: the time limit would end the job before anyone says what did not load."""
    limit = slurm.time_limit(facts.recipe, facts.profile)
    total = slurm.seconds(limit) if limit else None
    merged = {**HEALTH_DEFAULTS, **facts.profile.health_check, **facts.recipe.health_check}
    wait = merged["max_attempts"] * merged["interval_seconds"]
    if total and wait >= total:
        own = facts.recipe.time_limit is not None or facts.profile.document is None
        document = facts.document if own else facts.profile.document
        path: Path = ("slurm", "time_limit") if own else ("default_time_limit",)
        message = f"workers may load for {wait} s, the time limit {limit} is {total} s: nothing is left to measure"
        assert document is not None
        report.put("warning", document, path, message, "deadline-over-limit", at_key=False)
