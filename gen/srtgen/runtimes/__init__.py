"""Container runtimes: what must hold at generation for each. How a container is started is lib/container.sh."""

import re
from hashlib import sha256
from typing import Mapping, NamedTuple

_TABLE_BREAKERS = r"[\s,]"
_REFERENCE = r"^/|#"
_NO_CONTAINERS = "there are no containers"
_OWN_STORE = "{} keeps images in a store of its own, into which preflight pulls what is missing, once per node"


class Runtime(NamedTuple):
    """`contained`: processes see container paths. `unmountable`: what a mounted path may not hold, and why.

    `unusable`: what an image's name may not hold, and what it is instead. `prefix`: of a reference that names no
    transport (`://`) or registry. `storage`: where images and containers are kept unless the profile says, "" where it
    is not srtgen's business. `suffix`: of the image file that a reference can be imported into, "" where there is none.
    `refused`: keys of container_runtime that mean nothing here, and why. `scripts`: what its steps run on the host.
    """

    name: str
    contained: bool
    unmountable: str = ""
    why: str = ""
    unusable: str = ""
    wanted: str = ""
    prefix: str = ""
    storage: str = ""
    suffix: str = ""
    refused: Mapping[str, str] = {}
    scripts: tuple[str, ...] = ()

    def path_problem(self, path: str) -> str | None:
        """Why this host or container path cannot be mounted, or None."""
        if self.unmountable and re.search(self.unmountable, path):
            return f"{self.name} cannot mount a path with {self.why}"
        return None

    def image_problem(self, image: str) -> str | None:
        """Why no container can be made of this image, or None."""
        if self.unusable and re.search(self.unusable, image):
            return f"{self.name} takes {self.wanted}, not {image}"
        return None

    def reference(self, image: str) -> str:
        """The image as the runtime's own command line wants it: a file stays, a reference becomes a whole one."""
        if not self.prefix or image.startswith("/") or "://" in image:
            return image
        head, slash, _ = image.partition("/")
        if not self.prefix.endswith("://"):
            if slash and ("." in head or ":" in head or head == "localhost"):
                return image
            if not slash:
                image = f"library/{image}"
        return self.prefix + image

    def staged(self, image: str, folder: str) -> tuple[str, str] | None:
        """The file in a folder that a reference is imported into, and where from; None for what is a file already.

        The name shows the reference; the hash keeps apart what differs only in the characters that a name cannot hold.
        """
        if image.startswith("/"):
            return None
        source = image if "://" in image else f"docker://{image}"
        readable = re.sub(r"[^A-Za-z0-9._-]+", "_", source.removeprefix("docker://"))[:160]
        return f"{folder}/{readable}-{sha256(source.encode()).hexdigest()[:8]}{self.suffix}", source


RUNTIMES = {
    # pyxis splits its mount list at commas, enroot its fstab at blanks.
    "pyxis": Runtime(
        "pyxis",
        True,
        _TABLE_BREAKERS,
        "a blank or a comma",
        suffix=".sqsh",
        refused={
            "root": "write container-remap-root under default_srun_options",
            "storage": "enroot has its own settings: export ENROOT_DATA_PATH in default_bash_preamble",
        },
    ),
    "docker": Runtime(
        "docker",
        True,
        r"[,\n]",
        "a comma",
        _REFERENCE,
        "registry/name:tag",
        refused={"storage": "its daemon decides that", "stage_dir": _OWN_STORE.format("docker")},
        scripts=("lib/engine_step.sh",),
    ),
    # Without a terminal podman asks nobody which registry is meant; docker's rule is docker.io.
    # /var/tmp: on disk, and kept when a job's private /tmp goes.
    "podman": Runtime(
        "podman",
        True,
        r"[,\n]",
        "a comma",
        _REFERENCE,
        "registry/name:tag",
        prefix="docker.io/",
        storage="/var/tmp",
        refused={"stage_dir": _OWN_STORE.format("podman")},
        scripts=("lib/engine_step.sh",),
    ),
    # --mount takes a line of quoted fields.
    "apptainer": Runtime(
        "apptainer",
        True,
        r"\n",
        "a line break",
        "#",
        "an image file, or a reference such as registry/name:tag",
        prefix="docker://",
        suffix=".sif",
        refused={
            "root": "apptainer runs as the submitting user; write options: [--fakeroot]",
            "storage": "its images are files; stage_dir says where a reference becomes one",
        },
        scripts=("lib/apptainer_step.sh", "lib/host_step.sh"),
    ),
    "none": Runtime(
        "none",
        False,
        refused=dict.fromkeys(("root", "storage", "stage_dir"), _NO_CONTAINERS),
        scripts=("lib/host_step.sh",),
    ),
}
