"""node_hub, function by function, and what a model folder must hold (node_files.missing_files)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from jobs.shell import LIB

sys.path.insert(0, str(LIB))
import node_files  # noqa: E402  (found only by the path above)
import node_hub  # noqa: E402

INDEX = "model.safetensors.index.json"


def folder(path: Path, **files: str) -> Path:
    """A folder of small files; `__` in a name stands for a dot."""
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


WHOLE = {"config__json": "{}", "a__safetensors": "w"}
SHARDS = {"config__json": "{}", "model__safetensors__index__json": json.dumps({"weight_map": {"1": "a.safetensors", "2": "b.safetensors", "3": "b.safetensors"}})}
LACKS = [
    (WHOLE, ""), ({"config__json": "{}", "m__gguf": "w"}, ""), ({**SHARDS, "a__safetensors": "w", "b__safetensors": "w"}, ""),
    ({}, "{f} holds no weights"), ({"config__json": "{}", "tokenizer__json": "{}"}, "{f} holds no weights"),
    ({"a__safetensors": "w"}, "1 of 2 files of {f} are missing or empty: config.json"),
    ({**WHOLE, "config__json": ""}, "1 of 2 files of {f} are missing or empty: config.json"),
    ({**SHARDS, "b__safetensors": ""}, "2 of 3 files of {f} are missing or empty: a.safetensors, b.safetensors"),
    (SHARDS | {"c__safetensors": "w"}, "2 of 3 files of {f} are missing or empty: a.safetensors, b.safetensors"),
]


@pytest.mark.parametrize(("files", "said"), LACKS)
def test_what_a_model_folder_lacks(files: dict[str, str], said: str, tmp_path: Path) -> None:
    assert node_files.missing_files(str(folder(tmp_path / "m", **files))) == said.format(f=tmp_path / "m")


@pytest.mark.parametrize("index", ["", "{", "{}", "[]", "1", '{"weight_map": ["a"]}', '{"weight_map": null}', '{"weight_map": {"1": null, "2": "a"}}', "\xff"])
def test_an_index_that_is_none(index: str, tmp_path: Path) -> None:
    (folder(tmp_path / "m", **WHOLE) / INDEX).write_bytes(index.encode("latin-1"))
    assert node_files.missing_files(str(tmp_path / "m")).startswith(f"{tmp_path}/m/{INDEX} is broken: ")


def test_only_a_few_of_many_files_are_named(tmp_path: Path) -> None:
    folder(tmp_path / "m", config__json="{}")
    (tmp_path / "m" / INDEX).write_text(json.dumps({"weight_map": {str(n): f"{n}.bin" for n in range(9)}}))
    assert node_files.missing_files(str(tmp_path / "m")) == f"9 of 10 files of {tmp_path}/m are missing or empty: 0.bin, 1.bin, 2.bin"


def test_a_link_to_nothing_is_a_file_that_is_missing(tmp_path: Path) -> None:
    (folder(tmp_path / "m", config__json="{}") / "a.safetensors").symlink_to("../blobs/1")
    assert node_files.missing_files(str(tmp_path / "m")).endswith(" are missing or empty: a.safetensors")


def hub(tmp_path: Path, **files: str) -> Path:
    """The cache with a model whose main revision is abc."""
    model = tmp_path / "cache" / "models--org--m"
    folder(model / "refs", main="abc\n")
    folder(model / "snapshots" / "abc", **files)
    return model


def local(**more: object) -> Namespace:
    return Namespace(**{"model": "", "offline": 0, "hub_cache": "", "hub_model": "org/m", "prefetch": "none", "mount": [], "runtime": "none", **more})


def test_a_model_of_the_hub_that_is_here(tmp_path: Path) -> None:
    hub(tmp_path, **WHOLE)
    cache = str(tmp_path / "cache")
    assert node_hub.missing("org/m", cache, False) == ""
    assert node_hub.missing("org/m", cache).startswith(f"{cache}/models--org--m/snapshots/abc holds no tokenizer (tokenizer.json, ")
    hub(tmp_path, tiktoken__model="x")
    assert node_hub.missing("org/m", cache) == ""


SPOILT = [
    (".", "org/m is not in {c} (no models--org--m)"), ("refs", "{c}/models--org--m/refs/main: No such file or directory"),
    ("snapshots", "{c}/models--org--m/snapshots/abc is missing, which {c}/models--org--m/refs/main names"),
    ("snapshots/abc/config.json", "1 of 2 files of {c}/models--org--m/snapshots/abc are missing or empty: config.json"),
]


@pytest.mark.parametrize(("gone", "said"), SPOILT)
def test_a_model_of_the_hub_that_is_not_whole(gone: str, said: str, tmp_path: Path) -> None:
    path = hub(tmp_path, **WHOLE, tokenizer__json="{}") / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert node_hub.missing("org/m", f"{tmp_path}/cache") == said.format(c=tmp_path / "cache")


def test_a_reference_that_is_empty_names_no_snapshot(tmp_path: Path) -> None:
    (hub(tmp_path, **WHOLE) / "refs" / "main").write_text("\n")
    assert "/snapshots/ is missing, which " in node_hub.missing("org/m", f"{tmp_path}/cache")


def test_downloads_that_were_cut_short_are_told_with_what_is_missing(tmp_path: Path) -> None:
    model = hub(tmp_path, config__json="{}")
    assert node_hub.half_done(str(model)) == ""
    folder(model / "blobs", **{"1": "x", "2__incomplete": "x", "3__incomplete": ""})
    remark = "; 2 downloads were cut short (blobs/*.incomplete)"
    assert node_hub.half_done(str(model)) == remark
    assert node_hub.missing("org/m", f"{tmp_path}/cache").endswith(f"/snapshots/abc holds no weights{remark}")
    hub(tmp_path, **WHOLE)
    assert node_hub.missing("org/m", f"{tmp_path}/cache", False) == ""


PLANS = [
    ({"model": "{t}/m"}, "ok", ""), ({"model": "{t}/absent"}, "fail", "model folder {t}/absent is missing"), ({"model": "{t}/m", "offline": 1}, "ok", ""),
    ({"offline": 1}, "fail", "offline, and the recipe's Hugging Face cache lies in no mount: "),
    ({"offline": 1, "hub_cache": "{t}/cache"}, "ok", ""), ({"offline": 1, "hub_cache": "{t}/no"}, "fail", "offline, and org/m is not in {t}/no (no models--org--m)"),
    ({"prefetch": "shared"}, "note", "a model of the hub: it is fetched before the load"), ({"prefetch": "local", "hub_cache": "/no"}, "note", "a model of the hub: it is fetched"),
    ({"offline": 1, "prefetch": "shared", "hub_cache": "{t}/no"}, "fail", "offline, and "), ({}, "note", "a model of the hub: its files are not checked"),
]


@pytest.mark.parametrize(("more", "status", "said"), PLANS)
def test_check_model_looks_where_the_plan_says(more: dict[str, object], status: str, said: str, tmp_path: Path) -> None:
    hub(tmp_path, **WHOLE, vocab__json="{}")
    folder(tmp_path / "m", **WHOLE)
    plan = local(**{name: value.format(t=tmp_path) if isinstance(value, str) else value for name, value in more.items()})
    found, text = node_hub.check_model(plan)
    assert found == status and text.startswith(said.format(t=tmp_path)) and bool(text) == bool(said)


def test_the_look_after_a_prefetch_waits_for_what_shows_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cache = str(tmp_path / "cache")
    steps = [lambda: folder(tmp_path / "cache" / "models--org--m"), lambda: hub(tmp_path), lambda: hub(tmp_path, **WHOLE)]
    monkeypatch.setattr(node_hub.time, "sleep", lambda _: steps.pop(0)())
    assert node_hub.main("org/m", cache) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith("waiting: ") for line in lines] == [True, True, True, False] and not steps
    assert lines[-1] == f"complete: org/m in {cache}"


def test_the_look_after_a_prefetch_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        assert now[0] < 1000

    monkeypatch.setattr(node_hub.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(node_hub.time, "sleep", sleep)
    assert node_hub.main("org/m", f"{tmp_path}") == 1
    *waited, last = capsys.readouterr().out.splitlines()
    assert last == f"org/m is not in {tmp_path} (no models--org--m)" and set(waited) == {f"waiting: {last}"}
    assert node_hub.APPEARS_S <= now[0] < node_hub.APPEARS_S + 10 and node_hub.APPEARS_S > 60


def test_the_program_of_the_look(tmp_path: Path) -> None:
    hub(tmp_path, **WHOLE)
    argv = [sys.executable, "-E", "-s", "-B", str(LIB / "node_hub.py"), "org/m", f"{tmp_path}/cache"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"complete: org/m in {tmp_path}/cache\n", "")
