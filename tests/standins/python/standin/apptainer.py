"""The apptainer stand-in: exec and build, strict about options, binds and images. Needs root.

A container is a process in mount and PID namespaces of its own; its environment is made as the real one makes it
(--cleanenv, APPTAINERENV_, --no-eval). Settings: APPTAINER_STANDIN_STATE (calls.jsonl), _IMAGES (patterns of what the
registry has, default *), _ENV (the image's NAME=VALUE lines), _ROOTFS (host folders that stand for the image's files),
_DEVICES, _DELAY (seconds a start takes), _FAIL (pattern of images or steps that fail to start), _SIZE and _BUILD_S (of a
built image).
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from standin import images, program
from standin.container import NEW_PIDS, init_loop
from standin.rootfs import become, build_root, checked, libc

SWITCHES = ("--contain", "-c", "--cleanenv", "-e", "--no-eval", "--no-home", "--pid", "-p", "--ipc", "-i", "--writable-tmpfs",
            "--writable", "-w", "--fakeroot", "-f", "--no-init", "--no-umask", "--rocm", "--containall", "-C", "--userns", "-u")
VALUES = ("--pwd", "--cwd", "--workdir", "-W", "--home", "-H", "--env-file", "--hostname")
LISTS = ("--bind", "-B", "--mount", "--overlay", "-o", "--env", "--no-mount", "--security", "--scratch", "-S")
SAME = {"c": "contain", "e": "cleanenv", "p": "pid", "i": "ipc", "w": "writable", "f": "fakeroot", "C": "containall", "u": "userns",
        "W": "workdir", "H": "home", "B": "bind", "o": "overlay", "S": "scratch", "cwd": "pwd"}
ALWAYS = ("TERM", "http_proxy", "https_proxy", "no_proxy", "NO_PROXY")
NEVER = ("HOME", "PATH", "LD_LIBRARY_PATH")
DIE_WITH_PARENT = 1


def fatal(text: str) -> NoReturn:
    print(f"FATAL:   {text}", file=sys.stderr, flush=True)
    raise SystemExit(255)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"Error for command \"exec\": {message}", file=sys.stderr, flush=True)
        raise SystemExit(1)


def exec_parser() -> Parser:
    parser = Parser(prog="apptainer exec", allow_abbrev=False, add_help=False)
    for names, options in ((SWITCHES, {"action": "store_true"}), (VALUES, {}), (LISTS, {"action": "append", "default": []})):
        for name in names:
            bare = name.lstrip("-")
            parser.add_argument(name, dest=SAME.get(bare, bare).replace("-", "_"), **options)
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def check_image(image: str) -> None:
    if "://" in image:
        if not image.startswith("docker://") or not program.image_is_there(image[len("docker://"):]):
            fatal(f"Unable to handle {image} uri: failed to get checksum for {image}: manifest unknown")
    elif not os.access(image, os.R_OK):
        fatal(f"could not open image {image}: failed to retrieve path for {image}: lstat {image}: no such file or directory")
    elif not os.path.isdir(image) and not images.is_sif(image):
        fatal(f"could not open image {image}: image format not recognized")


def binds(given: list[str]) -> list[tuple[str, str, bool]]:
    rows = []
    for word in (part for text in given for part in text.split(",")):
        source, target, mode = (word.split(":") + ["", ""])[:3]
        if mode not in ("", "ro", "rw") or word.count(":") > 2:
            fatal(f"while parsing bind path: {word} is not a valid mount option")
        rows.append((source, target or source, mode == "ro"))
    return rows


def bind_mounts(given: list[str]) -> list[tuple[str, str, bool]]:
    """--mount words: a line of comma separated values each."""
    rows = []
    for word in given:
        fields = dict(field.partition("=")[::2] for field in next(csv.reader([word], strict=True)))
        known = {"type", "source", "src", "destination", "dst", "target", "ro"}
        source = fields.get("source") or fields.get("src")
        target = fields.get("destination") or fields.get("dst") or fields.get("target")
        if fields.get("type") != "bind" or set(fields) - known or not source or not target:
            fatal(f"while parsing mount {word}: invalid mount specification")
        rows.append((source, target, "ro" in fields))
    return rows


def existing(rows: list[tuple[str, str, bool]]) -> list[tuple[str, str, bool]]:
    """All of them, but for devices that the tests take as present."""
    for source, target, _ in rows:
        if not os.path.exists(source) and source not in program.words("DEVICES"):
            fatal(f"container creation failed: mount {source}->{target} error: mount source {source} doesn't exist")
    return [row for row in rows if os.path.exists(row[0])]


def evaluated(value: str) -> str:
    """What a shell makes of a value in double quotes, which is what apptainer does without --no-eval."""
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return subprocess.run(["sh", "-c", f'printf %s "{text}"'], capture_output=True, text=True, check=False).stdout


def environment(args: argparse.Namespace) -> dict[str, str]:
    """The image's, below what the host's environment hands in."""
    image = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH": "/.singularity.d/libs"}
    image.update(line.partition("=")[::2] for line in program.setting("ENV").splitlines() if line)
    clean = args.cleanenv or args.containall
    env = {"LANG": "C"} if clean else {}
    for name, value in os.environ.items():
        if name.startswith(("APPTAINER_", "SINGULARITY_", "APPTAINERENV_")) or name in NEVER or (clean and name not in ALWAYS):
            continue
        env[name] = value
    env = {**image, **env, "HOME": pwd.getpwuid(os.getuid()).pw_dir}
    for name, value in os.environ.items():
        if name.startswith("APPTAINERENV_") and name != "APPTAINERENV_HOME":
            env[name[len("APPTAINERENV_"):]] = value if args.no_eval else evaluated(value)
    return env


def mounts(args: argparse.Namespace) -> list[tuple[str, str, bool]]:
    """The host's /tmp and home unless contained, the image's files, then the binds."""
    contained = args.contain or args.containall
    home = pwd.getpwuid(os.getuid()).pw_dir
    rows = [] if contained else [("/tmp", "/tmp", False)]
    if not contained and not args.no_home:
        rows.append((home, home, False))
    if contained and args.workdir:
        if not os.path.isdir(args.workdir):
            fatal(f"container creation failed: unable to specify workdir: stat {args.workdir}: no such file or directory")
        folder = Path(args.workdir) / "tmp"
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
        rows.append((str(folder), "/tmp", False))
    return rows + [(path, path, True) for path in program.words("ROOTFS")] + existing(bind_mounts(args.mount) + binds(args.bind))


def first_process(spec: dict[str, Any], root: str) -> NoReturn:
    libc.prctl(DIE_WITH_PARENT, ctypes.c_ulong(signal.SIGKILL))
    try:
        build_root(spec, root)
        become(spec, root)
    except OSError as error:
        print(f"FATAL:   container creation failed: {error}", file=sys.stderr, flush=True)
        os._exit(255)
    code = init_loop(spec["argv"], spec["env"])
    os._exit(code if code >= 0 else 128 - code)


def execute(argv: list[str]) -> int:
    args = exec_parser().parse_args(argv)
    check_image(args.image)
    if not args.command:
        fatal("exec requires an image and a command")
    if args.writable and args.writable_tmpfs:
        fatal("Invalid argument: --writable and --writable-tmpfs exclude each other")
    time.sleep(float(program.setting("DELAY", "0")))
    if program.fails(args.image, os.environ.get("SRTGEN_STEP", "")):
        fatal("container creation failed: failed to create user namespace: user namespace disabled (_STANDIN_FAIL)")
    spec = {"mounts": mounts(args), "devices": [], "tmpfs": [], "rootfs": [], "env": environment(args),
            "argv": args.command, "workdir": args.pwd or "/", "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(),
            "ulimits": []}
    root = program.state_dir() / "mnt"
    root.mkdir(parents=True, exist_ok=True)
    checked(libc.unshare(NEW_PIDS), "unshare")
    child = os.fork()
    if child == 0:
        first_process(spec, str(root))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda got, _frame: os.kill(child, got))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def build(argv: list[str]) -> int:
    parser = Parser(prog="apptainer build", allow_abbrev=False, add_help=False)
    parser.add_argument("-F", "--force", action="store_true")
    parser.add_argument("--disable-cache", action="store_true")
    parser.add_argument("target")
    parser.add_argument("spec")
    args = parser.parse_args(argv)
    if os.path.exists(args.target) and not args.force:
        fatal(f"While checking build target: build target '{args.target}' already exists. Use --force if you want to overwrite it")
    if not args.spec.startswith("docker://") or not program.image_is_there(args.spec[len("docker://"):]):
        fatal(f"While performing build: conveyor failed to get: reading manifest {args.spec}: manifest unknown")
    print("INFO:    Starting build...", file=sys.stderr, flush=True)
    try:
        images.write(args.target, "sif", int(program.setting("SIZE", str(1 << 20))), float(program.setting("BUILD_S", "0")))
    except OSError as error:
        fatal(f"While performing build: while creating SIF: {error.strerror}")
    print(f"INFO:    Build complete: {args.target}", file=sys.stderr, flush=True)
    return 0


def main() -> None:
    argv = sys.argv[1:]
    program.record(argv)
    if argv == ["--version"]:
        print("apptainer version 1.3.6 (stand-in)")
        raise SystemExit(0)
    if not argv or argv[0] not in ("exec", "build"):
        fatal(f'unknown command "{" ".join(argv[:1])}" for "apptainer" (that the stand-in knows)')
    raise SystemExit({"exec": execute, "build": build}[argv[0]](argv[1:]))
