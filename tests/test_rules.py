"""The checks: every code has an explanation whose examples are right about it, and says what it should."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from examples import ROOT, codes, errors, findings, laid_over, of_part
from srtgen import catalogue, document

CODES = catalogue.codes()
SHOWN = [code for code in CODES if catalogue.entry(code).wrong]
# Codes that no file can show by itself; the tests named here do.
ELSEWHERE = {
    "file-size": "test_document",
    "encoding": "test_document",
    "override": "test_overrides",
    "layout1-unread": "layout 1",
}


def literals() -> set[str]:
    """Every code that stands in the source."""
    found: set[str] = set()
    for path in (ROOT / "gen" / "srtgen").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'code="([a-z0-9-]+)"', text))
        if path.parent.name == "rules":
            found |= set(re.findall(r'"([a-z0-9]+(?:-[a-z0-9]+)+)", (?:report|at_key)', text))
            found |= set(re.findall(r'message, "([a-z0-9]+(?:-[a-z0-9]+)+)"\)', text))
    return found


def test_every_code_is_explained() -> None:
    assert literals() - set(CODES) == set()
    assert len(CODES) > 70


@pytest.mark.parametrize("code", CODES)
def test_explanation_matches_its_schema(code: str) -> None:
    schema = json.loads((ROOT / "schema" / "check.schema.json").read_text())
    data = document.load(code, (ROOT / "schema" / "checks" / f"{code}.yaml").read_bytes()).data
    jsonschema.validate(data, schema, cls=jsonschema.Draft202012Validator)
    assert bool(data["wrong"]) == (code not in ELSEWHERE)


@pytest.mark.parametrize("code", SHOWN)
def test_wrong_example_brings_the_code_up(code: str) -> None:
    entry = catalogue.entry(code)
    found = [p for p in of_part(entry.kind, entry.wrong) if p.code == code]
    assert found, of_part(entry.kind, entry.wrong)
    assert {p.severity for p in found} <= set(re.findall(r"\w+", entry.severity))
    assert all(p.line == 1 or entry.kind == "text" for p in found)


@pytest.mark.parametrize("code", SHOWN)
def test_right_example_does_not(code: str) -> None:
    entry = catalogue.entry(code)
    found = of_part(entry.kind, entry.right)
    assert code not in codes(found)
    assert errors(found) == []


def test_the_base_has_nothing_to_say_about() -> None:
    assert findings(laid_over("recipe", "{}")) == ()


# --- which version, how severe ------------------------------------------------------------------------------------

NO_DATE = "rocm/atom-dev:mine"
JUNE = "rocm/atom-dev:nightly_202606101403"
BRANCH = "rocm/atom-dev:nightly_202606101403-mooncake_build"
LATER = "rocm/atom-dev:nightly_202612011200"
EARLY = "rocm/atom-dev:nightly_202601011200"


def severities(
    code: str, image: str, key: str, value: object, stated: str | None = None, role: str = "decode"
) -> set[str]:
    """The severities of a code that one flag brings up in an image."""
    recipe = laid_over("recipe", json.dumps({"model": {"container": image}, "roles": {role: {"args": {key: value}}}}))
    recipe["engine"] = {"type": "atom", **({"version": stated} if stated else {})}
    return {p.severity for p in findings(recipe) if p.code == code and p.path.endswith(f".{key}")}


@pytest.mark.parametrize(
    ("code", "image", "key", "value", "stated", "severity"),
    [
        # a spelling is valid from its date on, that day included
        ("flag-too-new", "x:nightly_202607151200", "kv-cache-dtype", "fp8", None, "error"),
        ("flag-too-new", "x:nightly_202607161200", "kv-cache-dtype", "fp8", None, None),
        ("flag-too-new", "x:nightly_202607221200", "max_num_seqs", 8, None, "error"),
        ("flag-too-new", "x:nightly_202607231200", "max_num_seqs", 8, None, None),
        ("flag-too-new", "x:nightly_202605121200", "no-enable_prefix_caching", True, None, "error"),
        ("flag-too-new", "x:nightly_202605131200", "no-enable_prefix_caching", True, None, None),
        ("flag-too-new", "x:nightly_202605121200", "enable_prefix_caching", False, None, "error"),
        ("flag-too-new", "x:nightly_202605131200", "enable_prefix_caching", False, None, None),
        ("flag-too-new", "x:nightly_202607221200", "enable-prefix-caching", False, None, "error"),
        # the recipe's word goes before the tag; a release bounds the date
        ("flag-too-new", JUNE, "kv-cache-dtype", "fp8", "2026-07-16", None),
        ("flag-too-new", LATER, "kv-cache-dtype", "fp8", "2026-07-15", "error"),
        ("flag-too-new", NO_DATE, "kv-cache-dtype", "fp8", "0.1.6", "error"),
        ("flag-too-new", NO_DATE, "attn-prefill-chunk-size", 8, "0.1.6", "warning"),
        ("flag-too-new", NO_DATE, "block-size", 16, "0.1.6", None),
        # undated, a branch, newer or older than the table
        ("flag-too-new", NO_DATE, "kv-cache-dtype", "fp8", None, "warning"),
        ("flag-too-new", NO_DATE, "kv_cache_dtype", "fp8", None, None),
        ("flag-too-new", BRANCH, "kv-cache-dtype", "fp8", None, "warning"),
        ("flag-too-new", EARLY, "kv-cache-dtype", "fp8", None, "warning"),
        ("unknown-flag", JUNE, "max-sequences", 8, None, "error"),
        ("unknown-flag", NO_DATE, "max-sequences", 8, None, "warning"),
        ("unknown-flag", BRANCH, "max-sequences", 8, None, "warning"),
        ("unknown-flag", LATER, "max-sequences", 8, None, "warning"),
        ("unknown-flag", EARLY, "max-sequences", 8, None, "warning"),
        ("abbreviated-flag", JUNE, "max-num-s", 8, None, "error"),
        ("abbreviated-flag", NO_DATE, "max-num-s", 8, None, "warning"),
        ("abbreviated-flag", "x:nightly_202608221200", "gpu", 1, None, None),  # two spellings begin so
        ("unknown-flag", "x:nightly_202608221200", "gpu", 1, None, "error"),
        # values
        ("flag-value", JUNE, "kv_cache_dtype", "auto", None, "error"),
        ("flag-value", NO_DATE, "kv_cache_dtype", "auto", None, "warning"),
        ("flag-value", LATER, "kv_cache_dtype", "auto", None, "warning"),
        ("flag-value", LATER, "max-num-seqs", "many", None, "error"),
        ("flag-value", JUNE, "max-num-seqs", "1_000", None, None),
        ("flag-value", JUNE, "load_dummy", "zero", None, "error"),
        ("flag-value", "x:nightly_202607181200", "load_dummy", "zero", None, None),
        ("flag-value", "x:nightly_202605091200", "method", "eagle3", None, "error"),
        ("flag-value", "x:nightly_202605101200", "method", "eagle3", None, None),
        ("flag-value", JUNE, "level", 7, None, "error"),
        ("flag-value", JUNE, "gpu-memory-utilization", "0.9", None, None),
        ("flag-value", JUNE, "gpu-memory-utilization", "high", None, "error"),
        ("flag-value", JUNE, "hf-overrides", "3", None, "error"),
        ("flag-value", JUNE, "hf-overrides", "{'a': 1}", None, "error"),
        ("flag-value", JUNE, "cudagraph-capture-sizes", "[1,2,4]", None, None),
        ("flag-value", JUNE, "cudagraph-capture-sizes", "1,2,4", None, "error"),
        ("flag-value", JUNE, "cudagraph-capture-sizes", "", None, None),
        ("payload-key", JUNE, "online_quant_config", {"exclude_layers": ["x"]}, None, "warning"),
        ("payload-key", JUNE, "online_quant_config", '{"global_quant_config":"fp9"}', None, "error"),
        ("payload-key", LATER, "eplb-config", '{"load_window":3}', None, "warning"),
    ],
)  # fmt: skip
def test_severity(code: str, image: str, key: str, value: object, stated: str | None, severity: str | None) -> None:
    found = severities(code, image, key, value, stated)
    if isinstance(value, dict):
        found = {
            p.severity
            for p in findings(
                laid_over(
                    "recipe", json.dumps({"model": {"container": image}, "roles": {"decode": {"args": {key: value}}}})
                )
            )
            if p.code == code
        }
    assert found == ({severity} if severity else set())


@pytest.mark.parametrize(
    ("code", "part", "severity"),
    [
        ("payload-key", "roles: {decode: {args: {eplb-config: {load_window: 3}}}}", "error"),
        ("payload-key", "roles: {decode: {args: {eplb-config: {load_window_size: 0}}}}", "error"),
        ("payload-key", "roles: {decode: {args: {eplb-config: {load_window_size: 10}}}}", None),
        ("payload-key", "roles: {decode: {args: {dspark-config: {ragged: 1}}}}", "error"),
        ("payload-key", "roles: {decode: {args: {extra-kv-connectors: [{kv_connector: multi, connectors: []}]}}}", "error"),
        ("payload-key", "roles: {decode: {args: {extra-kv-connectors: [{kv_connector: lmcache_offload, lmcache.chunk: 3}]}}}", None),
        ("payload-key", "roles: {decode: {args: {extra-kv-connectors: [{kv_connector: LMCacheConnectorV1}]}}}", None),
        ("payload-key", "roles: {decode: {args: {extra-kv-connectors: [{kv_connector: MoRIIO}]}}}", None),
        ("payload-key", "model: {container: 'x:nightly_202608181200'}\nroles: {decode: {args: {extra-kv-connectors: [{kv_connector: MoRIIO}]}}}", "error"),
        ("payload-key", "model: {container: 'x:nightly_202606281200'}\nroles: {decode: {args: {extra-kv-connectors: [{kv_connector: lmcache_offload}]}}}", "error"),
        ("payload-key", "roles: {decode: {args: {extra-kv-connectors: [{kv_connector: moriio, proxy_ip: x}]}}}", "note"),
        ("payload-key", "roles: {decode: {args: {extra-kv-connectors: [{kv_connector: moriio, handshake_prt: 1}]}}}", "warning"),
        ("dead-env", "model: {container: 'x:nightly_202606231200'}\nenvironment: {ATOM_CPU_AFFINITY: '1'}", None),
        ("dead-env", "model: {container: 'x:nightly_202606241200'}\nenvironment: {ATOM_CPU_AFFINITY: '1'}", "warning"),
        ("dead-env", "model: {container: 'x:mine'}\nenvironment: {ATOM_CPU_AFFINITY: '1'}", "note"),
        ("dead-env", "model: {container: 'x:nightly_202606231200'}\nenvironment: {ATOM_NUMA_BIND: '1'}", "warning"),
        ("dead-env", "roles: {decode: {env: {VLLM_LOG_LEVEL: WARNING}}}", "warning"),
        ("python-path", "model: {container: 'x:py3.10_nightly_202608201200'}\nenvironment: {LD_LIBRARY_PATH: /v/python3.10/x}", None),
        ("python-path", "model: {container: 'x:py3.10_nightly_202608201200'}\nenvironment: {PYTHONPATH: /v/python3.12/x}", "warning"),
        ("prefix-caching-unstated", "model: {container: 'x:nightly_202605121200'}\nroles: {decode: {args: {enable-prefix-caching: null}}}", None),
        ("prefix-caching-unstated", "model: {container: 'x:nightly_202605131200'}\nroles: {decode: {args: {enable-prefix-caching: null}}}", "warning"),
        ("prefix-caching-unstated", "model: {container: 'x:mine'}\nroles: {decode: {args: {enable-prefix-caching: null}}}", "warning"),
        ("prefix-caching-unstated", "roles: {decode: {args: {enable-prefix-caching: null, enable_prefix_caching: true}}}", None),
        ("dsv4-accuracy", "model: {path: /models/DeepSeek_V4_Pro}\nenvironment: {ATOM_MOE_GU_ITLV: '0', AITER_BF16_FP8_MOE_BOUND: '0'}", "warning"),
        ("dsv4-accuracy", "model: {path: 'hf:deepseek-ai/DeepSeek-V3.2'}", None),
        ("pd-block-size", "model: {path: 'hf:deepseek-ai/DeepSeek-V4-Pro'}\nroles: {decode: {args: {block-size: 64}}}", None),
        ("pd-block-size", "roles: {decode: {args: {block-size: 64}}}", "error"),
        ("pd-kv-dtype", "roles: {decode: {args: {kv-cache-dtype: null}}}", "error"),
        ("shared-node-transfer", "engine: {mooncake_protocol: tcp}\nroles: {prefill: {gpus: 4}, decode: {nodes: colocate, gpus: 4}}", "note"),
        ("concurrency-over-seqs", "roles: {decode: {args: {max-num-seqs: 64, enable-dp-attention: true}}}\nbenchmark: {concurrencies: [512]}", None),
        ("concurrency-over-seqs", "roles: {decode: {args: {max-num-seqs: 63, enable-dp-attention: true}}}\nbenchmark: {concurrencies: [512]}", "warning"),
        ("concurrency-over-seqs", "roles: {decode: {args: {max-num-seqs: null}}}\nbenchmark: {concurrencies: [512]}", None),
        ("concurrency-over-seqs", "roles: {decode: {args: {max-num-seqs: null}}}\nbenchmark: {concurrencies: '4x513'}", "warning"),
        ("max-model-len", "roles: {prefill: {args: {max-model-len: 2047}}}", "error"),
        ("max-model-len", "roles: {prefill: {args: {max-model-len: 2048}}}", None),
        ("capture-sizes", "roles: {decode: {args: {cudagraph-capture-sizes: '[1024]'}}}", "error"),
        ("capture-sizes", "roles: {decode: {args: {cudagraph-capture-sizes: [1024], enforce-eager: true}}}", None),
        ("capture-sizes", "roles: {decode: {args: {cudagraph-capture-sizes: [300], method: mtp, num-speculative-tokens: 3, max-num-batched-tokens: 1024}}}", "error"),
        ("router-cache-aware", "frontend: {args: {policy: null}}", "note"),
        ("router-cache-aware", "frontend: {args: {policy: null, prefill-policy: random}}", None),
        ("router-power-of-two", "frontend: {args: {policy: power_of_two}}\nroles: {prefill: {nodes: 2, workers: 2}, decode: {nodes: 2, workers: 2}}", "note"),
        ("router-power-of-two", "frontend: {args: {decode-policy: power_of_two}}\nroles: {prefill: {nodes: 2, workers: 2}}", "error"),
        ("forced-acceptance", "roles: {decode: {args: {method: mtp, spec-decode-acceptance-rate: 0.5}}}", "note"),
        ("offline-hub-model", "model: {offline: true}", "warning"),
        ("offline-hub-model", "model: {offline: true}\nextra_mount: ['/shared/hf:/hf_hub_cache']", "note"),
        ("offline-hub-model", "model: {offline: true, path: /models/x}", None),
        ("image-latest", "model: {container: rocm/atom-dev}", "warning"),
        ("image-latest", "model: {container: 'registry:5000/rocm/atom-dev'}", "warning"),
        ("image-latest", "model: {container: 'rocm/atom-dev@sha256:00'}", None),
        ("image-latest", "model: {container: /images/atom.sqsh}", None),
        ("image-latest", "benchmark: {container_image: 'client:latest'}", "warning"),
        ("deadline-over-limit", "slurm: {time_limit: '59:59'}", "warning"),
        ("deadline-over-limit", "slurm: {time_limit: '1:00:00'}", "warning"),
        ("deadline-over-limit", "slurm: {time_limit: '1:00:01'}", None),
        ("deadline-over-limit", "slurm: {time_limit: '60'}", "warning"),
        ("deadline-over-limit", "slurm: {time_limit: '0-1'}", "warning"),
        ("deadline-over-limit", "slurm: {time_limit: '0-1:01'}", None),
        ("deadline-over-limit", "slurm: {time_limit: '0-01:00:01'}", None),
        ("deadline-over-limit", "slurm: {time_limit: '0-00:59:59'}", "warning"),
        ("deadline-over-limit", "slurm: {time_limit: '30'}\nhealth_check: {max_attempts: 10, interval_seconds: 5}", None),
        ("tbo-with-pcp", "roles: {decode: {gpus: 2, args: {prefill-context-parallel-size: 2, enable-tbo: all}}}", "error"),
        ("tbo-with-pcp", "roles: {decode: {gpus: 4, args: {prefill-context-parallel-size: 2, enable-tbo: all}}}", "warning"),
        ("speculative-tokens", "roles: {decode: {args: {method: dspark, num-speculative-tokens: 7}}}", None),
        ("speculative-tokens", "roles: {decode: {args: {method: mtp, num-speculative-tokens: 0}}}", "warning"),
        ("acceptance-conflict", "roles: {decode: {args: {method: mtp, spec-decode-acceptance-rate: 0.5, spec-decode-acceptance-length: 1.5}}}", "error"),
        ("draft-model", "roles: {decode: {args: {method: mtp, draft-model: x}}}", "error"),
        ("role-only-env", "roles: {prefill: {env: {GPU_MAX_HW_QUEUES: '5'}}}", None),
        ("unused-silence", "silence: [{code: imaginary, reason: x}]", "note"),
    ],
)  # fmt: skip
def test_severity_of_a_part(code: str, part: str, severity: str | None) -> None:
    found = {p.severity for p in findings(laid_over("recipe", part)) if p.code == code}
    assert found == ({severity} if severity else set())


def test_an_error_cannot_be_silenced() -> None:
    part = "frontend: {args: {policy: prefix_hash}}\nsilence: [{code: router-prefix-hash, reason: x}]"
    found = findings(laid_over("recipe", part))
    assert [(p.severity, p.reason) for p in found if p.code == "router-prefix-hash"] == [("error", "")]


@pytest.mark.parametrize("reason", ['""', '" "', '"a\\nb"', "null"])
def test_silence_needs_a_reason(reason: str) -> None:
    found = findings(laid_over("recipe", f"silence: [{{code: image-latest, reason: {reason}}}]"))
    assert errors(found) and codes(found) == {"schema"}


def test_strict_counts_what_is_silenced_as_clean() -> None:
    part = laid_over("recipe", "model: {container: 'rocm/atom-dev:latest'}\nengine: {version: '2026-08-20'}")
    assert errors(findings(part, strict=True))
    part["silence"] = [{"code": "image-latest", "reason": "frozen by the site"}]
    found = findings(part, strict=True)
    assert errors(found) == [] and [p.reason for p in found] == ["frozen by the site"]


def test_shipped_files_name_their_schema() -> None:
    for path in sorted((ROOT / "recipes").glob("*/*.yaml")):
        first = path.read_text(encoding="utf-8").split("\n", 1)[0]
        mark, _, target = first.partition("$schema=")
        assert mark == "# yaml-language-server: " and (path.parent / target).is_file(), path
