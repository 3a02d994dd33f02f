"""The evaluation's programs, function by function; lm-eval and pip are small scripts, venvs and servers are real."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs.server import server
from jobs.shell import LIB, TEMPLATES, stub

sys.path.insert(0, str(LIB))
import eval_command  # noqa: E402  (found only by the path above)
import eval_data  # noqa: E402
import eval_offline  # noqa: E402
import eval_plan  # noqa: E402
import eval_prefetch  # noqa: E402
import eval_prepare  # noqa: E402
import eval_run  # noqa: E402
import eval_score  # noqa: E402
import eval_venv  # noqa: E402
from eval_plan import EvalError, EvalPlan  # noqa: E402

VERSION = "%d.%d" % sys.version_info[:2]
PYTHON = sys.executable


@pytest.fixture
def plan(tmp_path: Path) -> EvalPlan:
    """The default plan of a bundle with the real lists; its work folder is ours."""
    bundle = tmp_path / "bun dle"
    bundle.mkdir()
    (bundle / "eval").symlink_to(TEMPLATES / "eval")
    made = eval_plan.load({"SRTGEN_BUNDLE": str(bundle), "SRTGEN_RESULTS": str(tmp_path / "results"), "EVAL_MODEL": "org/m", "SRT_ENDPOINT": "http://r:1/",
                           "EVAL_THRESHOLDS": '{"gsm8k": {"strict-match": 0.9}}', "EVAL_PYTHON": sys.executable})
    (tmp_path / "work").mkdir()
    return dataclasses.replace(made, work=tmp_path / "work")


@pytest.fixture
def handlers() -> Iterator[None]:
    """Signal handlers as they were."""
    old = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in old.items():
        signal.signal(number, handler)


def questions(folder: Path, **files: str) -> Path:
    """A task's files; the text of a split may be given."""
    target = folder / "gsm8k"
    target.mkdir(parents=True)
    for split in ("train", "test"):
        (target / f"{split}.jsonl").write_text(files.get(split, '{"question": "a", "answer": "b"}\n' * 2))
    return folder


# ---- eval_plan -------------------------------------------------------------------------------------------------------


def test_load_has_the_defaults_and_reads_the_rest(plan: EvalPlan) -> None:
    assert (plan.endpoint_url, plan.endpoint, plan.chat_template, plan.tasks, plan.concurrency) == ("http://r:1", "chat", True, ("gsm8k",), 16)
    assert (plan.max_tokens, plan.max_length, plan.gen_kwargs, plan.num_fewshot, plan.limit) == (5376, 9472, {"temperature": 0, "top_p": 1}, None, None)
    assert (plan.packages, plan.offline, plan.max_unextracted_ratio, plan.result_copies) == ("index", False, None, ())
    other = eval_plan.load({"EVAL_CONC": "3", "EVAL_CONCURRENCY": "9", "EVAL_TASKS": "a gsm8k", "EVAL_LIMIT": "0", "EVAL_CHAT_TEMPLATE": "0", "EVAL_OFFLINE": "1",
                            "EVAL_MAX_UNEXTRACTED_RATIO": "0", "SRTGEN_PIP_INDEX_URL": "x", "EVAL_INDEX_URL": "y", "SLURM_JOB_ID": "7",
                            "SRTGEN_LM_EVAL_RESULT_DIR": "/c", "SRTCTL_LM_EVAL_RESULT_DIR": "/c"})
    assert (other.concurrency, other.tasks, other.limit, other.chat_template, other.max_unextracted_ratio) == (3, ("a", "gsm8k"), 0, False, 0.0)
    assert (other.offline, other.packages, other.index_url, other.work, other.result_copies) == (True, "wheels", "x", Path("/tmp/srtgen-7/eval"), ("/c",))
    assert plan.local and not other.local


@pytest.mark.parametrize(("env", "said"), [
    ({"EVAL_LIMIT": "x"}, "EVAL_LIMIT is not a whole number: 'x'"), ({"EVAL_META": "{"}, "EVAL_META is not JSON: '{'"), ({"EVAL_THRESHOLDS": "[1]"}, "EVAL_THRESHOLDS is not a JSON object")])
def test_a_plan_that_cannot_be(env: dict[str, str], said: str) -> None:
    with pytest.raises(EvalError) as failed:
        eval_plan.load(env)
    assert str(failed.value) == said


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


# ---- eval_offline and the folder that prefetch makes ------------------------------------------------------------------


def test_digest(tmp_path: Path) -> None:
    content = os.urandom((1 << 20) + 7)
    (tmp_path / "f").write_bytes(content)
    assert eval_offline.digest(tmp_path / "f") == hashlib.sha256(content).hexdigest()


def offline_folder(plan: EvalPlan) -> Path:
    """A finished offline/ with one wheel and a task."""
    offline = plan.bundle / "offline"
    (offline / "wheels").mkdir(parents=True)
    (offline / "wheels" / "a-1-py3-none-any.whl").write_text("wheel")
    (offline / "wheels" / f"requirements-{VERSION}.txt").write_text("a==1\n")
    questions(offline / "task-data")
    eval_prefetch.write_sums(offline)
    return offline


DAMAGES: dict[str, tuple[str, str]] = {"whole": ("true", ""), "missing": ("rm wheels/a-1-py3-none-any.whl", "a-1-py3-none-any.whl is missing"),
                                       "edited": ("printf x >>task-data/gsm8k/test.jsonl", "test.jsonl is not the file that prefetch.sh wrote"),
                                       "no data": ("sed -i /task-data/d SHA256SUMS", "task-data holds nothing"),
                                       "no sums": ("rm SHA256SUMS", "SHA256SUMS is missing: run prefetch.sh"), "empty sums": (": >SHA256SUMS", "wheels holds nothing")}


@pytest.mark.parametrize("case", DAMAGES)
def test_problems_of_an_offline_folder(case: str, plan: EvalPlan, capsys: pytest.CaptureFixture[str]) -> None:
    damage, said = DAMAGES[case]
    offline = offline_folder(plan)
    subprocess.run(["bash", "-c", damage], cwd=offline, check=True)
    found = eval_offline.problems(offline)
    assert said in "".join(found) and bool(found) == bool(said)
    assert eval_prefetch.complete(plan, VERSION) == (not said)
    assert eval_offline.main(str(plan.bundle)) == bool(said) and capsys.readouterr().out == "".join(line + "\n" for line in found)


def test_complete_is_of_this_python_and_these_tasks(plan: EvalPlan) -> None:
    offline_folder(plan)
    assert not eval_prefetch.complete(plan, "2.7")
    assert not eval_prefetch.complete(dataclasses.replace(plan, tasks=("gsm8k", "other")), VERSION)


def test_write_sums_covers_every_file_and_is_sorted(plan: EvalPlan) -> None:
    offline = offline_folder(plan)
    (offline / "other").write_text("x")
    eval_prefetch.write_sums(offline)
    lines = (offline / "SHA256SUMS").read_text().splitlines()
    assert [line.partition("  ")[2] for line in lines] == ["task-data/gsm8k/test.jsonl", "task-data/gsm8k/train.jsonl", "wheels/a-1-py3-none-any.whl",
                                                           f"wheels/requirements-{VERSION}.txt"]
    assert lines[2].startswith(hashlib.sha256(b"wheel").hexdigest()) and not (offline / "SHA256SUMS.tmp").exists()


def test_lists_parts_wheels_and_sources(plan: EvalPlan) -> None:
    ready, source = eval_prefetch.lists(plan, "3.12")
    assert any(line.startswith("pip==") for line in ready) and any(line.startswith("lm") for line in ready + source)
    assert all("# source" in line for line in source) and not any("# source" in line or line.startswith("#") for line in ready)
    with pytest.raises(EvalError, match="no pinned packages for Python 2.7"):
        eval_prefetch.lists(plan, "2.7")


def test_write_list_names_every_wheel_with_its_hash(tmp_path: Path) -> None:
    for name in ("B_c-2.0-py3-none-any.whl", "a-1-cp312-cp312-manylinux_2_17_x86_64.whl", "pip-24-py3-none-any.whl"):
        (tmp_path / name).write_text(name)
    eval_prefetch.write_list(tmp_path, "3.12")
    head, *lines = (tmp_path / "requirements-3.12.txt").read_text().splitlines()
    assert head.startswith("# Python 3.12") and [line.split(" ")[0] for line in lines] == ["b_c==2.0", "a==1"]
    assert lines[0].endswith("--hash=sha256:" + hashlib.sha256(b"B_c-2.0-py3-none-any.whl").hexdigest())
    assert eval_venv.frozen((tmp_path / "requirements-3.12.txt").read_text()) == ["b_c==2.0", "a==1"]
    (tmp_path / "x-1-cp312-cp312-macosx_11_0_arm64.whl").touch()
    with pytest.raises(EvalError, match="x-1-cp312-cp312-macosx_11_0_arm64.whl is not for x86-64 Linux"):
        eval_prefetch.write_list(tmp_path, "3.12")


@pytest.mark.parametrize("present", [True, False])
def test_put_replaces_a_folder(present: bool, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "new").touch()
    (tmp_path / "part.old").mkdir()  # of a run that was killed here
    if present:
        (tmp_path / "final").mkdir()
        (tmp_path / "final" / "old").touch()
    eval_prefetch.put(tmp_path / "part", tmp_path / "final")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["final", "final/new"]


PIP = """#!{python}
import json, os, sys
words = sys.argv[1:]
with open({calls!r}, "a") as stream:
    stream.write(json.dumps([words, os.environ.get("PIP_INDEX_URL"), "HF_HUB_OFFLINE" in os.environ]) + "\\n")
if words[:2] == ["-m", "pip"]:
    folder = words[words.index("--dest" if "download" in words else "--wheel-dir") + 1]
    open(folder + ("/a-1-py3-none-any.whl" if "download" in words else "/b-2-py3-none-any.whl"), "w").write("x")
    sys.exit({code})
"""


def fake_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> Path:
    """A Python whose pip writes a wheel and down how it was called."""
    path = tmp_path / "python"
    path.write_text(PIP.format(python=PYTHON, calls=f"{tmp_path}/calls", code=code))
    path.chmod(0o755)
    monkeypatch.setattr(eval_prefetch.sys, "executable", str(path))
    return tmp_path / "calls"


def pip_calls(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_pip_checks_hashes_and_takes_the_index_from_the_environment(plan: EvalPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_pip(tmp_path, monkeypatch)
    secret = dataclasses.replace(plan, index_url="https://u:p@h/simple", offline=True)
    eval_prefetch.pip(["download", "--dest", str(tmp_path)], ["a==1 --hash=x", "b==2"], secret, "fetching")
    ((words, index, offline),) = pip_calls(calls)
    listing = Path(words[-1])
    assert words == ["-m", "pip", "download", "--dest", str(tmp_path), "--no-deps", "--require-hashes", "-r", str(listing)]
    assert (index, offline, listing.read_text()) == ("https://u:p@h/simple", False, "a==1 --hash=x\nb==2\n")
    fake_pip(tmp_path, monkeypatch, 4)
    with pytest.raises(EvalError, match=r"fetching failed \(4\)"):
        eval_prefetch.pip(["download", "--dest", str(tmp_path)], [], plan, "fetching")


def test_fetch_wheels_for_the_target_and_a_list_of_them(plan: EvalPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_pip(tmp_path, monkeypatch)
    (tmp_path / "wheels").mkdir()
    eval_prefetch.fetch_wheels(plan, "3.12", tmp_path / "wheels")
    (download, *_), (wheel, *_) = pip_calls(calls)
    assert download[2] == "download" and download[download.index("--python-version") + 1] == "3.12" and "cp312" in download
    assert "manylinux_2_28_x86_64" in download and "--only-binary=:all:" in download and wheel[2] == "wheel"
    assert eval_venv.frozen((tmp_path / "wheels" / "requirements-3.12.txt").read_text()) == ["a==1", "b==2"]


def test_fetch_data_of_prefetch(plan: EvalPlan, tmp_path: Path) -> None:
    source = dataclasses.replace(plan, task_data=str(questions(tmp_path / "named")))
    (tmp_path / "data").mkdir()
    assert eval_prefetch.fetch_data(source, tmp_path / "data") == {"gsm8k": {"train": 2, "test": 2}}
    with pytest.raises(EvalError, match="no local data is known for a b"):
        eval_prefetch.fetch_data(dataclasses.replace(source, tasks=("a", "gsm8k", "b")), tmp_path / "data")


def test_prefetch_and_its_main(plan: EvalPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls = fake_pip(tmp_path, monkeypatch)
    for name, value in {"SRTGEN_BUNDLE": str(plan.bundle), "SRTGEN_TASK_DATA": str(questions(tmp_path / "named")), "EVAL_TARGET_PYTHON": "3.11"}.items():
        monkeypatch.setenv(name, value)
    assert eval_prefetch.main() == 0
    assert capsys.readouterr().out == "offline/: 2 wheels for Python 3.11, task data {'gsm8k': {'train': 2, 'test': 2}}\n"
    assert eval_offline.problems(plan.bundle / "offline") == [] and not (plan.bundle / "offline" / ".part").exists()
    assert eval_prefetch.main() == 0 and capsys.readouterr().out == "offline/ is complete for Python 3.11\n" and len(pip_calls(calls)) == 2
    eval_prefetch.prefetch(plan, "3.11")
    assert "is complete" in capsys.readouterr().out and plan.work.exists()
    fake_pip(tmp_path, monkeypatch, 1)
    monkeypatch.setenv("EVAL_TARGET_PYTHON", "3.12")
    assert eval_prefetch.main() == 1 and "prefetch.sh: fetching wheels failed (1)" in capsys.readouterr().err
    assert "SHA256SUMS is missing" in eval_offline.problems(plan.bundle / "offline")[0]  # half a folder is not taken for a whole one


# ---- eval_data -------------------------------------------------------------------------------------------------------


ROW = '{"question": "a", "answer": "b"}\n'
FILES = [(ROW * 3, 3, ""), (ROW + '{"question": 1, "answer": "b"}', 0, "a line without question and answer"), ("", 0, "is empty"), ("<html>", 0, "can't be used"),
         ("[1]\n", 0, "can't be used"), (None, 0, "can't be used")]


@pytest.mark.parametrize(("text", "count", "said"), FILES)
def test_check_file(text: str | None, count: int, said: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "f.jsonl").write_text(text)
    if not said:
        assert eval_data.check_file(tmp_path / "f.jsonl") == count
        return
    with pytest.raises(EvalError, match=said):
        eval_data.check_file(tmp_path / "f.jsonl")


@pytest.mark.parametrize(("offline", "named", "bundled", "expected"), [
    (False, "", False, ""), (False, "", True, "{b}/offline/task-data"), (False, "/x", True, "/x"), (True, "/x", False, "{b}/offline/task-data")])
def test_source_of(offline: bool, named: str, bundled: bool, expected: str, plan: EvalPlan) -> None:
    if bundled:
        (plan.bundle / "offline" / "task-data").mkdir(parents=True)
    made = dataclasses.replace(plan, offline=offline, task_data=named)
    assert eval_data.source_of(made) == expected.format(b=plan.bundle)


def test_fetch_from_a_folder_replaces_what_was_there(plan: EvalPlan, tmp_path: Path) -> None:
    named = questions(tmp_path / "named")
    target = tmp_path / "target" / "gsm8k"
    target.mkdir(parents=True)
    (target / "old").touch()
    record = eval_data.fetch(plan, None, "gsm8k", target, str(named))
    assert record == {"source": str(named), "documents": {"train": 2, "test": 2}, "sha256": dict.fromkeys(("train", "test"), hashlib.sha256((ROW * 2).encode()).hexdigest())}
    assert sorted(path.name for path in target.iterdir()) == ["test.jsonl", "train.jsonl"]
    (named / "gsm8k" / "test.jsonl").unlink()
    with pytest.raises(EvalError, match="task data: .*/gsm8k/test.jsonl is missing"):
        eval_data.fetch(plan, None, "gsm8k", target, str(named))
    assert (target / "test.jsonl").exists()


def test_fetch_from_a_url_shows_no_password(plan: EvalPlan, tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(path: str, body: Any) -> tuple[int, Any]:
        asked.append(path)
        return 200, ROW.encode()

    with server(answer) as port:
        eval_data.fetch(plan, None, "gsm8k", tmp_path / "t", f"http://127.0.0.1:{port}/data/")
    assert asked == ["/data/gsm8k/train.jsonl", "/data/gsm8k/test.jsonl"]
    with pytest.raises(EvalError) as failed:
        eval_data.fetch(plan, None, "gsm8k", tmp_path / "t", "http://user:secret@127.0.0.1:9/data")
    assert "secret" not in str(failed.value) and "127.0.0.1:9/data/gsm8k/train.jsonl" in str(failed.value)
    with server(lambda path, body: (404, b"")) as port, pytest.raises(EvalError, match="404"):
        eval_data.fetch(plan, None, "gsm8k", tmp_path / "t", f"http://127.0.0.1:{port}")


def test_fetch_from_the_hub_by_the_environments_python(plan: EvalPlan, tmp_path: Path) -> None:
    stub(tmp_path, "python", f"""[[ "$1 $2" == '-I -c' && "$4 $5" == 'openai/gsm8k main' ]] || exit 9
for split in train test; do printf '%s\\n' '{ROW.strip()}' >"$6/${{split}}.jsonl"; done""")
    record = eval_data.fetch(plan, str(tmp_path / "python"), "gsm8k", tmp_path / "t", "")
    assert (record["source"], record["documents"]) == ("openai/gsm8k", {"train": 1, "test": 1})
    stub(tmp_path, "python", "printf 'Traceback\\nConnectionError: no route\\n\\n'; exit 1")
    with pytest.raises(EvalError, match="openai/gsm8k from the hub: ConnectionError: no route; SRTGEN_TASK_DATA may name"):
        eval_data.fetch(plan, str(tmp_path / "python"), "gsm8k", tmp_path / "t", "")
    with pytest.raises(EvalError, match="no source for gsm8k"):
        eval_data.fetch(plan, None, "gsm8k", tmp_path / "t", "")


def test_a_download_is_checked_with_the_named_authority(tmp_path: Path) -> None:
    with server(lambda path, body: (200, b"content")) as port:
        eval_data._download(f"http://127.0.0.1:{port}/x", tmp_path / "x", "/no/ca")  # no authority without https
        assert (tmp_path / "x").read_bytes() == b"content"
        with pytest.raises(EvalError, match="^eval.ca_file /no/ca can't be used: .*No such file"):
            eval_data._download(f"https://127.0.0.1:{port}/x", tmp_path / "x", "/no/ca")
        with pytest.raises(EvalError, match="task data: https://127.0.0.1:.*/x: "):
            eval_data._download(f"https://127.0.0.1:{port}/x", tmp_path / "x", "")


def test_sources_of_a_tasks_files(tmp_path: Path) -> None:
    named = questions(tmp_path / "named")
    (tmp_path / "t").mkdir()
    eval_data._from_named(str(named), "gsm8k", tmp_path / "t", "")
    assert (tmp_path / "t" / "test.jsonl").read_text() == ROW * 2
    with pytest.raises(EvalError, match="other/train.jsonl is missing"):
        eval_data._from_named(str(named), "other", tmp_path / "t", "")
    stub(tmp_path, "silent", "exit 1")
    with pytest.raises(EvalError, match="from the hub: no output;"):
        eval_data._from_hub(str(tmp_path / "silent"), "gsm8k", tmp_path / "t", {})


def test_fetch_all_takes_our_tasks_and_refuses_others_offline(plan: EvalPlan, tmp_path: Path) -> None:
    made = dataclasses.replace(plan, task_data=str(questions(tmp_path / "named")), tasks=("gsm8k", "other"))
    assert list(eval_data.fetch_all(made, "python3")) == ["gsm8k"]
    assert (plan.work / "task-data" / "gsm8k" / "test.jsonl").is_file()
    with pytest.raises(EvalError, match="offline: no local data is known for other"):
        eval_data.fetch_all(dataclasses.replace(made, offline=True), "python3")


# ---- eval_venv -------------------------------------------------------------------------------------------------------


ENV = {"PATH": "/usr/bin:/bin"}


def test_run_of_a_command() -> None:
    assert eval_venv.run(["bash", "-c", "printf out; printf err >&2; read x || :"], ENV, "it") == "outerr"
    with pytest.raises(EvalError) as failed:
        eval_venv.run(["bash", "-c", "for n in {1..9}; do printf 'line %s\\n\\n' $n; done; exit 3"], ENV, "it")
    assert str(failed.value) == "it failed (3): line 4 / line 5 / line 6 / line 7 / line 8 / line 9"
    with pytest.raises(EvalError, match="^it: /no/such: No such file or directory$"):
        eval_venv.run(["/no/such"], ENV, "it")


def test_interpreter_says_what_it_is() -> None:
    found = eval_venv.interpreter(sys.executable, ENV)
    assert found == eval_venv.Interpreter(sys.executable, sys.prefix, VERSION, eval_plan.machine())


BASE = eval_venv.Interpreter("/p/python3", "/p", "3.12", "Linux x86_64")


def test_requirements_of_the_bundle_or_of_the_wheels(plan: EvalPlan, tmp_path: Path) -> None:
    assert eval_venv.requirements(plan, BASE) == plan.bundle / "eval" / "requirements-3.12.txt"
    with pytest.raises(EvalError, match="are for Python 3.10, 3.11, 3.12, 3.13, /p/python3 is 3.9"):
        eval_venv.requirements(plan, BASE._replace(version="3.9"))
    with pytest.raises(EvalError, match="the pinned packages are for Linux x86_64"):
        eval_venv.requirements(plan, BASE._replace(platform="Linux aarch64"))
    wheels = dataclasses.replace(plan, packages="wheels", packages_path=str(tmp_path))
    with pytest.raises(EvalError, match="requirements-3.12.txt is missing: fill the folder with prefetch.sh for Python 3.12"):
        eval_venv.requirements(wheels, BASE)
    (tmp_path / "requirements-3.12.txt").touch()
    assert eval_venv.requirements(wheels, BASE._replace(platform="Linux aarch64")) == tmp_path / "requirements-3.12.txt"


def test_key_changes_with_all_that_decides_and_valid_compares_it(plan: EvalPlan, tmp_path: Path) -> None:
    listing = tmp_path / "list"
    listing.write_text("a==1\n")
    keys = [eval_venv.key(plan, BASE, listing), eval_venv.key(plan, BASE._replace(prefix="/q"), listing), eval_venv.key(plan, BASE._replace(version="3.11"), listing),
            eval_venv.key(dataclasses.replace(plan, packages="wheels"), BASE, listing), eval_venv.key(dataclasses.replace(plan, system_site_packages=True), BASE, listing)]
    listing.write_text("a==2\n")
    keys.append(eval_venv.key(plan, BASE, listing))
    assert len(set(keys)) == 6 and eval_venv.key(plan, BASE, listing) == keys[5]
    (tmp_path / "venv").mkdir()
    assert not eval_venv.valid(tmp_path / "venv", keys[0]) and not eval_venv.valid(tmp_path / "absent", keys[0])
    (tmp_path / "venv" / eval_venv.MARKER).write_text(keys[0] + "\n")
    assert eval_venv.valid(tmp_path / "venv", keys[0]) and not eval_venv.valid(tmp_path / "venv", keys[1])


def venv_with(tmp_path: Path, ensurepip: bool) -> Path:
    stub(tmp_path / "venv" / "bin", "python", f'[[ "$*" == "-I -m ensurepip" ]] && exit {0 if ensurepip else 1}\nprintf "%s|" "$@" >{tmp_path}/installed')
    return tmp_path / "venv"


def test_pip_command_takes_the_first_pip_there_is(plan: EvalPlan, tmp_path: Path) -> None:
    python = str(tmp_path / "venv" / "bin" / "python")
    assert eval_venv.pip_command(plan, venv_with(tmp_path, True), ENV) == [python, "-I", "-m", "pip"]
    (tmp_path / "pip-24.0-py3-none-any.whl").touch()
    (tmp_path / "pip-25.0-py3-none-any.whl").touch()
    wheels = dataclasses.replace(plan, packages="wheels", packages_path=str(tmp_path))
    assert eval_venv.pip_command(wheels, venv_with(tmp_path, False), ENV) == [python, f"{tmp_path}/pip-25.0-py3-none-any.whl/pip"]
    stub(tmp_path, "image", f'[[ "$*" == "-m pip --python {python} --version" ]]')
    image = dataclasses.replace(plan, python=str(tmp_path / "image"))
    assert eval_venv.pip_command(image, venv_with(tmp_path, False), ENV) == [f"{tmp_path}/image", "-m", "pip", "--python", python]
    stub(tmp_path, "image", "exit 2")
    with pytest.raises(EvalError, match="has neither ensurepip nor a pip of 22.3 or later"):
        eval_venv.pip_command(image, venv_with(tmp_path, False), ENV)


@pytest.mark.parametrize(("packages", "more"), [("index", ""), ("wheels", "--no-index|--find-links|{t}|")])
def test_install_checks_hashes_and_looks_nothing_up(packages: str, more: str, plan: EvalPlan, tmp_path: Path) -> None:
    made = dataclasses.replace(plan, packages=packages, packages_path=str(tmp_path), index_url="https://u:p@h")
    eval_venv.install(made, venv_with(tmp_path, True), tmp_path / "list", ENV)
    assert (tmp_path / "installed").read_text() == f"-I|-m|pip|install|--require-hashes|--no-deps|--no-compile|-r|{tmp_path}/list|" + more.format(t=tmp_path)


@pytest.mark.parametrize("packages", ["index", "wheels"])
def test_install_hands_the_index_on_by_the_environment(packages: str, plan: EvalPlan, tmp_path: Path) -> None:
    stub(tmp_path / "venv" / "bin", "python", f'printf "%s" "${{PIP_INDEX_URL:-none}}" >{tmp_path}/index')
    made = dataclasses.replace(plan, packages=packages, packages_path=str(tmp_path), index_url="https://u:p@h")
    eval_venv.install(made, tmp_path / "venv", tmp_path / "list", ENV)
    assert (tmp_path / "index").read_text() == ("https://u:p@h" if packages == "index" else "none")


BUILDER = """printf '%s\\n' "$*" >>{t}/steps
case "$*" in
  *-c*) exec {python} "$@" ;;
  *"-m venv"*)
    mkdir -p "${{@: -1}}/bin"
    printf '#!/bin/sh\\nprintf "%%s\\\\n" "$*" >>{t}/steps\\ncase "$*" in *install*) exit {code} ;; esac\\n' >"${{@: -1}}/bin/python"
    chmod +x "${{@: -1}}/bin/python" ;;
esac"""


def builder(tmp_path: Path, listing: str, code: int = 0) -> None:
    """A Python that makes venvs whose pip installs, or fails, at once; the list of its packages."""
    stub(tmp_path, "python", BUILDER.format(t=tmp_path, python=PYTHON, code=code))
    (tmp_path / f"requirements-{VERSION}.txt").write_text(listing)


def test_build_makes_an_environment_once_and_leaves_no_half_one(plan: EvalPlan, tmp_path: Path) -> None:
    builder(tmp_path, "a==1\n")
    made = dataclasses.replace(plan, packages="wheels", packages_path=str(tmp_path), python=str(tmp_path / "python"), system_site_packages=True)
    final = plan.work / "venv"
    assert eval_venv.python(made) == str(final / "bin" / "python") and (plan.work / "home").is_dir()
    steps = [line.split() for line in (tmp_path / "steps").read_text().splitlines()]
    assert [words[2] for words in steps[-3:]] == ["venv", "ensurepip", "pip"] and "--system-site-packages" in steps[-3]
    inode = final.stat().st_ino
    assert eval_venv.build(made) == final and final.stat().st_ino == inode
    builder(tmp_path, "a==2\n", 1)
    with pytest.raises(EvalError, match=r"installing lm-eval \(packages: wheels\) failed \(1\)"):
        eval_venv.build(made)
    assert final.stat().st_ino == inode
    builder(tmp_path, "a==2\n")
    assert eval_venv.build(made) == final and final.stat().st_ino != inode
    assert sorted(path.name for path in plan.work.iterdir()) == ["home", "venv"]


def test_put_keeps_what_another_builder_finished(tmp_path: Path) -> None:
    def finished(name: str, marker: str) -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / eval_venv.MARKER).write_text(marker)
        (tmp_path / name / name).touch()
        return tmp_path / name

    final = tmp_path / "final"
    eval_venv.put(finished("one", "k"), final, "k")
    eval_venv.put(finished("two", "k"), final, "k")
    assert (final / "one").exists() and (tmp_path / "two").exists()
    eval_venv.put(finished("three", "new"), final, "new")
    assert (final / "three").exists() and not list(tmp_path.glob("*.old"))
    final_of_another = tmp_path / "parent" / "final"
    with pytest.raises(EvalError, match="can't be put in place"):
        eval_venv.put(finished("four", "k"), final_of_another, "k")


def test_existing_is_a_venv_or_a_python(plan: EvalPlan, tmp_path: Path) -> None:
    stub(tmp_path / "v" / "bin", "python3", "")
    stub(tmp_path, "py", "")
    for path, expected in (("v", "v/bin/python3"), ("py", "py")):
        made = dataclasses.replace(plan, packages="existing", packages_path=str(tmp_path / path))
        assert eval_venv.existing(made) == eval_venv.python(made) == str(tmp_path / expected)
    stub(tmp_path / "v" / "bin", "python", "")
    assert eval_venv.existing(dataclasses.replace(plan, packages_path=str(tmp_path / "v"))) == str(tmp_path / "v/bin/python")
    (tmp_path / "py").chmod(0o644)
    with pytest.raises(EvalError, match="is neither a venv nor a Python"):
        eval_venv.existing(dataclasses.replace(plan, packages_path=str(tmp_path / "py")))


def test_frozen() -> None:
    assert eval_venv.frozen("# a==1\na.b-c==1.0 \\\n    --hash=x==y\nd==2 # source\n  e==3\nf>=4\n") == ["a.b-c==1.0", "d==2"]


# ---- eval_check and eval_prepare -------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An lm_eval in a folder: task `odd` is a group without documents of its own, `bad` does not load."""
    site = tmp_path / "site"
    (site / "lm_eval").mkdir(parents=True)
    (site / "lm_eval" / "__init__.py").touch()
    (site / "lm_eval" / "tasks.py").write_text(
        "class TaskManager:\n    def __init__(self, include_path, include_defaults):\n        print('defaults', include_defaults)\n"
        "class Task:\n    eval_docs = [1, 2, 3]\nclass Group:\n    group = 'the group'\n"
        "def get_task_dict(names, manager):\n    if 'bad' in names: raise ValueError('no task bad')\n"
        "    return {Group() if name == 'odd' else name: object() if name == 'odd' else Task() for name in names}\n")
    (site / "lm_eval-0.4.13.dist-info").mkdir()
    (site / "lm_eval-0.4.13.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lm_eval\nVersion: 0.4.13\n")
    return site


@pytest.mark.parametrize(("tasks", "defaults", "documents"), [(["gsm8k"], False, {"gsm8k": 3}), (["gsm8k", "odd"], True, {"gsm8k": 3, "the group": None})])
def test_main_of_eval_check(tasks: list[str], defaults: bool, documents: dict[str, int | None], site: Path) -> None:
    done = subprocess.run([sys.executable, "-B", str(LIB / "eval_check.py"), str(TEMPLATES / "eval" / "tasks"), *tasks], env={"PYTHONPATH": str(site)},
                          capture_output=True, text=True, timeout=60)
    first, last = done.stdout.splitlines()
    report = json.loads(last)
    assert first == f"defaults {defaults}" and report["documents"] == documents and report["lm_eval"] == "0.4.13"
    assert (report["prefix"], report["lm_eval_file"]) == (sys.prefix, f"{site}/lm_eval/__init__.py") and "lm_eval==0.4.13" in report["packages"]


def python_with(tmp_path: Path, site: Path) -> str:
    """A Python that finds the fake lm_eval in spite of -I."""
    stub(tmp_path, "py", f'shift\nPYTHONPATH={site} exec {sys.executable} -B "$@"')
    return str(tmp_path / "py")


def test_check_runs_in_the_work_folder_and_wants_the_jobs_own_environment(plan: EvalPlan, tmp_path: Path, site: Path) -> None:
    python = python_with(tmp_path, site)
    report = eval_prepare.check(dataclasses.replace(plan, packages="existing"), python)
    assert report["documents"] == {"gsm8k": 3}
    with pytest.raises(EvalError, match=f"sys.prefix is {sys.prefix}, not the job's venv {plan.work}/venv"):
        eval_prepare.check(plan, python)
    (plan.work / "venv").symlink_to(sys.prefix)
    with pytest.raises(EvalError, match="lm_eval is imported from .*/site/lm_eval/__init__.py, not from the job's venv"):
        eval_prepare.check(plan, python)
    with pytest.raises(EvalError, match="loading lm-eval and its tasks failed .*no task bad"):
        eval_prepare.check(dataclasses.replace(plan, packages="existing", tasks=("bad",)), python)


SUPPORTED = [("chat", True, {"gsm8k": {"x": 1.0}}, ""), ("completions", False, {"a": {}, "b": {"x": 0.0}}, ""), ("chat", False, {"a": {"x": 1.0}}, "chat needs the chat template"),
             ("completions", True, {"a": {"x": 1.0}}, "completions must go without"), ("chat", True, {"a": {}}, "names no metric"), ("chat", True, {}, "names no metric")]


@pytest.mark.parametrize(("endpoint", "template", "thresholds", "said"), SUPPORTED)
def test_supported(endpoint: str, template: bool, thresholds: dict[str, dict[str, float]], said: str, plan: EvalPlan) -> None:
    made = dataclasses.replace(plan, endpoint=endpoint, chat_template=template, thresholds=thresholds)
    if not said:
        eval_prepare.supported(made)
        return
    with pytest.raises(EvalError, match=said):
        eval_prepare.supported(made)


def test_prepare_and_its_main(plan: EvalPlan, tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made = dataclasses.replace(plan, packages="existing", packages_path=python_with(tmp_path, site), task_data=str(questions(tmp_path / "named")))
    monkeypatch.setattr(eval_prepare, "load", lambda: made)
    record = eval_prepare.prepare(made)
    assert record["python"] == str(tmp_path / "py") and record["data"]["gsm8k"]["documents"] == {"train": 2, "test": 2}
    assert eval_prepare.main() == 0
    written = json.loads((plan.results / "venv.json").read_text())
    assert (written["ok"], written["packages"], written["offline"], written["check"]["lm_eval"]) == (True, "existing", False, "0.4.13")
    assert "eval: ready after" in capsys.readouterr().out
    with pytest.raises(EvalError, match="SHA256SUMS is missing"):
        eval_prepare.prepare(dataclasses.replace(made, offline=True))
    monkeypatch.setattr(eval_prepare, "load", lambda: dataclasses.replace(made, thresholds={}))
    assert eval_prepare.main() == 22
    assert json.loads((plan.results / "verdict.json").read_text())["reason"].startswith("eval.thresholds names no metric")
    monkeypatch.setenv("EVAL_COMMAND", "1")
    assert eval_prepare.main() == 0 and json.loads((plan.results / "venv.json").read_text())["packages"] == "those of the recipe's own command"


# ---- eval_command ----------------------------------------------------------------------------------------------------


COMMANDS = [("exit 0", 0, ""), ("exit 7", 22, "the evaluation command ended with exit code 7"), ('[[ "$MODEL_NAME $EVAL_CONC" == "org/m 16" ]]', 0, ""), ("read x || exit 0", 0, "")]


def own_command(plan: EvalPlan, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (plan.bundle / "eval").unlink()
    (plan.bundle / "eval").mkdir()
    (plan.bundle / "eval" / "command.sh").write_text(text)
    monkeypatch.setattr(eval_command, "load", lambda: plan)


@pytest.mark.parametrize(("text", "code", "reason"), COMMANDS)
def test_main_of_eval_command(text: str, code: int, reason: str, plan: EvalPlan, monkeypatch: pytest.MonkeyPatch, handlers: None) -> None:
    own_command(plan, text, monkeypatch)
    assert eval_command.main() == code
    verdict = json.loads((plan.results / "verdict.json").read_text())
    assert (verdict["code"], verdict["reason"], verdict["command_exit_code"]) == (code, reason, 7 if code else 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_recipes_command(number: signal.Signals, plan: EvalPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handlers: None) -> None:
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
    plain = eval_run.protocol(dataclasses.replace(plan, endpoint="completions", chat_template=False, limit=0, num_fewshot=0, gen_kwargs={"max_tokens": 7}), tmp_path)
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


def test_copy_out_meta_and_fresh(plan: EvalPlan, tmp_path: Path) -> None:
    plan.results.mkdir(parents=True)
    names = ("results_1.json", "samples_a_1.jsonl", "meta_env.json", "verdict.json", "venv.json")
    for name in names:
        (plan.results / name).write_text(name)
    eval_run.copy_out(dataclasses.replace(plan, result_copies=(str(tmp_path / "x" / "y"),)))
    assert sorted(path.name for path in (tmp_path / "x" / "y").iterdir()) == ["meta_env.json", "results_1.json", "samples_a_1.jsonl"]
    eval_run.copy_out(plan)
    assert eval_run.meta(dataclasses.replace(plan, meta={"hw": "x", "conc": 1})) == {"hw": "x", "conc": 16, "model": "org/m", "tasks": ["gsm8k"]}
    eval_run.fresh(plan)
    assert [path.name for path in plan.results.iterdir()] == ["venv.json"]


RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None, int, str]] = {
    "good": ("exit 0", {}, {"gsm8k": 1}, 0, ""), "low": ("exit 0", {"results": {"gsm8k": {"exact_match,strict-match": 0.5}}}, {"gsm8k": 1}, 23, "gsm8k strict-match 0.5000 is below 0.9"),
    "failed": ("exit 3", {}, {"gsm8k": 1}, 22, "lm-eval ended with exit code 3"), "too few": ("exit 0", {}, {"gsm8k": 2}, 22, "gsm8k: 1 samples scored, expected 2"),
    "not prepared": ("exit 0", {}, None, 22, "[Errno 2] No such file or directory")}


@pytest.mark.parametrize("case", RUNS)
def test_main_of_eval_run(case: str, plan: EvalPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], handlers: None) -> None:
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
    ([answer("4", "4"), answer("", "", "flexible")], 0.0, 0.0), ([answer(None, None, "none"), answer("a", "a", "none")], 0.5, 0.5), ([{"resps": []}], 1.0, 1.0),
    ([{"resps": [[]], "filtered_resps": []}], 1.0, 1.0)]


@pytest.mark.parametrize(("samples", "empty", "unextracted"), SHARES)
def test_shares_of(samples: list[dict[str, Any]], empty: float, unextracted: float) -> None:
    assert eval_score.shares_of(samples) == {"empty": empty, "unextracted": unextracted}


SCORED: dict[str, tuple[dict[str, Any], int | None, int, dict[str, float], str]] = {  # n-samples, documents, records, shares -> problem
    "good": ({"effective": 4}, 4, 4, {}, ""), "size unknown": ({"effective": 4}, None, 4, {}, ""), "none": ({}, None, 0, {}, "t: None samples scored, expected None"),
    "few": ({"effective": 3}, 4, 3, {}, "t: 3 samples scored, expected 4"), "unrecorded": ({"effective": 4}, 4, 3, {}, "t: 3 samples recorded of 4 scored"),
    "empty": ({"effective": 4}, 4, 4, {"empty": 0.26}, "t: 26.0 % of the answers are empty, allowed 25.0 %"), "some empty": ({"effective": 4}, 4, 4, {"empty": 0.25}, ""),
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
    assert [eval_score._empty(sample) for sample in (answer("x", ""), answer(" \t", ""), answer(None, ""), {"resps": [[]]}, {})] == [False, True, True, True, True]


def test_below(plan: EvalPlan) -> None:
    made = dataclasses.replace(plan, thresholds={"a": {"x": 0.5, "y": 0.25}, "b": {}})
    assert eval_score.below(made, {"a": {"x": 0.5, "y": 0.3}}) == []
    assert eval_score.below(made, {"a": {"x": 0.49996, "y": 0.2}}) == ["a x 0.5000 is below 0.5", "a y 0.2000 is below 0.25"]
    with pytest.raises(EvalError, match="a y has a threshold and no score"):
        eval_score.below(made, {"a": {"x": 0.9}})
    with pytest.raises(EvalError, match="no metric was compared"):
        eval_score.below(dataclasses.replace(plan, thresholds={"a": {}}), {"a": {"x": 1}})
