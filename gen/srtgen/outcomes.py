"""Two jobs' results, point by point: change in percent, and what differs in identity, commands and environment."""

import json
from pathlib import Path
from typing import Any, Mapping, NamedTuple

from srtgen import compare
from srtgen.compare import Change

SCHEMA = "srtgen/comparison/1"
# What must be the same for numbers to be comparable: the key of a point, and of the whole measurement.
_POINT_KEYS = ("isl", "osl", "random_range_ratio", "num_prompts")
_RUN_KEYS = ("model", "type")
_CLIENT_KEYS = ("name", "chat_template", "request_rate", "tokenizer")
# Name, key of the row, and whether more is better.
MEASURES = (
    ("tok/s/GPU", "total_tok_s_per_gpu", True),
    ("output tok/s", "output_tok_s", True),
    ("tok/s/user", "interactivity", True),
    ("TTFT p50 ms", "ttft_ms_p50", False),
    ("TTFT p99 ms", "ttft_ms_p99", False),
    ("TPOT p50 ms", "tpot_ms_p50", False),
    ("TPOT p99 ms", "tpot_ms_p99", False),
    ("E2E p50 ms", "e2el_ms_p50", False),
)


class NoResults(Exception):
    """A folder that cannot be compared; the message says why."""


class Results(NamedTuple):
    """One job's folder: result.json, manifest.json, bench/summary.json."""

    folder: Path
    result: dict[str, Any]
    manifest: dict[str, Any]
    summary: dict[str, Any]

    @property
    def rows(self) -> dict[int, Mapping[str, Any]]:
        """The measured points by concurrency."""
        records = self.summary.get("points", [])
        return {r["row"]["concurrency"]: r["row"] for r in records if isinstance(r, dict) and "row" in r}


def read(folder: Path) -> Results:
    """The results of a job's folder (`results/<job id>`). Raises NoResults."""
    parts = [_json(folder / name) for name in ("result.json", "manifest.json", "bench/summary.json")]
    found = Results(folder, *parts)
    if not found.rows:
        raise NoResults(f"{folder} holds no measured points")
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise NoResults(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise NoResults(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise NoResults(f"{path} holds no JSON object")
    return content


def workload_differences(one: Results, two: Results) -> list[Change]:
    """What makes the two measurements different questions."""
    tables = []
    for results in (one, two):
        client = results.summary.get("client", {})
        table = {key: str(results.summary.get(key)) for key in _RUN_KEYS}
        table |= {f"client {key}": str(client.get(key)) for key in _CLIENT_KEYS}
        tables.append(table)
    changes = compare.mapping("workload", "benchmark", *tables)
    for concurrency in _common(one, two):
        rows = [{key: str(r.rows[concurrency].get(key)) for key in _POINT_KEYS} for r in (one, two)]
        changes += compare.mapping("workload", f"concurrency {concurrency}", *rows)
    if not _common(one, two):
        shown = [" ".join(map(str, sorted(r.rows))) or "none" for r in (one, two)]
        changes.append(Change("workload", "benchmark", "~", "concurrencies", *shown))
    return changes


def _common(one: Results, two: Results) -> list[int]:
    return [concurrency for concurrency in one.rows if concurrency in two.rows]


def setup_differences(one: Results, two: Results) -> list[Change]:
    """What was served differently: versions, transport, then commands, environment, places and images."""
    versions = [_versions(r.result) for r in (one, two)]
    transport = [_transport(r.result) for r in (one, two)]
    edited = [{path: "edited" for path in r.result.get("bundle_modified") or []} for r in (one, two)]
    changes = compare.mapping("identity", "versions", *versions) + compare.mapping("identity", "transport", *transport)
    changes += compare.mapping("bundle", "edited files", *edited)
    return changes + compare.manifests(*_comparable(one.manifest, two.manifest))


def _comparable(one: dict[str, Any], two: dict[str, Any]) -> list[dict[str, Any]]:
    """Both manifests with the client's commands of common points only."""
    keys = [{compare.key_of(p) for p in m["processes"] if p["role"] == "bench"} for m in (one, two)]
    common = keys[0] & keys[1]
    kept = [[p for p in m["processes"] if p["role"] != "bench" or compare.key_of(p) in common] for m in (one, two)]
    return [{**manifest, "processes": processes} for manifest, processes in zip((one, two), kept)]


def _versions(result: Mapping[str, Any]) -> dict[str, str]:
    return {name: " ".join(entry.get("seen") or []) for name, entry in (result.get("versions") or {}).items()}


def _transport(result: Mapping[str, Any]) -> dict[str, str]:
    steps = (result.get("transport") or {}).get("steps") or {}
    return {step: " ".join(entry.get("seen") or []) for step, entry in steps.items()}


class Measure(NamedTuple):
    """One number of one point in both; `percent` is the change, None where a number is missing or zero."""

    concurrency: int
    name: str
    before: float | None
    after: float | None
    percent: float | None
    better: bool | None


def measures(one: Results, two: Results) -> list[Measure]:
    """Every measure of every point that both have."""
    found = []
    for concurrency in _common(one, two):
        for name, key, more in MEASURES:
            before, after = (_number(r.rows[concurrency].get(key)) for r in (one, two))
            percent = (after / before - 1) * 100 if before and after is not None else None
            better = None if not percent else (percent > 0) == more
            found.append(Measure(concurrency, name, before, after, percent, better))
    return found


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def caveats(one: Results, two: Results) -> list[str]:
    """What a reader of the numbers has to know: failed jobs, invalid points, points of one side only."""
    said = []
    for name, results in (("first", one), ("second", two)):
        if results.result.get("verdict") != "passed":
            said.append(f"the {name} job is {results.result.get('verdict')}: {results.result.get('reason')}")
        for concurrency, row in results.rows.items():
            if not row.get("valid"):
                said.append(f"concurrency {concurrency} of the {name} is invalid: {row.get('reason')}")
    for concurrency in sorted(set(one.rows) ^ set(two.rows)):
        said.append(f"concurrency {concurrency} is only in the {'first' if concurrency in one.rows else 'second'}")
    return said
