"""The real lm-eval against a router: right answers pass, wrong ones fail, empty ones are invalid."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

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


ANSWERS: dict[str, tuple[Callable[[int, int], str | None], int, str]] = {
    "right": (right, 0, ""),
    "wrong": (wrong, 23, "gsm8k strict-match 0.0000 is below 0.91; gsm8k flexible-extract 0.0000 is below 0.91"),
    "null": (every_fourth(None), 22, "gsm8k: 25.0 % of the answers are empty, allowed 0.0 %"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_answers(rig: EvalRig, case: str) -> None:
    """Case 105."""
    reply, code, reason = ANSWERS[case]
    rig.write()
    with router(reply) as server:
        rig.serve(server)
        got, output = rig.run()
    assert got == code, output
    assert (rig.verdict()["code"], rig.verdict()["reason"]) == (code, reason)


def sample(number: int, answer: str, extracted: str, name: str = "strict-match") -> dict[str, Any]:
    """One line of samples_*.jsonl as lm-eval 0.4.13 writes it."""
    return {"doc_id": number, "resps": [[answer]], "filtered_resps": [extracted], "filter": name}


def record(folder: Path, answers: Sequence[tuple[str, str]], strict: float, **changes: Any) -> None:
    """Result files of lm-eval for these answers."""
    results = {"results": {"gsm8k": {"exact_match,strict-match": strict, "exact_match_stderr,strict-match": 0.1,
                                     "exact_match,flexible-extract": strict}},
               "n-samples": {"gsm8k": {"original": len(answers), "effective": len(answers)}}}
    folder.mkdir(parents=True)
    (folder / "results_1.json").write_text(json.dumps(results | changes))
    lines = [sample(number, *answer, name=name) for number, answer in enumerate(answers) for name in ("strict-match", "flexible-extract")]
    (folder / "samples_gsm8k_1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


GOOD, EMPTY, NOTHING = ("#### 4", "4"), ("", "[invalid]"), ("I do not know", "[invalid]")
JUDGED: dict[str, tuple[list[tuple[str, str]], float, dict[str, str], dict[str, Any], int, str]] = {
    "at the threshold": ([GOOD] * 8, 0.91, {}, {}, 0, ""),
    "below": ([GOOD] * 8, 0.9099, {}, {}, 23, "gsm8k strict-match 0.9099 is below 0.91"),
    "empty allowed": ([GOOD] * 7 + [EMPTY], 0.95, {"EVAL_MAX_EMPTY_RATIO": "0.125"}, {}, 0, ""),
    "too many empty": ([GOOD] * 7 + [EMPTY], 0.95, {"EVAL_MAX_EMPTY_RATIO": "0.1"}, {}, 22, "12.5 % of the answers are empty"),
    "unextracted": ([GOOD] * 6 + [NOTHING] * 2, 0.95, {"EVAL_MAX_UNEXTRACTED_RATIO": "0.2"}, {}, 22, "nothing to extract in 25.0 %"),
    "limit": ([GOOD] * 5, 1.0, {"EVAL_LIMIT": "5"}, {}, 0, ""),
    "too few scored": ([GOOD] * 7, 1.0, {}, {}, 22, "gsm8k: 7 samples scored, expected 8"),
    "none scored": ([], 1.0, {}, {"n-samples": {}}, 22, "gsm8k: None samples scored, expected 8"),
    "records missing": ([GOOD] * 7, 1.0, {}, {"n-samples": {"gsm8k": {"effective": 8}}}, 22, "7 samples recorded of 8 scored"),
    "metric not scored": ([GOOD] * 8, 1.0, {"EVAL_THRESHOLDS": '{"gsm8k": {"strict": 0.9}}'}, {}, 22, "gsm8k strict has a threshold and no score"),
    "no threshold": ([GOOD] * 8, 1.0, {"EVAL_THRESHOLDS": '{"gsm8k": {}}'}, {}, 22, "no metric was compared with a threshold"),
    "NaN": ([GOOD] * 8, float("nan"), {}, {}, 22, "gsm8k strict-match has a threshold and no score"),
}


@pytest.mark.parametrize("case", JUDGED)
def test_judgement(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, strict, env, changes, code, reason = JUDGED[case]
    record(tmp_path / "eval", answers, strict, **changes)
    monkeypatch.syspath_prepend(str(TEMPLATES / "lib"))
    import eval_plan
    import eval_score

    thresholds = '{"gsm8k": {"strict-match": 0.91, "flexible-extract": 0.91}}'
    plan = eval_plan.load({"EVAL_THRESHOLDS": thresholds, "SRTGEN_RESULTS": str(tmp_path)} | env)
    try:
        score = eval_score.judge(plan, {"gsm8k": 8})
        found = (score.code, score.reason)
    except eval_plan.EvalError as error:
        found = (22, str(error))
    assert found[0] == code
    assert reason in found[1]


def test_two_results_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "eval", [GOOD] * 8, 1.0)
    (tmp_path / "eval" / "results_2.json").write_text("{}")
    monkeypatch.syspath_prepend(str(TEMPLATES / "lib"))
    import eval_plan
    import eval_score

    with pytest.raises(eval_plan.EvalError, match="2 files results_"):
        eval_score.judge(eval_plan.load({"SRTGEN_RESULTS": str(tmp_path)}), {"gsm8k": 8})


def test_protocol_is_written_beside_the_score(rig: EvalRig) -> None:
    """Cases 097, 105: served name with slashes, no tokenizer, one message a question, stops and length as planned."""
    rig.data["MODEL"] = "org/na,me=x"
    rig.env |= {"EVAL_CONC": "3", "https_proxy": "http://127.0.0.1:9",
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
    names = {path.name.partition("_20")[0] for path in (rig.results / "eval").iterdir()}
    assert {"meta_env.json", "results", "samples_gsm8k"} <= names
    meta = json.loads((rig.results / "eval" / "meta_env.json").read_text())
    assert (meta["framework"], meta["conc"], meta["model"]) == ("atom", 3, "org/na,me=x")


def test_terminated_evaluation(rig: EvalRig) -> None:
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


def test_completions_endpoint_and_a_second_run(rig: EvalRig) -> None:
    """Results of an older run do not count."""
    rig.data |= {"ENDPOINT": "completions", "CHAT_TEMPLATE": "0"}
    rig.write()
    (rig.results / "eval").mkdir()
    (rig.results / "eval" / "results_0.json").write_text('{"results": {"gsm8k": {"exact_match,strict-match": 0.0}}}')
    (rig.results / "eval" / "samples_gsm8k_0.jsonl").write_text("{}")
    with router(right) as server:
        rig.serve(server)
        code, output = rig.run()
        assert code == 0, output
        assert isinstance(server.bodies[0]["prompt"], str)
