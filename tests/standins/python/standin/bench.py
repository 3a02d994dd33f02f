"""The two client stand-ins: ATOM's atom.benchmarks.benchmark_serving, and InferenceX's script of the same name."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Optional

from standin import faults as fault
from standin import fetch, figures, load
from standin.argv import parser_of

FAILED_SHARE = 0.05  # InferenceX: more failed requests than this end with 1, after saving


class Client:
    """One run of a client."""

    def __init__(self, args: argparse.Namespace, inferencex: bool, faults: fault.Faults) -> None:
        self.args = args
        self.inferencex = inferencex
        self.faults = faults
        self.base = args.base_url or f"http://{args.host}:{args.port}"
        self.rate = float(args.request_rate)
        self.target = load.Target(
            url=self.base.rstrip("/") + args.endpoint,
            chat=args.backend == "openai-chat",
            model=args.served_model_name or args.model,
            ignore_eos=args.ignore_eos,
            logprobs=args.logprobs,
        )

    def check(self) -> None:
        """What the real clients refuse or trip over before they send anything."""
        args = self.args
        if args.dataset_name != "random":
            raise SystemExit(f"ValueError: Unknown dataset: {args.dataset_name}")
        if args.backend not in ("vllm", "openai", "openai-chat", "sglang", "lmdeploy", "scalellm"):
            raise SystemExit(f"stand-in: backend {args.backend} is not imitated")
        if not args.endpoint.endswith("chat/completions" if self.target.chat else "completions"):
            raise SystemExit("AssertionError: OpenAI API URL must end with the right path")
        tokenizer = args.tokenizer or args.model
        if tokenizer.startswith("/") and not Path(tokenizer).exists():
            raise SystemExit(f"OSError: no tokenizer in {tokenizer}")
        load.check_proxy(self.base)

    async def run(self) -> int:
        args = self.args
        prompts = load.random_prompts(args.num_prompts, args.random_input_len, args.random_output_len,
                                      args.random_range_ratio, args.random_prefix_len, args.seed)
        await self.warm_up(prompts[0])
        print(f"Traffic request rate: {self.rate}\nMaximum request concurrency: {args.max_concurrency}", flush=True)
        began = time.time()
        waits = await load.gaps(len(prompts), self.rate, args.burstiness, args.seed)
        outputs, duration = await load.burst(self.target, prompts, args.max_concurrency, waits,
                                             int(self.faults.number("retries")))
        for output in outputs:
            if output.error:
                print(f"request failed: {output.error}", file=sys.stderr, flush=True)
        result = self.result(outputs, duration, began)
        result.update(await self.acceptance())
        print(figures.report(result), flush=True)
        self.save(result)
        failed = len(outputs) - result["completed"]
        return 1 if self.inferencex and failed > FAILED_SHARE * len(outputs) else 0

    async def warm_up(self, prompt: load.Prompt) -> None:
        """All warm-ups repeat the first prompt; the first of them failing ends the client."""
        count = self.args.num_warmups
        if not count:
            return
        print("Starting initial single prompt test run...", flush=True)
        first = await load.send(self.target, prompt)
        if not first.success:
            raise SystemExit("ValueError: Initial test run failed - Please make sure benchmark arguments are "
                             f"correctly specified. Error: {first.error}")
        if count > 1:
            print(f"Warming up with {count - 1} prompts...", flush=True)
            await load.burst(self.target, [prompt] * (count - 1), self.args.max_concurrency, [0.0] * (count - 1))

    def result(self, outputs: list[load.Output], duration: float, began: float) -> dict[str, Any]:
        args = self.args
        result: dict[str, Any] = {
            "date": time.strftime("%Y%m%d-%H%M%S"), "backend": args.backend, "model_id": args.model,
            "tokenizer_id": args.tokenizer or args.model, "best_of": args.best_of, "num_prompts": args.num_prompts,
        }
        for pair in args.metadata or ():
            key, mark, value = pair.partition("=")
            if not mark:
                raise SystemExit("ValueError: Invalid metadata format. Please use KEY=VALUE format.")
            result[key.strip()] = value.strip()
        result.update(request_rate=self.rate if self.rate < float("inf") else "inf", burstiness=args.burstiness,
                      max_concurrency=args.max_concurrency)
        rows = figures.throughput(outputs, duration)
        result["duration"] = rows.pop("duration")
        if self.inferencex:
            result.update(benchmark_start_time_unix=began, benchmark_end_time_unix=began + duration)
        result.update(rows)
        if self.inferencex or args.save_detailed:
            result.update(figures.lengths(outputs))
        if args.save_detailed:
            result.update(figures.details(outputs))
        if not self.inferencex:
            result["concurrency"] = sum(output.latency for output in outputs) / duration
        metrics = args.percentile_metrics.split(",")
        result.update(figures.latencies(outputs, metrics, args.metric_percentiles.split(",")))
        return result

    async def acceptance(self) -> dict[str, Optional[float]]:
        """ATOM's client asks the base URL for speculation figures; a router has none."""
        if self.inferencex:
            return {}
        stats: dict[str, Any] = {}
        try:
            status, body = await fetch.get(self.base + "/debug/mtp_stats", 5)
            stats = json.loads(body) if status == 200 else {}
        except (OSError, EOFError, ValueError, asyncio.TimeoutError):
            pass
        return {"accept_length": stats.get("accept_length"), "acceptance_rate": stats.get("acceptance_rate")}

    def save(self, result: dict[str, Any]) -> None:
        """Writes the result, into a folder that must exist; nothing without --save-result."""
        args = self.args
        if not args.save_result:
            return
        name = args.result_filename or f"{args.backend}-{self.rate}qps-{Path(args.model).name}-{result['date']}.json"
        path = os.path.join(args.result_dir or "", name)
        with open(path, "w", encoding="utf-8") as out:
            json.dump(result, out)


def misbehave(faults: fault.Faults) -> None:
    if "ignore_term" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "exit" in faults:
        time.sleep(faults.number("exit_after"))
        fault.die(int(faults.number("exit")))
    if "nothing" in faults:
        fault.die(0)
    if "hang" in faults:
        while True:
            time.sleep(3600)


def main(inferencex: bool = False) -> None:
    tables = ("bench", "bench-inferencex") if inferencex else ("bench",)
    parser = parser_of(*tables, prog="benchmark_serving.py", aliases=not inferencex)
    if inferencex:
        parser.set_defaults(metric_percentiles="90,99,99.9")
    args = parser.parse_args()
    faults = fault.from_environment()
    misbehave(faults)
    client = Client(args, inferencex, faults)
    client.check()
    try:
        raise SystemExit(asyncio.run(client.run()))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
