"""The stand-in router's inference path: checks, retries, and the exchange between prefill and decode."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any, AsyncIterator, Optional

from standin import fetch
from standin.clap import Options
from standin.faults import Faults
from standin.http import Reply, Request, json_reply, text_reply
from standin.registry import Entry, Registry

RETRIED = frozenset((408, 429, 500, 502, 503, 504))
PASSED_ON = ("authorization", "x-request-id", "x-correlation-id", "x-session-id", "traceparent", "tracestate")
BROKEN = (OSError, EOFError, ValueError, asyncio.TimeoutError)


def error(status: int, code: str, message: str) -> Reply:
    """An error that the router itself makes."""
    body = {"error": {"type": HTTPStatus(status).phrase, "code": code, "message": message}}
    return json_reply(body, status, X_Mesh_Error_Code=code)


class Dispatcher:
    """Sends requests to workers; counts them for the metrics port."""

    def __init__(self, options: Options, registry: Registry, faults: Faults) -> None:
        self._options = options
        self._registry = registry
        self._faults = faults
        self.tp_sizes: dict[str, int] = {}
        self.requests = 0
        self.retries = 0

    async def complete(self, request: Request, chat: bool) -> Reply:
        self.requests += 1
        problem, body = self._read(request, chat)
        if problem:
            return problem
        if "hang_completions" in self._faults:
            await asyncio.Event().wait()
        if self.requests > self._faults.number("fail_after") and self._faults.hits("fail_ratio"):
            return error(int(self._faults.number("fail_status", 500)), "stand_in_fault", "fail_ratio")
        tries = 1 if self._options["disable-retries"] else self._options["retry-max-retries"]
        reply = await self._attempt(request, body)
        for number in range(1, tries):
            if reply.status not in RETRIED:
                break
            self.retries += 1
            await asyncio.sleep(self._pause(number))
            reply = await self._attempt(request, body)
        return reply

    def _pause(self, number: int) -> float:
        options = self._options
        pause: float = options["retry-initial-backoff-ms"] * options["retry-backoff-multiplier"] ** (number - 1)
        spread: float = options["retry-jitter-factor"]
        return float(min(pause, options["retry-max-backoff-ms"])) / 1000 * random.uniform(1 - spread, 1 + spread)

    def _read(self, request: Request, chat: bool) -> tuple[Optional[Reply], dict[str, Any]]:
        try:
            body = json.loads(request.body)
            wrong = "" if isinstance(body, dict) else "not an object"
        except ValueError:
            body, wrong = {}, "not JSON"
        if chat:
            if wrong or not isinstance(body.get("messages"), list):
                message = {"message": wrong or "missing field `messages`", "type": "invalid_request_error",
                           "code": "json_parse_error"}
                return json_reply({"error": message}, 400), {}
            body.setdefault("model", "unknown")
            return None, body
        if "application/json" not in request.headers.get("content-type", ""):
            return text_reply("Expected request with `Content-Type: application/json`", 415), {}
        if wrong:
            return text_reply("Failed to parse the request body as JSON", 400), {}
        prompt = body.get("prompt")
        if not isinstance(body.get("model"), str) or not (isinstance(prompt, str) or is_texts(prompt)):
            return text_reply("Failed to deserialize the JSON body into the target type", 422), {}
        return None, body

    # -- one attempt --------------------------------------------------------

    async def _attempt(self, request: Request, body: dict[str, Any]) -> Reply:
        model = body["model"]
        roles = ("prefill", "decode") if self._options["pd-disaggregation"] else ("regular",)
        known = [role for role in roles if self._registry.of(role, model)]
        if not known:
            return error(503, "model_not_found", f"Model not found: {model}")
        for role in roles:
            if role not in known:
                return error(503, f"no_{role}_workers", f"No {role} workers for model {model}")
        chosen: list[Entry] = []
        for role in roles:
            policy = self._options.get(f"{role}-policy") or self._options["policy"]
            candidates = self._registry.usable(role, model)
            if not candidates:
                return error(503, "no_available_workers", "No available workers (all circuits open or unhealthy)")
            if policy == "prefix_hash":
                return error(503, "policy_returned_none", "Policy returned none")
            chosen.append(self._registry.choose(candidates, policy))
        if len(chosen) == 1:
            return await self._send(request, body, chosen[0], "regular")
        return await self._exchange(request, body, *chosen)

    async def _exchange(self, request: Request, body: dict[str, Any], prefill: Entry, decode: Entry) -> Reply:
        """Prefill first, its kv_transfer_params completed, then decode with the client's own request."""
        first = {**body, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False},
                 "stream": False, "max_tokens": 1}
        first.pop("stream_options", None)
        if "max_completion_tokens" in first:
            first["max_completion_tokens"] = 1
        reply = await self._send(request, first, prefill, "prefill")
        if reply.status != 200:
            return reply
        answer = json.loads(reply.body)
        if "kv_transfer_params" not in answer:
            return error(502, "prefill_missing_kv_transfer_params", "Prefill response lacks kv_transfer_params")
        params = answer["kv_transfer_params"]
        if not isinstance(params, dict) or prefill.base not in self.tp_sizes:
            return error(500, "enrich_decode_kv_failed", "kv_transfer_params is not an object")
        params = {**params, "remote_tp_size": self.tp_sizes[prefill.base], "remote_dp_size": prefill.ranks,
                  "remote_dp_rank": params.get("dp_rank", prefill.rank or 0)}
        return await self._send(request, {**body, "kv_transfer_params": params}, decode, "decode")

    async def _send(self, request: Request, body: dict[str, Any], entry: Entry, role: str) -> Reply:
        """One upstream request; its reply, or the router's error for it."""
        if entry.rank is not None:
            body = {**body, "data_parallel_rank": entry.rank}
        headers = {name: value for name, value in request.headers.items() if name in PASSED_ON}
        limit_s = self._options["request-timeout-secs"]
        entry.load += 1
        try:
            async with AsyncExitStack() as stack:
                going = fetch.request("POST", entry.base + request.path, fetch.encode(body), headers)
                answer = await asyncio.wait_for(stack.enter_async_context(going), limit_s)
                if body.get("stream") and answer.status == 200:
                    self._registry.book(entry, True)
                    entry.load += 1  # given back at the end of the stream
                    stream = self._relay(stack.pop_all(), answer, entry)
                    return Reply(200, content_type="text/event-stream", stream=stream)
                raw = await asyncio.wait_for(answer.read(), limit_s)
        except BROKEN as problem:
            self._registry.book(entry, False)
            code = "call_upstream_request_error" if role == "regular" else f"{role}_server_error"
            return error(500 if role == "regular" else 502, code, f"{type(problem).__name__}: {problem}")
        finally:
            entry.load -= 1
        good = answer.status < 500 if role == "decode" else 200 <= answer.status < 300
        self._registry.book(entry, good)
        return self._pass_on(answer, raw, bool(body.get("stream")), role)

    @staticmethod
    def _pass_on(answer: fetch.Answer, raw: bytes, stream: bool, role: str) -> Reply:
        if role == "regular" or answer.status == 200:
            kind = "text/event-stream" if stream else answer.headers.get("content-type", "application/json")
            return Reply(answer.status, raw, kind)
        text = raw.decode(errors="replace")
        if role == "prefill":
            return error(answer.status, "prefill_error", f"Prefill server error ({answer.status}): {text}")
        if stream:
            line = f"data: {{'error': {json.dumps({'message': text, 'status': answer.status})}}}\n\n"
            return Reply(answer.status, line.encode(), "text/event-stream")
        return error(answer.status, "decode_error", text)

    @staticmethod
    async def _relay(stack: AsyncExitStack, answer: fetch.Answer, entry: Entry) -> AsyncIterator[bytes]:
        try:
            async for piece in answer.chunks():
                yield piece
        finally:
            entry.load -= 1
            await stack.aclose()


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)
