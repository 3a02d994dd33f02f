"""eval_plan, eval_command, eval_run and eval_score: what is asked, run and judged; lm-eval is a small script."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from jobs.evaluation import plan_in
from jobs.shell import LIB, stub

sys.path.insert(0, str(LIB))
import eval_command  # noqa: E402  (found only by the path above)
import eval_plan  # noqa: E402
import eval_run  # noqa: E402
import eval_score  # noqa: E402
from eval_plan import EvalError, EvalPlan  # noqa: E402


@pytest.fixture
def plan(tmp_path: Path) -> EvalPlan:
    return plan_in(tmp_path)


# ---- eval_plan -------------------------------------------------------------------------------------------------------


def test_load_has_the_defaults_and_reads_the_rest(plan: EvalPlan) -> None:
    assert (plan.endpoint_url, plan.endpoint, plan.chat_template, plan.tasks, plan.concurrency) == ("http://r:1", "chat", True, ("gsm8k",), 16)
    assert (plan.max_tokens, plan.max_length, plan.gen_kwargs, plan.num_fewshot, plan.limit) == (5376, 9472, {"temperature": 0, "top_p": 1}, None,
                                                                                                 None)
    assert (plan.packages, plan.offline, plan.max_unextracted_ratio) == ("index", False, None)
    other = eval_plan.load({"EVAL_CONC": "3", "EVAL_CONCURRENCY": "9", "EVAL_TASKS": "a gsm8k", "EVAL_LIMIT": "0", "EVAL_CHAT_TEMPLATE": "0",
                            "EVAL_OFFLINE": "1",
                            "EVAL_MAX_UNEXTRACTED_RATIO": "0", "SRTGEN_PIP_INDEX_URL": "x", "EVAL_INDEX_URL": "y", "SLURM_JOB_ID": "7"})
    assert (other.concurrency, other.tasks, other.limit, other.chat_template, other.max_unextracted_ratio) == (3, ("a", "gsm8k"), 0, False, 0.0)
    assert (other.offline, other.packages, other.index_url, other.work) == (True, "wheels", "x", Path("/tmp/srtgen-7/eval"))
    assert plan.local and not other.local


@pytest.mark.parametrize(("env", "said"), [
    ({"EVAL_LIMIT": "x"}, "EVAL_LIMIT is not a whole number: 'x'"), ({"EVAL_META": "{"}, "EVAL_META is not JSON: '{'"),
    ({"EVAL_THRESHOLDS": "[1]"}, "EVAL_THRESHOLDS is not a JSON object")])
def test_a_plan_that_cannot_be(env: dict[str, str], said: str) -> None:
    with pytest.raises(EvalError) as failed:
        eval_plan.load(env)
    assert str(failed.value) == said


CONCURRENCIES = [({}, 16), ({"EVAL_CONC": "64 128"}, 16), ({"EVAL_CONC": "3", "EVAL_CONCURRENCY": "9"}, 9), ({"EVAL_CONC": ""}, 16)]


@pytest.mark.parametrize(("env", "concurrency"), CONCURRENCIES)
def test_to_a_command_of_the_recipes_own_the_concurrency_is_text(env: dict[str, str], concurrency: int) -> None:
    given = {"EVAL_MODEL": "org/m", "SLURM_JOB_ID": "7"}
    found = eval_plan.load_command({**given, **env})
    assert (found.model, found.concurrency, found.work) == ("org/m", concurrency, Path("/tmp/srtgen-7/eval"))
    assert found == eval_plan.load({**given, **{name: value for name, value in env.items() if name != "EVAL_CONC"}})


def test_the_rest_of_a_commands_plan_is_read_as_strictly() -> None:
    with pytest.raises(EvalError, match="is not a whole number: 'many'"):
        eval_plan.load_command({"EVAL_CONCURRENCY": "many", "EVAL_CONC": "5"})
    with pytest.raises(EvalError, match="EVAL_CONC is not a whole number"):
        eval_plan.load({"EVAL_CONC": "64 128"})


def test_parts_of_a_plan() -> None:
    assert [eval_plan._whole({"X": text}, "X", "7") for text in ("3", "")] == [3, 7] and eval_plan._whole({}, "X") is None
    assert (eval_plan._json({"X": '{"a": 1}'}, "X"), eval_plan._json({"X": ""}, "X")) == ({"a": 1}, {})


def test_a_complete_offline_folder_is_used(plan: EvalPlan) -> None:
    (plan.bundle / "offline").mkdir()
    assert not eval_plan.load({"SRTGEN_BUNDLE": str(plan.bundle)}).offline
    (plan.bundle / "offline" / "SHA256SUMS").touch()
    found = eval_plan.load({"SRTGEN_BUNDLE": str(plan.bundle)})
    assert found.offline and found.packages == "wheels" and found.wheels == plan.bundle / "offline" / "wheels"
    assert eval_plan.load({"EVAL_PACKAGES_PATH": "/w"}).wheels == Path("/w")


def test_work_folder_names_and_machine() -> None:
    assert eval_plan.work_folder({}) == Path("/tmp/srtgen-local/eval")
    assert eval_plan.requirements_name("3.12") == "requirements-3.12.txt"
    assert eval_plan.machine() == f"{os.uname().sysname} {os.uname().machine}"


def test_clean_environment_is_nobodys(plan: EvalPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "PYTHONPATH", "HF_HOME", "HF_TOKEN", "VIRTUAL_ENV", "LMEVAL_X", "KEPT_ONE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "theirs")
    env = eval_plan.clean_environment(plan)
    assert not {"PIP_INDEX_URL", "PYTHONPATH", "VIRTUAL_ENV", "LMEVAL_X", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "PIP_CERT"} & set(env)
    assert (env["HF_TOKEN"], env["KEPT_ONE"], env["HF_HOME"], env["HOME"]) == ("theirs", "theirs", f"{plan.work}/home/hf", f"{plan.work}/home")
    assert env["PIP_CONFIG_FILE"] == os.devnull
    with_ca = eval_plan.clean_environment(dataclasses.replace(plan, ca_file="/ca", offline=True))
    assert (with_ca["PIP_CERT"], with_ca["SSL_CERT_FILE"], with_ca["HF_HUB_OFFLINE"]) == ("/ca", "/ca", "1")
    assert "HF_HUB_OFFLINE" not in eval_plan.clean_environment(dataclasses.replace(plan, offline=True), offline=False)
    assert "HF_HUB_OFFLINE" in eval_plan.clean_environment(plan, offline=True)


def test_write_json_and_verdict_replace_at_once(plan: EvalPlan) -> None:
    eval_plan.write_json(plan.results / "x" / "a.json", {"é": 1})
    eval_plan.write_verdict(plan, 22, "so", metrics={})
    assert (plan.results / "x" / "a.json").read_text(encoding="utf-8") == '{\n "é": 1\n}\n'
    assert json.loads((plan.results / "verdict.json").read_text()) == {"code": 22, "reason": "so", "metrics": {}}
    assert sorted(path.name for path in plan.results.rglob("*")) == ["a.json", "verdict.json", "x"]


# ---- eval_command ----------------------------------------------------------------------------------------------------


COMMANDS = [("exit 0", 0, ""), ("exit 7", 22, "the evaluation command ended with exit code 7"),
            ('[[ "$MODEL_NAME $EVAL_CONC" == "org/m 16" ]]', 0, ""), ("read x || exit 0", 0, "")]


def own_command(plan: EvalPlan, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (plan.bundle / "eval").unlink()
    (plan.bundle / "eval").mkdir()
    (plan.bundle / "eval" / "command.sh").write_text(text)
    monkeypatch.setattr(eval_command, "load_command", lambda: plan)


@pytest.mark.parametrize(("text", "code", "reason"), COMMANDS)
def test_main_of_eval_command(text: str, code: int, reason: str, plan: EvalPlan, monkeypatch: pytest.MonkeyPatch, handlers: None) -> None:
    own_command(plan, text, monkeypatch)
    assert eval_command.main() == code
    verdict = json.loads((plan.results / "verdict.json").read_text())
    assert (verdict["code"], verdict["reason"], verdict["command_exit_code"]) == (code, reason, 7 if code else 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_recipes_command(number: signal.Signals, plan: EvalPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                           handlers: None) -> None:
    own_command(plan, f"trap 'printf ended >{tmp_path}/end; exit 0' TERM\nkill -{number.name} {os.getpid()}\nsleep 20 & wait\n", monkeypatch)
    with pytest.raises(SystemExit) as ended:
        eval_command.main()
    assert ended.value.code == 128 + number and not (plan.results / "verdict.json").exists()
    end = time.monotonic() + 10
    while not (tmp_path / "end").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


# ---- eval_run --------------------------------------------------------------------------------------------------------


def test_protocol_says_everything(plan: EvalPlan, tmp_path: Path) -> None:
    config = eval_run.protocol(plan, tmp_path)
    assert (config["model"], config["model_args"]["base_url"]) == ("local-chat-completions", "http://r:1/v1/chat/completions")
    assert (config["apply_chat_template"], config["fewshot_as_multiturn"], config["gen_kwargs"]["max_tokens"]) == (True, False, 5376)
    assert not {"limit", "num_fewshot"} & set(config)
    plain = eval_run.protocol(dataclasses.replace(plan, endpoint="completions", chat_template=False, limit=0, num_fewshot=0,
                                                  gen_kwargs={"max_tokens": 7}), tmp_path)
    assert (plain["model"], plain["model_args"]["base_url"]) == ("local-completions", "http://r:1/v1/completions")
    assert (plain["limit"], plain["num_fewshot"], plain["gen_kwargs"], plain["apply_chat_template"]) == (0, 0, {"max_tokens": 7}, False)


def test_environment_of_lm_eval_has_no_proxy(plan: EvalPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTPS_PROXY", "All_Proxy", "no_proxy"):
        monkeypatch.setenv(name, "x")
    env = eval_run.environment(plan)
    assert {name for name in env if name.lower().endswith("_proxy")} == {"no_proxy"} and env["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in eval_run.environment(dataclasses.replace(plan, tasks=("other",)))


LM_EVAL = """config="${{@: -1}}"
printf '%s|' "$@" >{t}/argv
output="$(sed -n 's/.*"output_path": "\\(.*\\)".*/\\1/p' "${{config}}")"
mkdir -p "${{output}}/model"
printf '%s' '{results}' >"${{output}}/model/results_1.json"
printf '%s\\n' '{sample}' >"${{output}}/model/samples_gsm8k_1.jsonl"
{end}"""
RESULTS = {"results": {"gsm8k": {"exact_match,strict-match": 1.0}}, "n-samples": {"gsm8k": {"effective": 1}}}
SAMPLE = {"doc_id": 0, "resps": [["4"]], "filtered_resps": ["4"], "filter": "strict-match"}


def lm_eval(tmp_path: Path, end: str = "exit 0", **results: Any) -> str:
    stub(tmp_path, "lm", LM_EVAL.format(t=tmp_path, results=json.dumps({**RESULTS, **results}), sample=json.dumps(SAMPLE), end=end))
    return str(tmp_path / "lm")


@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137)])
def test_evaluate_flattens_the_files_and_keeps_the_code(end: str, code: int, plan: EvalPlan, tmp_path: Path, handlers: None) -> None:
    assert eval_run.evaluate(plan, lm_eval(tmp_path, end)) == code
    assert (tmp_path / "argv").read_text() == f"-I|-m|lm_eval|run|--config|{plan.results}/lm_eval.json|"
    assert sorted(path.name for path in plan.results.iterdir()) == ["lm_eval.json", "results_1.json", "samples_gsm8k_1.jsonl"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_lm_eval(number: signal.Signals, plan: EvalPlan, tmp_path: Path, handlers: None) -> None:
    python = lm_eval(tmp_path, f"trap 'printf ended >{tmp_path}/end; exit 0' TERM; kill -{number.name} {os.getpid()}; sleep 20 & wait")
    with pytest.raises(SystemExit) as ended:
        eval_run.evaluate(plan, python)
    assert ended.value.code == 128 + number
    end = time.monotonic() + 10
    while not (tmp_path / "end").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_meta_and_fresh(plan: EvalPlan) -> None:
    plan.results.mkdir(parents=True)
    names = ("results_1.json", "samples_a_1.jsonl", "meta_env.json", "verdict.json", "venv.json")
    for name in names:
        (plan.results / name).write_text(name)
    assert eval_run.meta(dataclasses.replace(plan, meta={"hw": "x", "conc": 1})) == {"hw": "x", "conc": 16, "model": "org/m", "tasks": ["gsm8k"]}
    eval_run.fresh(plan)
    assert [path.name for path in plan.results.iterdir()] == ["venv.json"]


RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None, int, str]] = {
    "good": ("exit 0", {}, {"gsm8k": 1}, 0, ""), "low": ("exit 0", {"results": {"gsm8k": {"exact_match,strict-match": 0.5}}}, {"gsm8k": 1}, 23,
                                                         "gsm8k strict-match 0.5000 is below 0.9"),
    "failed": ("exit 3", {}, {"gsm8k": 1}, 22, "lm-eval ended with exit code 3"),
    "too few": ("exit 0", {}, {"gsm8k": 2}, 22, "gsm8k: 1 samples scored, expected 2"),
    "not prepared": ("exit 0", {}, None, 22, "[Errno 2] No such file or directory")}


@pytest.mark.parametrize("case", RUNS)
def test_main_of_eval_run(case: str, plan: EvalPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                          handlers: None) -> None:
    end, results, documents, code, reason = RUNS[case]
    monkeypatch.setattr(eval_run, "load", lambda: plan)
    if documents is not None:
        eval_plan.write_json(plan.results / "venv.json", {"python": lm_eval(tmp_path, end, **results), "check": {"documents": documents}})
    assert eval_run.main() == code
    verdict = json.loads((plan.results / "verdict.json").read_text())
    assert verdict["code"] == code and verdict["reason"].startswith(reason) and bool(verdict["reason"]) == bool(reason)
    printed = capsys.readouterr()
    assert ("eval: passed" in printed.out) == (code == 0)


# ---- eval_score ------------------------------------------------------------------------------------------------------


def test_single(tmp_path: Path) -> None:
    with pytest.raises(EvalError, match=f"0 files a_. in {tmp_path.name}, expected one"):
        eval_score.single(tmp_path, "a_*")
    (tmp_path / "a_1").touch()
    assert eval_score.single(tmp_path, "a_*") == tmp_path / "a_1"
    (tmp_path / "a_2").touch()
    with pytest.raises(EvalError, match="2 files"):
        eval_score.single(tmp_path, "a_*")


@pytest.mark.parametrize(("limit", "documents", "count"), [(None, 8, 8), (5, 8, 5), (9, 8, 8), (0, 8, 0), (5, None, None)])
def test_expected(limit: int | None, documents: int | None, count: int | None, plan: EvalPlan) -> None:
    assert eval_score.expected(dataclasses.replace(plan, limit=limit), documents) == count


def test_metrics_of() -> None:
    found = {"exact_match,strict": 0.5, "exact_match_stderr,strict": 0.1, "alias": "x", "acc,none": float("nan"), "f1,x": "0.5", "n,y": 1}
    assert eval_score.metrics_of({"results": {"t": found}}, "t") == {"strict": 0.5, "y": 1.0}
    assert eval_score.metrics_of({}, "t") == {} == eval_score.metrics_of({"results": {}}, "t")


def answer(text: str | None, taken: str | None, name: str = "strict-match") -> dict[str, Any]:
    return {"resps": [[text]], "filtered_resps": [taken], "filter": name}


SHARES: list[tuple[list[dict[str, Any]], float, float]] = [
    ([], 1.0, 1.0), ([answer("4", "4"), answer(" \n", "[invalid]"), answer("x", "[invalid]"), answer("5", "5")], 0.25, 0.5),
    ([answer("4", "4"), answer("", "", "flexible")], 0.0, 0.0), ([answer(None, None, "none"), answer("a", "a", "none")], 0.5, 0.5),
    ([{"resps": []}], 1.0, 1.0),
    ([{"resps": [[]], "filtered_resps": []}], 1.0, 1.0)]


@pytest.mark.parametrize(("samples", "empty", "unextracted"), SHARES)
def test_shares_of(samples: list[dict[str, Any]], empty: float, unextracted: float) -> None:
    assert eval_score.shares_of(samples) == {"empty": empty, "unextracted": unextracted}


SCORED: dict[str, tuple[dict[str, Any], int | None, int, dict[str, float], str]] = {  # n-samples, documents, records, shares -> problem
    "good": ({"effective": 4}, 4, 4, {}, ""), "size unknown": ({"effective": 4}, None, 4, {}, ""),
                                                                                    "none": ({}, None, 0, {},
                                                                                             "t: None samples scored, expected None"),
    "few": ({"effective": 3}, 4, 3, {}, "t: 3 samples scored, expected 4"),
                                                                                    "unrecorded": ({"effective": 4}, 4, 3, {},
                                                                                                   "t: 3 samples recorded of 4 scored"),
    "empty": ({"effective": 4}, 4, 4, {"empty": 0.26}, "t: 26.0 % of the answers are empty, allowed 25.0 %"),
                                                                                    "some empty": ({"effective": 4}, 4, 4, {"empty": 0.25}, ""),
    "unextracted": ({"effective": 4}, 4, 4, {"unextracted": 0.51}, "t: nothing to extract in 51.0 % of the answers, allowed 50.0 %")}


@pytest.mark.parametrize("case", SCORED)
def test_problems_of_a_task(case: str, plan: EvalPlan) -> None:
    counts, documents, records, shares, said = SCORED[case]
    made = dataclasses.replace(plan, max_empty_ratio=0.25, max_unextracted_ratio=0.5)
    samples = [{"doc_id": number} for number in range(records)] * 2  # a line for each filter
    found = eval_score._task_problems(made, "t", {"n-samples": {"t": counts}}, documents, samples, {"empty": 0.0, "unextracted": 0.0, **shares})
    assert found == ([said] if said else [])


def test_answers_and_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    assert eval_score._answers(tmp_path / "s.jsonl") == [{"a": 1}, {"a": 2}]
    assert [eval_score._empty(sample) for sample in (answer("x", ""), answer(" \t", ""), answer(None, ""), {"resps": [[]]}, {})] == [False, True,
                                                                                                                                     True, True, True]


def test_below(plan: EvalPlan) -> None:
    made = dataclasses.replace(plan, thresholds={"a": {"x": 0.5, "y": 0.25}, "b": {}})
    assert eval_score.below(made, {"a": {"x": 0.5, "y": 0.3}}) == []
    assert eval_score.below(made, {"a": {"x": 0.49996, "y": 0.2}}) == ["a x 0.5000 is below 0.5", "a y 0.2000 is below 0.25"]
    with pytest.raises(EvalError, match="a y has a threshold and no score"):
        eval_score.below(made, {"a": {"x": 0.9}})
    with pytest.raises(EvalError, match="no metric was compared"):
        eval_score.below(dataclasses.replace(plan, thresholds={"a": {}}), {"a": {"x": 1}})
