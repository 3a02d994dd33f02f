"""`srtgen plan`: tables, commands that can be pasted, JSON; and the README's diagram."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run_here
from shipped import ROOT

from srtgen import generate, planview, topology
from srtgen.console import read

RECIPES = sorted((ROOT / "recipes" / "atom").glob("*.yaml"))
SHARED = ROOT / "recipes" / "atom" / "qwen3-0.6b-1p1d-shared-node.yaml"
PAIR = ROOT / "recipes" / "atom" / "qwen3-0.6b-1p1d-tp1.yaml"
BIG = ROOT / "recipes" / "atom" / "dsv4-pro-fp4-mi355x-2p1d-dpa-tp8-8k1k.yaml"
# Prints argv and the environment's settings instead of running the program.
RECORDER = f"""#!{sys.executable}
import json, os, sys
print(json.dumps(dict(argv=[os.path.basename(sys.argv[0]), *sys.argv[1:]], env=dict(os.environ))))
"""


def made(recipe: Path, *sets: str) -> generate.Bundle:
    return generate.bundle(read(recipe), None, [("set", text) for text in sets])


@pytest.mark.parametrize("recipe", [SHARED, BIG], ids=lambda p: p.stem)
def test_pasted_commands_run_what_the_manifest_says(recipe: Path, tmp_path: Path) -> None:
    """Each command goes through a real shell, with a program of the same name that only records."""
    odd = "environment.ODD=\"it's `x` ! \\\"q\\\" \\\\ *\\nline two\""
    bundle = made(recipe, odd)
    processes = json.loads(bundle.files["manifest.json"].content)["processes"]
    for name in {p["argv"][0] for p in processes}:
        (tmp_path / name).write_text(RECORDER)
        (tmp_path / name).chmod(0o755)
    known = {"SLURM_JOB_ID": "7", "SRTGEN_RESULTS": "/r", **{f"NODE_{n}_ADDR": f"10.0.0.{n}" for n in range(3)}}
    router = f"NODE_{bundle.plan.router.node}_ADDR"
    values = {**known, "SRT_FRONTEND_HOST": known[router], "SRT_FRONTEND_PORT": "8000"}
    commands = [command for _, command in planview.commands(bundle.plan)]
    assert len(commands) == len(processes)
    for process, command in zip(processes, commands):
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HIP_VISIBLE_DEVICES": "9", **known}
        done = subprocess.run(["bash", "-euc", command], env=env, capture_output=True, text=True, check=True)
        ran = json.loads(done.stdout)

        def filled(text: str) -> str:
            return re.sub(r"\$\{(\w+)\}", lambda m: values.get(m[1], m[0]), text)

        assert ran["argv"] == [filled(word) for word in process["argv"]]
        assert {name: ran["env"].get(name) for name in process["env"]} == {n: filled(v) for n, v in process["env"].items()}
        assert ran["env"].get("HIP_VISIBLE_DEVICES") == process["env"].get("HIP_VISIBLE_DEVICES")


def test_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = run_here(["plan", str(SHARED)], monkeypatch, capsys)
    assert code == 0
    rows = {line.split()[0]: line.split()[1:4] for line in printed.out.splitlines() if line.startswith("  ") and "rocm/" in line}
    assert rows["prefill_0"][:2] == ["0", "http=6100"] and rows["decode_0"][:2] == ["1", "http=6132"]
    assert "node 0, address ${NODE_0_ADDR}, idle GPUs: 2-7" in printed.out
    assert "--nodes=1" in printed.out


def test_json_of_several(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = run_here(["plan", str(SHARED), str(PAIR), "--format", "json"], monkeypatch, capsys)
    content = json.loads(printed.out)
    assert code == 0 and content["schema"] == "srtgen/plan/1"
    one, two = content["plans"]
    assert [len(plan["nodes"]) for plan in (one, two)] == [1, 2]
    steps = [p["step"] for node in two["nodes"] for p in node["processes"]]
    assert sorted(set(steps)) == ["atomesh_0", "bench", "decode_0", "prefill_0"]
    assert one["nodes"][0]["idle_gpus"] == [2, 3, 4, 5, 6, 7]


def test_wrong_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yaml").write_text("schema: 2\n")
    code, printed = run_here(["plan", str(tmp_path / "x.yaml")], monkeypatch, capsys)
    assert code == 1 and "missing key roles" in printed.err and printed.out == ""


def arrows(diagram: str) -> set[tuple[str, str]]:
    """(from, to) of every arrow, `a & b` taken apart."""
    found = set()
    for line in diagram.splitlines():
        if match := re.fullmatch(r"  ([\w &]+) (?:-->|==>)(?:\|[^|]*\|)? ([\w &]+)", line):
            found |= {(a, b) for a in match[1].split(" & ") for b in match[2].split(" & ")}
    return found


def test_diagram_shows_nodes_slots_and_flow() -> None:
    diagram = topology.mermaid(made(SHARED).plan)
    assert arrows(diagram) == {("bench", "atomesh_0"), ("atomesh_0", "prefill_0"), ("prefill_0", "decode_0")}
    assert 'decode_0["<b>decode_0</b><br/>GPU 1<br/>□■□□□□□□<br/>port 6132"]:::decode' in diagram
    assert "KV cache: mooncake, tcp" in diagram and "rdma (default)" in topology.mermaid(made(BIG).plan)


def test_many_pairs_meet_in_one_box() -> None:
    sets = [f"roles.{role}.{key}={n}" for role, n in (("prefill", 3), ("decode", 2)) for key in ("nodes", "workers")]
    flow = arrows(topology.mermaid(made(PAIR, *sets).plan))
    assert {("prefill_2", "kv"), ("kv", "decode_1")} <= flow and ("prefill_0", "decode_0") not in flow


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda p: p.stem)
def test_diagram_is_well_formed(recipe: Path) -> None:
    """Every subgraph ends, every name in an arrow or class is declared, every process is in its node's box."""
    bundle = made(recipe)
    lines = topology.mermaid(bundle.plan).splitlines()
    assert lines[0] == "flowchart LR"
    assert sum(line.startswith("  subgraph ") for line in lines) == sum(line == "  end" for line in lines)
    boxes = dict(m.groups() for line in lines if (m := re.search(r'^ +(\w+)[\[{].*:::(\w+)$', line)))
    assert {p.step for p in (*bundle.plan.workers, bundle.plan.router, bundle.plan.client)} <= set(boxes)
    assert {name for pair in arrows("\n".join(lines)) for name in pair} <= set(boxes)
    assert set(boxes.values()) <= {line.split()[1] for line in lines if line.startswith("  classDef ")}


def test_readme_answers_a_reviewer() -> None:
    """Which process runs where, with which command and ports, what is measured, what makes it fail."""
    text = made(BIG).files["README.md"].content.decode()
    assert "| decode\\_0 | 2 | 0,1,2,3,4,5,6,7 | http 6100" in text
    assert "  --max-num-seqs 2048 \\\n" in text and "atomesh launch" in text
    for heading in ("## What runs where", "## Commands", "## What is measured", "## What makes it fail", "## Results"):
        assert heading in text
    assert "not ready after 3600 s (12)" in text and "`OutOfMemoryError`" in text
