"""Turns a request into timed tokens and a reply: the part of a worker that would be the GPU."""

from __future__ import annotations

import asyncio
import time
from typing import Any, AsyncIterator, Optional

from standin import words
from standin.faults import Faults, setting
from standin.http import Reply
from standin.protocol import CHAT_BURST, Ask, Shapes

STEP_S = 0.004  # tokens that fall due within it leave together, as ATOM merges steps when the reader lags


class Engine:
    """Generates; counts what it generated."""

    def __init__(self, model: str, faults: Faults) -> None:
        self._model = model
        self._faults = faults
        self._ttft_s = setting("STANDIN_TTFT_S", 0.005)
        self._tpot_s = faults.number("tpot_s", setting("STANDIN_TPOT_S", 0.0005))
        self.tokens = 0
        self.running = 0
        self._requests = 0

    def _answer(self, ask: Ask) -> tuple[list[str], str]:
        """The tokens of an answer, and the engine's word for why it ends."""
        if self._faults.due("empty", self._requests):
            return [], "eos"
        value = words.right_answer(ask.prompt)
        if value is None:
            return words.filler(ask.max_tokens, len(ask.prompt)), "max_tokens"
        if self._faults.hits("answer_empty"):
            return [], "eos"
        if self._faults.hits("answer_wrong"):
            value += 1
        tokens = words.answer_words(value)
        if ask.ignore_eos:
            tokens += words.filler(max(0, ask.max_tokens - len(tokens)))
        if len(tokens) > ask.max_tokens or ask.ignore_eos:
            return tokens[: ask.max_tokens], "max_tokens"
        return tokens, "eos"

    def _cut(self, ask: Ask, tokens: list[str], reason: str) -> tuple[list[str], str]:
        """Ends the answer before the first stop sequence."""
        text = "".join(tokens)
        ends = [at for at in (text.find(word) for word in ask.stop if word) if at >= 0]
        if not ends:
            return tokens, reason
        kept, length = [], 0
        for token in tokens:
            if length >= min(ends):
                break
            kept.append(token[: min(ends) - length])
            length += len(token)
        return kept, "stop_sequence"

    async def run(self, ask: Ask, params: Optional[dict[str, Any]] = None) -> Reply:
        """Answers a request; params go into the reply."""
        self._requests += 1
        shapes = Shapes(ask, self._model, words.count_tokens(ask.prompt))
        tokens, reason = self._cut(ask, *self._answer(ask))
        if ask.stream:
            return Reply(content_type="text/event-stream; charset=utf-8",
                         stream=self._stream(ask, shapes, tokens, reason, params))
        start = time.monotonic()
        text, ttft_s = [], 0.0
        async for piece in self._due(tokens):
            ttft_s = ttft_s or time.monotonic() - start
            text += piece
        return shapes.whole("".join(text), len(text), reason, params, ttft_s, time.monotonic() - start)

    async def _due(self, tokens: list[str]) -> AsyncIterator[list[str]]:
        """The tokens as time passes, several at once where they fall due together."""
        self.running += 1
        try:
            await asyncio.sleep(self._ttft_s)
            start, sent = time.monotonic(), 0
            while sent < len(tokens):
                elapsed = time.monotonic() - start
                due = len(tokens) if self._tpot_s <= 0 else min(len(tokens), int(elapsed / self._tpot_s) + 1)
                if due > sent:
                    self.tokens += due - sent
                    yield tokens[sent:due]
                    sent = due
                if sent < len(tokens):
                    await asyncio.sleep(max(self._tpot_s, STEP_S))
        finally:
            self.running -= 1

    async def _stream(self, ask: Ask, shapes: Shapes, tokens: list[str], reason: str,
                      params: Optional[dict[str, Any]]) -> AsyncIterator[bytes]:
        stall_at = int(self._faults.number("stall_stream")) if self._faults.due("stall_stream", self._requests) else None
        sent, held = 0, ""
        more: dict[str, Any] = {"kv_transfer_params": params} if params else {}
        if ask.chat:
            yield shapes.opening()
        async for piece in self._due(tokens):
            sent += len(piece)
            held += "".join(piece)
            if stall_at is not None and sent >= stall_at:
                yield shapes.piece(held)
                await asyncio.Event().wait()
            last = sent == len(tokens)
            if not last and (not ask.chat or len(held) > CHAT_BURST):
                yield shapes.piece(held, **more)
                held = ""
        yield shapes.ending(held, sent, reason)
