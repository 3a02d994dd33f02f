"""The store of compiled kernels (jit_*.py, jit_role.sh): real files and processes, killed, racing, on full disks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs.shell import LIB, bash
from shipped import ROOT, from_text, put
from slurm_cluster import STANDINS
from test_shell import shellcheck

sys.path.insert(0, str(LIB))
import jit_key  # noqa: E402  (found only by the path above)

IMAGE = "rocm/atom-dev:nightly_202607231538"
OLD = time.time() - 100


class Rig:
    """One store, and workers that each have a folder at the same path, as in containers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / "store"
        self.store.mkdir()
        self.folder = root / "w" / "0"
        self.env = {"PATH": f"{STANDINS}/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}

    def command(self, action: str, folder: Path | None = None, max_gb: int = 1) -> list[str]:
        own = folder or self.folder
        own.parent.mkdir(parents=True, exist_ok=True)
        words = [str(self.store), IMAGE, str(own), str(max_gb)]
        python = ["python3", "-E", "-s", "-B", str(LIB / "jit_cache.py"), action, *words]
        if action == "load":
            return ["bash", "-c", 'exec {fd}>>"$1"; shift; exec "$@" "${fd}"', "-", f"{own}.lock", *python]
        return python

    def run(self, action: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(action), env={**self.env, **more}, input="go\n", capture_output=True, text=True,
                              timeout=60)

    def load(self) -> str:
        done = self.run("load")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def keep(self) -> str:
        done = self.run("keep")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def compiled(self, **files: str) -> None:
        """Files of a worker, written a while ago; a name's __ is a folder."""
        for name, text in files.items():
            self.write(name.replace("__", "/"), text)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (OLD, OLD))
        return path

    def part(self) -> Path:
        (part,) = [path.parent for path in self.store.glob("*/*/lists")]
        return part

    def object(self, text: str) -> Path:
        (found,) = [path for path in self.part().glob("objects/*/*") if path.read_text() == text]
        return found

    def files(self) -> dict[str, str]:
        return {str(path.relative_to(self.folder)): path.read_text() for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_the_next_job_finds_what_the_first_compiled(rig: Rig) -> None:
    assert "loaded 0 files" in rig.load()
    rig.compiled(triton__ab__k="kernel", triton__empty="")
    module = rig.write("aiter/module.so", "so")
    module.chmod(0o755)
    assert "stored 3 files" in rig.keep()
    rig.write("left", "of a job whose /tmp was this one's")
    assert "loaded 3 files" in rig.load()
    assert rig.files() == {"triton/ab/k": "kernel", "triton/empty": "", "aiter/module.so": "so"}
    assert module.stat().st_mode & 0o777 == 0o755 and module.stat().st_mtime == pytest.approx(OLD, abs=1e-3)
    assert "stored 0 files" in rig.keep()
    (name,) = os.listdir(rig.store)
    assert name.startswith("rocm_atom-dev_nightly_202607231538-") and os.listdir(rig.store / name) == ["gfx950"]


def test_unfinished_files_and_stale_locks_stay_out(rig: Rig) -> None:
    rig.load()
    rig.compiled(good="1", triton__k__x="2")
    for name in ("triton/k/x.lock", "a.lock", ".lock", ".lock-1", "tmp.pid_7_ab/x", ".7.9.tmp", "y.tmp", ".ninja_lock"):
        rig.write(name, "x")
    rig.compiled(building__lock="", building__half="x", building__deep__half="x", aiter__lock_module_a="", aiter__half="x")
    (rig.folder / "still.so").write_text("being written now")
    os.symlink("/etc/passwd", rig.folder / "link")
    os.mkfifo(rig.folder / "pipe")
    rig.keep()
    rig.load()
    assert sorted(rig.files()) == ["good", "triton/k/x"]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: os.truncate(path, 3),
    "empty": lambda path: os.truncate(path, 0),
    "other bytes": lambda path: path.write_text("KERNEL"),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_never_served_and_is_stored_again(rig: Rig, damage: str) -> None:
    rig.load()
    rig.compiled(good="good", bad="kernel")
    rig.keep()
    DAMAGE[damage](rig.object("kernel"))
    rig.load()
    assert rig.files() == {"good": "good"}
    rig.compiled(bad="kernel, compiled anew")
    assert "stored 1 files" in rig.keep()
    rig.load()
    assert rig.files() == {"good": "good", "bad": "kernel, compiled anew"}


@pytest.mark.parametrize("text", ["", "{", '{"files": {"x": 1}}', "truncated"])
def test_a_damaged_list_is_no_list(rig: Rig, text: str) -> None:
    rig.load()
    rig.compiled(k="kernel")
    rig.keep()
    (path,) = rig.part().glob("lists/*/*.json")
    path.write_text(path.read_text()[:-9] if text == "truncated" else text)
    assert "loaded 0 files" in rig.load()
    rig.compiled(k="kernel")
    assert "stored 1 files" in rig.keep()
    assert "loaded 1 files" in rig.load()


def test_a_list_cannot_lead_out_of_the_folder(rig: Rig) -> None:
    import hashlib

    rig.load()
    rig.compiled(k="evil")
    rig.keep()
    (path,) = rig.part().glob("lists/*/*.json")
    entry = json.loads(path.read_text())["files"]["k"]
    content = json.dumps({"files": {"../../out": entry, str(rig.root / "out"): entry}}).encode()
    path.with_name(hashlib.sha256(content).hexdigest() + ".json").write_bytes(content)
    assert "loaded 1 files" in rig.load()
    assert not list(rig.root.rglob("out"))


def test_a_stored_file_never_changes(rig: Rig) -> None:
    rig.load()
    rig.compiled(k="first")
    rig.keep()
    rig.load()
    rig.compiled(k="second", other="new")
    assert "stored 1 files" in rig.keep()
    rig.load()
    assert rig.files() == {"k": "first", "other": "new"}


def test_many_publish_at_once(rig: Rig) -> None:
    """Each has files of its own, files that all have, and files that differ."""
    folders = [rig.root / str(number) / "0" for number in range(6)]
    for number, rig.folder in enumerate(folders):
        for name in range(40):
            rig.write(f"same/{name}", f"same {name}" * 1000)
        rig.compiled(**{f"own{number}": str(number), "differs": f"by {number}"})
    both = [subprocess.Popen(rig.command("keep", folder), env=rig.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True) for folder in folders]
    for process in both:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    assert ["stored" in process.communicate(timeout=60)[0] for process in both] == [True] * 6
    rig.folder = rig.root / "w" / "0"
    assert "loaded 47 files" in rig.load()
    found = rig.files()
    assert found.pop("differs") in {f"by {number}" for number in range(6)}
    assert found == {f"same/{n}": f"same {n}" * 1000 for n in range(40)} | {f"own{n}": str(n) for n in range(6)}
    assert not list((rig.part() / "new").iterdir())


def test_killed_in_the_middle(rig: Rig) -> None:
    """Whatever the moment: nothing half is served, and the next one stores all of it."""
    rig.load()
    for number in range(300):
        rig.write(f"k/{number}", f"{number}\n" * 20000)
    for wait in (0.0, 0.1, 0.2, 0.35):
        process = subprocess.Popen(rig.command("keep"), env=rig.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin
        process.stdin.write(b"go\n")
        process.stdin.flush()
        end = time.monotonic() + 20
        while not list(rig.store.glob("*/*/objects/*/*")) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = rig.files()
        rig.load()
        assert all(before[name] == text for name, text in rig.files().items())
        for name, text in before.items():
            rig.write(name, text)
    rig.keep()
    assert "loaded 300 files" in rig.load()
    stale = rig.part() / "new" / "stale"
    stale.touch()
    os.utime(stale, (OLD - 1e6, OLD - 1e6))
    rig.write("more", "x")
    rig.keep()
    assert not stale.exists()


def test_a_full_disk_under_the_store(rig: Rig) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(rig.store)], capture_output=True)
    if mounted.returncode:
        pytest.skip("no mounts here")
    try:
        rig.load()
        rig.compiled(small="small")
        rig.keep()
        rig.compiled(large="x" * 200_000, tiny="tiny")
        said = rig.keep()
        assert "not all: " in said and "No space left on device" in said
        rig.load()
        assert rig.files()["small"] == "small" and "large" not in rig.files()
        assert not list((rig.part() / "new").iterdir())
    finally:
        subprocess.run(["umount", str(rig.store)], check=True)


def test_a_full_disk_under_the_worker(rig: Rig) -> None:
    rig.load()
    rig.compiled(small="small", large="x" * 200_000)
    rig.keep()
    shutil.rmtree(rig.folder)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(rig.folder.parent)], capture_output=True).returncode:
        pytest.skip("no mounts here")
    try:
        assert "loaded 1 files" in (said := rig.load()) and "No space left on device" in said
        assert rig.files() == {"small": "small"}
    finally:
        subprocess.run(["umount", str(rig.folder.parent)], check=True)


def test_the_store_stays_within_its_size(rig: Rig) -> None:
    """What was used longest ago goes first, never the part that is in use."""
    rig.load()
    rig.compiled(k="x" * 1000)
    rig.keep()
    code = "import sys; sys.path.insert(0, sys.argv[1]); import pathlib, jit_prune; " \
           "jit_prune.prune(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), 2500)"
    image = rig.part().parent
    for age, name in enumerate(("young", "middle", "old")):
        shutil.copytree(image, rig.store / name)
        os.utime(rig.store / name / "gfx950", (OLD - age, OLD - age))
    os.utime(rig.store / image.name / "gfx950", (OLD - 50, OLD - 50))
    subprocess.run(["python3", "-c", code, str(LIB), str(rig.store), str(image / "gfx950")], check=True)
    assert sorted(path.parent.name for path in rig.store.glob("*/gfx950")) == sorted([image.name, "young"])


OFF = {
    "unknown GPUs": (lambda rig: rig.env.update(STANDIN_ROCM_SMI="fail"), "off: the type of the GPUs is not known here"),
    "no store": (lambda rig: shutil.rmtree(rig.store), "is not there"),
    "store is a file": (lambda rig: (shutil.rmtree(rig.store), rig.store.write_text("")), "is not there"),
    "folder in use": (lambda rig: rig.env.update(HOLD="1"), "in use by another job"),
}


@pytest.mark.parametrize("case", OFF)
def test_without_a_usable_store_the_worker_compiles_in_its_own_folders(rig: Rig, case: str) -> None:
    """jit_role.sh as role scripts call it: the worker starts in any case, and where its caches are is what changes."""
    damage, said = OFF[case]
    damage(rig)
    done = role(rig)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert f"TRITON={rig.root / 'work' / 'cache' / 'triton'} made" in done.stdout


def test_with_a_store_the_caches_lie_at_their_fixed_place(rig: Rig) -> None:
    done = role(rig)
    assert "loaded 0 files" in done.stdout and f"TRITON={rig.folder}/triton made" in done.stdout, done.stdout + done.stderr


def role(rig: Rig) -> subprocess.CompletedProcess[str]:
    text = """
    [[ -z "${HOLD:-}" ]] || { mkdir -p "${SRTGEN_JIT_FOLDER%/*}"; (exec 9>>"${SRTGEN_JIT_FOLDER}.lock"; flock 9; exec sleep 60) & sleep 0.5; }
    use_jit_cache "${W}" </dev/null
    [[ ! -d "${TRITON_CACHE_DIR}" ]] || printf 'TRITON=%s made\\n' "${TRITON_CACHE_DIR}"
    [[ -z "${HOLD:-}" ]] || kill %1
    """
    env = {**rig.env, "SRTGEN_BUNDLE": str(LIB.parent), "SRTGEN_JIT_STORE": str(rig.store), "SRTGEN_JIT_IMAGE": IMAGE,
           "SRTGEN_JIT_FOLDER": str(rig.folder), "SRTGEN_JIT_MAX_GB": "1", "TRITON_CACHE_DIR": f"{rig.folder}/triton",
           "W": str(rig.root / "work")}
    return bash(text, rig.root, ["role", "jit_role"], env)


def test_gpu_types_of_the_kernel_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_key.node_gpu, "SYSFS", str(tmp_path))
    nodes = tmp_path / "class" / "kfd" / "kfd" / "topology" / "nodes"
    for number, (version, simds) in enumerate([(0, 0), (90500, 1024), (90500, 1024)]):
        (nodes / str(number)).mkdir(parents=True)
        (nodes / str(number) / "properties").write_text(
            f"cpu_cores_count 64\nsimd_count {simds}\nsimd_per_cu 4\ngfx_target_version {version}\n")
    assert jit_key.gpu_type() == "gfx950-256cu"
    (nodes / "2" / "properties").write_text("simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\n")
    assert jit_key.gpu_type() is None
    assert jit_key.gfx_name(90010) == "gfx90a"


def test_a_moved_tag_is_another_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "triton-3.4.dist-info" / "METADATA"
    record.parent.mkdir()
    record.write_text("Version: 3.4")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    first = jit_key.image_key(IMAGE)
    assert jit_key.image_key(IMAGE) == first != jit_key.image_key("rocm/atom-dev:latest")
    record.write_text("Version: 3.4+rebuilt")
    assert jit_key.image_key(IMAGE) != first


STORE = "jit_cache: {dir: /shared/jit, max_gb: 20}\n"
RUNTIMES = {
    "pyxis": ["SRTGEN_JIT_STORE=/srtgen-jit", 'TRITON_CACHE_DIR=/tmp/srtgen-jit/"${position}"/triton'],
    "none": ["SRTGEN_JIT_STORE=/shared/jit", 'TRITON_CACHE_DIR="${work}"/jit/triton'],
}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_bundle(runtime: str, tmp_path: Path) -> None:
    """Two workers of one node: where the store is, and where each worker's folders are, stands in their script."""
    recipe = (ROOT / "recipes" / "atom" / "qwen3-0.6b-agg-2w.yaml").read_text()
    bundle = from_text(recipe, f"container_runtime: {{type: {runtime}}}\n{STORE}")
    script = bundle.files["roles/agg.sh"].content.decode()
    wanted = [*RUNTIMES[runtime], "SRTGEN_JIT_MAX_GB=20", f"SRTGEN_JIT_IMAGE={IMAGE}"]
    assert [f"export {line}" in script.splitlines() for line in wanted] == [True] * 4
    job = bundle.files["run.sbatch"].content.decode()
    assert "readonly PLAN_JIT_CACHE=/shared/jit\n" in job
    assert ("  /shared/jit:/srtgen-jit\n" in job) == (runtime == "pyxis")
    folder = put(bundle, tmp_path)
    shellcheck(folder / "roles" / "agg.sh", folder / "run.sbatch", cwd=Path("/"))


def test_a_recipe_keeps_its_own_cache_folders() -> None:
    recipe = (ROOT / "recipes" / "atom" / "qwen3-0.6b-agg-2w.yaml").read_text()
    script = from_text(recipe, STORE, ("set", "environment.TRITON_CACHE_DIR=/mine")).files["roles/agg.sh"].content.decode()
    assert "export TRITON_CACHE_DIR=/mine\n" in script and "/aiter-jit\n" in script


def test_folders_in_a_shared_tmp_are_removed_unless_a_worker_holds_them() -> None:
    # The new /tmp may hide where the library lies.
    words = ["unshare", "--mount", "bash", "-c", """set -e; mount --bind "$1" /mnt; mount -t tmpfs none /tmp; mkdir -p /tmp/srtgen-jit/{0,1}
        exec {a}>>/tmp/srtgen-jit/0.lock {b}>>/tmp/srtgen-jit/1.lock; flock "${a}"; python3 -B /mnt/node_clean.py none-such none none-such; echo /tmp/srtgen-jit/*
        exec {a}>&-; python3 -B /mnt/node_clean.py none-such none none-such; ls -d /tmp/srtgen-jit || :""", "-", str(LIB)]
    if subprocess.run([*words[:2], "true"], capture_output=True).returncode:
        pytest.skip("no namespaces here")
    done = subprocess.run(words, cwd="/", env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=30)
    assert done.stdout == "/tmp/srtgen-jit/0 /tmp/srtgen-jit/0.lock\n", done.stdout + done.stderr
