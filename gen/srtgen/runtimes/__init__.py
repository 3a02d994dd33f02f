"""Container runtimes: what must hold at generation for each. How a container is started is lib/container.sh."""

from typing import NamedTuple

import re

_TABLE_BREAKERS = r"[\s,]"


class Runtime(NamedTuple):
    """`contained`: processes see container paths. `unmountable`: what a mounted path may not hold, and why."""

    name: str
    contained: bool
    unmountable: str = ""
    why: str = ""

    def path_problem(self, path: str) -> str | None:
        """Why this host or container path cannot be mounted, or None."""
        if self.unmountable and re.search(self.unmountable, path):
            return f"{self.name} cannot mount a path with {self.why}"
        return None


RUNTIMES = {
    # pyxis splits its mount list at commas, enroot its fstab at blanks.
    "pyxis": Runtime("pyxis", True, _TABLE_BREAKERS, "a blank or a comma"),
    "docker": Runtime("docker", True, r"[,\n]", "a comma"),
    "none": Runtime("none", False),
}
