"""lib/checks.sh: the names of the preflight's checks, and those that the operator skips."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jobs.running import act, judge, shown
from jobs.shell import LIB

sys.path.insert(0, str(LIB))
import node_check  # noqa: E402  (found only by the path above)

MINE = "PLAN_PREFLIGHT_COMMANDS=($'my_disk\\ttest -e \"/x y\"' $'fabric\\ttrue')"
SKIPPED = [("", []), (" \n ", []), ("ports", ["ports"]), (" gpu_memory\tports \n nodes ", ["gpu_memory", "ports", "nodes"]), ("fabric my_disk", ["fabric", "my_disk"]),
           ("containers bundle", ["containers", "bundle"])]


@pytest.mark.parametrize(("asked", "skipped"), SKIPPED)
def test_the_checks_that_the_operator_skips(asked: str, skipped: list[str], tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "result_skipped=(old)\nread_skipped_checks", "start", plan=MINE, env={"SRTGEN_SKIP_CHECKS": asked})
    assert (rc, result["checks_skipped"]) == (0, skipped)


@pytest.mark.parametrize(("asked", "name"), [("gpu_memroy", "gpu_memroy"), ("disk port", "port"), ("disk,ports", "disk,ports"), ("*", "*"), ("p?rts", "p?rts"), ("test", "test"),
                                             ("ports\nNodes", "Nodes"), ("true", "true"), ("-n", "-n")])
def test_a_check_that_is_none(asked: str, name: str, tmp_path: Path) -> None:
    """No file of the folder is taken for a name: here they have the names of checks."""
    (tmp_path / "disk").touch()
    (tmp_path / "ports").touch()
    rc, result = judge(tmp_path, "read_skipped_checks", "start", plan=MINE, env={"SRTGEN_SKIP_CHECKS": asked})
    assert (rc, result["checks_skipped"]) == (10, [])
    names = "nodes bundle tools image model mounts disk ports gpu_count gpu_memory cpus limits rdma containers my_disk fabric"
    assert result["reason"] == f"SRTGEN_SKIP_CHECKS: {name} is no check; give some of these, with blanks between them: {names}"


def test_the_names_of_the_shell_are_those_of_the_nodes(tmp_path: Path) -> None:
    text = 'check_names=(old)\ncollect_check_names\nshow "${check_names[@]}"'
    (names,) = shown(act(tmp_path, text, plan=MINE))
    assert sorted(names.split()[:-2]) == sorted(name for name, _ in node_check.CHECKS) and names.split()[-2:] == ["my_disk", "fabric"]


@pytest.mark.parametrize(("skipped", "name", "is_skipped"), [("", "ports", "no"), ("ports", "ports", "yes"), ("disk ports", "ports", "yes"), ("gpu_memory", "gpu", "no")])
def test_a_check_that_the_operator_skips(skipped: str, name: str, is_skipped: str, tmp_path: Path) -> None:
    assert shown(act(tmp_path, f"result_skipped=({skipped})\nif check_skipped {name}; then show yes; else show no; fi")) == [is_skipped]
