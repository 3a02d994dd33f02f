"""The benchmark's plan: its points and the exact command of each."""

import re
from typing import NamedTuple

from collections import Counter

from srtgen import arguments
from srtgen.arguments import Dialect, Line
from srtgen.flags import FlagTable
from srtgen.recipe import Benchmark, Recipe
from srtgen.report import Report
from srtgen.words import Var, Word, word

FEWEST_PROMPTS = 16
COMMAND_FILE = "bench_command.sh"
_COMMON = frozenset({"type", "env", "container_image", "placement"})
READS = {
    "sa-bench": _COMMON
    | {"isl", "osl", "concurrencies", "req_rate", "random_range_ratio", "num_prompts_mult", "num_warmup_mult"}
    | {"use_chat_template", "dataset_name", "client", "client_path", "client_args", "tokenizer"}
    | {"max_failed_ratio", "stall_timeout_s"},
    "custom": _COMMON | {"command", "argv", "cwd", "require_env", "stall_timeout_s"},
    "manual": frozenset({"type"}),
    "lm-eval": _COMMON,
}
_EVERY_FIELD = frozenset(field for fields in READS.values() for field in fields)
NEEDS = {"sa-bench": ("isl", "osl", "concurrencies"), "custom": (), "manual": (), "lm-eval": ()}
_NO_TABLE = FlagTable("client", (), "", None, "", (), {})
_CLIENT_DIALECT = Dialect(
    owner="the client",
    spell=lambda key: f"--{key}",
    joined=lambda text: not re.match(arguments.ARGPARSE_NUMBER, text),
)


class Point(NamedTuple):
    """One point of the sweep: `name` is the stem of its result file, `lines` its command."""

    name: str
    concurrency: int
    prompts: int
    warmups: int
    lines: tuple[Line, ...]


def check(recipe: Recipe, report: Report) -> None:
    """Fields that the type never reads or lacks, and points that would overwrite each other."""
    bench, document = recipe.benchmark, recipe.document
    if bench.type not in READS:
        report.error(document, ("benchmark", "type"), f"{bench.type} is not supported yet; known: {', '.join(READS)}")
        return
    if bench.type == "lm-eval" and not document.data.get("eval"):
        report.error(document, ("benchmark", "type"), "type lm-eval needs the key eval, which says what is evaluated")
    for key in sorted((bench.fields & _EVERY_FIELD) - READS[bench.type]):
        report.error(document, ("benchmark", key), f"never read by type {bench.type}; remove it", at_key=True)
    for key in NEEDS[bench.type]:
        if key not in bench.fields:
            report.error(document, ("benchmark",), f"missing key {key}, which type {bench.type} needs", at_key=True)
    if bench.type == "custom" and (bench.command is None) == (not bench.argv):
        report.error(document, ("benchmark",), "type custom needs command or argv, one of them", at_key=True)
    twice = [c for c, count in Counter(bench.concurrencies).items() if count > 1]
    if twice:
        message = f"{twice[0]} stands twice; one point would be measured two times"
        report.error(document, ("benchmark", "concurrencies"), message)
    if bench.client == "atom" and "client_path" in bench.fields:
        report.error(document, ("benchmark", "client_path"), "never read by client atom; remove it", at_key=True)
    _check_lengths(recipe, report)


def check_mount(recipe: Recipe, targets: list[str], report: Report) -> None:
    """A note where nothing is mounted over the client's path: the image may hold it, preflight tells."""
    bench = recipe.benchmark
    if bench.type != "sa-bench" or bench.client != "inferencex":
        return
    if not any(bench.client_path.startswith(f"{target.rstrip('/')}/") for target in targets):
        message = f"no mount holds {bench.client_path}; the image must, or preflight fails"
        report.note(recipe.document, ("benchmark", "client"), message, code="client-mount")


def _check_lengths(recipe: Recipe, report: Report) -> None:
    bench = recipe.benchmark
    if bench.type == "sa-bench" and bench.isl and bench.osl:
        for key, length in (("isl", bench.isl), ("osl", bench.osl)):
            if int(float(bench.range_ratio) * length) < 1:
                message = f"random_range_ratio {bench.range_ratio} allows a length of 0 tokens"
                report.error(recipe.document, ("benchmark", key), message)


def points(recipe: Recipe, served: str, model: str, url: Word, report: Report) -> tuple[Point, ...]:
    """The points of an sa-bench sweep at `url`, () for other types. `model` is the workers' literal model argument."""
    bench = recipe.benchmark
    if bench.type != "sa-bench":
        return ()
    tokenizer = bench.tokenizer or (model if model != served else None)
    managed = frozenset(w[0][0].removeprefix("--") for w in _fixed(bench, served, url, tokenizer, 1)[1:] if w[0])  # type: ignore[union-attr]
    extra = _client_args(bench, managed, report)
    return tuple(
        Point(
            name=f"c{c}",
            concurrency=c,
            prompts=max(FEWEST_PROMPTS, bench.prompts_mult * c),
            warmups=bench.warmup_mult * c,
            lines=(*_fixed(bench, served, url, tokenizer, c), *extra),
        )
        for c in bench.concurrencies
    )


def _client_args(bench: Benchmark, managed: frozenset[str], report: Report) -> tuple[Line, ...]:
    for setting in bench.client_args:
        if setting.key.replace("_", "-") in managed:
            message = f"{setting.key} is set by srtgen from the benchmark's own fields"
            report.error(setting.document, setting.path, message, at_key=True)
    return arguments.lines(bench.client_args, _NO_TABLE, frozenset(), _CLIENT_DIALECT, report)


def _fixed(bench: Benchmark, served: str, url: Word, tokenizer: str | None, concurrency: int) -> tuple[Line, ...]:
    """The client's own command; range ratio, rate and percentiles are written out since clients differ in defaults."""

    def line(flag: str, value: str | Word) -> Line:
        return (word(flag), value if isinstance(value, tuple) else word(value))

    program: Line = (word("python3"), word("-m"), word("atom.benchmarks.benchmark_serving"))
    if bench.client == "inferencex":
        program = (word("python3"), word(bench.client_path))
    return (
        program,
        line("--model", served),
        line("--backend", "openai"),
        line("--base-url", url),
        line("--endpoint", "/v1/completions"),
        line("--dataset-name", "random"),
        line("--random-input-len", str(bench.isl)),
        line("--random-output-len", str(bench.osl)),
        line("--random-range-ratio", bench.range_ratio),
        line("--num-prompts", str(max(FEWEST_PROMPTS, bench.prompts_mult * concurrency))),
        line("--max-concurrency", str(concurrency)),
        line("--request-rate", bench.req_rate),
        (word("--ignore-eos"),),
        (word("--save-result"),),
        line("--num-warmups", str(bench.warmup_mult * concurrency)),
        line("--percentile-metrics", "ttft,tpot,itl,e2el"),
        line("--metric-percentiles", "90,99"),
        line("--result-dir", word(Var("SRTGEN_RESULTS"), "/bench")),
        line("--result-filename", f"c{concurrency}.json"),
        *((line("--tokenizer", tokenizer),) if tokenizer else ()),
        *(((word("--use-chat-template"),),) if bench.chat_template else ()),
    )


def command(bench: Benchmark) -> tuple[Word, ...]:
    """The command of type custom: its literal argv, or a login shell that runs the file with the recipe's text."""
    if bench.argv:
        return tuple(word(argument) for argument in bench.argv)
    return (word("bash"), word("-l"), word(Var("SRTGEN_BUNDLE"), f"/{COMMAND_FILE}"))
