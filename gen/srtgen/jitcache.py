"""Compiled kernels kept between jobs (profile: jit_cache): where a worker finds the store, and its own folders."""

from typing import Mapping

from srtgen.adapters import RUNTIMES
from srtgen.environment import Environment, placeholder
from srtgen.model import JIT_STORE
from srtgen.plan import work_folder
from srtgen.profile import Profile
from srtgen.report import Report
from srtgen.words import Param, Word, word

FOLDER = "SRTGEN_JIT_FOLDER"
PLACE = ("jit_cache", "dir")
# Compilers write absolute paths into their caches (Triton into each kernel's group file): the folders must lie at the
# same place in every job. A worker's position on its node keeps those of one node apart where containers share /tmp.
_FIXED = "/tmp/srtgen-jit/"
_CACHE = "cache/"


def check(profile: Profile, report: Report) -> None:
    """A store that no job could use."""
    if profile.jit_cache is None or profile.document is None:
        return
    folder, runtime = profile.jit_cache[0], RUNTIMES[profile.runtime]
    problem = runtime.path_problem(folder) if runtime.contained else None
    if (found := placeholder(folder)) is not None:
        problem = f"{found} is not expanded; write the path itself"
    elif folder.endswith("/") or "/../" in f"{folder}/" or "//" in folder:
        problem = f"{folder} is not a plain path; write an absolute one without .. and without a / at its end"
    elif f"{folder}/".startswith(("/tmp/srtgen-", "/dev/", "/proc/", "/sys/")):
        problem = f"{folder} would not outlive the job; write a folder on a file system that does"
    if problem:
        report.error(profile.document, PLACE, problem)


def folder(profile: Profile, step: str, position: int) -> Word:
    """The worker's folder of caches, with a / at its end."""
    if RUNTIMES[profile.runtime].contained:
        return word(_FIXED, Param("position", str(position)), "/")
    return word(*work_folder(step), "jit/")


def environment(profile: Profile, step: str, position: int, image: str, caches: Mapping[str, str]) -> Environment:
    """The variables of a worker with a store: its data, and the engine's cache folders."""
    assert profile.jit_cache is not None
    place, max_gb = profile.jit_cache
    *head, last = own = folder(profile, step, position)
    return (
        ("SRTGEN_JIT_STORE", word(JIT_STORE if RUNTIMES[profile.runtime].contained else place)),
        ("SRTGEN_JIT_MAX_GB", word(str(max_gb))),
        ("SRTGEN_JIT_IMAGE", word(image)),
        (FOLDER, word(*head, str(last).removesuffix("/"))),
        *((name, word(*own, value.removeprefix(_CACHE))) for name, value in caches.items()),
    )
