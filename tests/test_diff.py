"""`srtgen diff`, `--check` and `.pre-commit-hooks.yaml`: what would change, in words and as diffs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from command_line import run_here
from shipped import ROOT

from srtgen import compare

RECIPE = ROOT / "recipes" / "atom" / "qwen3-0.6b-1p1d-tp1.yaml"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def srtgen(*words: str | Path) -> tuple[int, str, str]:
        code, printed = run_here([str(word) for word in words], monkeypatch, capsys)
        return code, printed.out, printed.err

    return srtgen


@pytest.fixture
def bundle(run: Run, tmp_path: Path) -> Path:
    assert run(RECIPE, "-o", tmp_path / "job")[0] == 0
    return tmp_path / "job"


def said(text: str) -> str:
    """The words above the unified diffs."""
    return text.split("\n\n---")[0]


def test_no_difference(run: Run, bundle: Path) -> None:
    assert run("diff", RECIPE, bundle)[:2] == (0, "no difference\n")
    assert run("diff", RECIPE, RECIPE)[:2] == (0, "no difference\n")


CHANGES = {
    "flag_changed": ("roles.decode.args.max-num-seqs=16", "decode: argv\n  ~ --max-num-seqs 8 -> 16"),
    "flag_added": ("roles.prefill.args.trust-remote-code=true", "prefill: argv\n  + --trust-remote-code"),
    "env_of_all": ('environment.NEW="a b"', "prefill: env\n  + NEW a b"),
    "port": ("ports.worker_http=6200", "prefill: argv\n  ~ --server-port 6100 -> 6200"),
    "port_as_place": ("ports.worker_http=6200", "place\n  ~ ports http=6100 handshake=5400 -> http=6200 handshake=5400"),
    "directive": ('slurm.time_limit="02:00:00"', "job: directives\n  ~ --time 00:45:00 -> 02:00:00"),
    "image": ("roles.decode.container=other/image:1", "decode: place\n  ~ image rocm/atom-dev:nightly_202607231538 -> other/image:1"),
    "points": ("benchmark.concurrencies=[1, 8]", "job: processes\n  - bench 4\n  + bench 8"),
    "inside_json": ("engine.mooncake_protocol=rdma", '~ --kv-transfer-config protocol "tcp" -> "rdma"'),
    "setting": ("health_check.max_attempts=7", "job: settings\n  ~ PLAN_HEALTH_ATTEMPTS 180 -> 7"),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=list(CHANGES))
def test_changes_in_words(run: Run, bundle: Path, change: str, expected: str) -> None:
    code, out, _ = run("diff", RECIPE, bundle, "--set", change)
    assert code == 0 and expected in said(out), out


def test_unset_flag(run: Run, bundle: Path) -> None:
    _, out, _ = run("diff", RECIPE, bundle, "--unset", "roles.decode.args.block-size")
    assert "decode: argv\n  - --block-size 16" in said(out) and "\n-  --block-size 16\n" in out


def test_hand_edits_show(run: Run, bundle: Path) -> None:
    with open(bundle / "roles" / "prefill.sh", "a", encoding="utf-8") as stream:
        stream.write("# mine\n")
    (bundle / "wait.sh").chmod(0o644)
    (bundle / "lib" / "log.sh").unlink()
    code, out, _ = run("diff", RECIPE, bundle)
    assert code == 0
    assert "by hand: roles/prefill.sh was edited" in out and "\n-# mine\n" in out
    assert "by hand: wait.sh is not executable" in out and "by hand: lib/log.sh was removed" in out


def test_two_recipes(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(RECIPE.read_text().replace("gpu-memory-utilization: 0.50", "gpu-memory-utilization: 0.60", 1))
    _, out, _ = run("diff", RECIPE, other)
    assert said(out).strip() == "prefill: argv\n  ~ --gpu-memory-utilization 0.50 -> 0.60"
    assert re.search(r"^--- first/roles/prefill.sh$", out, re.MULTILINE)


def test_roles(run: Run) -> None:
    _, out, _ = run("diff", RECIPE, "--roles", "--set", "roles.decode.args.max-num-seqs=16")
    assert out == (
        'prefill -> decode: argv\n  ~ --kv-transfer-config kv_role "kv_producer" -> "kv_consumer"\n'
        "  ~ --max-num-seqs 8 -> 16\nprefill -> decode: place\n  ~ node 0 -> 1\n"
    )


USAGE = {"one_recipe": ["diff", "x.yaml"], "roles_with_folder": ["diff", "x.yaml", ".", "--roles"]}


@pytest.mark.parametrize("words", USAGE.values(), ids=list(USAGE))
def test_usage(run: Run, words: list[str]) -> None:
    assert run(*words)[0] == 2


def test_folder_without_a_bundle(run: Run, tmp_path: Path) -> None:
    code, _, err = run("diff", RECIPE, tmp_path)
    assert code == 1 and "holds no bundle" in err


FLAGS = {
    "values": (["p", "--a", "1", "2", "--b"], {"command": ("p",), "--a": ("1", "2"), "--b": ()}),
    "joined": (["p", "--a=-x"], {"command": ("p",), "--a": ("-x",)}),
    "module": (["python3", "-m", "mod", "-tp", "8"], {"command": ("python3", "-m", "mod"), "-tp": ("8",)}),
    "negative_number": (["p", "--a", "-1"], {"command": ("p",), "--a": ("-1",)}),
    "repeated": (["p", "--a", "1", "--a", "2"], {"command": ("p",), "--a": ("1", "2")}),
}


@pytest.mark.parametrize(("argv", "expected"), FLAGS.values(), ids=list(FLAGS))
def test_flags(argv: list[str], expected: dict[str, tuple[str, ...]]) -> None:
    assert compare.flags(argv) == expected


# ---- --check ---------------------------------------------------------------------------------------------------------


def test_check(run: Run, bundle: Path) -> None:
    assert run(RECIPE, "-o", bundle, "--check")[0] == 0
    code, _, err = run(RECIPE, "-o", bundle, "--check", "--set", "roles.decode.args.max-num-seqs=16")
    assert code == 1 and f"{bundle}/roles/decode.sh: differs" in err
    assert run(RECIPE, "-o", bundle, "--check")[0] == 0, "check must not write"


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "edited": (lambda b: (b / "bench.sh").write_text("x"), "bench.sh: differs"),
    "removed": (lambda b: (b / "bench.sh").unlink(), "bench.sh: is missing"),
    "mode": (lambda b: (b / "bench.sh").chmod(0o644), "bench.sh: has another executable bit"),
    "broken_off": (lambda b: (b / ".srtgen-writing").touch(), ".srtgen-writing: is not generated any more"),
}


@pytest.mark.parametrize(("spoil", "message"), SPOILED.values(), ids=list(SPOILED))
def test_check_sees(run: Run, bundle: Path, spoil: Callable[[Path], object], message: str) -> None:
    spoil(bundle)
    code, _, err = run(RECIPE, "-o", bundle, "--check")
    assert code == 1 and message in err


def test_check_without_a_folder(run: Run, tmp_path: Path) -> None:
    code, _, err = run(RECIPE, "-o", tmp_path / "none", "--check")
    assert code == 1 and "run.sbatch: is missing" in err and not (tmp_path / "none").exists()


def test_check_ignores_results(run: Run, bundle: Path) -> None:
    (bundle / "results" / "1").mkdir(parents=True)
    (bundle / "slurm-1.out").touch()
    assert run(RECIPE, "-o", bundle, "--check")[0] == 0


def test_hook_runs_check(run: Run, bundle: Path) -> None:
    """The hook's words, with the arguments that its own comment shows."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, *words = hook["entry"].split()
    assert program == "srtgen" and hook["pass_filenames"] is False
    assert run(*words, RECIPE, "-o", bundle)[0] == 0
    (bundle / "bench.sh").unlink()
    assert run(*words, RECIPE, "-o", bundle)[0] == 1
