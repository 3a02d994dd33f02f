"""Which day an engine's build is of: the recipe's word, the image's tag, or nobody's."""

from __future__ import annotations

import pytest

from srtgen.engines.dates import version

JUNE = ("2026-06-10", "2026-06-10", True)
UNKNOWN = (None, None, True)


@pytest.mark.parametrize(
    ("stated", "image", "expected"),
    [
        (None, "rocm/atom-dev:nightly_202606101403", JUNE),
        (
            None,
            "rocm/atom:rocm7.2.4_ubuntu24.04_py3.12_pytorch_release_2.10.0_atom0.1.4_202607091539",
            ("2026-07-09", "2026-07-09", True),
        ),
        (
            None,
            "rocm/atom:rocm7.2.3_ubuntu24.04_py3.12_pytorch_release_2.10.0_atom20260511",
            ("2026-05-11", "2026-05-11", True),
        ),
        (
            None,
            "rocm/atom:rocm7.2.4_ubuntu24.04_py3.12_pytorch_release_2.10.0_atomesh_202607121715",
            ("2026-07-12", "2026-07-12", True),
        ),
        (None, "registry:5000/rocm/atom-dev:nightly_202606101403@sha256:0123", JUNE),
        (None, "/images/rocm_atom-dev_nightly_202606101403.sqsh", JUNE),
        (None, "rocm+atom-dev+nightly_202606101403.sif", JUNE),
        # builds of a branch
        (None, "rocm/atom-dev:nightly_202605171131-mooncake_build", ("2026-05-17", "2026-05-17", False)),
        # tags that tell no date
        (None, "rocm/atom:rocm7.2.4_ubuntu24.04_py3.12_pytorch_release_2.10.0_atom0.1.3", UNKNOWN),
        (None, "rocm/atom:rocm7.2.2_ubuntu24.04_py3.12_pytorch_release_2.10.0_atom0.1.2.post", UNKNOWN),
        (None, "rocm/atom-dev:ubuntu24.04_py3.12_pytorch_release_2.10.0_kimi_k3_agentic_0820", UNKNOWN),
        (None, "rocm/atom-dev:MiniMax-M3-20260619", UNKNOWN),
        (None, "rocm/atom-dev:nightly_202613101403", UNKNOWN),
        (None, "rocm/atom-dev:nightly_2026061014031", UNKNOWN),
        (None, "rocm/atom-dev:latest", UNKNOWN),
        (None, "", UNKNOWN),
        # the recipe's word goes first
        ("2026-06-10", "rocm/atom-dev:nightly_202608201032", JUNE),
        ("20260610", "any", JUNE),
        ("0.1.4", "any", (None, "2026-07-02", True)),
        ("v0.1.6-rc0", "any", (None, "2026-07-02", True)),
        ("0.1.7", "any", UNKNOWN),
        ("0.1.4.dev113+g5837907f3", "any", UNKNOWN),
        ("2026-13-01", "any", UNKNOWN),
        ("main", "any", UNKNOWN),
    ],
)
def test_version(stated: str | None, image: str, expected: tuple[str | None, str | None, bool]) -> None:
    assert version(stated, image)[:3] == expected


def test_days() -> None:
    known = version(None, "x:nightly_202606101403")
    assert (known.date, known.surely_before("2026-06-10"), known.surely_before("2026-06-11")) == (
        "2026-06-10",
        False,
        True,
    )
    assert (known.surely_since("2026-06-10"), known.surely_since("2026-06-11")) == (True, False)
    release = version("0.1.4", "x")
    assert (release.date, release.surely_before("2026-07-03"), release.surely_since("2026-01-01")) == (
        None,
        True,
        False,
    )
