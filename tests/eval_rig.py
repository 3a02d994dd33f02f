"""A bundle's evaluation part on its own, a question set of ours and a router that answers as told."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")
VERSION = "%d.%d" % sys.version_info[:2]
CA_FILE = os.environ.get("PIP_CERT", "")
QUESTIONS = 16

ROLE = """
enter_role() { mkdir -p "/tmp/srtgen-${SLURM_JOB_ID}/$1"; cd "/tmp/srtgen-${SLURM_JOB_ID}/$1"; }
"""


def write_questions(folder: Path) -> Path:
    """A small question set: sums, in the format of the task."""
    target = folder / "gsm8k"
    target.mkdir(parents=True)
    for split, count in (("train", 6), ("test", QUESTIONS)):
        lines = [json.dumps({"question": f"What is {i} plus {i + 2}?", "answer": f"{i}+{i + 2}={2 * i + 2}\n#### {2 * i + 2}"})
                 for i in range(count)]
        (target / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


class Router(ThreadingHTTPServer):
    """Answers chat completions with what `reply` makes of the two numbers."""

    daemon_threads = True

    def __init__(self, reply: Callable[[int, int], str | None]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply = reply
        self.bodies: list[dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Router

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        text = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        first, second = re.findall(r"What is (\d+) plus (\d+)", text)[-1]
        answer = self.server.reply(int(first), int(second))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": answer}, "text": answer}
        data = json.dumps({"object": "chat.completion", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def router(reply: Callable[[int, int], str | None]) -> Iterator[Router]:
    """A router for the time of a test."""
    server = Router(reply)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def right(first: int, second: int) -> str:
    return f"The sum is\n#### {first + second}"


def wrong(first: int, second: int) -> str:
    return f"#### {first + second + 1}"


@dataclass
class EvalRig:
    """One bundle, one job id, one results folder."""

    root: Path
    job: str
    data: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def work(self) -> Path:
        return Path(f"/tmp/srtgen-{self.job}/eval")

    def write(self) -> None:
        """Write the bundle."""
        (self.root / "lib").mkdir(exist_ok=True)
        for path in (TEMPLATES / "lib").glob("eval*"):
            if path.is_file():
                shutil.copy(path, self.root / "lib")
        (self.root / "lib" / "role.sh").write_text(ROLE)
        shutil.copytree(TEMPLATES / "eval", self.root / "eval", dirs_exist_ok=True)
        shutil.copy(TEMPLATES / "prefetch.sh", self.root)
        constants = {
            "MODEL": "Qwen/Qwen3-0.6B", "TASKS": "gsm8k", "CONCURRENCY": "4", "MAX_TOKENS": "256", "PYTHON": PYTHON,
            "THRESHOLDS": '{"gsm8k": {"strict-match": 0.91, "flexible-extract": 0.91}}', "TARGET_PYTHON": VERSION,
            "CA_FILE": CA_FILE, "META": '{"framework": "atom", "prefix": "qwen3"}',
        } | self.data
        lines = [f"export EVAL_{name}={shlex.quote(value)}" for name, value in constants.items()]
        (self.root / "eval" / "plan.sh").write_text("\n".join(lines) + "\n")
        self.results.mkdir(exist_ok=True)

    def environment(self) -> dict[str, str]:
        """Environment of the step."""
        base = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return base | {"SLURM_JOB_ID": self.job, "SRTGEN_RESULTS": str(self.results)} | self.env

    def start(self, *prefix: str, script: str = "eval/run.sh") -> subprocess.Popen[str]:
        """Start a script of the bundle."""
        return subprocess.Popen([*prefix, "bash", str(self.root / script)], env=self.environment(), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def run(self, *prefix: str, script: str = "eval/run.sh") -> tuple[int, str]:
        """Run a script of the bundle to its end: its code and output."""
        process = self.start(*prefix, script=script)
        try:
            output, _ = process.communicate(timeout=900)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, output

    def serve(self, server: Router) -> None:
        """Let the evaluation go to this router."""
        self.env["SRT_ENDPOINT"] = f"http://127.0.0.1:{server.server_address[1]}"

    def verdict(self) -> dict[str, Any]:
        return json.loads((self.results / "eval" / "verdict.json").read_text())

    def venv(self) -> dict[str, Any]:
        return json.loads((self.results / "eval" / "venv.json").read_text())

    def clear(self) -> None:
        """Remove the node-local folder."""
        shutil.rmtree(self.work.parent, ignore_errors=True)
