"""The text of a YAML file: from bytes to clean text, and the parser's complaints in the user's words."""

from __future__ import annotations

import re

from yaml import MarkedYAMLError, YAMLError

from srtgen.errors import Problem, RecipeError

MAX_BYTES = 4 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
# U+0085, U+2028 and U+2029 break lines in YAML 1.1 but not in 1.2; a lone CR hides what stands before it.
_UNWANTED = (
    "\r(?!\n)|[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)

_DIRECTIVE = r"^%(?!YAML[ \t]+1\.2[ \t]*(?:#.*)?$)"
# Where libyaml and the pure parser word one mistake differently, or neither says what to do.
_MESSAGES = {
    "mapping values are not allowed": 'a ":" cannot stand here; check the indentation, or quote a text that holds ": "',
    "sequence entries are not allowed": 'a list item cannot start here; quote a text that starts with "- "',
    "mapping keys are not allowed": 'text cannot start with "? "; quote it',
    "node content": "a value is missing here; quote a text that starts with a bracket, a brace or a comma",
    "chomping or indentation": "after | or > the text starts on the next line",
    "comment or line break": "after | or > the text starts on the next line",
    "unknown escape": "an unknown escape in double quotes; use single quotes, or double the backslash",
    "nesting depth": "nested too deeply",
}


def decode(file: str, content: bytes) -> str:
    """The file's text with LF line ends, a final one included; RecipeError where it is not clean UTF-8 text."""
    if len(content) > MAX_BYTES:
        raise _refusal(file, 1, 1, f"the file is larger than {MAX_BYTES // 1024 // 1024} MiB", "file-size")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _refusal(file, 1, 1, "the file is UTF-16 text; save it as UTF-8", "encoding")
    content = content.removeprefix(_BOM)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(file, content, error.start) from None
    unwanted = None if _is_plain_ascii(text) else re.search(_UNWANTED, text)
    if unwanted:
        raise _unwanted_character(file, text, unwanted.start())
    text = text.replace("\r\n", "\n")
    return text if text.endswith("\n") else text + "\n"


def _is_plain_ascii(text: str) -> bool:
    """Most recipes are; they are spared the pattern, whose compilation is dear."""
    return text.isascii() and text.replace("\r\n", "").replace("\n", "").replace("\t", "").isprintable()


def foreign_directive(text: str, end: int) -> int:
    """The line of the first directive before offset `end` other than %YAML 1.2; 0 if there is none."""
    if "%" not in text[:end]:
        return 0
    directive = re.compile(_DIRECTIVE, re.MULTILINE).search(text, 0, end)
    return text.count("\n", 0, directive.start()) + 1 if directive else 0


def syntax_problem(file: str, text: str, error: YAMLError | ValueError) -> Problem:
    """What the parser refused, in the same words for libyaml and the pure parser where the mistake is a common one."""
    if not isinstance(error, MarkedYAMLError):
        return Problem(file, 1, 1, "", f"not valid YAML: {_one_line(str(error))}", code="yaml-syntax")
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    opened = error.context_mark.line + 1 if error.context_mark else line
    message = _complaint(text, line, column, error, opened) + _template_hint(text, line)
    return Problem(file, line, column, "", f"not valid YAML: {message}", code="yaml-syntax")


def _complaint(text: str, line: int, column: int, error: MarkedYAMLError, opened: int) -> str:
    problem = _one_line(error.problem or error.context or "unreadable")
    context = error.context or ""
    if "cannot start any token" in problem or "tab character" in problem:
        return _bad_start(_line(text, line)[column - 1 : column])
    if "',' or '" in problem:
        what = "list" if "sequence" in context else "mapping"
        return f"the {what} that opens on line {opened} lacks a comma or its closing bracket"
    if "unexpected end of stream" in problem and "quoted" in context:
        return f"the quoted text that opens on line {opened} is not closed"
    if problem.startswith(("did not find expected key", "expected <block end>", "did not find expected '-'")):
        return f"does not belong to the block that starts on line {opened}; check indentation, quotes and brackets"
    for fragment, message in _MESSAGES.items():
        if fragment in problem:
            return message
    return f"{problem} ({_one_line(context)})" if context else problem


def _bad_start(character: str) -> str:
    if character == "\t":
        return "a tab cannot indent; use blanks"
    return f'text cannot start with "{character}"; quote it'


def _template_hint(text: str, line: int) -> str:
    return "; quote a text that holds {{ }}" if "{{" in _line(text, line) else ""


def _line(text: str, line: int) -> str:
    lines = text.split("\n", line)
    return lines[line - 1] if line <= len(lines) else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _not_utf8(file: str, content: bytes, offset: int) -> RecipeError:
    start = content.rfind(b"\n", 0, offset) + 1
    column = len(content[start:offset].decode("utf-8")) + 1
    message = f"byte 0x{content[offset]:02x} at offset {offset} is not UTF-8 text"
    return _refusal(file, content.count(b"\n", 0, offset) + 1, column, message, "encoding")


def _unwanted_character(file: str, text: str, offset: int) -> RecipeError:
    column = offset - text.rfind("\n", 0, offset)
    if text[offset] == "\r":
        message = "a carriage return without a line feed"
    else:
        message = f"the character U+{ord(text[offset]):04X} cannot stand in a text file of YAML"
    return _refusal(file, text.count("\n", 0, offset) + 1, column, message, "encoding")


def _refusal(file: str, line: int, column: int, message: str, code: str) -> RecipeError:
    return RecipeError([Problem(file, line, column, "", message, code=code)])
