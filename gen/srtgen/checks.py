"""What neither a schema nor the placement can say about a recipe."""

from __future__ import annotations

from srtgen.adapters import ENGINES, LATER_ENGINES, LATER_ROUTERS, ROUTERS, RUNTIMES
from srtgen.environment import looks_secret
from srtgen.profile import Profile
from srtgen.recipe import Recipe
from srtgen.report import Report


def names(recipe: Recipe, report: Report) -> None:
    """Engine and router: known, not only planned, and made for each other."""
    engine, router = recipe.engine.type, recipe.frontend.type
    path = ("engine",) if isinstance(recipe.document.data["engine"], str) else ("engine", "type")
    if engine not in ENGINES:
        report.error(recipe.document, path, _unsupported("engine", engine, LATER_ENGINES, list(ENGINES)))
    if router not in ROUTERS:
        message = _unsupported("router", router, LATER_ROUTERS, list(ROUTERS))
        report.error(recipe.document, ("frontend", "type"), message)
    elif engine in ENGINES and engine not in ROUTERS[router].engines:
        report.error(recipe.document, ("frontend", "type"), f"{router} does not serve {engine}")


def _unsupported(kind: str, name: str, later: frozenset[str], known: list[str]) -> str:
    state = "is not supported yet" if name in later else "is not known"
    return f"the {kind} {name} {state}; known: {', '.join(known)}"


def roles(recipe: Recipe, report: Report) -> None:
    """Prefill and decode together, or agg alone."""
    given = {role.name for role in recipe.roles}
    if given in ({"prefill", "decode"}, {"agg"}):
        return
    if "agg" in given:
        report.error(recipe.document, ("roles", "agg"), "agg excludes prefill and decode", at_key=True)
    elif not given:
        report.error(recipe.document, ("roles",), "no role; write prefill and decode, or agg", at_key=True)
    elif not given:
        report.error(recipe.document, ("roles",), "no role: write prefill and decode, or agg", at_key=True)
    else:
        missing = min({"prefill", "decode"} - given)
        message = f"missing key {missing}: prefill and decode come together (workers that do both are agg)"
        report.error(recipe.document, ("roles",), message, at_key=True)


def secrets(recipe: Recipe, site: Profile, report: Report) -> None:
    """Tokens and keys outside of the environments, which are checked where they are merged."""
    message = "a secret in plain text; let the process read it from a variable: env: {NAME: {from_submit: NAME}}"
    for document in filter(None, (recipe.document, site.document)):
        for path, source in document.sources.items():
            if looks_secret(source) and not {"env", "environment"} & set(path):
                report.error(document, path, message)


def profile(site: Profile, ignored: list[str], report: Report) -> None:
    """One note for the profile keys that mean nothing here; two keys for one thing."""
    if site.document is None:
        return
    if ignored:
        message = f"srt-slurm's keys that mean nothing here: {', '.join(ignored)}"
        report.note(site.document, (ignored[0],), message, code="ignored-profile-keys")
    data = site.document.data
    said = [k for k in ("gpu_directive", "gpu_sbatch_directive") if k in data]
    if len(said) == 2 and data[said[0]] != data[said[1]]:
        report.error(site.document, (said[1],), f"contradicts {said[0]}, which is {data[said[0]]}", at_key=True)
    for key, why in RUNTIMES[site.runtime].refused.items():
        if data.get("container_runtime", {}).get(key):
            message = f"{site.runtime} has no {key}: {why}"
            report.error(site.document, ("container_runtime", key), message, at_key=True)
