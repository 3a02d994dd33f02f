"""eval_venv, eval_check and eval_prepare: the environment of lm-eval; Pythons and lm-eval are small scripts."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from jobs.evaluation import PYTHON, VERSION, plan_in, questions
from jobs.shell import LIB, TEMPLATES, stub

sys.path.insert(0, str(LIB))
import eval_plan  # noqa: E402  (found only by the path above)
import eval_prepare  # noqa: E402
import eval_venv  # noqa: E402
from eval_plan import EvalError, EvalPlan  # noqa: E402


@pytest.fixture
def plan(tmp_path: Path) -> EvalPlan:
    return plan_in(tmp_path)


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
    keys = [eval_venv.key(plan, BASE, listing), eval_venv.key(plan, BASE._replace(prefix="/q"), listing),
            eval_venv.key(plan, BASE._replace(version="3.11"), listing),
            eval_venv.key(dataclasses.replace(plan, packages="wheels"), BASE, listing),
            eval_venv.key(dataclasses.replace(plan, system_site_packages=True), BASE, listing)]
    listing.write_text("a==2\n")
    keys.append(eval_venv.key(plan, BASE, listing))
    assert len(set(keys)) == 6 and eval_venv.key(plan, BASE, listing) == keys[5]
    (tmp_path / "venv").mkdir()
    assert not eval_venv.valid(tmp_path / "venv", keys[0]) and not eval_venv.valid(tmp_path / "absent", keys[0])
    (tmp_path / "venv" / eval_venv.MARKER).write_text(keys[0] + "\n")
    assert eval_venv.valid(tmp_path / "venv", keys[0]) and not eval_venv.valid(tmp_path / "venv", keys[1])


def venv_with(tmp_path: Path, ensurepip: bool) -> Path:
    code = 0 if ensurepip else 1
    stub(tmp_path / "venv" / "bin", "python", f'[[ "$*" == "-I -m ensurepip" ]] && exit {code}\nprintf "%s|" "$@" >{tmp_path}/installed')
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
    words = f"-I|-m|pip|install|--require-hashes|--no-deps|--no-compile|-r|{tmp_path}/list|"
    assert (tmp_path / "installed").read_text() == words + more.format(t=tmp_path)


@pytest.mark.parametrize("packages", ["index", "wheels"])
def test_install_hands_the_index_on_by_the_environment(packages: str, plan: EvalPlan, tmp_path: Path) -> None:
    stub(tmp_path / "venv" / "bin", "python", f'printf "%s" "${{PIP_INDEX_URL:-none}}" >{tmp_path}/index')
    made = dataclasses.replace(plan, packages=packages, packages_path=str(tmp_path), index_url="https://u:p@h")
    eval_venv.install(made, tmp_path / "venv", tmp_path / "list", ENV)
    assert (tmp_path / "index").read_text() == ("https://u:p@h" if packages == "index" else "none")


BUILDER = """printf '%s\\n' "$*" >>{t}/steps
case "$*" in
  "-I -c "*) exec {python} "$@" ;;
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


@pytest.mark.parametrize(("tasks", "defaults", "documents"), [(["gsm8k"], False, {"gsm8k": 3}),
                                                              (["gsm8k", "odd"], True, {"gsm8k": 3, "the group": None})])
def test_main_of_eval_check(tasks: list[str], defaults: bool, documents: dict[str, int | None], site: Path) -> None:
    done = subprocess.run([sys.executable, "-B", str(LIB / "eval_check.py"), str(TEMPLATES / "eval" / "tasks"), *tasks],
                          env={"PYTHONPATH": str(site)},
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


SUPPORTED = [("chat", True, {"gsm8k": {"x": 1.0}}, ""), ("completions", False, {"a": {}, "b": {"x": 0.0}}, ""),
             ("chat", False, {"a": {"x": 1.0}}, "chat needs the chat template"),
             ("completions", True, {"a": {"x": 1.0}}, "completions must go without"), ("chat", True, {"a": {}}, "names no metric"),
             ("chat", True, {}, "names no metric")]


@pytest.mark.parametrize(("endpoint", "template", "thresholds", "said"), SUPPORTED)
def test_supported(endpoint: str, template: bool, thresholds: dict[str, dict[str, float]], said: str, plan: EvalPlan) -> None:
    made = dataclasses.replace(plan, endpoint=endpoint, chat_template=template, thresholds=thresholds)
    if not said:
        eval_prepare.supported(made)
        return
    with pytest.raises(EvalError, match=said):
        eval_prepare.supported(made)


def test_prepare_and_its_main(plan: EvalPlan, tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch,
                              capsys: pytest.CaptureFixture[str]) -> None:
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
    monkeypatch.setattr(eval_prepare, "load_command", lambda: made)
    assert eval_prepare.main() == 0 and json.loads((plan.results / "venv.json").read_text())["packages"] == "those of the recipe's own command"
