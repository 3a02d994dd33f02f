"""lib/quality.sh: whether and when the evaluation runs, and what its end means."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from jobs.running import act, event, judge, shown
from jobs.shell import stub


EVAL = [("none", {}, "off"), ("off", {}, "off"), ("off", {"RUN_EVAL": "true"}, "after_benchmark"), ("only", {}, "only"),
        ("after_benchmark", {"RUN_EVAL": "0"}, "off"), ("after_benchmark", {"EVAL_ONLY": "1"}, "only"), ("only", {"RUN_EVAL": "1"}, "only")]


@pytest.mark.parametrize(("plan", "env", "mode"), EVAL)
def test_eval_mode(plan: str, env: dict[str, str], mode: str, tmp_path: Path) -> None:
    (tmp_path / "bundle" / "eval").mkdir(parents=True)
    (tmp_path / "bundle" / "eval" / "run.sh").touch()
    judge(tmp_path, "choose_eval; printf '%s' ${eval_mode} >out", plan=f"PLAN_EVAL={plan}", env=env)
    assert (tmp_path / "out").read_text() == mode


def test_an_evaluation_that_the_bundle_has_not(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "choose_eval", plan="PLAN_EVAL=none", env={"RUN_EVAL": "1"})
    assert rc == 10 and "this bundle holds none" in str(result["reason"])


def test_an_evaluation_below_its_threshold(tmp_path: Path) -> None:
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "verdict.json").write_text('{"code":23,"reason":"gsm8k 0.80 < 0.91","metrics":{"gsm8k":{"x":0.8}},"samples":{}}')
    rc, result = judge(tmp_path, "fail_eval 23", "eval")
    assert (rc, result["reason"]) == (23, "evaluation: gsm8k 0.80 < 0.91")
    assert isinstance(result["eval"], dict) and result["eval"]["metrics"] == {"gsm8k": {"x": 0.8}}


def test_the_words_that_switch_the_evaluation(tmp_path: Path) -> None:
    (tmp_path / "bundle" / "eval").mkdir(parents=True)
    (tmp_path / "bundle" / "eval" / "run.sh").touch()
    text = """for word in 1 true yes 0 false no '' other; do RUN_EVAL=${word} EVAL_ONLY=''; choose_eval; show "${word} ${eval_mode}"; done
for word in 1 true yes 0 ''; do RUN_EVAL='' EVAL_ONLY=${word}; choose_eval; show "${word} ${eval_mode}"; done"""
    words = shown(act(tmp_path, text, plan="PLAN_EVAL=off"))
    assert words == ["1 after_benchmark", "true after_benchmark", "yes after_benchmark", "0 off", "false off", "no off", " off", "other off",
                     "1 only", "true only", "yes only", "0 off", " off"]


@pytest.mark.parametrize(("bench", "mode", "planned"), [("sa-bench", "off", "yes"), ("none", "off", "no"), ("sa-bench", "only", "no"),
                                                        ("custom", "after_benchmark", "yes"), ("none", "only", "no")])
def test_whether_the_benchmark_runs(bench: str, mode: str, planned: str, tmp_path: Path) -> None:
    text = f"eval_mode={mode}\nif bench_planned; then show yes; else show no; fi"
    assert shown(act(tmp_path, text, plan=f"PLAN_BENCH={bench}")) == [planned]


def offline(tmp_path: Path, missing: str = "") -> None:
    """The offline folder of a bundle, whole but for one file."""
    sums = ""
    for name in ("wheels/a.whl", "task-data/t.json"):
        path = tmp_path / "bundle" / "offline" / name
        path.parent.mkdir(parents=True)
        path.write_text(name)
        sums += f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n"
        if name == missing:
            path.unlink()
    (tmp_path / "bundle" / "offline" / "SHA256SUMS").write_text(sums)


OFFLINE = [("off", 1, None, 0, ""), ("only", 0, None, 0, ""), ("only", 1, "", 0, ""), ("only", 0, "wheels/a.whl", 10, "offline/wheels/a.whl is missing"),
           ("only", 1, None, 10, "offline/SHA256SUMS is missing: run prefetch.sh on a connected machine")]


@pytest.mark.parametrize(("mode", "needed", "missing", "code", "reason"), OFFLINE)
def test_what_an_offline_evaluation_needs_is_checked(mode: str, needed: int, missing: str | None, code: int, reason: str, tmp_path: Path) -> None:
    if missing is not None:
        offline(tmp_path, missing)
    rc, result = judge(tmp_path, f"eval_mode={mode}\ncheck_eval_offline", "preflight", plan=f"PLAN_EVAL_OFFLINE={needed}")
    start = f"preflight: the offline evaluation is not complete: {tmp_path}/bundle/"
    assert (rc, result["reason"]) == (code, start + reason if code else "")


def test_all_that_an_offline_evaluation_lacks_is_one_line(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "python3", "printf 'a is missing\\nb is missing\\n'; exit 1")
    _, result = judge(tmp_path, "eval_mode=only\ncheck_eval_offline", "preflight", plan="PLAN_EVAL_OFFLINE=1")
    assert str(result["reason"]).endswith(": a is missing; b is missing")


VERDICTS = [(None, "", "null"), ('{"code":23,"reason":"gsm8k  0.80\\n< 0.91"}', "gsm8k 0.80 < 0.91", '{"code":23,"reason":"gsm8k  0.80\\n< 0.91"}'),
            ('{"code":0}', "", '{"code":0}'), ("{", "", "null")]


@pytest.mark.parametrize(("text", "reason", "kept"), VERDICTS)
def test_the_verdict_of_the_evaluation(text: str | None, reason: str, kept: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "eval").mkdir()
        (tmp_path / "eval" / "verdict.json").write_text(text)
    assert shown(act(tmp_path, 'REPLY=old\nread_eval_verdict\nshow "${REPLY}|${result_eval}"')) == [f"{reason}|{kept}"]


ENDS = [("fail_eval 0", "eval", 0, ""), ("fail_eval 0", "bench", 22, "evaluation: its step ended with exit code 0 in phase bench"),
        ("fail_eval 23", "eval", 23, "evaluation: its step ended with exit code 23 in phase eval"),
        ("fail_eval 1", "eval", 22, "evaluation: its step ended with exit code 1 in phase eval"),
        ("fail_eval 137", "load", 22, "evaluation: its step ended with exit code 137 (signal 9) in phase load")]


@pytest.mark.parametrize(("call", "phase", "code", "reason"), ENDS)
def test_the_end_of_the_evaluation(call: str, phase: str, code: int, reason: str, tmp_path: Path) -> None:
    rc, result = judge(tmp_path, call, phase)
    assert (rc, result["reason"]) == (code, reason)


def test_a_failed_evaluation_without_a_reason_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "verdict.json").write_text('{"code":22,"metrics":{}}')
    rc, result = judge(tmp_path, "fail_eval 22", "eval")
    assert (rc, result["reason"]) == (22, "evaluation: its step ended with exit code 22 in phase eval")


def test_packages_are_awaited_before_anything_is_measured(tmp_path: Path) -> None:
    text = """eval_mode=only turns=0
pump() { SECONDS=$((SECONDS + 20)); turns=$((turns + 1)); ((turns != 2)) || printf '{"ok": false}' >eval/venv.json
((turns != 4)) || printf '{\\n"x": 1, "ok": true}' >eval/venv.json; }
await_eval_packages
show ${turns}"""
    done = act(tmp_path, text, "canary")
    assert shown(done) == ["4"]
    assert done.stdout.count("evaluation: still preparing its packages") == 2


def test_without_an_evaluation_nothing_is_awaited(tmp_path: Path) -> None:
    assert shown(act(tmp_path, "pump() { show pumped; }\nawait_eval_packages; show on", "canary")) == ["on"]


def test_packages_that_cannot_be_had_end_the_job(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, "eval_mode=only\n" + event("end", "eval", "22") + "await_eval_packages", "canary")
    assert (rc, result["reason"]) == (22, "evaluation: its step ended with exit code 22 in phase canary")


def test_the_evaluation_gets_its_turn_and_runs_to_its_end(tmp_path: Path) -> None:
    text = """open_turn eval q
start_task eval bash -c 'read -r line <q/turn_eval; [[ ${line} == go ]] && printf "{\\"metrics\\":{\\"gsm8k\\":1}}" >eval/verdict.json'
run_eval; show on"""
    done = act(tmp_path, text, "eval")
    assert shown(done) == ["on"]
    assert json.loads((tmp_path / "result.json").read_text())["eval"] == {"metrics": {"gsm8k": 1}}


def test_an_evaluation_that_runs_long_says_so(tmp_path: Path) -> None:
    text = """turns=0
give_turn() { show "turn $1"; }
pump() { SECONDS=$((SECONDS + 150)); turns=$((turns + 1)); ((turns < 4)) || step_code[eval]=0; }
run_eval"""
    done = act(tmp_path, text, "eval")
    assert shown(done) == ["turn eval"]
    assert [line.partition(" ")[2] for line in done.stdout.splitlines() if "running" in line] == ["evaluation: running for 300 s", "evaluation: running for 600 s"]


NO_SERVER = "judge_servers() { show judged; }\nopen_turn eval q\nstep_code[eval]=22\n"


def test_a_worker_that_dies_after_the_evaluation_failed_is_the_reason(tmp_path: Path) -> None:
    rc, result = judge(tmp_path, NO_SERVER + event("end", "decode_0", "1") + "run_eval", "eval")
    assert (rc, result["reason"]) == (11, "decode_0 on n1 ended with exit code 1 in phase eval")


def test_servers_are_judged_before_a_failed_evaluation_is(tmp_path: Path) -> None:
    done = act(tmp_path, NO_SERVER + "pump() { SECONDS=$((SECONDS + 1)); }\nrun_eval", "eval")
    assert done.returncode == 22 and "> judged\n" in done.stdout
    assert done.stdout.index("> judged") < done.stdout.index("FAILED (22)")


PROBES = [("new/er", "yes"), ("a b'c", "yes"), ("file", "no"), ("file/x", "no"), ("/proc/self/x", "no"), ("", "no"), ("-p", "yes")]


@pytest.mark.parametrize(("folder", "can"), PROBES)
def test_whether_a_folder_takes_files(folder: str, can: str, tmp_path: Path) -> None:
    text = f'printf kept >file\nif can_write "{folder}"; then show yes; else show no; fi\nls -A "{folder or "."}" | grep -c srtgen >count || :'
    assert shown(act(tmp_path, f"exec 2>/dev/null\n{text}")) == [can]
    assert ((tmp_path / "file").read_text(), (tmp_path / "count").read_text()) == ("kept", "0\n")
    assert (tmp_path / folder).is_dir() or can == "no"


def test_a_full_file_system_takes_no_files(tmp_path: Path) -> None:
    text = "ln -s /dev/full full/.srtgen-7\nif can_write full; then show yes; else show no; fi"
    assert shown(act(tmp_path, f"mkdir full\n{text}")) == ["no"]


NAMES = ("SRTGEN_LM_EVAL_RESULT_DIR", "SRTCTL_LM_EVAL_RESULT_DIR")
FOLDERS = [
    ("only", {}, []),
    ("only", {NAMES[0]: "", NAMES[1]: ""}, []),
    ("off", {NAMES[0]: "{t}/file/x"}, []),
    ("only", {NAMES[0]: "{t}/a b/c"}, ["{t}/a b/c"]),
    ("after_benchmark", {NAMES[1]: "{t}/a", NAMES[0]: "{t}/b"}, ["{t}/b", "{t}/a"]),
    ("only", {NAMES[0]: "a", "SLURM_SUBMIT_DIR": "{t}/home"}, ["{t}/home/a"]),
    ("only", {NAMES[0]: "a"}, ["{t}/bundle/a"]),
    ("only", {NAMES[0]: "{t}/file/x", "SRTGEN_SKIP_CHECKS": "ports mounts"}, ["{t}/file/x"]),
]


@pytest.mark.parametrize(("mode", "env", "folders"), FOLDERS)
def test_where_the_operator_wants_the_results(mode: str, env: dict[str, str], folders: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = f'eval_mode={mode}\nread_skipped_checks\ncheck_eval_folders\n((${{#eval_folders[@]}} == 0)) || printf "> %s\\n" "${{eval_folders[@]}}"'
    found = shown(act(tmp_path, text, "preflight", env={name: value.format(t=tmp_path) for name, value in env.items()}))
    assert found == [folder.format(t=tmp_path) for folder in folders]
    assert all(Path(folder).is_dir() for folder in found) or "SRTGEN_SKIP_CHECKS" in env


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_for_the_results_that_takes_no_files(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    rc, result = judge(tmp_path, "eval_mode=only\ncheck_eval_folders", "preflight", env={name: f"{tmp_path}/file/x"})
    assert (rc, result["reason"]) == (10, f"preflight: mounts: {name}: cannot write into {tmp_path}/file/x")


SCORED = ["results_1.json", "samples_gsm8k.jsonl", "sample.jsonl", "meta_env.json"]
NOT_SCORED = ["verdict.json", "venv.json", "results.txt", "results_x"]


@pytest.mark.parametrize("folders", [[], ["a"], ["a", "b c"], ["a", "a"]])
def test_what_was_scored_is_copied(folders: list[str], tmp_path: Path) -> None:
    (tmp_path / "eval").mkdir()
    for name in SCORED + NOT_SCORED:
        (tmp_path / "eval" / name).write_text(name)
    for folder in folders:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "meta_env.json").write_text("of the last job")
    words = " ".join(f"'{folder}'" for folder in folders)
    done = act(tmp_path, f"mkdir eval/results_y.json\neval_folders=({words})\nexport_eval_results; show on", "eval")
    assert shown(done) == ["on"]
    assert [line.partition(" ")[2] for line in done.stdout.splitlines() if "copied" in line] == [f"evaluation: results copied to {f}" for f in folders]
    for folder in folders:
        assert {path.name: path.read_text() for path in (tmp_path / folder).iterdir()} == {name: name for name in SCORED}


def test_nothing_that_was_scored_is_no_fault(tmp_path: Path) -> None:
    assert shown(act(tmp_path, "mkdir a\neval_folders=(a)\nexport_eval_results; show on", "eval")) == ["on"]
    assert list((tmp_path / "a").iterdir()) == []


COPYING = "evaluation: its results could not be copied: "
COPY_FAILED = COPYING + "cp: cannot create regular file 'gone/': Not a directory"
COPIES = [("0", 22, COPY_FAILED, []), ("23", 23, "evaluation: its step ended with exit code 23 in phase eval", [COPY_FAILED])]


def test_results_that_cannot_be_copied(tmp_path: Path) -> None:
    text = "printf x >eval/results_1.json\neval_folders=(gone)\nif export_eval_results; then show copied; else show \"${REPLY}\"; fi"
    assert shown(act(tmp_path, text, "eval")) == [COPY_FAILED.removeprefix(COPYING)]


@pytest.mark.parametrize(("code", "rc", "reason", "warnings"), COPIES)
def test_a_failed_evaluation_goes_before_results_that_cannot_be_copied(code: str, rc: int, reason: str, warnings: list[str], tmp_path: Path) -> None:
    text = f"""printf x >eval/results_1.json
eval_folders=(gone)
pump() {{ SECONDS=$((SECONDS + 1)); }}
judge_servers() {{ :; }}
open_turn eval q
step_code[eval]={code}
run_eval"""
    ended, result = judge(tmp_path, text, "eval")
    assert (ended, result["reason"], result["warnings"]) == (rc, reason, warnings)


STARTED = [("off", {}, "", []), ("only", {}, "", ["eval bench 1 eval/run.sh 0 1", "KEPT"]),
           ("after_benchmark", {"A": "x y", "B": ""}, "A B C", ["eval bench 1 eval/run.sh 0 1", "KEPT A B"])]


@pytest.mark.parametrize(("mode", "env", "names", "started"), STARTED)
def test_the_step_of_the_evaluation(mode: str, env: dict[str, str], names: str, started: list[str], tmp_path: Path) -> None:
    """Its container gets the variables that are set, empty ones too, by name."""
    text = f"""start_step() {{ show "$*"; show "${{export_names[*]}}"; }}
export_names=(KEPT) eval_mode={mode}
start_eval"""
    plan = f"PLAN_BENCH_NODE=1\nPLAN_EVAL_PASS_ENV=({names})"
    assert shown(act(tmp_path, text, plan=plan, env=env)) == started
