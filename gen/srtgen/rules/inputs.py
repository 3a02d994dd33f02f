"""Images, models and time: what the job would find out late."""

from __future__ import annotations

from srtgen import model, slurm
from srtgen.errors import Path
from srtgen.planning import HEALTH_DEFAULTS
from srtgen.report import Report
from srtgen.rules.facts import Facts

_CACHES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME")


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
    given = [s for s in recipe.environment if s.key in _CACHES]
    if given:
        message = f"the model must be in the cache that {given[0].key} names; preflight looks for it"
        report.put("note", facts.document, ("model", "offline"), message, "offline-hub-model")
    else:
        message = (
            "offline, and the Hugging Face cache is the fresh home of each process; set HF_HOME and mount a cache there"
        )
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
