"""Real streamed load over HTTP, and what it measured: the engine of both client stand-ins."""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Optional
from urllib.parse import urlsplit

from standin import fetch
from standin.words import VOCABULARY, count_tokens


@dataclass(frozen=True)
class Prompt:
    text: str
    input_len: int
    output_len: int


@dataclass
class Output:
    """One request as the client saw it."""

    input_len: int
    success: bool = False
    error: str = ""
    text: str = ""
    output_len: int = 0
    ttft: float = 0.0
    latency: float = 0.0
    itl: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Target:
    """Where requests go, and what is the same in all of them."""

    url: str
    chat: bool
    model: str
    ignore_eos: bool
    logprobs: Optional[int]


def random_prompts(count: int, input_len: int, output_len: int, ratio: float, prefix_len: int,
                   seed: int) -> list[Prompt]:
    """Lengths uniform in [int(len * ratio), len], both ends included."""
    dice = random.Random(seed)
    prefix = [dice.choice(VOCABULARY) for _ in range(prefix_len)]
    prompts = []
    for number in range(count):
        words_in = dice.randint(int(input_len * ratio), input_len)
        words_out = dice.randint(int(output_len * ratio), output_len)
        body = [str(number)] + [dice.choice(VOCABULARY) for _ in range(words_in - 1)]
        prompts.append(Prompt(" ".join(prefix + body), prefix_len + words_in, words_out))
    return prompts


def check_proxy(url: str) -> None:
    """The real clients honour proxy variables: a request that would leave by a proxy fails here."""
    host = urlsplit(url).netloc
    if "http" in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        raise SystemExit(f"ClientConnectionError: {host} would be reached by a proxy")


def body_of(target: Target, prompt: Prompt) -> bytes:
    body: dict[str, Any] = {"model": target.model, "temperature": 0.0, "stream": True,
                            "stream_options": {"include_usage": True}, "ignore_eos": target.ignore_eos}
    if target.chat:
        body.update(messages=[{"role": "user", "content": prompt.text}], max_completion_tokens=prompt.output_len)
    else:
        body.update(prompt=prompt.text, best_of=1, max_tokens=prompt.output_len, logprobs=target.logprobs)
    return fetch.encode(body)


def take_frame(output: Output, frame: dict[str, Any], start: float, last: float) -> float:
    """Books one frame; returns the time of the last text."""
    now = time.perf_counter()
    if frame.get("choices"):
        choice = frame["choices"][0]
        text = choice.get("text") if "text" in choice else (choice.get("delta") or {}).get("content")
        if not output.ttft:
            output.ttft = now - start
        else:
            output.itl.append(now - last)
        output.text += text or ""
        last = now
    if frame.get("usage"):
        output.output_len = frame["usage"].get("completion_tokens", 0)
    return last


async def send(target: Target, prompt: Prompt, give_up_after: Optional[int] = None) -> Output:
    """One streamed request; an error is a failed output, never an exception."""
    output = Output(prompt.input_len)
    start = last = time.perf_counter()
    pending, frames = b"", 0
    try:
        async with fetch.request("POST", target.url, body_of(target, prompt)) as answer:
            if answer.status != 200:
                output.error = f"{answer.status}: {(await answer.read()).decode(errors='replace')[:300]}"
                return output
            async for piece in answer.chunks():
                *whole, pending = (pending + piece).split(b"\n\n")
                for line in whole:
                    text = line[len(b"data: "):].strip()
                    if text and text != b"[DONE]":
                        last = take_frame(output, json.loads(text), start, last)
                        frames += 1
                if give_up_after is not None and frames >= give_up_after:
                    output.error = "given up"
                    return output
    except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
        output.error = f"{type(error).__name__}: {error}"
        return output
    output.latency = last - start
    output.success = bool(output.ttft)
    if not output.success:
        output.error = "Never received a valid chunk to calculate TTFT."
    output.output_len = output.output_len or (count_tokens(output.text) if output.text else 0)
    return output


async def gaps(count: int, rate: float, burstiness: float, seed: int) -> list[float]:
    """Seconds before each request; none at an infinite rate."""
    if rate == float("inf"):
        return [0.0] * count
    dice = random.Random(seed)
    return [dice.gammavariate(burstiness, 1.0 / (rate * burstiness)) for _ in range(count)]


async def burst(target: Target, prompts: list[Prompt], concurrency: Optional[int], waits: list[float],
                repeats: int = 0) -> tuple[list[Output], float]:
    """Sends all prompts, at most so many at once; the first few may be given up once and sent again."""
    gate = asyncio.Semaphore(concurrency or len(prompts) or 1)

    async def one(number: int, prompt: Prompt) -> Output:
        async with gate:
            if number < repeats:
                await send(target, prompt, give_up_after=1)
            return await send(target, prompt)

    start = time.perf_counter()
    tasks = []
    for number, (prompt, wait) in enumerate(zip(prompts, waits)):
        if wait:
            await asyncio.sleep(wait)
        tasks.append(asyncio.ensure_future(one(number, prompt)))
    outputs = list(await asyncio.gather(*tasks))
    return outputs, time.perf_counter() - start
