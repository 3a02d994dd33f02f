"""Where a bundle says that a model's files are: the hub cache by recipe and profile, and a node's own copy."""

from __future__ import annotations

import json

import pytest

from recipes import manifest, pd, recipe
from shipped import from_text
from srtgen.generate import Bundle

PROFILE = """cluster: site
container_runtime: {type: RUNTIME}
"""
OURS = {"HF_HOME": "/hf_cache", "HF_HUB_CACHE": "/hf_cache/hub", "HUGGINGFACE_HUB_CACHE": "/hf_cache/hub"}
# Name: runtime, profile, environment of the recipe, then: cache on the host, mounts, variables of each process.
PLACES = {
    "nothing": ("pyxis", "", {}, "", [], {}),
    "profile": ("pyxis", "hf_cache: /shared/hf", {}, "/shared/hf/hub", ["/shared/hf:/hf_cache"], OURS),
    "profile-none": ("none", "hf_cache: /shared/hf", {}, "/shared/hf/hub", [],
                     {"HF_HOME": "/shared/hf", "HF_HUB_CACHE": "/shared/hf/hub", "HUGGINGFACE_HUB_CACHE": "/shared/hf/hub"}),
    "recipe-none": ("none", "", {"HF_HOME": "/data/hf"}, "/data/hf/hub", [], {"HF_HOME": "/data/hf"}),
    "recipe-mounted": ("docker", "default_mounts: {/it-share/hub: /hf_hub_cache}", {"HF_HOME": "/hf_hub_cache"}, "/it-share/hub/hub",
                       ["/it-share/hub:/hf_hub_cache"], {"HF_HOME": "/hf_hub_cache"}),
    "recipe-without-hub-level": ("pyxis", "default_mounts: {/raid/hub: /hf_hub_cache}", {"HF_HOME": "/hf_hub_cache", "HF_HUB_CACHE": "/hf_hub_cache"},
                                 "/raid/hub", ["/raid/hub:/hf_hub_cache"], {"HF_HUB_CACHE": "/hf_hub_cache"}),
    "deepest-mount": ("pyxis", "default_mounts: {/a: /c, /b: /c/hf}", {"HF_HOME": "/c/hf"}, "/b/hub", ["/a:/c", "/b:/c/hf"], {}),
    "profile-behind-recipe": ("pyxis", "hf_cache: /shared/hf", {"HF_HOME": "/hf_hub_cache"}, "/shared/hf/hub", ["/shared/hf:/hf_hub_cache"],
                              {"HF_HOME": "/hf_hub_cache"}),
    "mount-before-profile": ("pyxis", "hf_cache: /shared/hf\ndefault_mounts: {/it: /hf_hub_cache}", {"HF_HUB_CACHE": "/hf_hub_cache/hub"},
                             "/it/hub", ["/it:/hf_hub_cache"], {"HF_HUB_CACHE": "/hf_hub_cache/hub"}),
}


def plan(bundle: Bundle, name: str) -> str:
    """A constant of run.sbatch."""
    text = bundle.files["run.sbatch"].content.decode()
    return next(line.partition("=")[2].strip("'") for line in text.splitlines() if line.startswith(f"readonly {name}="))


def mounts(bundle: Bundle) -> list[str]:
    text = bundle.files["run.sbatch"].content.decode().partition("readonly PLAN_MOUNTS=(")[2].partition(")")[0]
    return text.split()


@pytest.mark.parametrize("name", PLACES)
def test_the_cache_of_a_hub_model(name: str) -> None:
    runtime, site, env, host, placed, variables = PLACES[name]
    profile = PROFILE.replace("RUNTIME", runtime) + site + ("\nmodel_prefetch: local" if host else "") + "\n"
    bundle = from_text(recipe(environment=env), profile)
    assert plan(bundle, "PLAN_HUB_CACHE") == host
    assert mounts(bundle) == placed
    rows = manifest(bundle)["processes"]
    for row in rows:
        assert variables.items() <= row["env"].items(), row["step"]
        assert ("HF_MODULES_CACHE" in row["env"]) == ("profile" in name and not env)
    assert [row["step"] for row in rows if row["role"] == "prefetch"] == (["prefetch_0"] if host else [])
    assert ("roles/prefetch.sh" in bundle.files) == bool(host)


def test_an_offline_job_fetches_nothing() -> None:
    profile = PROFILE.replace("RUNTIME", "pyxis") + "hf_cache: /shared/hf\nmodel_prefetch: shared\n"
    bundle = from_text(recipe(), profile, ("set", "model.offline=true"))
    assert (plan(bundle, "PLAN_MODEL_PREFETCH"), plan(bundle, "PLAN_HUB_CACHE")) == ("none", "/shared/hf/hub")
    assert "roles/prefetch.sh" not in bundle.files
    (said,) = [f.message for f in bundle.findings if f.code == "offline-hub-model"]
    assert said == "the model must be in /shared/hf/hub of every node; preflight looks for it; model_prefetch does not apply"


def test_a_local_model_needs_no_cache() -> None:
    profile = PROFILE.replace("RUNTIME", "pyxis") + "hf_cache: /shared/hf\nmodel_prefetch: shared\n"
    bundle = from_text(recipe(), profile, ("set", "model.path=/models/m"))
    assert (plan(bundle, "PLAN_MODEL_PREFETCH"), mounts(bundle)) == ("none", ["/models/m:/model:ro"])
    assert all("HF_HOME" not in row["env"] for row in manifest(bundle)["processes"])


def test_the_prefetch_has_what_its_workers_have() -> None:
    """Its image, and the variables of all of them, secrets by name."""
    profile = PROFILE.replace("RUNTIME", "docker") + "hf_cache: /shared/hf\nmodel_prefetch: local\n"
    roles = pd({"container": "image:2"}, {"env": {"HF_TOKEN": {"from_submit": "HF_TOKEN"}}})
    bundle = from_text(recipe(roles=roles, environment={"HF_ENDPOINT": "http://mirror"}), profile)
    first, *others = manifest(bundle)["processes"]
    assert first["env"]["HF_TOKEN"] == "${HF_TOKEN}" and first["env"]["HF_ENDPOINT"] == "http://mirror"
    assert first["image"] == next(row["image"] for row in others if row["role"] == "prefill") == "image:2"
    assert first["argv"][:5] == ["python3", "-B", "/srtgen/lib/prefetch_model.py", "--repo", "org/model"]


STAGED = {
    "pyxis": ("/model", ["/nvme/m-e9490950:/model:ro"]),
    "none": ("/nvme/m-e9490950", []),
}


@pytest.mark.parametrize("runtime", STAGED)
def test_a_staged_model_is_served_from_its_copy(runtime: str) -> None:
    served, placed = STAGED[runtime]
    changes = [("set", "model.path=/models/m"), ("set", "model.stage_dir=/nvme")]
    bundle = from_text(recipe(), PROFILE.replace("RUNTIME", runtime), *changes)
    content = manifest(bundle)
    assert (content["served_model"], mounts(bundle)) == (served, placed)
    assert (plan(bundle, "PLAN_MODEL_SOURCE"), plan(bundle, "PLAN_MODEL_STAGED")) == ("/models/m", "/nvme/m-e9490950")
    assert json.dumps(content["recipe"]["model"]["stage_dir"]) == '"/nvme"'


def test_models_of_one_name_never_share_a_copy() -> None:
    paths = ["/a/m", "/b/m", "/a/m n", "/a/m-n"]
    targets = set()
    for path in paths:
        changes = [("set", f"model.path={path}"), ("set", "model.stage_dir=/nvme")]
        targets.add(plan(from_text(recipe(), PROFILE.replace("RUNTIME", "none"), *changes), "PLAN_MODEL_STAGED"))
    assert len(targets) == len(paths)
    assert all(" " not in target for target in targets)
