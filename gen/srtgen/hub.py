"""Models of the Hugging Face hub: where their cache is on the nodes, and whether the job fills it before the load."""

from typing import Mapping, NamedTuple

from srtgen.adapters import RUNTIMES
from srtgen.document import Document
from srtgen.errors import Path
from srtgen.model import HUB, Mount, Served, given_mounts, host_path
from srtgen.profile import Profile
from srtgen.recipe import Recipe, Role, Setting
from srtgen.report import Report
from srtgen.words import Var, Word, word

HOME = "HF_HOME"
# The folder of the snapshots: by the first of these, else below HF_HOME.
FOLDERS = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
OFFLINE = "HF_HUB_OFFLINE"
CONTAINER_HOME = "/hf_cache"
# A second copy of the weights in another form, which no engine here loads.
IGNORED = ("original/*", "metal/*", "*.pth", "*.onnx", "*.gguf", "*.h5", "*.msgpack")
# Code of models: every process its own, as several write it at once.
OWN_FOLDERS = {"HF_MODULES_CACHE": "modules"}


class Cache(NamedTuple):
    """Where the snapshots are: `seen` as the workers see it, `host` on the node; "" where nothing says.

    `mount` and `env` are what the profile's hf_cache adds to containers and to every process; `by` is the recipe's
    own setting that names the cache.
    """

    seen: str = ""
    host: str = ""
    read_only: bool = False
    mount: Mount | None = None
    env: Mapping[str, Word] = {}
    by: Setting | None = None


class Hub(NamedTuple):
    """`prefetch`: none; shared, by one node; local, by each node for itself. `cache` is () for a local model."""

    cache: Cache = Cache()
    prefetch: str = "none"

    @property
    def folders(self) -> Mapping[str, str]:
        """Folders that each process has below its own work folder."""
        return OWN_FOLDERS if self.cache.env else {}


def find(recipe: Recipe, profile: Profile) -> Cache:
    """The cache of the recipe's workers on a site; the recipe's own variables come before the profile's hf_cache."""
    contained, root = RUNTIMES[profile.runtime].contained, profile.hf_cache
    by = _named(recipe)
    if by is None:
        if not root:
            return Cache()
        home = CONTAINER_HOME if contained else root
        env = {HOME: word(home), **{name: word(f"{home}/hub") for name in FOLDERS}}
        mount = Mount(root, CONTAINER_HOME, False) if contained else None
        return Cache(f"{home}/hub", f"{root}/hub", mount=mount, env=env)
    if not isinstance(by.value, str) or not by.value.startswith("/"):
        return Cache(by=by)
    seen = f"{by.value.rstrip('/')}/hub" if by.key == HOME else by.value.rstrip("/")
    if not contained:
        return Cache(seen, seen, by=by)
    mounts = given_mounts(recipe, profile)
    host, read_only = host_path(seen, mounts)
    home = seen.removesuffix("/hub")
    if not host and root:
        return Cache(seen, root + seen.removeprefix(home), mount=Mount(root, home, False), by=by)
    return Cache(seen, host, read_only, by=by)


def _named(recipe: Recipe) -> Setting | None:
    """The recipe's setting that decides on the folder."""
    every = [*recipe.environment, *(s for role in recipe.roles for s in role.env)]
    return next((s for name in (*FOLDERS, HOME) for s in every if s.key == name), None)


def resolve(recipe: Recipe, profile: Profile, served: Served | None, report: Report) -> Hub:
    """The cache of a hub model, and the prefetch that the profile asks for."""
    if served is None or served.folder:
        return Hub()
    cache = find(recipe, profile)
    if recipe.model.offline or profile.hf_cache or profile.prefetch != "none":
        _check_roles(recipe, report)
    _check_host(cache, profile, report)
    if recipe.model.offline:
        if not cache.seen:
            report.error(recipe.document, ("model", "offline"), f"nothing says where the model is: {_advice(cache)}")
        return Hub(cache)
    if profile.prefetch == "none":
        return Hub(cache)
    assert profile.document is not None
    where: tuple[Document, Path] = (profile.document, ("model_prefetch",))
    if off := [s for s in recipe.environment if s.key == OFFLINE and s.value not in ("0", 0, "")]:
        report.error(*where, f"the recipe's {off[0].place} forbids the network, without which nothing is fetched")
    elif not cache.host:
        report.error(*where, f"nothing says where {HUB}{served.argument} goes: {_advice(cache)}")
    elif cache.read_only:
        report.error(*where, f"{cache.seen} is mounted read-only; {HUB}{served.argument} is written there")
    return Hub(cache, profile.prefetch)


def _advice(cache: Cache) -> str:
    if cache.by is None:
        return f"write hf_cache into the cluster profile, or {HOME} into the recipe's environment"
    if not cache.seen:
        return f"{cache.by.key} ({cache.by.place}) is no absolute folder; write the folder itself"
    return f"{cache.by.key} is {cache.by.value}, which is in no mount; write hf_cache into the cluster profile, or mount a folder there"


def _check_roles(recipe: Recipe, report: Report) -> None:
    """One cache for all workers."""
    named = {role.name: _cache_names(recipe, role) for role in recipe.roles}
    first, *others = recipe.roles
    for role in others:
        for key in (HOME, *FOLDERS):
            one, other = named[first.name].get(key), named[role.name].get(key)
            if one != other:
                message = f"{key} is {one or 'unset'} for {first.name} and {other or 'unset'} for {role.name}; all workers read one cache"
                report.error(recipe.document, role.path, message, at_key=True)


def _cache_names(recipe: Recipe, role: Role) -> dict[str, object]:
    return {s.key: s.value for s in (*recipe.environment, *role.env) if s.key in (HOME, *FOLDERS)}


def _check_host(cache: Cache, profile: Profile, report: Report) -> None:
    """Without containers nothing can stand for the recipe's folder."""
    root = profile.hf_cache
    if not root or cache.by is None or RUNTIMES[profile.runtime].contained or cache.seen in (root, f"{root}/hub"):
        return
    message = f"{cache.by.key} is {cache.by.value} and the profile's hf_cache {root}; without containers they are one folder: leave one out"
    report.error(cache.by.document, cache.by.path, message)


def prefetch_lines(served: Served, contained: bool) -> tuple[tuple[Word, ...], ...]:
    """The command that fetches the model, one flag a line."""
    script = word("/srtgen" if contained else Var("SRTGEN_BUNDLE"), "/lib/prefetch_model.py")
    return (
        (word("python3"),),
        (word("-B"),),
        (script,),
        (word("--repo"), word(served.argument)),
        *((word("--ignore"), word(pattern)) for pattern in IGNORED),
    )
