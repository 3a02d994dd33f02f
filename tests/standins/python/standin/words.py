"""What the stand-in model says: a token is a word, and simple sums have an answer."""

from __future__ import annotations

import re
from typing import Optional

VOCABULARY = "the model reads a long prompt and writes one short word after another until it may stop".split()
SUM = re.compile(r"[Ww]hat is\s+(-?\d+)\s*\+\s*(-?\d+)\s*\?")
NUMBER = re.compile(r"-?\d+(?:,\d{3})*")


def count_tokens(text: str) -> int:
    return max(1, len(text.split()))


def right_answer(prompt: str) -> Optional[int]:
    """The sum that the last question asks for; None if the prompt asks for none.

    "What is A + B?" is taken as it says; a question in the style of GSM8K ("Question: ...") is answered with the sum
    of the numbers in it. Earlier questions of a few-shot prompt are left alone.
    """
    sums = SUM.findall(prompt)
    if sums:
        return int(sums[-1][0]) + int(sums[-1][1])
    _, mark, last = prompt.rpartition("Question:")
    if not mark:
        return None
    asked = last.split("?")[0]
    return sum(int(number.replace(",", "")) for number in NUMBER.findall(asked))


def answer_words(value: int) -> list[str]:
    """Tokens of an answer in GSM8K's format."""
    return [" The", " answer", " is", f" {value}.", "\n####", f" {value}"]


def filler(count: int, start: int = 0) -> list[str]:
    """Exactly count tokens of text that means nothing."""
    return [" " + VOCABULARY[(start + i) % len(VOCABULARY)] for i in range(count)]
