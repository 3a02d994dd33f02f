"""Which days an engine's build can be of: what the recipe says, else what the image's tag says."""

import re
from functools import lru_cache
from typing import NamedTuple

# ATOM 2026-07-02: the newest tag is v0.1.6-rc0. Builds between tags count on from an older one, so that only a plain
# release number bounds the date.
NEWEST_RELEASE, NEWEST_RELEASE_DATE = (0, 1, 6), "2026-07-02"

# Patterns stay text: a recipe needs one of them, and compiling both would be paid by each.
_ISO = r"(20[0-9]{2})-?(0[1-9]|1[0-2])-?(0[1-9]|[12][0-9]|3[01])"
_STAMP = rf"(?:^|[^A-Za-z0-9])(?:nightly_|atom(?:esh)?(?:[0-9][0-9a-z.]*_|_)?){_ISO}(?:[0-9]{{4}})?(?![0-9])(.*)\Z"
_RELEASE = r"v?([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})(?:-?rc[0-9]{1,4})?\Z"
_FILE_ENDS = frozenset({"", ".sqsh", ".squashfs", ".sif", ".tar"})


class Version(NamedTuple):
    """The build is of no day before `earliest` and none behind `latest` (ISO days, None: not known).

    `certain` is false for builds of a branch, which may lack what the main line had, or have more. `words` say it.
    """

    earliest: str | None
    latest: str | None
    certain: bool
    words: str

    @property
    def date(self) -> str | None:
        """The day, where it is known."""
        return self.latest if self.earliest == self.latest else None

    def surely_before(self, day: str) -> bool:
        return self.latest is not None and self.latest < day

    def surely_since(self, day: str) -> bool:
        return self.earliest is not None and self.earliest >= day


@lru_cache(maxsize=64)
def version(stated: str | None, image: str) -> Version:
    """What `engine.version` and the image's tag tell of the build."""
    return _stated(stated) if stated else _tagged(image)


def _stated(text: str) -> Version:
    if iso := re.fullmatch(_ISO, text):
        day = "-".join(iso.groups())
        return Version(day, day, True, f"engine.version is {day}")
    found = re.match(_RELEASE, text)
    if found and tuple(map(int, found.groups())) <= NEWEST_RELEASE:
        return Version(None, NEWEST_RELEASE_DATE, True, f"release {text} is not newer than {NEWEST_RELEASE_DATE}")
    return Version(None, None, True, f"engine.version {text[:40]} tells no date")


def _tagged(image: str) -> Version:
    name = image.split("@", 1)[0].rsplit("/", 1)[-1]
    found = re.search(_STAMP, name, re.DOTALL)
    if not found:
        return Version(None, None, True, "the image tells no date")
    *parts, rest = found.groups()
    day = "-".join(parts)
    if rest in _FILE_ENDS:
        return Version(day, day, True, f"the image is of {day}")
    return Version(day, day, False, f"the image is a branch build of {day}")
