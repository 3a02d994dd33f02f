"""Broken inputs: mutations of recipes, profiles, overrides, manifests and folders, drawn from a seeded random source."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from srtgen import catalogue, document, schemas
from srtgen.errors import RecipeError, dotted

NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**63, 10**300, 0.5, -0.0, 1e300, "", " ", "\t", "no", "on", "null", "~", "08:00:00",
    "8:00:00", "1-0", "0", "00", "0x10", "1e3", "-1", "--flag", "-x", "a b", "a\nb", "a\n", "\u202e", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "$(touch /tmp/pwned)", "`x`", "${HOME}", "{job_id}", "'", '"', "\\", "#", "*", "~/x", "/", "/a/", "/a:b", "../../x",
    "..", "a/../b", "/etc/passwd", "x" * 5000, "é", "hf:a/b", "hf:", "hf:a/b/c", "4x8", "x", "0x0", "latest", "a:b", "a:latest",
    "rocm/atom-dev:nightly_202606101403", "nightly_20269999", "sk-aaaaaaaaaaaaaaaaaaaaaaa", [], {}, [[]], [{}], {"a": 1}, [1, 2], ["x"],
    [None], [True], {"": ""}, {"from_submit": "X"}, {"from_submit": 1}, [0] * 50, {"kv_connector": "multi"},
    [{"kv_connector": "mooncake", "handshake_port": "x"}], [{"kv_connector": 3}], "[1,2", "{\"a\":1}", "[1]", "{}", "NaN",
    "9" * 400, "1_000", "۱۲", "0.1.4", "2026-06-10", "2026-08-22", "main",
)  # fmt: skip
_BITS = (b"\x00", b"\r", b"\t", b"\xff", b"\xef\xbb\xbf", b"&a ", b"*a", b"<<: ", b"!!x ", b"- ", b": ", b"{", b"}", b"[", b"]", b"'", b'"', b"|\n", b">\n", b"---\n", b"...\n", b"%YAML 1.1\n", b"#", b"? ", b"\xe2\x80\xa8", b"\xc2\x85", b"@", b"`", b"${x}", b"{{x}}")  # fmt: skip


class Corpus(NamedTuple):
    """What mutations start from: valid and invalid recipes, profiles, and the names that schemas know."""

    recipes: tuple[bytes, ...]
    profiles: tuple[bytes, ...]
    names: tuple[str, ...]


def corpus(root: Path) -> Corpus:
    """The shipped recipes first, then everything else that the repository has."""
    shipped = sorted((root / "recipes").glob("*/*.yaml"))
    recipes = [p for p in shipped if p.parent.name != "clusters"]
    wrong = [p for p in sorted((root / "tests" / "invalid").glob("*.yaml")) if ".cluster." not in p.name]
    profiles = [p for p in shipped if p.parent.name == "clusters"]
    profiles += sorted((root / "tests" / "invalid").glob("*.cluster.yaml"))
    return Corpus(
        tuple(p.read_bytes() for p in (*recipes, root / "tests" / "rules" / "base.yaml", *wrong))
        + tuple(_examples(root)),
        tuple(p.read_bytes() for p in profiles),
        tuple(
            sorted(
                {
                    *_names(schemas.schema("recipe-2")),
                    *_names(schemas.schema("cluster")),
                    *_names(schemas.schema("recipe-1")),
                }
            )
        ),
    )


def _examples(root: Path) -> list[bytes]:
    from examples import laid_over

    entries = [catalogue.entry(code) for code in catalogue.codes()]
    parts = [e.wrong for e in entries if e.kind == "recipe" and e.wrong]
    return [json.dumps(laid_over("recipe", part)).encode() for part in parts]


def _names(node: Any) -> set[str]:
    if isinstance(node, list):
        return {name for one in node for name in _names(one)}
    if not isinstance(node, dict):
        return set()
    own = set(node.get("properties", {})) if isinstance(node.get("properties"), dict) else set()
    return own | {name for one in node.values() for name in _names(one)}


def text(random: Random, files: tuple[bytes, ...], known: Corpus) -> bytes:
    """One of the files, broken as bytes or as data."""
    content = random.choice(files)
    for _ in range(random.randint(1, 4)):
        content = random.choice((_as_bytes, _as_data, _as_data, _as_lines))(random, content, known)
    return content


def _as_bytes(random: Random, content: bytes, known: Corpus) -> bytes:
    at = random.randrange(len(content) + 1)
    end = min(len(content), at + random.choice((0, 1, 1, 3, 40)))
    kind = random.randrange(4)
    if kind == 0:
        return content[:at] + random.choice(_BITS) + content[end:]
    if kind == 1:
        return content[:at] + bytes(random.randrange(256) for _ in range(random.randint(1, 4))) + content[end:]
    if kind == 2:
        other = random.choice(known.recipes)
        start = random.randrange(len(other) + 1)
        return content[:at] + other[start : start + random.choice((10, 200))] + content[end:]
    return content[:at] + content[end:]


def _as_lines(random: Random, content: bytes, known: Corpus) -> bytes:
    lines = content.split(b"\n")
    at = random.randrange(len(lines))
    kind = random.randrange(5)
    if kind == 0:
        lines[at : at + 1] = [lines[at], lines[at]]
    elif kind == 1:
        del lines[at : at + random.randint(1, 3)]
    elif kind == 2:
        lines[at] = b" " * random.randint(1, 3) + lines[at]
    elif kind == 3:
        key = random.choice(known.names).encode()
        lines.insert(at, b" " * random.choice((0, 2, 4, 6)) + key + b": " + json.dumps(random.choice(NASTY)).encode())
    else:
        random.shuffle(lines)
    return b"\n".join(lines)


def _as_data(random: Random, content: bytes, known: Corpus) -> bytes:
    """A value replaced, removed, renamed or added; content that no longer parses stays as it is."""
    try:
        data = document.load("f", content).data
    except RecipeError:
        return content
    return _json(_changed(random, data, known))


def _json(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _changed(random: Random, data: Any, known: Corpus) -> Any:
    if not isinstance(data, (dict, list)) or not data or random.random() < 0.02:
        return random.choice(NASTY)
    keys = list(data) if isinstance(data, dict) else list(range(len(data)))
    key = random.choice(keys)
    if isinstance(data[key], (dict, list)) and random.random() < 0.75:
        data[key] = _changed(random, data[key], known)
        return data
    kind = random.randrange(4)
    if kind == 0:
        del data[key]
    elif kind == 1 and isinstance(data, dict):
        data[random.choice((*known.names, str(key).replace("-", "_"), str(key).replace("_", "-"), f"no-{key}", ""))] = (
            data[key]
        )
    elif kind == 2 and isinstance(data, dict):
        data[random.choice(known.names)] = random.choice(NASTY)
    else:
        data[key] = random.choice(NASTY)
    return data


def change(random: Random, known: Corpus) -> tuple[str, str]:
    """One --set or --unset with a path that exists, or not, and a value in YAML."""
    try:
        found = document.load("f", random.choice(known.recipes))
        path = dotted(random.choice([*found.keys, ("name",)]))
    except RecipeError:
        path = "name"
    for _ in range(random.choice((0, 0, 1, 2))):
        at = random.randrange(len(path) + 1)
        path = (
            path[:at]
            + random.choice(
                (
                    ".",
                    "[0]",
                    "[99]",
                    '"',
                    "\\",
                    "=",
                    "x",
                    "",
                    " ",
                    "[",
                    "]",
                    "..",
                    "\0",
                    "é",
                    random.choice(known.names),
                )
            )
            + path[at:]
        )
    if random.random() < 0.25:
        return "unset", path
    value = random.choice(NASTY)
    shown = value if isinstance(value, str) and random.random() < 0.5 else json.dumps(value)
    if random.random() < 0.2:
        shown += random.choice((": ", "{", "[", "&a", "*a", "!!x", "\n- x", "'", '"', "#"))
    return "set", f"{path}={shown}" if random.random() < 0.97 else path


def json_text(random: Random, content: bytes) -> bytes:
    """A manifest broken as bytes, or with names that lead elsewhere."""
    known = Corpus(
        (content,), (), ("files", "id", "sha256", "../outside/file", "/etc/hostname", "results/kept", "a/b", ".")
    )
    if random.random() < 0.4:
        return _as_bytes(random, content, known)
    data = json.loads(content)
    for _ in range(random.randint(1, 3)):
        files = data.get("files") if isinstance(data, dict) else None
        if isinstance(files, dict) and random.random() < 0.6:
            files[
                random.choice(
                    (
                        "../outside/file",
                        "results/kept",
                        "/etc/hostname",
                        "",
                        ".",
                        "..",
                        "a/../../outside/file",
                        "x" * 300,
                        "lib",
                        "\0",
                        "roles/../../outside/file",
                    )
                )
            ] = random.choice(({"sha256": "x"}, {}, None, 3, {"sha256": None}))
        else:
            data = _changed(random, data, known)
    return _json(data)


def clutter(random: Random, out: Path, outside: Path, names: list[str]) -> list[str]:
    """Things in an output folder that do not belong there; what was done, in words."""
    done: list[str] = []
    if random.random() < 0.1 and not out.exists():
        os.symlink(random.choice((str(outside.parent), "missing", ".")), out)
        return [f"{out} is a link"]
    for _ in range(random.randint(1, 3)):
        name = random.choice((*names, "lib", "roles", "extra", ".srtgen-writing", "results", "manifest.json", "a/b"))
        path = out / name
        if any(
            p.is_symlink() or (p.exists() and not p.is_dir())
            for p in path.parents
            if p != out.parent and out in (p, *p.parents)
        ):
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            done.append(f"{name}: {_place(random, path, outside)}")
        except OSError as error:
            done.append(f"{name}: {error}")
    return done


def _place(random: Random, path: Path, outside: Path) -> str:
    kind = random.choice(("file", "folder", "link", "link out", "dangling", "fifo", "gone", "mode", "socket name"))
    if path.exists() or path.is_symlink():
        if kind == "mode":
            os.chmod(path, random.choice((0, 0o400, 0o777)))
            return kind
        if path.is_dir() and not path.is_symlink():
            import shutil

            shutil.rmtree(path)
        else:
            path.unlink()
    if kind in ("file", "mode"):
        path.write_bytes(random.choice((b"", b"edited", b"{}", b"\xff")))
    elif kind == "folder":
        (path / "inner").mkdir(parents=True)
    elif kind == "link":
        os.symlink(random.choice((".", "..", "README.md", path.name)), path)
    elif kind == "link out":
        os.symlink(outside / random.choice(("file", "", "new")), path)
    elif kind == "dangling":
        os.symlink("nowhere/at/all", path)
    elif kind == "fifo":
        os.mkfifo(path)
    return kind
