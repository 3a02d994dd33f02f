"""atomesh's command line: clap's rules for the table in data/atomesh.json, then its validation of values.

A usage error ends with 2, a rejected configuration with 1.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn
from urllib.parse import urlsplit

from standin.argv import table


class Options(dict[str, Any]):
    """Values by flag name without dashes; "prefill" is a list of (URL, bootstrap port or None)."""


def usage(text: str) -> NoReturn:
    print(f"error: {text}\n\nFor more information, try '--help'.", file=sys.stderr, flush=True)
    raise SystemExit(2)


def reject(text: str) -> NoReturn:
    print(f"Error: {text}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def take_prefill(words: list[str]) -> tuple[list[tuple[str, Any]], list[str]]:
    """The scan that comes before clap: --prefill URL, and a port or "none" after it."""
    pairs: list[tuple[str, Any]] = []
    rest: list[str] = []
    at = 0
    while at < len(words):
        if words[at] != "--prefill" or at + 1 >= len(words):
            rest.append(words[at])
            at += 1
            continue
        url, port = words[at + 1], None
        at += 2
        if at < len(words):
            if words[at].isdigit() and int(words[at]) <= 65535:
                port = int(words[at])
                at += 1
            elif words[at].lower() == "none":
                at += 1
        pairs.append((url, port))
    return pairs, rest


def convert(flag: dict[str, Any], name: str, word: str) -> Any:
    """One value in its type; usage error if it has another, or is out of range."""
    if flag["choices"] and word not in flag["choices"]:
        usage(f"invalid value '{word}' for '{name}' [possible values: {', '.join(flag['choices'])}]")
    if flag["type"] not in ("int", "float"):
        return word
    try:
        value = (int if flag["type"] == "int" else float)(word.replace("_", "!"))
    except ValueError:
        usage(f"invalid value '{word}' for '{name}': invalid digit found in string")
    low, high = flag.get("range") or (value, value)
    if not low <= value <= high:
        usage(f"invalid value '{word}' for '{name}': {word} is not in {low}..={high}")
    return value


def key_of(flag: dict[str, Any]) -> str:
    names: list[str] = flag["flags"]
    return next(name for name in names if name.startswith("--")).lstrip("-")


def parse(argv: list[str]) -> Options:
    """Reads the words after the program's name."""
    words = list(argv)
    if words and words[0] in ("launch", "start"):
        words.pop(0)
    flags = {name: flag for flag in table("atomesh") for name in flag["flags"] if name != "--prefill"}
    options = Options({key_of(flag): flag["default"] for flag in table("atomesh")})
    options["decode"], options["worker-urls"] = [], []
    options["prefill"], words = take_prefill(words)
    seen: set[str] = set()
    at = 0
    while at < len(words):
        name, equals, inline = words[at].partition("=")
        at += 1
        flag = flags.get(name)
        if flag is None or not name.startswith("-"):
            usage(f"unexpected argument '{name}' found")
        given = [inline] if equals else []
        many = flag["kind"] == "multi"
        while flag["kind"] != "switch" and not equals and at < len(words) and not words[at].startswith("-"):
            given.append(words[at])
            at += 1
            if not many:
                break
        store(options, flag, name, given, seen)
    return options


def store(options: Options, flag: dict[str, Any], name: str, given: list[str], seen: set[str]) -> None:
    key, kind = key_of(flag), flag["kind"]
    if kind in ("value", "switch") and key in seen:
        usage(f"the argument '{name}' cannot be used multiple times")
    seen.add(key)
    if kind == "switch":
        if given:
            usage(f"unexpected value '{given[0]}' for '{name}' found; no more were expected")
        options[key] = True
        return
    if kind != "multi" and not given:
        usage(f"a value is required for '{name}' but none was supplied")
    values = [convert(flag, name, word) for word in given]
    if kind == "value":
        options[key] = values[0]
    else:
        options[key] = (options[key] or []) + values


POSITIVE = ("port", "max-payload-size", "request-timeout-secs", "worker-startup-timeout-secs",
            "worker-startup-check-interval", "prometheus-port", "cb-success-threshold",
            "cb-timeout-duration-secs", "cb-window-duration-secs")


def validate(options: Options) -> None:
    """Rejects what parses but cannot work."""
    for name in POSITIVE:
        if options[name] < 1:
            reject(f"invalid configuration: {name} must be > 0")
    if bool(options["tls-cert-path"]) != bool(options["tls-key-path"]):
        usage("--tls-cert-path and --tls-key-path must be given together")
    if not options["prometheus-host"]:
        reject("invalid configuration: prometheus-host is empty")
    if options["queue-size"] > 0 and options["queue-timeout-secs"] < 1:
        reject("invalid configuration: queue-timeout-secs must be > 0")
    if not options["disable-retries"]:
        validate_retries(options)
    if not options["disable-circuit-breaker"] and options["cb-failure-threshold"] < 1:
        reject("invalid configuration: cb-failure-threshold must be >= 1")
    validate_urls(options)
    validate_policies(options)


def validate_retries(options: Options) -> None:
    if (options["retry-max-retries"] < 1 or options["retry-initial-backoff-ms"] < 1
            or options["retry-max-backoff-ms"] < options["retry-initial-backoff-ms"]
            or options["retry-backoff-multiplier"] < 1 or not 0 <= options["retry-jitter-factor"] <= 1):
        reject("invalid configuration: retry settings")


def validate_urls(options: Options) -> None:
    urls = [url for url, _ in options["prefill"]] + options["decode"] + options["worker-urls"]
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "grpc") or not parts.hostname:
            reject(f"invalid configuration: worker URL {url!r}")
        if parts.scheme != "http":
            reject(f"stand-in: only http:// is imitated, not {url}")
    if any(port == 0 for _, port in options["prefill"]):
        reject("invalid configuration: bootstrap port 0")


def validate_policies(options: Options) -> None:
    prefill, decode = len(options["prefill"]), len(options["decode"])
    total = prefill + decode if options["pd-disaggregation"] else len(options["worker-urls"])
    for name, count in (("policy", total), ("prefill-policy", prefill), ("decode-policy", decode)):
        if options[name] == "power_of_two" and count < 2:
            reject(f"invalid configuration: {name} power_of_two needs at least two workers")
        if options[name] == "cache_aware" and not 0 <= options["cache-threshold"] <= 1:
            reject("invalid configuration: cache-threshold is not in 0..1")
