"""What went wrong for people who do this job, by the number of the case, as far as a generator can say it before.

Each row: the case, what is changed in tests/rules/base.yaml, and a text that one finding must hold (severity, place or
message); `-` before the text means that no finding may hold it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from examples import BASES, errors, findings, laid_over, of_profile
from srtgen import generate
from srtgen.generate import Source

CASES = [
    # 001 unpadded time limits: text for us, an integer is refused
    ("001", "slurm: {time_limit: 8:00:00}", "-error"),
    ("001", "slurm: {time_limit: 4:00}", "deadline-over-limit"),  # four minutes, not 240
    ("001", "slurm: {time_limit: 08:00:00}", "-error"),
    ("001", "slurm: {time_limit: 90}", "error: slurm.time_limit: expected a Slurm time"),
    ("001", "slurm: {time_limit: 90.0}", "error: slurm.time_limit: expected a Slurm time"),
    # 003 whole numbers with a fraction
    ("003", "roles: {decode: {nodes: 2.0}}", "error: roles.decode.nodes: "),
    ("003", "ports: {router: 8000.0}", "error: ports.router: 8000.0 is not a whole number as written; write 8000"),
    ("003", "benchmark: {concurrencies: [16.0]}", "error: benchmark.concurrencies"),
    (
        "003",
        "roles: {decode: {args: {max-num-seqs: 8.0}}}",
        "error: roles.decode.args.max-num-seqs: expected a whole number; got 8.0",
    ),
    # 004 exponents without a sign
    ("004", "benchmark: {req_rate: 1e1}", "-error"),
    ("004", "roles: {decode: {args: {gpu-memory-utilization: 9e-1}}}", "-error"),
    (
        "004",
        "roles: {decode: {args: {max-num-seqs: 1e3}}}",
        "error: roles.decode.args.max-num-seqs: expected a whole number",
    ),
    # 006 versions that lose a zero
    ("006", "model: {container: 0.10}", "error: model.container: expected text"),
    ("006", "engine: {version: 3.10}", "error: engine.version: expected text"),
    # 007 on, off, yes, no
    ("007", "environment: {FEATURE_X: on, FEATURE_Y: no}", "-error"),
    ("007", "environment: {FEATURE_X: true}", "error: environment.FEATURE_X: expected text or a whole number"),
    ("007", "roles: {decode: {args: {cudagraph-mode: off}}}", "off is not one of NONE, "),
    # 009 false on a flag
    ("009", "roles: {decode: {args: {enable-chunked-prefill: false}}}", "-error"),
    ("009", "roles: {decode: {args: {enforce-eager: false}}}", "has no negative form; remove the key"),
    ("009", "roles: {decode: {args: {block-size: null}}}", "-block-size"),
    (
        "009",
        "roles: {decode: {args: {enable-prefix-caching: true, no-enable-prefix-caching: true}}}",
        "the same flag as",
    ),
    # 011 JSON that lost its quotes
    (
        "011",
        "roles: {decode: {args: {hf-overrides: '{use_cache:true}'}}}",
        "error: roles.decode.args.hf-overrides: not JSON",
    ),
    # 017 special characters in directives
    ("017", 'name: "sweep(4,8)#1"', "error: name: "),
    ("017", 'slurm: {partition: "gpu\\n#SBATCH --nodes=99"}', "error: slurm.partition: "),
    ("017", 'slurm: {partition: "gpu\\n"}', "error: slurm.partition: "),
    # 020 unknown keys
    ("020", "roles: {decode: {gpu_per_node: 4}}", "error: roles.decode.gpu_per_node: unknown key"),
    ("020", "gpus_per_node: 8", "its place is resources.gpus_per_node"),
    # 021 quoted booleans
    ("021", 'model: {offline: "false"}', "write it without quotes"),
    # 024 flags that the image does not know
    (
        "024",
        "roles: {decode: {args: {disable-radix-cache: true}}}",
        "error: roles.decode.args.disable-radix-cache: not a flag of ATOM",
    ),
    ("024", "roles: {decode: {args: {max-num-batched: 4096}}}", "argparse would take it for max-num-batched-tokens"),
    (
        "024",
        "model: {container: rocm/atom-dev:nightly_202606101403}",
        "not known to ATOM before 2026-07-16, the image is of 2026-06-10; write kv_cache_dtype",
    ),
    (
        "024",
        "frontend: {args: {polcy: random}}",
        "warning: frontend.args.polcy: not a flag of AToMesh that srtgen knows; did you mean policy?",
    ),
    # 030 GPUs against parallel sizes
    ("030", "roles: {decode: {gpus: 4, args: {tensor-parallel-size: 8}}}", "tensor-parallel-size is set by srtgen"),
    ("030", "roles: {decode: {gpus: 4, args: {-tp: 8}}}", "write the key without leading dashes"),
    (
        "030",
        "roles: {decode: {gpus: 8, args: {data-parallel-size: 3}}}",
        "8 GPUs are not divisible by the sizes in args",
    ),
    ("030", "roles: {decode: {gpus: 16}}", "16 is more than a node has (8)"),
    (
        "030",
        "roles: {decode: {args: {decode-context-parallel-size: 3}}}",
        "3 does not divide the tensor-parallel size, 8",
    ),
    # 033 the decode limit below the sweep
    (
        "033",
        "roles: {decode: {args: {max-num-seqs: 128}}}\nbenchmark: {concurrencies: [64, 512]}",
        "concurrency 512 is above 128",
    ),
    (
        "033",
        "roles: {decode: {nodes: 4, workers: 4, args: {max-num-seqs: 128}}}\nbenchmark: {concurrencies: [64, 512]}",
        "-concurrency-over-seqs",
    ),
    # 078 tcp with a device
    ("078", "engine: {mooncake_protocol: tcp, ib_device: rdma0}", "an RDMA device contradicts mooncake_protocol: tcp"),
    # 085 both roles on one node
    (
        "085",
        "roles: {prefill: {gpus: 4}, decode: {nodes: colocate, gpus: 4}}",
        "warning: roles.decode.nodes: prefill and decode share a node",
    ),
    # 116 policies
    ("116", "frontend: {args: {policy: cache_aware}}", "it acts as random; write random"),
    (
        "116",
        "frontend: {args: {prefill-policy: random, decode-policy: prefix_hash}}",
        "error: frontend.args.decode-policy: answers 503",
    ),
    ("116", "frontend: {args: {policy: power_of_two}}", "the router does not start"),
    # 118 limits of the router
    ("118", "frontend: {args: {request-timeout-secs: 0}}", "0 is below the least value, 1"),
    # 120 flags of the wrong mode
    ("120", "roles: {prefill: null}", "prefill and decode come together"),
    ("120", "roles: {agg: {nodes: 1, workers: 1, gpus: 8}}", "agg excludes prefill and decode"),
    ("120", "frontend: {args: {pd-disaggregation: true}}", "pd-disaggregation is set by srtgen"),
    ("120", "frontend: {args: {dp-aware: true}}", "no worker has data-parallel ranks"),
]


@pytest.mark.parametrize(("case", "part", "said"), CASES, ids=[f"{n}-{case}" for n, (case, _, _) in enumerate(CASES)])
def test_case(case: str, part: str, said: str) -> None:
    lines = [f"{p.text()} [{p.code}]" for p in findings(laid_over("recipe", part))]
    if said.startswith("-"):
        assert not any(said[1:] in line for line in lines), lines
    else:
        assert any(said in line for line in lines), lines


TEXTS = [
    ("018", "name: example\n", "name: example\nname: other\n", "duplicate key, first used on line"),
    ("018", "benchmark:\n", "roles: {}\nbenchmark:\n", "duplicate key, first used on line"),
    ("023", "\n", "\r\n", "-"),
    ("023", "# What", "\ufeff# What", "-"),
    (
        "015",
        "  type: sa-bench\n  isl: 1024\n  osl: 1024\n  concurrencies: [8]\n",
        "  type: custom\n  command: |\n    EOF\n    echo `x` \\\\n \\\n",
        "-",
    ),
]


@pytest.mark.parametrize(("case", "old", "new", "said"), TEXTS)
def test_case_in_the_text(case: str, old: str, new: str, said: str) -> None:
    found = findings(BASES["recipe"].read_text().replace(old, new))
    assert (errors(found) == []) if said == "-" else any(said in line for line in errors(found)), found


@pytest.mark.parametrize("value", ["0x3", '"3"', 3.0])
def test_case_080_gid_index(value: Any) -> None:
    profile = laid_over("cluster", f"rdma: {{gid_index: {value}}}")
    assert any("rdma.gid_index" in line for line in errors(of_profile(profile)))


@pytest.mark.parametrize(
    ("case", "part"),
    [
        ("025", "roles: {prefill: {workers: 2, gpus: 4}, decode: {workers: 8, gpus: 1}}"),
        ("027", "roles: {prefill: {nodes: 2, workers: 4, gpus: 2, args: {data-parallel-size: 2}}}"),
        ("029", "roles: {prefill: {nodes: 1, workers: 1, gpus: 4}, decode: {nodes: colocate, gpus: 4}}"),
        ("029", "roles: {prefill: {nodes: 2, workers: 2}}"),
    ],
)
def test_ports_of_a_node_are_disjoint(case: str, part: str) -> None:
    content = json.dumps(laid_over("recipe", part)).encode()
    plan = generate.bundle(Source("recipe.yaml", "recipe.yaml", content), None, []).plan
    taken: dict[tuple[int, int], str] = {}
    for listener in plan.listeners:
        for port in range(listener.first, listener.last + 1):
            name = f"{listener.owner} {listener.key}"
            assert taken.setdefault((listener.node, port), name) == name
    assert len(taken) > 4
