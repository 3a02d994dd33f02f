"""docker ps, inspect and image inspect; finds containers by name or id."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Optional

from standin import container, program
from standin.docker_run import Parser, refuse


def containers() -> list[tuple[Path, dict[str, Any]]]:
    rows = []
    for path in sorted(program.state_dir().glob("*/spec.json")):
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
        if not program.image_is_there(name):
            refuse(f"[]\nError response from daemon: No such image: {name}", 1)
        digest = "sha256:" + hashlib.sha256(name.encode()).hexdigest()
        values = {".Id": digest, ".RepoTags": f"[{name}]", ".RepoDigests": f"[{name.split(':')[0]}@{digest}]"}
        whole = [{"Id": digest, "RepoTags": [name], "RepoDigests": [f"{name.split(':')[0]}@{digest}"]}]
        print(fill(args.format, values, {}) if args.format else json.dumps(whole))
    return 0
