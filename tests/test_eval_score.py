"""The real lm-eval against a router: right answers pass, wrong ones fail, empty ones are invalid."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eval_rig import CA_FILE, PYTHON, QUESTIONS, TEMPLATES, VERSION, EvalRig, right, router, write_questions, wrong


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared venv, as a site would keep one."""
    folder = tmp_path_factory.mktemp("prepared") / "venv"
    subprocess.run([PYTHON, "-m", "venv", str(folder)], check=True)
    env = os.environ | ({"PIP_CERT": CA_FILE} if CA_FILE else {})
    listing = TEMPLATES / "eval" / f"requirements-{VERSION}.txt"
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "-r", listing], check=True, env=env)
    return folder


@pytest.fixture
def rig(tmp_path: Path, environment: Path) -> Iterator[EvalRig]:
    rig = EvalRig(tmp_path, "t" + uuid.uuid4().hex[:8])
    rig.env["SRTGEN_TASK_DATA"] = str(write_questions(tmp_path / "data"))
    rig.data |= {"PACKAGES": "existing", "PACKAGES_PATH": str(environment)}
    yield rig
    rig.clear()


def every_fourth(value: str | None) -> Callable[[int, int], str | None]:
    return lambda first, second: value if first % 4 == 0 else right(first, second)


ANSWERS: dict[str, tuple[Callable[[int, int], str | None], dict[str, str], int, str]] = {
    "right": (right, {}, 0, ""),
    "wrong": (wrong, {}, 23, "gsm8k strict-match 0.0000 is below 0.91"),
    "a quarter wrong": (every_fourth("#### 99999"), {}, 23, "gsm8k strict-match 0.7500 is below 0.91"),
    "empty": (lambda first, second: "", {}, 22, "gsm8k: 100.0 % of the answers are empty, allowed 0.0 %"),
    "null": (every_fourth(None), {}, 22, "gsm8k: 25.0 % of the answers are empty"),
    "empty allowed": (every_fourth(""), {"MAX_EMPTY_RATIO": "0.3"}, 23, "strict-match 0.7500 is below"),
    "nothing to extract": (every_fourth("I do not know"), {"MAX_UNEXTRACTED_RATIO": "0.1"}, 22, "nothing to extract in 25.0 % of the answers"),
    "unknown metric": (right, {"THRESHOLDS": '{"gsm8k": {"strict": 0.9}}'}, 22, "gsm8k strict has a threshold and no score"),
    "limit": (right, {"LIMIT": "5"}, 0, ""),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_answers(rig: EvalRig, case: str) -> None:
    """Case 105."""
    reply, data, code, reason = ANSWERS[case]
    rig.data |= data
    rig.write()
    with router(reply) as server:
        rig.serve(server)
        got, output = rig.run()
    assert got == code, output
    verdict = rig.verdict()
    assert verdict["code"] == code
    assert verdict["reason"].startswith(reason) or reason in verdict["reason"]


def test_protocol_is_written_beside_the_score(rig: EvalRig) -> None:
    """Cases 097, 105: served name with slashes, no tokenizer, one message a question, stops and length as planned."""
    rig.data["MODEL"] = "org/na,me=x"
    rig.env |= {"SRTGEN_LM_EVAL_RESULT_DIR": str(rig.root / "copy"), "EVAL_CONC": "3", "https_proxy": "http://127.0.0.1:9",
                "http_proxy": "http://127.0.0.1:9", "HF_HOME": "/proc/nowhere"}
    rig.write()
    with router(right) as server:
        rig.serve(server)
        code, output = rig.run()
        bodies = server.bodies
    assert code == 0, output
    assert len(bodies) == QUESTIONS
    body = bodies[0]
    assert (body["model"], body["max_tokens"], body["temperature"], body["top_p"]) == ("org/na,me=x", 256, 0, 1)
    assert body["stop"] == ["</s>", "<|im_end|>"]
    assert len(body["messages"]) == 1 and body["messages"][0]["content"].count("Question: ") == 6
    config = json.loads((rig.results / "eval" / "lm_eval.json").read_text())
    assert (config["model_args"]["num_concurrent"], config["fewshot_as_multiturn"]) == (3, False)
    names = sorted(path.name.partition("_20")[0] for path in (rig.root / "copy").iterdir())
    assert names == ["meta_env.json", "results", "samples_gsm8k"]
    meta = json.loads((rig.results / "eval" / "meta_env.json").read_text())
    assert (meta["framework"], meta["conc"], meta["model"]) == ("atom", 3, "org/na,me=x")


def test_completions_endpoint(rig: EvalRig) -> None:
    rig.data |= {"ENDPOINT": "completions", "CHAT_TEMPLATE": "0"}
    rig.write()
    with router(right) as server:
        rig.serve(server)
        assert rig.run()[0] == 0
        assert isinstance(server.bodies[0]["prompt"], str)


def test_router_that_is_gone(rig: EvalRig) -> None:
    rig.write()
    rig.data["REQUEST_TIMEOUT_S"] = "5"
    rig.env["SRT_ENDPOINT"] = "http://127.0.0.1:9"
    process = rig.start()
    deadline = time.monotonic() + 120
    while not list(rig.work.glob("output-*")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    os.kill(process.pid, 15)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143, output
    assert not (rig.results / "eval" / "verdict.json").exists()


def test_results_of_an_older_run_do_not_count(rig: EvalRig) -> None:
    rig.write()
    with router(right) as server:
        rig.serve(server)
        assert rig.run()[0] == 0
    shutil.rmtree(rig.work)
    with router(wrong) as server:
        rig.serve(server)
        assert rig.run()[0] == 23
