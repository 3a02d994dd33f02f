"""Runs a bundle's role scripts and bench.sh in real bash, with programs on PATH that write down how they were started."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MASKS = {
    "ROCR_VISIBLE_DEVICES": "7",
    "HIP_VISIBLE_DEVICES": "6",
    "CUDA_VISIBLE_DEVICES": "5",
    "GPU_DEVICE_ORDINAL": "4",
    "USE_ATOMESH_ENTRYPOINTS": "1",
}
# What bash, the library and the client's own limits change beside the recipe's variables.
ALSO_SET = re.compile(r"PWD|OLDPWD|SHLVL|_|TMPDIR|BENCH_[A-Z_]+|NO_PROXY|no_proxy")
_WORD = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_jobs = itertools.count(1)

# The python3 of the rig: what the bundle's own scripts need is real, an engine or client only records.
_RECORDER = """#!/usr/bin/env bash
set -Eeuo pipefail
case "${{1:-}}" in
  --version) printf 'Python 3.12.0\\n'; exit 0 ;;
  -B | -c) exit 0 ;;
  -BsE | -E) exec {python} "$@" ;;
esac
base={records}/"${{0##*/}}" n=1
set -o noclobber
until : >"${{base}}.${{n}}.argv"; do n=$((n + 1)); done 2>/dev/null
set +o noclobber
cat /proc/$$/environ >"${{base}}.${{n}}.env"
printf '%s\\0' "${{0##*/}}" "$@" >"${{base}}.${{n}}.argv"
while (($#)); do
  [[ "$1" != --result-dir ]] || folder="$2"
  [[ "$1" != --result-filename ]] || printf '{{"completed": 1}}' >"${{folder}}/$2"
  shift
done
"""


# In place of lib/bench.sh, where only the words matter that bench.sh hands to it.
PLAIN_CLIENT = """
bench_check() { export "${!BENCH_@}"; mkdir -p "${SRTGEN_RESULTS}/bench"; }
bench_require() { :; }
bench_begin() { :; }
bench_point() { "${@:4}"; }
bench_custom() { "$@"; }
bench_finish() { :; }
"""


@dataclass(frozen=True)
class Record:
    """One start of a program."""

    argv: list[str]
    env: dict[str, str]


@dataclass
class Rig:
    """A bundle in a folder, and what its scripts start."""

    root: Path
    bundle: Path
    programs: Sequence[str] = ("python3", "atomesh")
    extra: Mapping[str, str] = field(default_factory=dict)
    job: str = field(default_factory=lambda: f"{os.getpid()}{next(_jobs):05d}")

    def __post_init__(self) -> None:
        for folder in (self.records, self.bin, self.results / "logs", self.root / "elsewhere"):
            folder.mkdir(parents=True, exist_ok=True)
        for name in self.programs:
            shim = self.bin / name
            shim.write_text(
                _RECORDER.format(python=shlex.quote(sys.executable), records=shlex.quote(str(self.records)))
            )
            shim.chmod(0o755)

    @property
    def records(self) -> Path:
        return self.root / "records"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def results(self) -> Path:
        return self.root / "results"

    def environment(self, step: str) -> dict[str, str]:
        """What the library hands to a step, in a shell with hostile masks."""
        addresses = {f"NODE_{n}_ADDR": f"10.0.0.{n + 1}" for n in range(8)}
        return {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "SLURM_JOB_ID": self.job,
            "SRTGEN_STEP": step,
            "SRTGEN_BUNDLE": str(self.bundle),
            "SRTGEN_RESULTS": str(self.results),
            "SRT_ENDPOINT": "http://10.0.0.1:8000",
            "SRT_FRONTEND_HOST": "10.0.0.1",
            "SRT_FRONTEND_PORT": "8000",
            **addresses,
            **MASKS,
            **self.extra,
        }

    def run(self, step: str, script: str, *arguments: str, **env: str) -> list[Record]:
        """Run a script to its end; what it started, in order. The script must end with 0 or, for bench.sh, 21."""
        for old in self.records.iterdir():
            old.unlink()
        try:
            done = subprocess.run(
                ["bash", str(self.bundle / script), *arguments],
                env={**self.environment(step), **env},
                cwd=self.root / "elsewhere",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=60,
            )
        finally:
            shutil.rmtree(f"/tmp/srtgen-{self.job}", ignore_errors=True)
        allowed = (0, 21) if script == "bench.sh" else (0,)
        assert done.returncode in allowed, done.stdout.decode(errors="replace")
        return self._records()

    def _records(self) -> list[Record]:
        found = sorted(self.records.glob("*.argv"), key=lambda p: p.stat().st_mtime_ns)
        return [Record(_texts(p), dict(t.partition("=")[::2] for t in _texts(p.with_suffix(".env")))) for p in found]

    def check(self, process: Mapping[str, Any], record: Record) -> None:
        """What ran is what the manifest says: the whole argv, each variable of the process, and no other change."""
        given = self.environment(process["step"])
        assert record.argv == [self.filled(text) for text in process["argv"]]
        expected = {name: self.filled(value) for name, value in process["env"].items()}
        assert {name: record.env.get(name) for name in expected} == expected
        rest = {n: v for n, v in record.env.items() if n not in expected and not ALSO_SET.fullmatch(n)}
        if process["role"] != "bench":  # a client of any kind may want the masks; role scripts clear them
            given = {n: v for n, v in given.items() if n not in MASKS}
        kept = {n: v for n, v in given.items() if n not in expected and not ALSO_SET.fullmatch(n)}
        assert rest == kept

    def filled(self, text: str) -> str:
        """A text of the manifest with its run-time words replaced, and no other `$`."""
        known = {n: v for n, v in self.environment("").items() if n not in MASKS}
        return _WORD.sub(lambda found: known.get(found[1], found[0]), text)


def _texts(path: Path) -> list[str]:
    return [part.decode("utf-8", "surrogateescape") for part in path.read_bytes().split(b"\0")[:-1]]
