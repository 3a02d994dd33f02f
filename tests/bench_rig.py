"""A bundle's benchmark part on its own: bench.sh as it is rendered, a tiny client and HTTP counters."""

from __future__ import annotations

import csv
import json
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).resolve().parent.parent / "templates" / "lib"

# The client writes what BENCH_FAKE tells it to; everything else follows the real client's result.
CLIENT = '''
import argparse, json, os, sys, time, urllib.request
parser = argparse.ArgumentParser()
for name in ("result-dir", "result-filename"):
    parser.add_argument("--" + name)
for name in ("num-prompts", "max-concurrency", "random-input-len", "random-output-len", "num-warmups"):
    parser.add_argument("--" + name, type=int, default=0)
args = parser.parse_args()
n, out = args.num_prompts, args.random_output_len
mode = os.environ.get("BENCH_FAKE", "ok")
only = os.environ.get("BENCH_FAKE_AT", "")
if only and str(args.max_concurrency) != only:
    mode = "ok"
def bump(done):
    for url in os.environ.get("BENCH_FAKE_BUMP", "").split():
        urllib.request.urlopen(url + "/bump?n=%d" % done).read()
if mode == "nothing":
    sys.exit(0)
if mode == "exit7":
    print("cannot bind", file=sys.stderr)
    sys.exit(7)
done = n
if mode in ("hang", "hang_early"):
    if mode == "hang":
        print("%3d%%|## | 3/%d [00:01<00:09]" % (3 * 100 // n, n), flush=True)
    os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "98765")
    time.sleep(600)
if mode in ("half", "half_exit1"):
    done = n // 2
bump(n + args.num_warmups + int(os.environ.get("BENCH_FAKE_TWICE", "0")))
if os.environ.get("BENCH_FAKE_RETRY"):
    urllib.request.urlopen(os.environ["BENCH_FAKE_RETRY"] + "/retry?n=3").read()
mean_in, mean_out = int(args.random_input_len * 0.9), int(out * 0.9)
if mode == "short":
    mean_out = out // 2
if mode == "short_input":
    mean_in = args.random_input_len // 2
tokens_out = 0 if mode == "zero" else done * mean_out
tokens_in = done * mean_in
duration = 0.05
if mode == "claims":
    duration = 500.0
result = {
    "num_prompts": n, "max_concurrency": args.max_concurrency, "model_id": "m", "completed": done,
    "duration": duration, "total_input_tokens": tokens_in, "total_output_tokens": tokens_out,
    "output_throughput": tokens_out / duration, "total_token_throughput": (tokens_in + tokens_out) / duration,
}
for metric in ("ttft", "tpot", "itl", "e2el"):
    for statistic in ("mean", "median", "p90", "p99"):
        result["%s_%s_ms" % (statistic, metric)] = 10.0 + args.max_concurrency / 8
if mode == "nofields":
    del result["completed"], result["p99_e2el_ms"]
if mode == "nan":
    result["median_tpot_ms"] = float("nan")
if mode == "other":
    result["num_prompts"] = n + 1
if mode == "list":
    result = [result]
text = "{" if mode == "broken" else json.dumps(result)
with open(os.path.join(args.result_dir, args.result_filename), "w") as stream:
    stream.write(text)
if mode == "ports":
    print("OSError: [Errno 99] Cannot assign requested address")
    sys.exit(1)
sys.exit(1 if mode == "half_exit1" else 0)
'''

ROLE = """
enter_role() { mkdir -p "${SRTGEN_RESULTS}/work"; cd "${SRTGEN_RESULTS}/work"; }
"""


class Counters(ThreadingHTTPServer):
    """A worker's or router's metrics; `/bump` and `/retry` move them as requests would."""

    daemon_threads = True

    def __init__(self, kind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kind, self.requests, self.retries, self.drafts, self.polls = kind, 0, 0, 0, 0
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def text(self) -> str:
        if self.kind == "router":
            return (
                f'# TYPE mesh_worker_retries_total counter\n'
                f'mesh_worker_retries_total{{worker_type="prefill",endpoint="completions"}} {self.retries}\n'
                f'mesh_worker_retries_total{{worker_type="decode",endpoint="completions"}} {self.retries}\n'
                f'mesh_worker_retries_exhausted_total{{worker_type="decode",endpoint="completions"}} 9\n'
                f'mesh_router_request_duration_seconds_count{{endpoint="completions"}} {self.requests}\n'
                f'mesh_http_responses_total{{status_code="404",error_code=""}} {self.polls}\n'
            )
        return f"atom:requests_finished_total {self.requests}.0\natom:kv_cache_usage_ratio 0.5\n"


class _Handler(BaseHTTPRequestHandler):
    server: Counters

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?n=")
        if path == "/bump":
            self.server.requests += int(query)
            self.server.drafts += 10 * int(query)
        if path == "/retry":
            self.server.retries += int(query)
        if path == "/debug/mtp_stats":
            drafts = self.server.drafts
            body = json.dumps({"enabled": True, "total_draft_tokens": drafts, "total_accepted_tokens": drafts // 2,
                               "distribution": {"1": drafts // 2}})
        else:
            self.server.polls += 1
            body = self.server.text()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@dataclass
class Run:
    """What a finished bench.sh left."""

    code: int
    output: str
    folder: Path

    @property
    def verdict(self) -> dict[str, Any]:
        return json.loads((self.folder / "verdict.json").read_text())

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())

    @property
    def rows(self) -> list[dict[str, str]]:
        with (self.folder / "summary.csv").open(newline="") as stream:
            return list(csv.DictReader(stream))


@dataclass
class Rig:
    """One bundle and one results folder; `run` may be called repeatedly."""

    root: Path
    points: Sequence[tuple[int, int]] = ((4, 40), (8, 80))
    data: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    body: str | None = None

    @property
    def results(self) -> Path:
        return self.root / "results dir"

    def constants(self) -> dict[str, str]:
        """The data block's values."""
        values = {
            "TYPE": "sa-bench", "CLIENT": "atom", "MODEL": "Qwen/Qwen3-0.6B", "NAME": "rig", "TOKENIZER": "",
            "ISL": "1024", "OSL": "128", "RATIO": "0.8", "REQUEST_RATE": "inf", "MAX_FAILED_RATIO": "0",
            "STALL_TIMEOUT_S": "60", "GPUS_PREFILL": "8", "GPUS_DECODE": "8", "GPUS_AGG": "0",
            "GPUS_ALLOCATED": "16", "META": '{"hw":"mi355x","framework":"atom","prefill":{"tp":8}}',
            "CONCURRENCIES": " ".join(str(c) for c, _ in self.points),
            "PROMPTS": " ".join(str(n) for _, n in self.points),
            "WARMUPS": " ".join(str(2 * c) for c, _ in self.points),
        }
        return values | self.data

    def write(self) -> Path:
        """Write the bundle; returns bench.sh."""
        shutil.rmtree(self.root / "lib", ignore_errors=True)
        shutil.copytree(LIBRARY, self.root / "lib")
        (self.root / "lib" / "role.sh").write_text(ROLE)
        package = self.root / "python" / "atom" / "benchmarks"
        package.mkdir(parents=True, exist_ok=True)
        (package.parent / "__init__.py").touch()
        (package / "__init__.py").touch()
        (package / "benchmark_serving.py").write_text(CLIENT)
        script = self.root / "bench.sh"
        script.write_text(self.script())
        return script

    def script(self) -> str:
        """bench.sh in the rendered shape."""
        lines = ["#!/usr/bin/env bash", "set -Eeuo pipefail", "shopt -s inherit_errexit",
                 'here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"']
        lines += [f"readonly BENCH_{name}={shlex.quote(value)}" for name, value in self.constants().items()]
        lines += ['. "${here}/lib/role.sh"', '. "${here}/lib/bench.sh"']
        return "\n".join(lines + [self.body if self.body is not None else self.sweep()]) + "\n"

    def sweep(self) -> str:
        """The points of an sa-bench script."""
        seen: dict[int, int] = {}
        lines = ["bench_check", "enter_role bench", "bench_begin"]
        for concurrency, prompts in self.points:
            seen[concurrency] = seen.get(concurrency, 0) + 1
            name = f"c{concurrency}" + (f"_{seen[concurrency]}" if seen[concurrency] > 1 else "")
            lines.append(
                "argv=(python3 -m atom.benchmarks.benchmark_serving\n"
                f"  --num-prompts {prompts}\n  --max-concurrency {concurrency}\n  --num-warmups {2 * concurrency}\n"
                f'  --random-input-len {self.constants()["ISL"]}\n  --random-output-len {self.constants()["OSL"]}\n'
                f'  --result-dir "${{BENCH_DIR}}"\n  --result-filename {name}.json\n)\n'
                f'bench_point {name} {concurrency} {prompts} "${{argv[@]}}"')
        return "\n".join(lines + ["bench_finish"])

    def environment(self) -> dict[str, str]:
        """Environment of the client step."""
        base = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return base | {"SRTGEN_RESULTS": str(self.results), "PYTHONPATH": str(self.root / "python"),
                       "SRT_ENDPOINT": "http://127.0.0.1:8000"} | self.env

    def start(self, *prefix: str) -> subprocess.Popen[str]:
        """Start bench.sh."""
        self.results.mkdir(exist_ok=True)
        return subprocess.Popen([*prefix, "bash", str(self.write())], env=self.environment(), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, *prefix: str) -> Run:
        """Run bench.sh to its end."""
        process = self.start(*prefix)
        output, _ = process.communicate(timeout=120)
        return Run(process.returncode, output, self.results / "bench")


@contextmanager
def counters(rig: Rig, *roles: str) -> Iterator[dict[str, Counters]]:
    """Workers of the given roles and a router, known to the rig; the client's requests are counted by them."""
    servers = {f"{role}_{roles[:index].count(role)}": Counters("worker") for index, role in enumerate(roles)}
    router = Counters("router")
    for role in set(roles):
        urls = [server.url for step, server in servers.items() if step.startswith(role)]
        rig.env[f"SRT_{role.upper()}_ENDPOINTS"] = ",".join(urls)
    rig.env["SRT_FRONTEND_HOST"] = "127.0.0.1"
    rig.data["ROUTER_METRICS_PORT"] = str(router.server_address[1])
    rig.env["BENCH_FAKE_BUMP"] = " ".join([*(server.url for server in servers.values()), router.url])
    try:
        yield servers | {"router": router}
    finally:
        for server in [*servers.values(), router]:
            server.shutdown()
            server.server_close()
