"""lib/prefetch_model.py with the stand-in of the hub library: what passes is tried again, what does not is said at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jobs.shell import LIB
from model_rig import contents, model_folder
from slurm_cluster import STANDINS

sys.path.insert(0, str(LIB))
import node_hub  # noqa: E402  (found only by the path above)
import prefetch_model  # noqa: E402


def fetch(tmp_path: Path, fault: str = "", **more: str) -> tuple[int, list[str]]:
    """Exit code and lines of one run."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{STANDINS}/python", "HOME": str(tmp_path), "HF_HOME": f"{tmp_path}/cache",
           "STANDIN_HUB": f"{tmp_path}/server", "SRTGEN_STEP": "prefetch_0", "STANDIN_FAULT": f"prefetch_0:{fault}" if fault else "", **more}
    argv = [sys.executable, "-B", str(LIB / "prefetch_model.py"), "--repo", "org/m", "--ignore", "original/*"]
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def served(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "server" / "org" / "m", 2, 128 << 10)


def test_the_snapshot_is_what_preflight_looks_for(served: Path, tmp_path: Path) -> None:
    code, lines = fetch(tmp_path)
    assert code == 0 and lines[-1].startswith("prefetch: complete: org/m in "), lines
    cache = tmp_path / "cache" / "hub"
    assert node_hub.missing("org/m", str(cache)) == ""
    assert contents(next((cache / "models--org--m" / "snapshots").iterdir())) == contents(served)


def test_a_broken_connection_is_tried_again_from_where_it_was(served: Path, tmp_path: Path) -> None:
    code, lines = fetch(tmp_path, f"drop_after={64 << 10}")
    tries = [line for line in lines if line.startswith("prefetch: attempt ")]
    assert code == 0 and tries and "ConnectionResetError: [Errno 104] Connection reset by peer" in tries[0]


@pytest.mark.parametrize(("hide", "words"), [
    ("server", "prefetch: RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1) Repository Not Found for url: "
     "https://huggingface.co/api/models/org/m/revision/main there is no such model"),
])
def test_what_does_not_pass_is_tried_once(hide: str, words: str, served: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / hide)
    code, lines = fetch(tmp_path)
    assert (code, len(lines)) == (1, 2)
    assert lines[-1].replace(": there", " there").startswith(words), lines


def test_an_image_without_the_library_says_so(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-S", "-B", str(LIB / "prefetch_model.py"), "--repo", "org/m"], env=env,
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "prefetch: the image has no huggingface_hub: No module named 'huggingface_hub'\n")


def test_an_address_loses_what_may_be_a_secret() -> None:
    said = prefetch_model.words(OSError("no https://hub/x?X-Amz-Signature=abc&y=1 here\nnor there"))
    assert said == "OSError: no https://hub/x here nor there"


STALLS = """
import sys
sys.path.insert(0, {lib!r})
import prefetch_model
prefetch_model.STALLED_S = prefetch_model.PROGRESS_S = 0.5
sys.argv = ["prefetch_model.py", "--repo", "org/m"]
sys.exit(prefetch_model.main())
"""


def test_a_download_that_stands_still_is_not_waited_for(served: Path, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{STANDINS}/python", "HF_HOME": f"{tmp_path}/cache", "SRTGEN_STEP": "prefetch_0",
           "STANDIN_HUB": f"{tmp_path}/server", "STANDIN_FAULT": "prefetch_0:chunk_s=300"}
    done = subprocess.run([sys.executable, "-B", "-c", STALLS.format(lib=str(LIB))], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1].startswith("prefetch: no byte for 0 s; is a lock of a dead process in ")
