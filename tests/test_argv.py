"""The argv of the shipped recipes: what ATOM of the image's date and AToMesh accept, and what the facts say."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from contract_parser import parse_atom, parse_atomesh
from shipped import BUNDLES, RECIPES, SMOKE, is_input, is_verbatim, made

ATOM = ["python3", "-m", "atom.entrypoints.openai_server"]
DSV4 = {"1p1d": "dsv4-pro-fp4-mi355x-1p1d-tp8-8k1k", "2p1d": "dsv4-pro-fp4-mi355x-2p1d-dpa-tp8-8k1k"}


def processes(name: str) -> list[dict[str, Any]]:
    return json.loads(made(name).files["manifest.json"].content)["processes"]


def image_date(image: str) -> str | None:
    """The date in a tag like nightly_202606101403, None (the newest known) for one that tells none."""
    found = re.search(r"(?:nightly|atomesh|atom)_?(20\d\d)(\d\d)(\d\d)", image)
    return "-".join(found.groups()) if found else None


def at(text: str) -> str:
    """The text with addresses in place of their variables."""
    return re.sub(r"\$\{NODE_(\d+)_ADDR\}", r"10.0.0.\1", text)


ATOM_BUNDLES = [n for n in BUNDLES if made(n).plan.recipe.engine.type == "atom"]


@pytest.mark.parametrize("name", ATOM_BUNDLES)
def test_every_worker_argv_is_accepted_as_of_its_image(name: str) -> None:
    workers = [p for p in processes(name) if p["role"] in ("prefill", "decode", "agg")]
    assert workers
    for process in workers:
        argv = [at(word) for word in process["argv"]]
        assert argv[:3] == ATOM
        values = parse_atom(argv[3:], image_date(process["image"]))
        assert values["server_port"] == process["ports"]["http"]
        assert ("kv_transfer_config" in values) == (process["role"] != "agg")


@pytest.mark.parametrize("name", ATOM_BUNDLES)
def test_every_router_argv_is_accepted(name: str) -> None:
    (router,) = [p for p in processes(name) if p["role"] == "atomesh"]
    values = parse_atomesh([at(word) for word in router["argv"]])
    workers = [p for p in processes(name) if p["role"] in ("prefill", "decode", "agg")]
    urls = {r: [f"http://10.0.0.{p['node']}:{p['ports']['http']}" for p in workers if p["role"] == r] for r in ("prefill", "decode", "agg")}
    assert (values["host"], values["port"], values["backend"]) == ("0.0.0.0", 8000, "atom")
    assert values.get("prefill", []) == [(url, None) for url in urls["prefill"]]
    assert values.get("decode", []) == urls["decode"]
    assert values.get("worker_urls", []) == urls["agg"]
    assert values.get("pd_disaggregation", False) == bool(urls["prefill"])


@pytest.mark.parametrize("name", ATOM_BUNDLES)
def test_kv_transfer_config_is_strict_json_in_a_fixed_order(name: str) -> None:
    protocol = made(name).plan.recipe.engine.mooncake_protocol
    for process in (p for p in processes(name) if p["role"] in ("prefill", "decode")):
        text = process["argv"][process["argv"].index("--kv-transfer-config") + 1]
        role = {"prefill": "kv_producer", "decode": "kv_consumer"}[process["role"]]
        own = f"${{NODE_{process['node']}_ADDR}}"
        tail = f',"protocol":"{protocol}"' if protocol else ""
        assert text == (
            f'{{"kv_role":"{role}","kv_connector":"mooncake","proxy_ip":"{own}",'
            f'"handshake_port":{process["ports"]["handshake"]}{tail}}}'
        )
        assert process["env"]["ATOM_HOST_IP"] == own


# DeepSeek-V4-Pro as people serve it: the flags of both roles, and what differs (facts of the launch scripts, run dry).
BOTH = {
    "--host": "0.0.0.0",
    "-tp": "8",
    "--trust-remote-code": None,
    "--kv_cache_dtype": "fp8",
    "--block-size": "16",
    "--gpu-memory-utilization": "0.85",
    "--max-model-len": "9472",
    "--no-enable_prefix_caching": None,
}
CUDAGRAPHS = {"--cudagraph-capture-sizes": "[1,2,4," + ",".join(map(str, range(8, 257, 8))) + "]"}
DPA = {"--enable-dp-attention": None, "--enable-tbo": None}
WORKERS = {
    "1p1d": {
        "prefill": BOTH | {"--max-num-seqs": "256"},
        "decode": BOTH | {"--max-num-seqs": "128"} | CUDAGRAPHS,
    },
    "2p1d": {
        "prefill": BOTH | DPA | {"--max-num-seqs": "256"},
        "decode": BOTH | DPA | {"--max-num-seqs": "2048"} | CUDAGRAPHS,
    },
}
ROUTER = {
    "--pd-disaggregation": None,
    "--host": "0.0.0.0",
    "--policy": "random",
    "--backend": "atom",
    "--log-level": "info",
    "--disable-health-check": None,
    "--disable-circuit-breaker": None,
}
ENV = {
    "1p1d": {"ATOM_MOE_GU_ITLV": "1", "AITER_BF16_FP8_MOE_BOUND": "0"},
    "2p1d": {"ATOM_MOE_GU_ITLV": "1", "AITER_BF16_FP8_MOE_BOUND": "0", "GPU_MAX_HW_QUEUES": "5", "ATOM_CPU_AFFINITY": "1"},
}
# Of other ports, or of the value that the model's place gives it.
MOVED = {"--server-port", "--port", "--prometheus-port", "--model", "--kv-transfer-config", "--prefill", "--decode"}


def flags(argv: list[str], skip: int) -> dict[str, str | None]:
    """Flag to value (None: bare); no flag twice but for the workers' URLs."""
    found: dict[str, str | None] = {}
    for word in argv[skip:]:
        if word.startswith("-"):
            assert word not in found or word in ("--prefill", "--decode")
            found[word] = None
            last = word
        else:
            found[last] = word
    return found


@pytest.mark.parametrize("topology", DSV4)
def test_deepseek_v4_pro_workers(topology: str) -> None:
    workers = [p for p in processes(DSV4[topology]) if p["role"] in ("prefill", "decode")]
    assert [(p["step"], p["node"], p["gpus"]) for p in workers] == [
        *((f"prefill_{n}", n, list(range(8))) for n in range(len(workers) - 1)),
        ("decode_0", len(workers) - 1, list(range(8))),
    ]
    assert len(workers) == {"1p1d": 2, "2p1d": 3}[topology]
    for process in workers:
        given = flags(process["argv"], 3)
        assert {flag: value for flag, value in given.items() if flag not in MOVED} == WORKERS[topology][process["role"]]
        assert set(given) & MOVED == {"--server-port", "--model", "--kv-transfer-config"}
        assert given["--model"] == "deepseek-ai/DeepSeek-V4-Pro"
        assert ENV[topology].items() <= process["env"].items()
        assert not (set(ENV["2p1d"]) - set(ENV[topology])) & set(process["env"])
        assert "HIP_VISIBLE_DEVICES" not in process["env"]


@pytest.mark.parametrize("topology", DSV4)
def test_deepseek_v4_pro_router(topology: str) -> None:
    (router,) = [p for p in processes(DSV4[topology]) if p["role"] == "atomesh"]
    assert router["argv"][:2] == ["atomesh", "launch"]
    assert {f: v for f, v in flags(router["argv"], 2).items() if f not in MOVED} == ROUTER
    assert router["argv"].count("--prefill") == {"1p1d": 1, "2p1d": 2}[topology]
    assert router["argv"].count("--decode") == 1
    assert router["node"] == 0


def test_deepseek_v4_pro_sweep() -> None:
    points = {t: made(name).plan.points for t, name in DSV4.items()}
    assert {t: [p.concurrency for p in found] for t, found in points.items()} == {
        "1p1d": [4, 8, 16, 32, 64, 128],
        "2p1d": [256, 512, 768, 1024, 2048],
    }
    assert sum(len(found) for found in points.values()) == 11
    assert {t: sum(p.prompts for p in found) for t, found in points.items()} == {"1p1d": 2520, "2p1d": 46080}
    assert sum(p.prompts for found in points.values() for p in found) == 48600


@pytest.mark.parametrize("topology", DSV4)
def test_deepseek_v4_pro_client(topology: str) -> None:
    points = [p for p in processes(DSV4[topology]) if p["role"] == "bench"]
    for process, point in zip(points, made(DSV4[topology]).plan.points, strict=True):
        c = point.concurrency
        given = flags(process["argv"], 2)
        wanted = {
            "--model": "deepseek-ai/DeepSeek-V4-Pro",
            "--backend": "openai",
            "--dataset-name": "random",
            "--random-input-len": "8192",
            "--random-output-len": "1024",
            "--random-range-ratio": "0.8",
            "--num-prompts": str(10 * c),
            "--max-concurrency": str(c),
            "--request-rate": "inf",
            "--ignore-eos": None,
            "--save-result": None,
            "--num-warmups": str(2 * c),
            "--percentile-metrics": "ttft,tpot,itl,e2el",
        }
        assert wanted.items() <= given.items()
        assert given["--base-url"] == "http://${NODE_0_ADDR}:8000"


@pytest.mark.parametrize("name", ATOM_BUNDLES)
def test_spelling_of_the_recipe_is_kept(name: str) -> None:
    """ATOM mixes styles: `--kv_cache_dtype` but `--block-size`; another spelling was a startup error in the past."""
    for role in made(name).plan.recipe.roles:
        script = made(name).files[f"roles/{role.name}.sh"].content.decode()
        for setting in (s for s in role.args if s.value is not False and s.key != "extra-kv-connectors"):
            assert re.search(rf"\n  --{setting.key}[ =\n]", script), setting.key


@pytest.mark.parametrize("name", [*DSV4.values(), SMOKE])
def test_kv_cache_dtype_stands_in_plain_sight(name: str) -> None:
    for role in ("prefill", "decode"):
        script = made(name).files[f"roles/{role}.sh"].content.decode()
        assert "\n  --kv_cache_dtype fp8\n" in script
        assert "--kv-cache-dtype" not in script


@pytest.mark.parametrize("name", ATOM_BUNDLES)
def test_no_other_stack_is_named(name: str) -> None:
    """An ATOM job starts no etcd, NATS, Dynamo or exporter."""
    for path, file in made(name).files.items():
        if not is_verbatim(path) and not is_input(path):
            assert not re.search(r"(?i)etcd|nats\b|dynamo|exporter", file.content.decode()), path


@pytest.mark.parametrize("name", RECIPES)
def test_every_process_has_a_flag_a_line(name: str) -> None:
    for path in (p for p in made(name).files if p.startswith("roles/")):
        script = made(name).files[path].content.decode()
        body = script.partition("\nargv=(\n")[2].partition("\n)\n")[0].splitlines()
        assert len(body) > 3
        assert all(re.match(r"  (--?[a-z]|python3 -m |atomesh )", line) for line in body), body
