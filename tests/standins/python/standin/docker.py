"""The docker stand-in's command line: strict about options, mount sources, devices, names and images.

Each call is appended to $DOCKER_STANDIN_STATE/calls.jsonl as {"node", "argv"}. Settings: DOCKER_STANDIN_STATE, _IMAGES
(patterns of present images, default *), _ENV (the image's NAME=VALUE words), _ROOTFS (host folders that stand for
the image's files), _DEVICES (paths taken as present), _DELAY (seconds a start takes), _FAIL (pattern of images or
names that fail to start), _DOWN=1 (no daemon).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import socket
import sys
import threading
import time
import uuid
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn, Optional

from standin import container

VERSION = "Docker version 27.3.1, build stand-in"
UNLIMITED = -1


def refuse(text: str, code: int = 125) -> NoReturn:
    print(text, file=sys.stderr, flush=True)
    raise SystemExit(code)


def words(name: str, default: str = "") -> list[str]:
    return os.environ.get(f"DOCKER_STANDIN_{name}", default).split()


def record(argv: list[str]) -> None:
    root = container.state_dir().parent
    root.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"node": socket.gethostname(), "argv": argv}) + "\n"
    with open(root / "calls.jsonl", "a", encoding="utf-8") as out:
        out.write(line)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        refuse(f"{message}\nSee 'docker --help'.", 125)


RUN_VALUES = ("--name", "--network", "--net", "--ipc", "--pid", "--uts", "--user", "-u", "--workdir", "-w", "--shm-size",
              "--entrypoint", "--hostname", "--stop-timeout", "--stop-signal", "--pull", "--log-driver", "--cgroupns",
              "--memory", "--cpus", "--platform", "--cidfile", "--restart", "--pids-limit")
RUN_LISTS = ("--device", "--group-add", "--volume", "-v", "--mount", "--env", "-e", "--env-file", "--ulimit", "--cap-add",
             "--cap-drop", "--security-opt", "--label", "-l", "--add-host", "--tmpfs", "--log-opt")
RUN_SWITCHES = ("--rm", "--privileged", "--interactive", "-i", "--tty", "-t", "--init", "--detach", "-d", "--read-only")
SAME = {"net": "network", "u": "user", "w": "workdir", "v": "volume", "e": "env", "l": "label", "i": "interactive",
        "t": "tty", "d": "detach"}


def run_parser() -> Parser:
    parser = Parser(prog="docker run", allow_abbrev=False, add_help=False)
    for names, options in ((RUN_VALUES, {}), (RUN_LISTS, {"action": "append", "default": []}),
                           (RUN_SWITCHES, {"action": "store_true"})):
        for name in names:
            bare = name.lstrip("-")
            parser.add_argument(name, dest=SAME.get(bare, bare).replace("-", "_"), **options)
    parser.add_argument("--sig-proxy", choices=("true", "false"), default="true")
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def bind_of(text: str) -> tuple[str, str, bool]:
    """A -v word."""
    parts = text.split(":")
    if not 2 <= len(parts) <= 3 or not parts[0].startswith("/") or not parts[1].startswith("/"):
        refuse(f"docker: invalid volume specification: '{text}' (the stand-in has no named volumes)")
    options = parts[2].split(",") if len(parts) == 3 else []
    unknown = set(options) - {"ro", "rw", "z", "Z", "rprivate", "rshared", "rslave"}
    if unknown:
        refuse(f"docker: invalid mode: {parts[2]}")
    return parts[0], parts[1], "ro" in options


def mount_of(text: str) -> tuple[str, str, bool]:
    """A --mount word."""
    pairs = dict(part.partition("=")[::2] for part in text.split(","))
    known = {"type", "source", "src", "target", "dst", "destination", "readonly", "ro", "bind-propagation"}
    source = pairs.get("source") or pairs.get("src")
    target = pairs.get("target") or pairs.get("dst") or pairs.get("destination")
    if pairs.get("type") != "bind" or set(pairs) - known or not source or not target:
        refuse(f"docker: invalid argument \"{text}\" for \"--mount\" flag (the stand-in knows bind mounts)")
    return source, target, any(pairs.get(name, "false") in ("", "true", "1") for name in ("readonly", "ro"))


def environment(args: argparse.Namespace) -> dict[str, str]:
    """The image's own, then --env-file, then -e; a bare name is taken from the client's environment."""
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
           "HOSTNAME": args.hostname or socket.gethostname()}
    env.update(word.partition("=")[::2] for word in words("ENV"))
    given = []
    for path in args.env_file:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            refuse(f"docker: open {path}: {error.strerror}")
        given += [line for line in lines if line and not line.startswith("#")]
    for word in given + args.env:
        name, mark, value = word.partition("=")
        if mark:
            env[name] = value
        elif name in os.environ:
            env[name] = os.environ[name]
    return env


def limits(given: list[str]) -> list[tuple[str, int, int]]:
    rows = []
    for word in given:
        match = re.fullmatch(r"(\w+)=(-?\d+)(?::(-?\d+))?", word)
        if not match or match[1] not in container.LIMITS:
            refuse(f'docker: invalid argument "{word}" for "--ulimit" flag')
        rows.append((match[1], int(match[2]), int(match[3] or match[2])))
    return rows


def numeric(text: str, what: str) -> int:
    if not text.isdigit():
        refuse(f"docker: unable to find {what} {text}: no matching entries (the stand-in's image knows numbers only)")
    return int(text)


def check_image(image: str) -> None:
    if not any(fnmatchcase(image, pattern) for pattern in words("IMAGES", "*")):
        refuse(f"docker: Error response from daemon: No such image: {image}")


def spec_of(args: argparse.Namespace) -> dict[str, Any]:
    """Everything a container needs; refuses what a daemon would."""
    check_image(args.image)
    mounts = [bind_of(word) for word in args.volume] + [mount_of(word) for word in args.mount]
    for source, _, _ in mounts:
        if not os.path.exists(source):
            refuse(f"docker: Error response from daemon: invalid mount config for type \"bind\": "
                   f"bind source path does not exist: {source}")
    for device in (word.split(":")[0] for word in args.device):
        if not os.path.exists(device) and device not in words("DEVICES"):
            refuse(f'docker: Error response from daemon: error gathering device information while adding custom '
                   f'device "{device}": no such file or directory')
    uid, _, gid = (args.user or "0:0").partition(":")
    command = ([args.entrypoint] if args.entrypoint else []) + args.command
    if not command:
        refuse("docker: Error response from daemon: no command specified")
    return {"name": args.name or uuid.uuid4().hex[:12], "image": args.image, "mounts": mounts,
            "devices": [word.split(":")[0] for word in args.device],
            "tmpfs": [word.split(":")[0] for word in args.tmpfs], "rootfs": words("ROOTFS"),
            "env": environment(args), "argv": command, "workdir": args.workdir or "/",
            "uid": numeric(uid, "user"), "gid": numeric(gid or "0", "group"),
            "groups": [numeric(word, "group") for word in args.group_add], "ulimits": limits(args.ulimit),
            "interactive": args.interactive, "init": args.init, "remove": args.rm,
            "labels": dict(word.partition("=")[::2] for word in args.label),
            "delay": float(os.environ.get("DOCKER_STANDIN_DELAY") or 0)}


def containers() -> list[tuple[Path, dict[str, Any]]]:
    rows = []
    for path in sorted(container.state_dir().glob("*/spec.json")):
        text = container.read(path)
        if text:
            rows.append((path.parent, json.loads(text)))
    return rows


def find(name: str) -> Optional[Path]:
    for folder, spec in containers():
        if name == spec["name"] or (len(name) >= 6 and folder.name.startswith(name)):
            return folder
    return None


def found(name: str) -> Path:
    folder = find(name)
    if folder is None:
        refuse(f"Error response from daemon: No such container: {name}", 1)
    return folder


def run(argv: list[str]) -> int:
    args = run_parser().parse_args(argv)
    spec = spec_of(args)
    if args.name and find(args.name):
        refuse(f'docker: Error response from daemon: Conflict. The container name "/{args.name}" is already in use.')
    fail = os.environ.get("DOCKER_STANDIN_FAIL")
    if fail and (fnmatchcase(spec["image"], fail) or fnmatchcase(spec["name"], fail)):
        refuse("docker: Error response from daemon: failed to create task for container (DOCKER_STANDIN_FAIL)")
    folder = container.state_dir() / uuid.uuid4().hex
    container.start(spec, folder)
    if args.detach:
        print(folder.name)
        return 0
    return attach(folder, spec["interactive"], args.sig_proxy == "true")


def feed(folder: Path) -> None:
    """Hands our standard input on to the container."""
    try:
        with open(folder / "stdin", "wb", buffering=0) as out:
            while True:
                piece = os.read(0, 65536)
                if not piece:
                    return
                out.write(piece)
    except OSError:
        pass


def attach(folder: Path, interactive: bool, proxy: bool) -> int:
    """Shows a container's output until it ends; hands signals on to it."""

    def hand_on(number: int, _frame: Any) -> None:
        pid = container.pid_of(folder)
        if pid and proxy:
            os.kill(pid, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, hand_on)
    if interactive:
        threading.Thread(target=feed, args=(folder,), daemon=True).start()
    logs = [(open(folder / name, "rb", buffering=0), out) for name, out in (("stdout", 1), ("stderr", 2))]
    end = folder.parent / "ends" / folder.name
    while True:
        code = container.read(end)  # before the logs: what came before the end is then not missed
        for log, out in logs:
            piece = log.read()
            if piece:
                os.write(out, piece)
        if code is not None:
            end.unlink()
            return int(code)
        time.sleep(0.02)


def remove(argv: list[str]) -> int:
    parser = Parser(prog="docker rm", allow_abbrev=False, add_help=False)
    parser.add_argument("-f", "--force", action="store_true")
    parser.add_argument("-v", "--volumes", action="store_true")
    parser.add_argument("names", nargs="+")
    args = parser.parse_args(argv)
    status = 0
    for name in args.names:
        folder = find(name)
        if folder is None:
            print(f"Error response from daemon: No such container: {name}", file=sys.stderr)
            status = 1
            continue
        pid = container.pid_of(folder)
        if pid and not args.force:
            refuse(f"Error response from daemon: cannot remove container {name}: container is running", 1)
        if pid:
            os.kill(pid, signal.SIGKILL)
            container.wait_gone(folder, 10)
        container.forget(folder)
        print(name)
    return status


def stop(argv: list[str]) -> int:
    parser = Parser(prog="docker stop", allow_abbrev=False, add_help=False)
    parser.add_argument("-t", "--time", "--timeout", type=float, default=10)
    parser.add_argument("names", nargs="+")
    args = parser.parse_args(argv)
    for name in args.names:
        folder = found(name)
        pid = container.pid_of(folder)
        if pid:
            os.kill(pid, signal.SIGTERM)
            if not container.wait_gone(folder, args.time) and container.pid_of(folder):
                os.kill(pid, signal.SIGKILL)
                container.wait_gone(folder, 10)
        print(name)
    return 0


def kill(argv: list[str]) -> int:
    parser = Parser(prog="docker kill", allow_abbrev=False, add_help=False)
    parser.add_argument("-s", "--signal", default="KILL")
    parser.add_argument("names", nargs="+")
    args = parser.parse_args(argv)
    for name in args.names:
        pid = container.pid_of(found(name))
        if pid is None:
            refuse(f"Error response from daemon: cannot kill container: {name}: is not running", 1)
        bare = args.signal.upper()
        os.kill(pid, signal.Signals[bare if bare.startswith("SIG") else "SIG" + bare])
        print(name)
    return 0


def fill(template: str, values: dict[str, str], labels: dict[str, str]) -> str:
    """Go's templates, as far as names and labels go; anything else is refused."""

    def value(match: re.Match[str]) -> str:
        label = re.fullmatch(r'\.Label "([^"]+)"', match[1].strip())
        if label:
            return labels.get(label[1], "")
        name = match[1].strip()
        if name not in values:
            refuse(f"template parsing error: the stand-in does not know {{{{{name}}}}}", 1)
        return values[name]

    return re.sub(r"\{\{([^}]*)\}\}", value, template).replace("\\t", "\t")


def ps(argv: list[str]) -> int:
    parser = Parser(prog="docker ps", allow_abbrev=False, add_help=False)
    parser.add_argument("-a", "--all", action="store_true")
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("--no-trunc", action="store_true")
    parser.add_argument("-f", "--filter", action="append", default=[])
    parser.add_argument("--format", default="{{.ID}}\t{{.Image}}\t{{.Status}}\t{{.Names}}")
    args = parser.parse_args(argv)
    if args.format == parser.get_default("format") and not args.quiet:
        print("CONTAINER ID\tIMAGE\tSTATUS\tNAMES")
    for folder, spec in containers():
        running = container.pid_of(folder) is not None or container.read(folder / "pid") is None
        if not (running or args.all) or not all(matches(word, spec, running) for word in args.filter):
            continue
        name = folder.name if args.no_trunc else folder.name[:12]
        values = {".ID": name, ".Image": spec["image"], ".Names": spec["name"],
                  ".Status": "Up 1 second" if running else f"Exited ({container.read(folder / 'exit')})",
                  ".State": "running" if running else "exited"}
        print(name if args.quiet else fill(args.format, values, spec["labels"]))
    return 0


def matches(word: str, spec: dict[str, Any], running: bool) -> bool:
    key, _, value = word.partition("=")
    if key == "name":
        return re.search(value, "/" + spec["name"]) is not None or re.search(value, spec["name"]) is not None
    if key == "label":
        name, mark, wanted = value.partition("=")
        return name in spec["labels"] and (not mark or spec["labels"][name] == wanted)
    if key == "status":
        return (value == "running") == running
    refuse(f"Error response from daemon: invalid filter '{key}'", 1)


def inspect(argv: list[str]) -> int:
    parser = Parser(prog="docker inspect", allow_abbrev=False, add_help=False)
    parser.add_argument("-f", "--format")
    parser.add_argument("names", nargs="+")
    args = parser.parse_args(argv)
    for name in args.names:
        folder = found(name)
        spec = json.loads(container.read(folder / "spec.json") or "{}")
        pid = container.pid_of(folder)
        values = {".State.Running": str(pid is not None).lower(), ".State.Pid": str(pid or 0), ".Id": folder.name,
                  ".State.ExitCode": container.read(folder / "exit") or "0", ".Config.Image": spec["image"],
                  ".Name": "/" + spec["name"]}
        print(fill(args.format, values, spec["labels"]) if args.format else json.dumps([values]))
    return 0


def image(argv: list[str]) -> int:
    parser = Parser(prog="docker image", allow_abbrev=False, add_help=False)
    parser.add_argument("action", choices=("inspect",))
    parser.add_argument("-f", "--format")
    parser.add_argument("names", nargs="+")
    args = parser.parse_args(argv)
    for name in args.names:
        if not any(fnmatchcase(name, pattern) for pattern in words("IMAGES", "*")):
            refuse(f"[]\nError response from daemon: No such image: {name}", 1)
        digest = "sha256:" + hashlib.sha256(name.encode()).hexdigest()
        values = {".Id": digest, ".RepoTags": f"[{name}]", ".RepoDigests": f"[{name.split(':')[0]}@{digest}]"}
        whole = [{"Id": digest, "RepoTags": [name], "RepoDigests": [f"{name.split(':')[0]}@{digest}"]}]
        print(fill(args.format, values, {}) if args.format else json.dumps(whole))
    return 0


def pull(argv: list[str]) -> int:
    parser = Parser(prog="docker pull", allow_abbrev=False, add_help=False)
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("name")
    args = parser.parse_args(argv)
    if not any(fnmatchcase(args.name, pattern) for pattern in words("IMAGES", "*")):
        refuse(f"Error response from daemon: manifest for {args.name} not found: manifest unknown", 1)
    print(args.name)
    return 0


def execute(argv: list[str]) -> int:
    """docker exec, by nsenter."""
    parser = Parser(prog="docker exec", allow_abbrev=False, add_help=False)
    parser.add_argument("-i", "--interactive", action="store_true")
    parser.add_argument("name")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    folder = found(args.name)
    pid = container.pid_of(folder)
    if pid is None:
        refuse(f"Error response from daemon: container {args.name} is not running", 1)
    env = json.loads(container.read(folder / "spec.json") or "{}")["env"]
    os.execve("/usr/bin/nsenter", ["nsenter", f"--target={pid}", "--mount", "--pid", "--root", "--wd=/", "--",
                                   *args.command], env)


def version(_argv: list[str]) -> int:
    print(VERSION)
    return 0


COMMANDS = {"run": run, "rm": remove, "stop": stop, "kill": kill, "ps": ps, "inspect": inspect, "image": image,
            "pull": pull, "exec": execute, "version": version, "info": version}


def main() -> None:
    argv = sys.argv[1:]
    record(argv)
    if argv in (["--version"], ["-v"]):
        raise SystemExit(version([]))
    if not argv or argv[0] not in COMMANDS:
        refuse(f"docker: '{' '.join(argv[:1])}' is not a docker command (that the stand-in knows).", 1)
    if os.environ.get("DOCKER_STANDIN_DOWN") == "1":
        refuse("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", 1)
    raise SystemExit(COMMANDS[argv[0]](argv[1:]))
