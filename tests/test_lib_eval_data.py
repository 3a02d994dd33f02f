"""eval_data, eval_offline and eval_prefetch: the task's data and the offline folder; pip is a small script."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs.evaluation import PYTHON, ROW, VERSION, plan_in, questions
from jobs.server import server
from jobs.shell import LIB, stub

sys.path.insert(0, str(LIB))
import eval_data  # noqa: E402  (found only by the path above)
import eval_offline  # noqa: E402
import eval_prefetch  # noqa: E402
import eval_venv  # noqa: E402
from eval_plan import EvalError, EvalPlan  # noqa: E402


@pytest.fixture
def plan(tmp_path: Path) -> EvalPlan:
    return plan_in(tmp_path)


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
                                       "no sums": ("rm SHA256SUMS", "SHA256SUMS is missing: run prefetch.sh"),
                                       "empty sums": (": >SHA256SUMS", "wheels holds nothing")}


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
    for name, value in {"SRTGEN_BUNDLE": str(plan.bundle), "SRTGEN_TASK_DATA": str(questions(tmp_path / "named")),
                        "EVAL_TARGET_PYTHON": "3.11"}.items():
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


FILES = [(ROW * 3, 3, ""), (ROW + '{"question": 1, "answer": "b"}', 0, "a line without question and answer"), ("", 0, "is empty"),
         ("<html>", 0, "can't be used"),
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
    assert record == {"source": str(named), "documents": {"train": 2, "test": 2},
                      "sha256": dict.fromkeys(("train", "test"), hashlib.sha256((ROW * 2).encode()).hexdigest())}
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
