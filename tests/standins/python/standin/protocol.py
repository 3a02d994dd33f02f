"""The worker's request rules and reply shapes for /v1/completions and /v1/chat/completions.

ROCm/ATOM ffdf3bb5, atom/entrypoints/openai: errors are {"detail": ...}, usage is always sent in streams, completions
pass the engine's finish reason raw, chat maps it.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import Any, Optional

from standin.http import Reply, json_reply

CHAT_BURST = 100  # characters: without reasoning markers ATOM's chat filter lets text out in bursts of just over this


@dataclass(frozen=True)
class Ask:
    """A request that passed the checks."""

    chat: bool
    prompt: str
    max_tokens: int
    stream: bool
    ignore_eos: bool
    stop: tuple[str, ...]
    count: int
    params: dict[str, Any]
    dp_rank: int


class Refused(Exception):
    """A request that the server answers with an error."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(str(detail))
        self.reply = json_reply({"detail": detail}, status)


def invalid(kind: str, field: str, message: str, given: Any) -> Refused:
    return Refused(422, [{"type": kind, "loc": ["body", field], "msg": message, "input": given}])


def check_type(body: dict[str, Any], field: str, types: tuple[type, ...], message: str) -> None:
    value = body.get(field)
    if value is None:
        return
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise invalid(f"{types[0].__name__}_type", field, message, value)


FIELDS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("prompt", (str,), "Input should be a valid string"),
    ("messages", (list,), "Input should be a valid list"),
    ("model", (str,), "Input should be a valid string"),
    ("stop", (list,), "Input should be a valid list"),
    ("max_tokens", (int,), "Input should be a valid integer"),
    ("max_completion_tokens", (int,), "Input should be a valid integer"),
    ("n", (int,), "Input should be a valid integer"),
    ("data_parallel_rank", (int,), "Input should be a valid integer"),
    ("temperature", (float, int), "Input should be a valid number"),
    ("stream", (bool,), "Input should be a valid boolean"),
    ("ignore_eos", (bool,), "Input should be a valid boolean"),
    ("kv_transfer_params", (dict,), "Input should be a valid dictionary"),
)


def parse(raw: bytes, chat: bool, model: str) -> Ask:
    """Reads a request body; raises Refused as ATOM refuses it."""
    try:
        body = json.loads(raw)
    except ValueError:
        raise Refused(422, [{"type": "json_invalid", "loc": ["body", 0], "msg": "JSON decode error",
                             "input": {}}]) from None
    if not isinstance(body, dict):
        raise Refused(422, [{"type": "model_attributes_type", "loc": ["body"],
                             "msg": "Input should be a valid dictionary", "input": body}])
    if not chat and "prompt" not in body:
        raise invalid("missing", "prompt", "Field required", body)
    for field, types, message in FIELDS:
        check_type(body, field, types, message)
    asked = body.get("model")
    if asked is not None and asked.rstrip("/") != model.rstrip("/"):
        raise Refused(400, f"Requested model '{asked}' does not match server model '{model}'")
    return Ask(
        chat=chat,
        prompt=chat_prompt(body) if chat else body["prompt"],
        max_tokens=first_given(body.get("max_completion_tokens"), body.get("max_tokens"), 8192),
        stream=bool(body.get("stream")),
        ignore_eos=bool(body.get("ignore_eos")),
        stop=tuple(str(word) for word in body.get("stop") or ()),
        count=1 if (body.get("temperature", 1.0) or 0) <= 0 else max(1, body.get("n") or 1),
        params=body.get("kv_transfer_params") or {},
        dp_rank=body.get("data_parallel_rank") or 0,
    )


def first_given(*values: Optional[int]) -> int:
    return next(value for value in values if value is not None)


def chat_prompt(body: dict[str, Any]) -> str:
    if isinstance(body.get("prompt"), str):
        return str(body["prompt"])
    if not body.get("messages"):
        raise Refused(400, "Either 'messages' or 'prompt' must be given")
    parts = []
    for message in body["messages"]:
        if not isinstance(message, dict) or "role" not in message:
            raise invalid("missing", "messages", "Field required", message)
        parts.append(str(message.get("content", "")))
    return "\n".join(parts)


class Shapes:
    """Builds the bodies of one reply."""

    def __init__(self, ask: Ask, model: str, prompt_tokens: int) -> None:
        self._ask = ask
        self._prompt_tokens = prompt_tokens
        kind = "chat.completion" if ask.chat else "text_completion"
        self._head = {
            "id": ("chatcmpl-" if ask.chat else "cmpl-") + uuid.uuid4().hex,
            "object": kind + (".chunk" if ask.chat and ask.stream else ""),
            "created": int(time.time()),
            "model": model,
        }

    def _usage(self, tokens: int) -> dict[str, Any]:
        usage: dict[str, Any] = {"prompt_tokens": self._prompt_tokens, "completion_tokens": tokens,
                                 "total_tokens": self._prompt_tokens + tokens}
        if self._ask.chat:
            usage["prompt_tokens_details"] = {"cached_tokens": 0}
        return usage

    def whole(self, text: str, tokens: int, reason: str, params: Optional[dict[str, Any]],
              ttft_s: float, latency_s: float) -> Reply:
        """A reply that is not streamed; n copies if the request asked for n choices."""
        choices = [self._choice(index, text, reason) for index in range(self._ask.count)]
        usage = self._usage(tokens * self._ask.count)
        usage.update(ttft_s=round(ttft_s, 4), latency_s=round(latency_s, 4),
                     tpot_s=round((latency_s - ttft_s) / max(1, tokens - 1), 5))
        if self._ask.count > 1:
            usage["num_choices"] = self._ask.count
            params = None
        return json_reply({**self._head, "choices": choices, "usage": usage, "kv_transfer_params": params})

    def _choice(self, index: int, text: str, reason: str) -> dict[str, Any]:
        if self._ask.chat:
            mapped = "length" if reason == "max_tokens" else "stop"
            return {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": mapped}
        return {"index": index, "text": text, "finish_reason": reason}

    def _frame(self, **fields: Any) -> bytes:
        text = json.dumps({**self._head, **fields}, separators=(",", ":"), ensure_ascii=False)
        return f"data: {text}\n\n".encode()

    def piece(self, text: str, reason: Optional[str] = None, **more: Any) -> bytes:
        """One frame with text."""
        choice: dict[str, Any] = {"index": 0}
        choice.update({"delta": {"content": text}} if self._ask.chat else {"text": text})
        choice.update(finish_reason=reason, logprobs=None)
        return self._frame(choices=[choice], **more)

    def opening(self) -> bytes:
        """Chat's first frame."""
        delta = {"role": "assistant", "content": ""}
        return self._frame(choices=[{"index": 0, "delta": delta, "finish_reason": None, "logprobs": None}])

    def ending(self, text: str, tokens: int, reason: str) -> bytes:
        """The last frames, which ATOM writes at once."""
        frames = b""
        if self._ask.chat:
            frames += self.piece(text) if text else b""
            last: dict[str, Any] = {"index": 0, "delta": {}}
        else:
            frames += self.piece(text, reason)
            last = {"index": 0, "text": ""}
        last.update(finish_reason="stop", logprobs=None)
        frames += self._frame(choices=[last])
        frames += self._frame(choices=[], usage=self._usage(tokens))
        return frames + b"data: [DONE]\n\n"
