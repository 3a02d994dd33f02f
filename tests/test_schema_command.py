"""`srtgen schema`: valid schemas that say of an args mapping what the flag table says, on any date."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from contract_parser import atom_table, atomesh_table

from command_line import run_here
from examples import BASES, ROOT
from srtgen import document

Here = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
Draft = jsonschema.Draft202012Validator


def schema(*words: str, here: Here, said: Capture) -> Any:
    code, out = run_here(["schema", *words], here, said)
    assert (code, out.err) == (0, "")
    made = json.loads(out.out)
    Draft.check_schema(made)
    return made


def test_files_as_they_are(monkeypatch: Here, capsys: Capture) -> None:
    for words, name in (([], "recipe-2"), (["recipe"], "recipe-2"), (["cluster"], "cluster")):
        stored = json.loads((ROOT / "schema" / f"{name}.schema.json").read_text())
        assert schema(*words, here=monkeypatch, said=capsys) == stored


@pytest.mark.parametrize(
    "day", ["2026-04-28", "2026-06-10", "2026-07-15", "2026-07-16", "2026-07-22", "2026-07-23", "2026-08-22"]
)
def test_spellings_of_a_day(day: str, monkeypatch: Here, capsys: Capture) -> None:
    keys = set(schema("atom", "--date", day, here=monkeypatch, said=capsys)["properties"])
    for flag in atom_table().flags:
        for spelling, since in {**flag.spellings, **flag.negatives}.items():
            if spelling.startswith("--") and spelling[2:] not in ("model", "host", "port"):
                managed = spelling[2:].replace("-", "_") in (
                    "server_port",
                    "tensor_parallel_size",
                    "kv_transfer_config",
                )
                assert (spelling[2:] in keys) == (bool(since and since <= day) and not managed), spelling


@pytest.mark.parametrize(
    ("day", "args", "fits"),
    [
        ("2026-06-10", {"kv_cache_dtype": "fp8"}, True),
        ("2026-06-10", {"kv-cache-dtype": "fp8"}, False),
        ("2026-07-16", {"kv-cache-dtype": "fp8"}, True),
        ("2026-07-16", {"kv-cache-dtype": "auto"}, False),
        ("2026-06-10", {"load_dummy": "zero"}, False),
        ("2026-07-18", {"load_dummy": "zero"}, True),
        ("2026-07-18", {"load_dummy": True}, True),
        ("2026-05-09", {"method": "eagle3"}, False),
        ("2026-05-10", {"method": "eagle3"}, True),
        ("2026-08-22", {"max-num-seqs": "many"}, False),
        ("2026-08-22", {"level": 4}, False),
        ("2026-08-22", {"enable_prefix_caching": False}, True),
        ("2026-05-12", {"enable_prefix_caching": False}, False),
        ("2026-08-22", {"cudagraph-capture-sizes": [1, 2]}, True),
        ("2026-08-22", {"eplb-config": {"load_windw_size": 3}}, False),
        ("2026-08-22", {"extra-kv-connectors": [{"kv_connector": "lmcache_offload"}]}, True),
        ("2026-08-22", {"model": "x"}, False),
        ("2026-08-22", {"max-num-sequences": 8}, False),
    ],
)
def test_args_of_a_day(day: str, args: dict[str, Any], fits: bool, monkeypatch: Here, capsys: Capture) -> None:
    made = schema("atom", "--date", day, here=monkeypatch, said=capsys)
    assert Draft(made).is_valid(args) is fits


def test_router(monkeypatch: Here, capsys: Capture) -> None:
    made = schema("atomesh", here=monkeypatch, said=capsys)
    assert len(made["properties"]) > 40 and "port" not in made["properties"] and "version" not in made["properties"]
    assert Draft(made).is_valid({"policy": "random", "request-id-headers": ["x", "y"]})
    assert not Draft(made).is_valid({"policy": "randon"})
    assert {flag.key.replace("_", "-") for flag in atomesh_table().flags} > set(made["properties"])


def test_recipe_with_flags(monkeypatch: Here, capsys: Capture) -> None:
    made = schema("recipe", "--flags", here=monkeypatch, said=capsys)
    base = document.load("base", BASES["recipe"].read_bytes()).data
    assert Draft(made).is_valid(base)
    base["roles"]["decode"]["args"]["kv-cache-dtype"] = "fp9"
    assert [list(e.absolute_path)[-1] for e in Draft(made).iter_errors(base)] == ["kv-cache-dtype"]


@pytest.mark.parametrize("words", [["nothing"], ["atom", "--date", "tomorrow"]])
def test_usage(words: list[str], monkeypatch: Here, capsys: Capture) -> None:
    assert run_here(["schema", *words], monkeypatch, capsys)[0] == 2
