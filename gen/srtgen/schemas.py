"""The JSON Schemas of recipe and profile, and their verdict in words.

Two annotations of our own: `x-expects` words what is right where a type or pattern alone would not say it, and
`x-refused` (beside `not: {}`) marks a key that is known but not acted on.
"""

import json
import re
from functools import lru_cache
from typing import Any, Iterator, NamedTuple

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from srtgen import resources
from srtgen.document import Document
from srtgen.errors import Path, Problem, dotted

_TYPE_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}
_ODD_INTEGER = r"[+-]?(0x[0-9A-Fa-f]+|0o[0-7]+|[0-9][0-9_]{0,300})\Z"


def _is_integer(_checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# JSON Schema's own "integer" lets 8.0 through, which would be printed with its fraction.
_Validator = extend(
    Draft202012Validator, type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer)
)


@lru_cache(maxsize=None)
def schema(name: str) -> dict[str, Any]:
    """The schema file `name` ("recipe-2", "cluster")."""
    return json.loads(resources.text("schema", f"{name}.schema.json"))


class Verdict(NamedTuple):
    """What a schema says. `readable`: the wrong keys are only too many, so that the rest can be checked as well."""

    problems: tuple[Problem, ...]
    readable: bool


def judge(document: Document, name: str) -> Verdict:
    """What is wrong with the document by the schema `name`: every problem, each at its place."""
    errors = list(_Validator(schema(name)).iter_errors(document.data))
    found = tuple(p for error in errors for p in _explain(document, error, schema(name)))
    return Verdict(found, all(error.validator in ("additionalProperties", "not") for error in errors))


def ignored_keys(document: Document, name: str) -> list[str]:
    """Top-level keys that the schema accepts without a meaning here (`x-ignored`)."""
    properties = schema(name)["properties"]
    return [key for key in document.data if properties.get(key, {}).get("x-ignored")]


def _explain(document: Document, error: ValidationError, root: dict[str, Any]) -> Iterator[Problem]:
    path = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        yield from _unknown_keys(document, error, path, root)
    elif error.validator == "required":
        missing = next(k for k in error.validator_value if k not in error.instance and f"'{k}'" in error.message)
        yield document.problem(path, f"missing key {missing}", at_key=True)
    elif error.validator == "not":
        yield document.problem(path, error.schema["x-refused"], at_key=True)
    elif error.validator == "anyOf" and (inner := _branch(error)):
        for one in inner:
            yield from _explain(document, one, root)
    elif "propertyNames" in error.absolute_schema_path:
        yield document.problem((*path, error.instance), _bad_name(error), at_key=True)
    else:
        yield document.problem(path, _message(document, error, path))


def _branch(error: ValidationError) -> list[ValidationError]:
    """The errors of the one alternative that has the value's own kind (a mapping or list), if there is one."""
    if not isinstance(error.instance, (dict, list)):
        return []
    kind = "object" if isinstance(error.instance, dict) else "array"
    alternatives = error.validator_value
    same = [n for n, one in enumerate(alternatives) if one.get("type") == kind]
    if len(same) != 1:
        return []
    return [one for one in error.context if one.schema_path[0] == same[0]]


def _unknown_keys(document: Document, error: ValidationError, path: Path, root: dict[str, Any]) -> Iterator[Problem]:
    known = {k: v for k, v in error.schema.get("properties", {}).items() if not v.get("x-ignored")}
    patterns = list(error.schema.get("patternProperties", {}))
    for key in error.instance:
        if key in error.schema.get("properties", {}) or any(re.search(p, key) for p in patterns):
            continue
        yield document.problem((*path, key), f"unknown key; {_hint(key, known, path, root)}", at_key=True)


def _near(word: str, choices: list[str], n: int, cutoff: float) -> list[str]:
    import difflib  # only wrong recipes pay for it

    return difflib.get_close_matches(word, choices, n=n, cutoff=cutoff)


def _hint(key: str, known: dict[str, Any], path: Path, root: dict[str, Any]) -> str:
    acted_on = [k for k, v in known.items() if "x-refused" not in v]
    outdated = re.fullmatch(r"(prefill|decode|agg)_(nodes|workers|environment)|gpus_per_(prefill|decode|agg)", key)
    if outdated and "roles" in root["properties"]:
        role, what = outdated[1] or outdated[3], {"environment": "env", None: "gpus"}.get(outdated[2], outdated[2])
        return f"in layout 2 this is roles.{role}.{what}"
    near = _near(key.lower().replace("-", "_"), acted_on, n=1, cutoff=0.7)
    if near:
        return f"did you mean {near[0]}?"
    elsewhere = [dotted(p) for p in _homes(root, key) if p[:-1] != path]
    if elsewhere:
        return f"its place is {' or '.join(elsewhere)}"
    if similar := _similar(root, key):
        return f"did you mean {similar}?"
    near = _near(key.lower(), acted_on, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(acted_on))}"


def _similar(root: dict[str, Any], key: str) -> str:
    """The place of a key that stands elsewhere and has almost this name; "" if there is none."""
    names: list[str] = []

    def visit(node: Any) -> None:
        for child in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()):
            visit(child)
        if isinstance(node, dict) and isinstance(node.get("properties"), dict):
            names.extend(node["properties"])

    visit(root)
    near = _near(key, names, n=1, cutoff=0.85)
    return " or ".join(dotted(p) for p in _homes(root, near[0])) if near else ""


def _homes(root: dict[str, Any], key: str) -> list[Path]:
    """Where in the schema a property of this name stands."""
    found: list[Path] = []

    def visit(node: dict[str, Any], path: Path) -> None:
        if "$ref" in node:
            node = root["$defs"][node["$ref"].rsplit("/", 1)[1]]
        for name, child in node.get("properties", {}).items():
            if name == key and "x-refused" not in child:
                found.append((*path, name))
            visit(child, (*path, name))
        for child in node.get("anyOf", []):
            visit(child, path)

    visit(root, ())
    return found


def _bad_name(error: ValidationError) -> str:
    expects = error.schema.get("description", "lower-case letters, digits and -")
    return f"{error.instance!r} cannot be a name here; expected {expects}"


def _message(document: Document, error: ValidationError, path: Path) -> str:
    shown = spelled(document, error.instance, path)
    expects = error.schema.get("x-expects")
    kind, limit = error.validator, error.validator_value
    if kind == "enum":
        return _one_of(shown, error.instance, [str(v) for v in limit])
    if kind == "const" and not expects:
        return f"{shown} is not known; known: {_constant(limit)}"
    if hint := _number_hint(document, error, path):
        return hint
    if expects:
        return f"expected {expects}; got {shown}"
    if kind == "type":
        words = " or ".join(_TYPE_WORDS[t] for t in ([limit] if isinstance(limit, str) else limit))
        return f"expected {words}; got {shown}{_type_hint(error, path in document.plain)}"
    if kind == "pattern":
        return _pattern_message(shown, str(error.instance), str(limit).replace("(?!\\n)", ""))
    templates = {
        "minimum": "{shown} is below the least value, {limit}",
        "maximum": "{shown} is above the greatest value, {limit}",
        "exclusiveMinimum": "{shown} must be above {limit}",
        "minLength": "the text is empty",
        "minItems": "the list is empty",
        "minProperties": "the mapping is empty",
        "uniqueItems": "an item stands twice in the list",
    }
    template = templates.get(str(kind), "{shown} does not fit {kind} {limit}")
    return template.format(shown=shown, limit=limit, kind=kind)


def _pattern_message(shown: str, value: str, pattern: str) -> str:
    """Names the first character that no class of the pattern holds; else the form is wrong."""
    classes = re.findall(r"\[(?:\\.|[^\]\\])+\]", pattern)
    literals = re.sub(r"\[(?:\\.|[^\]\\])+\]", "", pattern)
    for char in value:
        if char not in literals and not any(re.match(one, char) for one in classes):
            return f"{shown} holds {json.dumps(char, ensure_ascii=False)}, which is not allowed here; allowed: {pattern}"
    return f"{shown} does not have the form {pattern}"


def _constant(value: object) -> str:
    return json.dumps(value)


def _one_of(shown: str, value: object, choices: list[str]) -> str:
    near = _near(str(value), choices, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{shown} is not one of {', '.join(choices)}{hint}"


def _type_hint(error: ValidationError, plain: bool) -> str:
    wanted = error.validator_value
    if wanted == "boolean" and isinstance(error.instance, str) and not plain:
        return "; write it without quotes, as true or false"
    if wanted == "string" and isinstance(error.instance, (int, float)):
        return "; quote it"
    return ""


def _number_hint(document: Document, error: ValidationError, path: Path) -> str:
    """What to write instead of a number in a form that YAML or JSON readers disagree about."""
    if error.validator not in ("type", "anyOf") or not _wants_integer(error):
        return ""
    source = document.sources.get(path, "")
    if isinstance(error.instance, float) and error.instance.is_integer() and abs(error.instance) < 1e15:
        return f"{source} is not a whole number as written; write {int(error.instance)}"
    if isinstance(error.instance, str) and re.match(_ODD_INTEGER, source):
        digits = source.lstrip("+-").replace("_", "").lower()
        base = 16 if digits.startswith("0x") else 8 if digits.startswith("0o") else 10
        sign = "-" if source.startswith("-") else ""
        quotes = "" if path in document.plain else ", without quotes"
        shown = source if path in document.plain else json.dumps(source)
        return f"{shown} is not a plain whole number; write {sign}{int(digits, base)}{quotes}"
    return ""


def _wants_integer(error: ValidationError) -> bool:
    kinds: list[Any] = [error.schema, *error.schema.get("anyOf", [])]
    flat = [k.get("type") for k in kinds]
    words = {t for kind in flat for t in (kind if isinstance(kind, list) else [kind])}
    return bool(words & {"integer", "number"}) and "string" not in words


def spelled(document: Document, value: object, path: Path) -> str:
    """A value as a message shows it: as the file writes it, in quotes where it is quoted there."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    source = document.sources.get(path, str(value))
    short = source if len(source) <= 60 else source[:57] + "..."
    return short if path in document.plain else json.dumps(short, ensure_ascii=False)
