"""The model, images and mounts: where they come from, and the one name that the model is served under."""

from typing import NamedTuple

from srtgen import staging
from srtgen.document import Document
from srtgen.engines import Engine
from srtgen.environment import placeholder
from srtgen.errors import Path
from srtgen.profile import Profile
from srtgen.recipe import Recipe, Role
from srtgen.report import Report
from srtgen.adapters import RUNTIMES

HUB = "hf:"
CONTAINER_MODEL = "/model"
# The store of compiled kernels, where the profile has one.
JIT_STORE = "/srtgen-jit"
# Where the bundle, the results and the logs stand inside every container.
RESERVED = ("/srtgen", "/srtgen-results", "/logs", JIT_STORE)


class Served(NamedTuple):
    """`argument` is the literal `--model`; `folder` the host folder of a local model, "" for a Hugging Face id;
    `staged` the nodes' own copy of it, "" without one; `name` is what readiness, benchmark and evaluation ask for."""

    argument: str
    folder: str
    name: str = ""
    staged: str = ""

    @property
    def kind(self) -> str:
        return "local" if self.folder else "hub"


class Mount(NamedTuple):
    source: str
    target: str
    read_only: bool

    @property
    def text(self) -> str:
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


def image(container: str, profile: Profile) -> str:
    """The image of a recipe's container: the profile's alias, else as written."""
    return profile.containers.get(container, container)


def resolve(recipe: Recipe, profile: Profile, report: Report) -> Served | None:
    """The model by the recipe's path; None after an error."""
    where: tuple[Document, Path] = (recipe.document, ("model", "path"))
    path = recipe.model.path
    if path in profile.model_paths and profile.document:
        where, path = (profile.document, ("model_paths", path)), profile.model_paths[path]
    if (found := placeholder(path)) is not None:
        report.error(*where, f"{found} is not expanded; write the path itself")
    elif path.startswith(HUB):
        if path.count("/") == 1 and not path.endswith("/") and " " not in path:
            staging.refuse_hub(recipe, report)
            return Served(path.removeprefix(HUB), "")
        report.error(*where, f"{path} is no Hugging Face id; write hf:org/name")
    elif path.endswith("/"):
        report.error(*where, f"a trailing / would become part of the served name; write {path.rstrip('/') or '/...'}")
    elif path.startswith("/"):
        contained = RUNTIMES[profile.runtime].contained
        staged = staging.destination(recipe, path, report)
        return Served(CONTAINER_MODEL if contained else staged or path, path, staged=staged)
    else:
        known = f"; aliases of the profile: {', '.join(profile.model_paths)}" if profile.model_paths else ""
        report.error(*where, f"{path} is neither hf:org/name, an absolute folder nor an alias{known}")
    return None


def name(engine: Engine, roles: tuple[Role, ...], served: Served, report: Report, recipe: Recipe) -> Served:
    """The served model with its name, which all roles must share."""
    names = {role.name: engine.served_name(role, served.argument) for role in roles}
    first = roles[0]
    for role in roles[1:]:
        if names[role.name] != names[first.name]:
            message = f"{role.name} would serve {names[role.name]} and {first.name} {names[first.name]}; one name is needed"
            report.error(recipe.document, (*role.path, "args"), message, at_key=True)
    return served._replace(name=names[first.name])


def mounts(
    recipe: Recipe, profile: Profile, served: Served | None, cache: Mount | None, report: Report
) -> tuple[Mount, ...]:
    """The model's mount, the hub cache's, the profile's and the recipe's; () under a runtime without containers."""
    runtime = RUNTIMES[profile.runtime]
    images(recipe, profile, report)
    if not runtime.contained:
        return ()
    placed: list[tuple[Mount, Document, Path]] = []
    if served and served.folder:
        where = ("model", "stage_dir" if served.staged else "path")
        placed.append((Mount(served.staged or served.folder, CONTAINER_MODEL, True), recipe.document, where))
    if cache and profile.document:
        placed.append((cache, profile.document, ("hf_cache",)))
    for source, target in profile.mounts:
        assert profile.document is not None
        placed.append((_mount(f"{source}:{target}"), profile.document, ("default_mounts", source)))
    placed.extend((_mount(text), recipe.document, path) for text, path in recipe.mounts)
    taken: dict[str, str] = {}
    for mount, document, path in placed:
        problem = _problem(mount, taken) or runtime.path_problem(mount.source) or runtime.path_problem(mount.target)
        if problem:
            report.error(document, path, problem)
        taken[mount.target] = mount.source
    store = [Mount(profile.jit_cache[0], JIT_STORE, False)] if profile.jit_cache else []
    return (*(mount for mount, _, _ in placed), *store)


def given_mounts(recipe: Recipe, profile: Profile) -> list[Mount]:
    """The mounts that the profile and the recipe write down."""
    texts = [f"{source}:{target}" for source, target in profile.mounts] + [text for text, _ in recipe.mounts]
    return [_mount(text) for text in texts]


def host_path(path: str, among: list[Mount]) -> tuple[str, bool]:
    """What a container's path is on the host, and whether it is read-only; ("", False) if no mount holds it."""
    held = [m for m in among if path == m.target or path.startswith(m.target.rstrip("/") + "/")]
    if not held:
        return "", False
    mount = max(held, key=lambda m: len(m.target))
    return mount.source + path[len(mount.target.rstrip("/")) :], mount.read_only


def _mount(text: str) -> Mount:
    source, target, *mode = text.split(":")
    return Mount(source, target, mode == ["ro"])


def _problem(mount: Mount, taken: dict[str, str]) -> str | None:
    if found := placeholder(mount.source) or placeholder(mount.target):
        return f"{found} is not expanded; write the path itself"
    if mount.target in RESERVED or any(mount.target.startswith(f"{r}/") for r in RESERVED):
        return f"{mount.target} is taken by the job itself"
    if mount.target in taken:
        return f"{mount.target} is already the target of {taken[mount.target]}"
    return None


def image_places(recipe: Recipe) -> list[tuple[str, Path]]:
    """Each image that the recipe names with its place; model.container, which the others default to, only once."""
    default: tuple[str, Path] = (recipe.model.container, ("model", "container"))
    others: list[tuple[str, Path]] = [
        (recipe.frontend.container, ("frontend", "container_image")),
        (recipe.benchmark.container, ("benchmark", "container_image")),
        *((role.container, (*role.path, "container")) for role in recipe.roles),
    ]
    return [default, *(place for place in others if place[0] != default[0])]


def images(recipe: Recipe, profile: Profile, report: Report) -> None:
    """Image references that cannot be what they say."""
    for container, path in image_places(recipe):
        if container.startswith("."):
            report.error(recipe.document, path, f"{container} is relative; write an absolute path or an image reference")
        elif (found := placeholder(container)) is not None:
            report.error(recipe.document, path, f"{found} is not expanded; write the image itself")
        elif problem := RUNTIMES[profile.runtime].image_problem(image(container, profile)):
            report.error(recipe.document, path, problem)
