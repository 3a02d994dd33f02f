"""_find_bundle.sh, _unpack_bundle.sh, submit.sh and wait.sh: what people call, and what Slurm runs a copy of."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs.shell import HEAD, TEMPLATES, stub

ID = "a" * 64


def head(name: str) -> str:
    """run.sbatch with as much of the plan as its head reads."""
    return HEAD.split("refuse")[0] + f"readonly PLAN_ID={ID}\n" + (TEMPLATES / "_head.sh").read_text() + (TEMPLATES / name).read_text()


FIND = head("_find_bundle.sh")


def make_bundle(folder: Path, identity: str = ID) -> Path:
    (folder / "lib").mkdir(parents=True)
    (folder / "manifest.json").write_text(f'{{\n "schema": "x",\n "id": "{identity}"\n}}\n')
    (folder / "lib" / "srtgen.sh").write_text('main() { printf "found %s\\n" "${BUNDLE}"; }\n')
    (folder / "run.sbatch").write_text(FIND)
    return folder


def spool(tmp_path: Path, command: str = "(null)", env: dict[str, str] | None = None, job: str = "7") -> subprocess.CompletedProcess[str]:
    """Runs a copy, as slurmd does, from another folder."""
    copy = tmp_path / "spool" / "job1" / "slurm_script"
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(FIND)
    stub(tmp_path / "bin", "scontrol", f"printf '%s\\n' 'JobId=7 JobName=x' '   Command={command}' '   WorkDir={tmp_path}/work'")
    names = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", **({"SLURM_JOB_ID": job} if job else {}), **(env or {})}
    return subprocess.run(["bash", str(copy)], env=names, cwd="/", capture_output=True, text=True, timeout=20)


def test_the_folder_of_the_submitted_file(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "a b")
    assert spool(tmp_path, f"{bundle}/run.sbatch").stdout == f"found {bundle}\n"


@pytest.mark.parametrize("command", ["../job/run.sbatch", "../job/run.sbatch 1 two", "link.sbatch"])
def test_a_relative_path_belongs_to_the_submit_folder(command: str, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "job")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "link.sbatch").symlink_to(bundle / "run.sbatch")
    assert spool(tmp_path, command, {"SLURM_SUBMIT_DIR": str(tmp_path / "sub")}).stdout == f"found {bundle}\n"


def test_without_a_submit_folder_slurms_working_folder_counts(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "work")
    assert spool(tmp_path, "run.sbatch").stdout == f"found {bundle}\n"


def test_the_operators_variable_comes_first(tmp_path: Path) -> None:
    one, two = make_bundle(tmp_path / "one"), make_bundle(tmp_path / "two")
    done = spool(tmp_path, f"{one}/run.sbatch", {"SRTGEN_BUNDLE_DIR": str(two)})
    assert done.stdout == f"found {two}\n"


def test_the_submit_folder_is_the_last_guess(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "one")
    assert spool(tmp_path, "(null)", {"SLURM_SUBMIT_DIR": str(bundle)}).stdout == f"found {bundle}\n"


def test_another_manifest_in_the_way_is_passed_over(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "one")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "manifest.json").write_text("{}")
    done = spool(tmp_path, f"{bundle}/run.sbatch", {"SRTGEN_BUNDLE_DIR": str(tmp_path / "two")})
    assert done.stdout == f"found {bundle}\n"


def part(tmp_path: Path, text: str, name: str = "_find_bundle.sh", **env: str) -> subprocess.CompletedProcess[str]:
    """Lines of bash with the functions of a head of run.sbatch and what Slurm says of the job: the rest below them starts it."""
    functions, below, rest = head(name).partition('\n[[ -n "${SLURM_JOB_ID:-}" ]]')
    asking = [line for line in rest.splitlines() if line.startswith("job_text=")]
    assert below and len(asking) == 1
    names = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "SLURM_JOB_ID": "7", **env}
    return subprocess.run(["bash", "-c", f"{functions}\n{asking[0]}\n{text}"], env=names, cwd="/", capture_output=True, text=True, timeout=20)


def test_refuse_ends_with_the_preflight_code(tmp_path: Path) -> None:
    done = part(tmp_path, "refuse 'it is so'; printf on")
    assert (done.returncode, done.stdout, done.stderr) == (10, "", "run.sbatch: it is so\n")


FLAGS = [("printf 'Restarts=0 BatchFlag=0 Reboot=0\\n'", "yes"), ("printf 'Restarts=0 BatchFlag=1 Reboot=0\\n'", "no"),
         ("printf 'A=b BatchFlag=01 x\\n'", "no"), ("exit 1", "no"), ("printf 'A=b BatchFlag=0 half'; exit 1", "no")]


@pytest.mark.parametrize("name", ["_find_bundle.sh", "_unpack_bundle.sh"])
@pytest.mark.parametrize(("scontrol", "expected"), FLAGS)
def test_in_allocation(name: str, scontrol: str, expected: str, tmp_path: Path) -> None:
    """Both heads of run.sbatch ask alike; a Slurm that does not answer counts as a batch job."""
    stub(tmp_path / "bin", "scontrol", f'[[ "$*" == "show job 7" ]] || exit 9\n{scontrol}')
    done = part(tmp_path, "if in_allocation; then printf yes; else printf no; fi", name)
    assert (done.stdout, done.stderr) == (expected, "")


GUESSES: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "all": ("printf 'A=b\\n   Command={t}/a b/run.sbatch\\n   WorkDir=/w\\n'", {"SRTGEN_BUNDLE_DIR": "/mine", "SLURM_SUBMIT_DIR": "/sub"},
            ["/mine", "{t}/a b", "{t}/a b", "/sub"]),
    "over a link": ("printf '   Command={t}/link/run.sbatch\\n'", {"SLURM_SUBMIT_DIR": "/sub"}, ["{t}/link", "{t}/a b", "/sub"]),
    "relative": ("printf '   Command=a b/run.sbatch\\n   WorkDir={t}\\n'", {}, ["{t}/a b", "{t}/a b", "{t}"]),
    "with arguments": ("printf '   Command={t}/a b/run.sbatch x.sbatch y\\n'", {"SLURM_SUBMIT_DIR": "/sub"}, ["{t}/a b", "{t}/a b", "/sub"]),
    "from standard input": ("printf '   Command=(null)\\n   WorkDir=/w\\n'", {}, ["/w"]),
    "Slurm does not answer": ("exit 1", {"SLURM_SUBMIT_DIR": "/sub"}, ["/sub"]),
    "a file that is gone": ("printf '   Command=/no/run.sbatch\\n'", {"SLURM_SUBMIT_DIR": "/sub"}, ["/no", "", "/sub"]),
}


@pytest.mark.parametrize("case", GUESSES)
def test_bundle_candidates_best_first(case: str, tmp_path: Path) -> None:
    scontrol, env, expected = GUESSES[case]
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "run.sbatch").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a b")
    stub(tmp_path / "bin", "scontrol", scontrol.format(t=tmp_path))
    done = part(tmp_path, "bundle_candidates", **env)
    assert done.stdout.splitlines() == [folder.format(t=tmp_path) for folder in expected], done.stderr


def test_find_bundle_sets_a_real_path_and_passes_over_what_is_no_bundle(tmp_path: Path) -> None:
    stub(tmp_path / "bin", "scontrol", "exit 1")
    bundle = make_bundle(tmp_path / "one")
    (tmp_path / "link").symlink_to(bundle)
    text = 'find_bundle; printf "%s" "${BUNDLE}"; BUNDLE=x'
    done = part(tmp_path, text, SLURM_SUBMIT_DIR=str(tmp_path / "link"))
    assert done.stdout == str(bundle) and "BUNDLE: readonly variable" in done.stderr
    copied = make_bundle(tmp_path / "two")
    (copied / "manifest.json").unlink()
    done = part(tmp_path, text, SRTGEN_BUNDLE_DIR=str(copied), SLURM_SUBMIT_DIR=str(bundle))
    assert done.stdout == str(bundle), done.stderr
    alone = part(tmp_path, text, SRTGEN_BUNDLE_DIR=str(copied))
    assert alone.returncode == 10 and "the bundle of this job is not found" in alone.stderr


def carrying(folder: Path, archive: bytes) -> Path:
    """A script that carries an archive behind its last line, as the generator writes it."""
    path = folder / "it's run.sbatch"
    lines = "".join(f"#{line}\n" for line in base64.encodebytes(archive).decode().splitlines())
    path.write_text(f"main\nexit\n\n# ---- The carried bundle: text of it ----\n{lines}")
    return path


def archive_of(**files: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"lib/{name}.sh")
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


def unpack(tmp_path: Path, script: Path, sha256: str, text: str = "") -> tuple[subprocess.CompletedProcess[str], list[Path]]:
    """unpack_bundle in a job of its own: what it did, and which folders it left in /tmp."""
    job = f"u{os.getpid()}x{time.monotonic_ns()}"
    stub(tmp_path / "bin", "scontrol", "exit 1")
    done = part(tmp_path, f'SINGLE_FILE="{script}" BUNDLE_SHA256={sha256}\nunpack_bundle\nprintf "%s\\n" "${{BUNDLE}}"\n{text}', "_unpack_bundle.sh",
                SLURM_JOB_ID=job)
    assert not done.stdout or done.stdout.startswith(f"/tmp/srtgen-bundle-{job}.")
    return done, list(Path("/tmp").glob(f"srtgen-bundle-{job}.*"))


def test_unpack_bundle_into_a_private_folder_that_goes_with_the_script(tmp_path: Path) -> None:
    archive = archive_of(srtgen="é\n" * 100, log="b")
    text = 'stat -c %a "${BUNDLE}" "${BUNDLE}/lib/log.sh"; cd "${BUNDLE}"; find . -type f | sort; cat lib/srtgen.sh; trap -p EXIT; BUNDLE=x'
    done, left = unpack(tmp_path, carrying(tmp_path, archive), hashlib.sha256(archive).hexdigest(), text)
    assert done.stdout.splitlines()[1:] == ["700", "755", "./lib/log.sh", "./lib/srtgen.sh", *["é"] * 100, "trap -- 'rm -rf -- \"${BUNDLE}\"' EXIT"]
    assert "BUNDLE: readonly variable" in done.stderr and left == []


ARCHIVE = archive_of(srtgen="a")
SHA256 = hashlib.sha256(ARCHIVE).hexdigest()
DIFFERS = "its sha256 differs (on "
# what becomes of the script that carries ARCHIVE, its sha256 -> what is said
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "another bundle": (bytes, "0" * 64, DIFFERS), "none": (lambda text: text.partition(b"# ----")[0], SHA256, DIFFERS),
    "a line is gone": (lambda text: b"\n".join(text.split(b"\n")[:-3]) + b"\n", SHA256, DIFFERS),
    "cut off": (lambda text: text[:-3], SHA256, "Incorrect padding (on "),
    "Windows line ends": (lambda text: text.replace(b"\n", b"\r\n"), SHA256, "")}


@pytest.mark.parametrize("case", DAMAGES)
def test_unpack_bundle_takes_only_what_the_script_was_generated_with(case: str, tmp_path: Path) -> None:
    damage, sha256, said = DAMAGES[case]
    script = carrying(tmp_path, ARCHIVE)
    script.write_bytes(damage(script.read_bytes()))
    done, left = unpack(tmp_path, script, sha256)
    assert left == []
    if said:
        assert refused(done, said) and done.stderr.count("\n") == 1, done.stderr
    else:
        assert (done.returncode, done.stderr) == (0, "")


def test_unpack_bundle_needs_the_scripts_file(tmp_path: Path) -> None:
    done, left = unpack(tmp_path, tmp_path / "absent", SHA256)
    assert refused(done, "it cannot read itself: start it as a file") and left == []
    done = subprocess.run(["bash", "-s"], input=head("_unpack_bundle.sh"), env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "SLURM_JOB_ID": "7"}, cwd="/",
                          capture_output=True, text=True, timeout=20)
    assert refused(done, "it cannot read itself: start it as a file")


@pytest.mark.parametrize(("program", "said"), [("mktemp", "no folder can be made in /tmp of "), ("python3", "No space left (on ")])
def test_unpack_bundle_on_a_node_without_space(program: str, said: str, tmp_path: Path) -> None:
    stub(tmp_path / "bin", program, "printf 'No space left'; exit 1")
    done, left = unpack(tmp_path, carrying(tmp_path, ARCHIVE), SHA256)
    assert refused(done, said) and left == []


def started(path: Path, tmp_path: Path, flag: int, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """bash PATH inside a job whose Command= leads nowhere."""
    stub(tmp_path / "bin", "scontrol", f"printf '%s\\n' '   Requeue=1 Restarts=0 BatchFlag={flag} Reboot=0' '   Command=(null)'")
    names = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "SLURM_JOB_ID": "7", **(env or {})}
    return subprocess.run(["bash", str(path)], env=names, cwd="/", capture_output=True, text=True, timeout=20)


def test_in_an_allocation_the_file_stands_in_its_bundle(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "a b")
    (tmp_path / "link.sbatch").symlink_to(bundle / "run.sbatch")
    for path in (bundle / "run.sbatch", tmp_path / "link.sbatch"):
        assert started(path, tmp_path, 0).stdout == f"found {bundle}\n"
    other = make_bundle(tmp_path / "other")
    assert started(bundle / "run.sbatch", tmp_path, 0, {"SRTGEN_BUNDLE_DIR": str(other)}).stdout == f"found {other}\n"


def test_only_in_an_allocation_without_a_batch_script(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "job")
    assert refused(started(bundle / "run.sbatch", tmp_path, 1), 'no "sbatch < run.sbatch"')
    alone = tmp_path / "alone.sbatch"
    alone.write_text(FIND)
    assert refused(started(alone, tmp_path, 0, {"SLURM_SUBMIT_DIR": str(bundle)}), "not beside it")


def refused(done: subprocess.CompletedProcess[str], text: str) -> bool:
    return (done.returncode, done.stdout) == (10, "") and done.stderr.startswith("run.sbatch: ") and text in done.stderr


def test_refusals(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "one", "b" * 64)
    command = f"{bundle}/run.sbatch"
    assert refused(spool(tmp_path, command), "was regenerated since submission: submit it again")
    (bundle / ".srtgen-writing").touch()
    assert refused(spool(tmp_path, command), "is half written")
    (bundle / "manifest.json").unlink()
    assert refused(spool(tmp_path, command), "is half written")
    assert refused(spool(tmp_path, "(null)", {"SLURM_SUBMIT_DIR": str(tmp_path)}), 'no "sbatch < run.sbatch"')
    assert refused(spool(tmp_path, command, job=""), "start it with sbatch run.sbatch")


def test_submit_from_anywhere(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "submit.sh").write_text((TEMPLATES / "submit.sh").read_text())
    stub(tmp_path / "bin", "sbatch", 'printf "%s|" "${PWD}" "${SRTGEN_BUNDLE_DIR}" "$@"')
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "SBATCH_TIMELIMIT": "5", "SLURM_JOB_ID": "3"}
    done = subprocess.run(["bash", str(folder / "submit.sh"), "-p", "x y"], env=env, cwd="/", capture_output=True, text=True, timeout=20)
    assert done.stdout == f"{folder}|{folder}|-p|x y|run.sbatch|"
    assert "SBATCH_TIMELIMIT=5 in the environment overrides run.sbatch" in done.stderr and "inside job 3" in done.stderr


def wait(tmp_path: Path, scontrol: str, sacct: str = "exit 1", *argv: str) -> subprocess.CompletedProcess[str]:
    stub(tmp_path / "bin", "scontrol", scontrol)
    stub(tmp_path / "bin", "sacct", sacct)
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "SRTGEN_WAIT_POLL_S": "0.05", "SRTGEN_WAIT_ACCOUNTING_S": "2", "T": str(tmp_path)}
    return subprocess.run(["bash", str(TEMPLATES / "wait.sh"), *(argv or ("7",))], env=env, capture_output=True, text=True, timeout=30)


def job(state: str, code: str = "0:0") -> str:
    return f"printf '%s\\n' '   JobState={state} Reason=None' '   Requeue=0 Restarts=0 ExitCode={code}'"


ENDS = [("COMPLETED", "0:0", 0), ("FAILED", "11:0", 11), ("FAILED", "143:0", 143), ("CANCELLED", "0:15", 143), ("CANCELLED", "143:0", 143),
        ("TIMEOUT", "0:15", 124), ("TIMEOUT", "124:0", 124), ("NODE_FAIL", "0:0", 11), ("OUT_OF_MEMORY", "0:9", 137), ("FAILED", "0:53", 181),
        ("BOOT_FAIL", "0:0", 70)]


@pytest.mark.parametrize(("state", "code", "wanted"), ENDS)
def test_wait_ends_with_the_jobs_code(state: str, code: str, wanted: int, tmp_path: Path) -> None:
    done = wait(tmp_path, job(state, code))
    assert done.returncode == wanted and state in done.stdout


def test_wait_shows_each_state_once(tmp_path: Path) -> None:
    scontrol = f"""printf x >>"${{T}}/n"; n=$(wc -c <"${{T}}/n")
if ((n < 3)); then {job('PENDING')}; elif ((n < 6)); then {job('RUNNING')}; else {job('COMPLETED')}; fi"""
    done = wait(tmp_path, scontrol)
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["PENDING", "RUNNING", "COMPLETED"]
    assert done.returncode == 0


def test_wait_takes_late_accounting(tmp_path: Path) -> None:
    sacct = """printf x >>"${T}/n"; n=$(wc -c <"${T}/n"); ((n > 8)) && printf 'CANCELLED by 0|0:0\\n' || printf ''"""
    assert wait(tmp_path, "exit 1", sacct).returncode == 143


def test_wait_gives_up_on_a_job_that_nobody_knows(tmp_path: Path) -> None:
    done = wait(tmp_path, "exit 1")
    assert done.returncode == 70 and "no job 7" in done.stderr


@pytest.mark.parametrize("argv", [("x",), ("1", "2"), ("7; rm",)])
def test_wait_usage(argv: tuple[str, ...], tmp_path: Path) -> None:
    assert wait(tmp_path, "exit 1", "exit 1", *argv).returncode == 2
