"""docker run's options: strict ones, and what a container needs to know of them."""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import uuid
from pathlib import Path
from typing import Any, NoReturn

from standin import program
from standin.rootfs import LIMITS


def refuse(text: str, code: int = 125) -> NoReturn:
    print(text, file=sys.stderr, flush=True)
    raise SystemExit(code)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        refuse(f"{message}\nSee 'docker --help'.", 125)


RUN_VALUES = ("--name", "--network", "--net", "--ipc", "--pid", "--uts", "--user", "-u", "--workdir", "-w", "--shm-size",
              "--entrypoint", "--hostname", "--stop-timeout", "--stop-signal", "--pull", "--log-driver", "--cgroupns",
              "--memory", "--cpus", "--platform", "--cidfile", "--restart", "--pids-limit")
RUN_LISTS = ("--device", "--group-add", "--volume", "-v", "--mount", "--env", "-e", "--env-file", "--ulimit", "--cap-add",
             "--cap-drop", "--security-opt", "--label", "-l", "--add-host", "--tmpfs", "--log-opt")
RUN_SWITCHES = ("--rm", "--privileged", "--interactive", "-i", "--tty", "-t", "--init", "--detach", "-d", "--read-only")
PODMAN_VALUES = ("--userns", "--cgroups", "--tz", "--pidfile")
CHOICES = {"--cgroups": ("enabled", "disabled", "no-conmon", "split"), "--pull": ("always", "missing", "never", "newer")}
SECURITY = ("label=", "seccomp=", "apparmor=", "no-new-privileges", "mask=", "unmask=", "proc-opts=", "systempaths=")
SAME = {"net": "network", "u": "user", "w": "workdir", "v": "volume", "e": "env", "l": "label", "i": "interactive",
        "t": "tty", "d": "detach"}


def run_parser() -> Parser:
    parser = Parser(prog="docker run", allow_abbrev=False, add_help=False)
    values = RUN_VALUES + (PODMAN_VALUES if program.NAME == "podman" else ())
    for names, options in ((values, {}), (RUN_LISTS, {"action": "append", "default": []}),
                           (RUN_SWITCHES, {"action": "store_true"})):
        for name in names:
            bare = name.lstrip("-")
            choices = {"choices": CHOICES[name]} if name in CHOICES else {}
            parser.add_argument(name, dest=SAME.get(bare, bare).replace("-", "_"), **choices, **options)
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
    image = program.setting("ENV").splitlines()
    env.update(line.partition("=")[::2] for line in image if line)
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


def groups(given: list[str]) -> list[int]:
    if given == ["keep-groups"] and program.NAME == "podman":
        return os.getgroups()
    return [numeric(word, "group") for word in given]


def limits(given: list[str]) -> list[tuple[str, int, int]]:
    rows = []
    for word in given:
        if word == "host" and program.NAME == "podman":
            continue
        match = re.fullmatch(r"(\w+)=(-?\d+)(?::(-?\d+))?", word)
        if not match or match[1] not in LIMITS:
            refuse(f'docker: invalid argument "{word}" for "--ulimit" flag')
        rows.append((match[1], int(match[2]), int(match[3] or match[2])))
    return rows


def numeric(text: str, what: str) -> int:
    if not text.isdigit():
        refuse(f"docker: unable to find {what} {text}: no matching entries (the stand-in's image knows numbers only)")
    return int(text)


def check_podman(args: argparse.Namespace) -> None:
    """What only podman refuses, as 4.3.1 does."""
    head = args.image.partition("/")[0]
    if not ("." in head or ":" in head or head == "localhost") or "/" not in args.image:
        refuse(f'Error: short-name resolution enforced but cannot prompt without a TTY: "{args.image}"')
    if args.userns and args.userns.startswith("keep-id") and os.getuid() == 0:
        refuse("Error: keep-id is only supported in rootless mode")
    if "keep-groups" in args.group_add and len(args.group_add) > 1:
        refuse("Error: the '--group-add keep-groups' option is not allowed with any other --group-add options")
    if os.getuid() and args.group_add != ["keep-groups"]:
        refuse("Error: OCI runtime error: the device's group is lost: --group-add keep-groups is missing")
    for word in args.security_opt:
        if not word.startswith(SECURITY):
            refuse(f'Error: invalid --security-opt 2: "{word}"')


def check_image(image: str) -> None:
    if not program.image_is_there(image):
        refuse(f"docker: Error response from daemon: No such image: {image}")


def spec_of(args: argparse.Namespace) -> dict[str, Any]:
    """Everything a container needs; refuses what a daemon would."""
    if program.NAME == "podman":
        check_podman(args)
    check_image(args.image)
    mounts = [bind_of(word) for word in args.volume] + [mount_of(word) for word in args.mount]
    for source, _, _ in mounts:
        if not os.path.exists(source):
            refuse(f"docker: Error response from daemon: invalid mount config for type \"bind\": "
                   f"bind source path does not exist: {source}")
    for device in (word.split(":")[0] for word in args.device):
        if not os.path.exists(device) and device not in program.words("DEVICES"):
            refuse(f'docker: Error response from daemon: error gathering device information while adding custom '
                   f'device "{device}": no such file or directory')
    uid, _, gid = (args.user or "0:0").partition(":")
    command = ([args.entrypoint] if args.entrypoint else []) + args.command
    if not command:
        refuse("docker: Error response from daemon: no command specified")
    return {"name": args.name or uuid.uuid4().hex[:12], "image": args.image, "mounts": mounts,
            "devices": [word.split(":")[0] for word in args.device],
            "tmpfs": [word.split(":")[0] for word in args.tmpfs], "rootfs": program.words("ROOTFS"),
            "env": environment(args), "argv": command, "workdir": args.workdir or "/",
            "uid": numeric(uid, "user"), "gid": numeric(gid or "0", "group"),
            "groups": groups(args.group_add), "ulimits": limits(args.ulimit),
            "interactive": args.interactive, "init": args.init, "remove": args.rm,
            "labels": dict(word.partition("=")[::2] for word in args.label),
            "delay": float(program.setting("DELAY", "0"))}
