"""What a plain (unquoted) YAML scalar means: the core schema of YAML 1.2, narrowed to spellings nobody misreads.

Not base 60, not yes/no, not dates: those are text. The odd spellings of numbers, `017`, `0o17`, `0x10`, `+5`, `+1.5`,
`00.5`, have another value in each YAML version and stay text here, in their own spelling; `odd_number` recognises them,
so that whoever checks types can say which digits to write.
"""

from __future__ import annotations

import math
import re

# Every integer up to this length is also a finite float and passes int() and str() under any interpreter limit.
MAX_DIGITS = 308

_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_NUMERIC_START = frozenset("-.+0123456789")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"-?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
_ODD = (
    r"[-+]?(?:0[oO][0-7_]+|0[xX][0-9a-fA-F_]+|0[bB][01_]+|(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?)\Z"
)
_NON_ZERO = r"[-.0]*[1-9]"


def scalar(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar; ValueError, with a message for the user, for a number that no field can hold."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC_START:
        return text
    if _INTEGER.match(text):
        return _integer(text)
    if _FLOAT.match(text):
        return _float(text)
    if re.match(_NOT_FINITE, text):
        raise ValueError(f"{text} is not a finite number; quote it if text is meant")
    return text


def odd_number(text: str) -> bool:
    """Whether some YAML version or Python reads this text as a number, while `scalar` keeps it as text."""
    return bool(re.match(_ODD, text)) and not _INTEGER.match(text) and not _FLOAT.match(text)


def _integer(text: str) -> int:
    digits = len(text.lstrip("-"))
    if digits > MAX_DIGITS:
        raise ValueError(f"a number of {digits} digits is too long; quote it if text is meant")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{short(text)} is too large for a number; quote it if text is meant")
    if number == 0 and re.match(_NON_ZERO, text):
        raise ValueError(f"{short(text)} is too small for a number; quote it if text is meant")
    return number


def short(text: str) -> str:
    """The text cut to what fits into a message."""
    return text if len(text) <= 40 else f"{text[:37]}..."
