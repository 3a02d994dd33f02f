"""evidence, versions and verdict, function by function."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs.shell import LIB, stub

sys.path.insert(0, str(LIB))
import evidence  # noqa: E402  (found only by the path above)
import verdict  # noqa: E402
import versions  # noqa: E402

VERSIONS = [("0.1.4.dev113+g5837907f3", ("0.1.4.dev113", "5837907f3")), (" V0.1.6\n", ("0.1.6", "")), ("087B82D9", ("", "087b82d9")),
            ("20260731", ("20260731", "")), ("1.0+rocm7.g12", ("1.0", "")), ("abcdef", ("abcdef", "")), ("", ("", ""))]


@pytest.mark.parametrize(("text", "parts"), VERSIONS)
def test_parse_version(text: str, parts: tuple[str, str]) -> None:
    assert evidence.parse_version(text) == parts


@pytest.mark.parametrize(("one", "other", "same"), [("abc1234", "abc1234ff", True), ("abc1234ff", "abc1234", True), ("abc1234", "abc1235", False)])
def test_same_commit(one: str, other: str, same: bool) -> None:
    assert evidence.same_commit(one, other) == same


def test_read_head_is_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "HEAD_BYTES", 5)
    (tmp_path / "log").write_bytes(b"ab\xffcdefg")
    assert evidence.read_head(str(tmp_path / "log")) == "ab\ufffdcd"
    assert evidence.read_head(str(tmp_path / "absent")) == ""


def test_seen_versions_takes_whole_lines_only() -> None:
    texts = ["srtgen-version atom 1\nx srtgen-version atom 2\nsrtgen-version atom 3 beta\nsrtgen-version torch 2.9\n",
             "srtgen-version atom 1\nsrtgen-version atom 4\n", ""]
    assert evidence.seen_versions(texts) == {"atom": ["1", "4"], "torch": ["2.9"]}


def lines(**seen: str) -> list[str]:
    return ["".join(f"srtgen-version {name} {value}\n" for name, value in seen.items())]


COMPARED: list[tuple[dict[str, str], list[str], str, dict[str, str]]] = [
    ({"atom": "1.0"}, lines(atom="1.0", torch="2"), "", {"atom": "match", "torch": "not compared"}),
    ({"atom": "1.0", "torch": "3"}, lines(atom="1.1", torch="2"), "atom is 1.1, the recipe's identity says 1.0",
     {"atom": "mismatch", "torch": "mismatch"}),
    ({"atom": "1.0"}, [], "", {"atom": "unverified"}), ({"atom": "abc1234"}, lines(atom="1.0"), "", {"atom": "unverified"}),
    ({"atom": "1.0"}, lines(atom="1.0") + lines(atom="abc1234"), "", {"atom": "unverified"}), ({}, [], "", {})]


@pytest.mark.parametrize(("expected", "texts", "wrong", "status"), COMPARED)
def test_check_versions(expected: dict[str, str], texts: list[str], wrong: str, status: dict[str, str]) -> None:
    said, report = evidence.check_versions(expected, texts)
    assert said == wrong and {name: row["status"] for name, row in report.items()} == status  # type: ignore[index]


SEEN = [("installTransport, type=rdma", ["rdma"]), ("RDMA device: mlx5_0, LID 3", ["rdma"]), ("Using RDMA transport", ["rdma"]),
        ("x installed tcp y", ["tcp"]),
        ("TcpTransport: listen on port 1", ["tcp"]), ("using TCP transport only", ["tcp"]), ("installed tcpx, reinstalled rdma2", []),
        ("installed tcp\ninstalled rdma", ["rdma", "tcp"]), ("protocol=rdma", [])]


@pytest.mark.parametrize(("text", "found"), SEEN)
def test_transports(text: str, found: list[str]) -> None:
    assert evidence.transports(text) == found


@pytest.mark.parametrize(("expected", "seen", "judged"), [
    ("rdma", [], None), ("rdma", ["rdma"], True), ("rdma", ["tcp"], False), ("rdma", ["rdma", "tcp"], True), ("tcp", ["tcp"], True),
    ("tcp", ["rdma", "tcp"], False), ("tcp", ["rdma"], False)])
def test_judge_transport(expected: str, seen: list[str], judged: bool | None) -> None:
    assert evidence.judge_transport(expected, seen) is judged


def test_check_transport_names_the_first_contradiction() -> None:
    logs = {"prefill_0": "", "prefill_1": "installed tcp", "decode_0": "installed tcp", "decode_1": "installed rdma"}
    wrong, report = evidence.check_transport("rdma", True, logs)
    assert wrong == "prefill_1 installed tcp, the recipe says rdma"
    assert {step: row["status"] for step, row in report["steps"].items()} == {  # type: ignore[attr-defined]
        "prefill_0": "unverified", "prefill_1": "mismatch", "decode_0": "mismatch", "decode_1": "match"}
    wrong, report = evidence.check_transport("rdma", False, logs)
    assert wrong == "" and report["steps"]["decode_0"] == {"seen": ["tcp"], "status": "differs from the default"}  # type: ignore[index]


@pytest.mark.parametrize(("words", "first"), [(["versions"], "ok\t"),
                                              (["versions", "--expect=atom=2", "--log={t}/a"], "mismatch\tatom is 1, the recipe's identity says 2"),
                                              (["transport", "--expect=tcp", "--log=d={t}/none"], "ok\t")])
def test_main_of_evidence(words: list[str], first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_text("srtgen-version atom 1\n")
    assert evidence.main([word.format(t=tmp_path) for word in words]) == 0
    said, report = capsys.readouterr().out.splitlines()
    assert said == first and isinstance(json.loads(report), dict)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, version in (("amd_atom", "0.2"), ("rocm_atom", "0.3"), ("torch", "2.9+rocm")):
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


def test_distribution_version_is_of_the_best_name(site: Path) -> None:
    assert versions.distribution_version(versions.DISTRIBUTIONS["atom"]) == "0.3"
    assert versions.distribution_version(("torch",)) == "2.9+rocm" and versions.distribution_version(("lmcache", "x")) == ""


ROUTERS = [("printf 'atomesh 0.1.0\\n'", "0.1.0"), ("printf 'atomesh 0.1.0\\n'; exit 1", ""), ("exit 0", ""),
           ("printf 'warn\\n' >&2; printf '7\\n'", "7"), (None, "")]


@pytest.mark.parametrize(("program", "version"), ROUTERS)
@pytest.mark.parametrize("turn", ["1", "0"])
def test_router_version_and_main(turn: str, program: str | None, version: str, site: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", f"{site}/bin:/usr/bin:/bin")
    monkeypatch.setenv("SRTGEN_TURN", turn)
    if program:
        stub(site / "bin", "atomesh", program)
    assert versions.router_version() == version
    versions.main()
    router = [f"srtgen-version atomesh {version}"] if version and turn == "1" else []
    assert capsys.readouterr().out.splitlines() == ["srtgen-version atom 0.3", "srtgen-version torch 2.9+rocm", *router]


VERDICTS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("bench", {"points": 2, "valid": 1, "code": 21, "reason": "a\n b"}, {"points": 2, "valid": 1}, "a b"),
    ("bench", {}, {"points": None, "valid": None}, ""),
    ("eval", {"code": 0, "reason": None, "metrics": {"é": 1}}, {"code": 0, "reason": None, "metrics": {"é": 1}}, "")]


@pytest.mark.parametrize(("kind", "content", "kept", "reason"), VERDICTS)
def test_main_of_verdict(kind: str, content: dict[str, Any], kept: dict[str, Any], reason: str, tmp_path: Path,
                         capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "verdict.json").write_text(json.dumps(content))
    verdict.main(kind, str(tmp_path / "verdict.json"))
    printed = capsys.readouterr().out
    first, second = printed.split("\n")[:2]
    assert (json.loads(first), second) == (kept, reason)
    words = [sys.executable, "-B", str(LIB / "verdict.py"), kind, str(tmp_path / "verdict.json")]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == printed


@pytest.mark.parametrize("content", [None, "{", ""])
def test_a_verdict_that_is_none_is_an_error(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "verdict.json").write_text(content)
    with pytest.raises((OSError, ValueError)):
        verdict.main("bench", str(tmp_path / "verdict.json"))
