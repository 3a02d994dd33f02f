"""Shell words: the only maker of shell text from values.

A `Word` is what a process receives as one argument or one environment value. Its parts are literal text, a `Var`
(known only in the job) or a `Param` (known now, but possibly another value for each worker of a role).
"""

import re
from typing import Iterable, NamedTuple, Union

PLAIN = re.compile(r"[A-Za-z0-9._:/,=@%+|&!*()\[\]~# -]*\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BARE = re.compile(r"[A-Za-z0-9_@%+=:./-]+\Z")


class Shell(str):
    """Text that is safe to stand in a shell script. Made here and nowhere else."""


class Var(NamedTuple):
    """A run-time value: the shell variable `name`. `required` ends the script with a message when it is unset."""

    name: str
    required: bool = False

    def shell(self) -> str:
        return f'"${{{self.name}:?}}"' if self.required else f'"${{{self.name}}}"'


class Param(NamedTuple):
    """A value of one worker, shown as `${name}` in a role script where the workers of the role differ in it."""

    name: str
    value: str | Var

    def shell(self) -> str:
        return f'"${{{self.name}}}"'


Part = Union[str, Var, Param]
Word = tuple[Part, ...]


def word(*parts: Part) -> Word:
    """A word of these parts; neighbouring literals are joined."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return tuple(joined)


def params(value: Word) -> dict[str, Part]:
    """The parameters in a word, by name."""
    return {part.name: part.value for part in value if isinstance(part, Param)}


def bind(value: Word, varying: frozenset[str]) -> Word:
    """The word with each parameter that is not in `varying` replaced by its value."""
    return word(*(p.value if isinstance(p, Param) and p.name not in varying else p for p in value))


def text(value: Word) -> str:
    """The word as the manifest shows it: literals as they are, run-time values as `${NAME}`."""
    return "".join(_shown(part) for part in value)


def _shown(part: Part) -> str:
    if isinstance(part, Param):
        return _shown(part.value)
    return f"${{{part.name}}}" if isinstance(part, Var) else part


def quote(value: str) -> Shell:
    """`value` as one shell word, bare where that is safe."""
    if "\0" in value:
        raise ValueError("a NUL byte cannot be part of a shell word")
    return Shell(value if _BARE.match(value) else _single(value))


def _single(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


def shquote(value: object) -> Shell:
    """One word: text, an integer, or a `Word`. Anything else is a decision that belongs into the plan."""
    if isinstance(value, (Var, Param)):
        return Shell(value.shell())
    if isinstance(value, tuple):
        return Shell("".join(_quoted(part) for part in value) or "''")
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TypeError(f"not a shell word: {value!r}")
    return quote(str(value))


def _quoted(part: Part) -> str:
    return quote(part) if isinstance(part, str) else part.shell()


def shargv(lines: Iterable[Iterable[Word]]) -> Shell:
    """The body of an array, one flag with its values a line."""
    return Shell("\n".join("  " + " ".join(shquote(w) for w in line) for line in lines))


def shenv(pairs: Iterable[tuple[str, object]], command: str = "export") -> Shell:
    """One assignment a line: `export NAME=value`."""
    return Shell("\n".join(f"{command} {_name(name)}={shquote(value)}" for name, value in pairs))


def sharrays(arrays: Iterable[tuple[str, list[Word]]], command: str) -> Shell:
    """One array after the other, one word a line."""
    return Shell("\n".join(_array(f"{command} {_name(name)}", values) for name, values in arrays))


def _array(head: str, values: list[Word]) -> str:
    return f"{head}=(\n{shargv([value] for value in values)}\n)" if values else f"{head}=()"


def _name(name: str) -> str:
    if not _NAME.match(name):
        raise ValueError(f"not the name of a variable: {name!r}")
    return name


def plain(value: object) -> Shell:
    """Text for a comment or an `#SBATCH` line, where quotes do not protect: refused unless it is harmless there."""
    shown = str(value)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not PLAIN.match(shown):
        raise ValueError(f"not plain text: {value!r}")
    return Shell(shown)


_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$])")


def md(value: object) -> Shell:
    """Text for the bundle's Markdown, with everything that Markdown or HTML would act on escaped; one line."""
    one_line = " ".join(str(value).split())
    return Shell(_MARKDOWN.sub(r"\\\1", one_line.replace("&", "&amp;")))


def code(value: object) -> Shell:
    """The same as a code span, where the text can be one."""
    one_line = " ".join(str(value).split())
    return Shell(f"`{one_line}`") if one_line and not set(one_line) & set("`|") else md(value)


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> Shell:
    """A Markdown table; cells are text, or `Shell` made by `md` and `code`."""
    heads = list(header)
    lines = [heads, ["---"] * len(heads), *([_cell(cell) for cell in row] for row in rows)]
    return Shell("\n".join("| " + " | ".join(line) + " |" for line in lines))


def _cell(value: object) -> str:
    return value if isinstance(value, Shell) else md(value)
