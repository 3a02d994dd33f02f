"""Flags against the flag tables: known, spelled as the image's version spells them, with values it takes."""

from __future__ import annotations

from srtgen import arguments
from srtgen.flags import Flag, FlagTable
from srtgen.recipe import Setting
from srtgen.report import Report
from srtgen.rules import values
from srtgen.rules.facts import Facts, Program

# Keys of `args` that are srtgen's own and no flags.
_OWN_KEYS = frozenset({"extra-kv-connectors"})


def engine_flags(facts: Facts, report: Report) -> None:
    """unknown-flag, abbreviated-flag, flag-too-new, flag-value, flag-requires in the roles' args."""
    for worker in facts.workers:
        _program(worker.program, report)


def router_flags(facts: Facts, report: Report) -> None:
    """The same in `frontend.args`."""
    _program(facts.router, report)


def severity(program: Program) -> str:
    """error where the table covers the image's date, else warning: the image may know more, or less, than the table."""
    date, table = program.version.date, program.table
    known = program.version.certain and date is not None and table.first_date is not None
    return "error" if known and table.first_date <= date <= table.last_date else "warning"  # type: ignore[operator]


def _program(program: Program, report: Report) -> None:
    for setting in program.settings:
        spelling = program.emitted(setting)
        flag = program.table.find(spelling)
        if setting.key in _OWN_KEYS or not arguments.is_flag_name(setting.key) or _managed(program, flag, spelling):
            continue
        if flag is None:
            _unknown(program, setting, spelling, report)
            continue
        if not _too_new(program, flag, setting, spelling, report):
            values.check(program, flag, setting, severity(program), report)
        _requires(program, flag, setting, report)


def _managed(program: Program, flag: Flag | None, spelling: str) -> bool:
    """Whether the flag is one that srtgen sets itself, which was refused when the command line was made."""
    stands_for = (flag,) if flag else program.table.expand(spelling)
    return any(one.key in program.managed for one in stands_for)


def _unknown(program: Program, setting: Setting, spelling: str, report: Report) -> None:
    full = _abbreviates(program.table, spelling, program.version.date)
    if full:
        message = f"argparse would take it for {bare(full)}, the checks of srtgen do not; write {bare(full)}"
        report.put(severity(program), setting.document, setting.path, message, "abbreviated-flag")
        return
    near = program.table.twin(spelling) or program.table.nearest(spelling)
    hint = f"; did you mean {_valid(program, near)}?" if near else ""
    message = f"not a flag of {program.owner} that srtgen knows{_beyond(program)}{hint}"
    report.put(severity(program), setting.document, setting.path, message, "unknown-flag")


def _beyond(program: Program) -> str:
    """Why the table may not be the judge of this image."""
    date, table = program.version.date, program.table
    if table.first_date is None:
        return ""
    if date and date > table.last_date:
        return f" (up to {table.last_date}, {program.version.words})"
    return "" if severity(program) == "error" else f" ({program.version.words})"


def _valid(program: Program, spelling: str) -> str:
    """The recipe key for a spelling, or for another spelling of its flag that the image's date has."""
    flag = program.table.find(spelling)
    date = program.version.date
    if flag and date and (since := flag.since(spelling)) and since > date:
        spelling = _alternative(flag, spelling, date) or spelling
    return bare(spelling)


def _abbreviates(table: FlagTable, spelling: str, date: str | None) -> str:
    """The one long spelling that argparse would complete this to, "" for none or several (CPython 3.10 to 3.13)."""
    if not table.first_date or len(spelling) < 4:
        return ""
    found = [
        text
        for text, flag in table.by_spelling.items()
        if text.startswith(spelling) and not (date and (since := flag.since(text)) and since > date)
    ]
    return found[0] if len(found) == 1 else ""


def _too_new(program: Program, flag: Flag, setting: Setting, spelling: str, report: Report) -> bool:
    """Whether the spelling is, or may be, younger than the image."""
    since, table, known = flag.since(spelling), program.table, program.version
    if since is None or table.first_date is None or since <= table.first_date or known.surely_since(since):
        return False
    surely = known.surely_before(since)
    other = _alternative(flag, spelling, known.latest if surely else table.first_date)
    advice = f"write {_key(other, setting)}" if other else "remove it, or take a newer image"
    if not surely and not other:
        advice = "name the image's date in engine.version"
    message = f"not known to {program.owner} before {since}, {known.words}; {advice}"
    certain = surely and known.certain and (known.date is None or known.date >= table.first_date)
    report.put("error" if certain else "warning", setting.document, setting.path, message, "flag-too-new")
    return surely


def _alternative(flag: Flag, spelling: str, date: str | None) -> str | None:
    """Another long spelling of the same sense that is valid on a date."""
    same = flag.negatives if flag.is_negative(spelling) else flag.spellings
    for text in sorted(same, key=lambda text: text not in flag.declared):
        if text.startswith("--") and text != spelling and not (date and (since := same[text]) and since > date):
            return text
    return None


def _key(spelling: str, setting: Setting) -> str:
    """The recipe's entry for another spelling of what a setting says."""
    return f"{bare(spelling).removeprefix('no-')}: false" if setting.value is False else bare(spelling)


def _requires(program: Program, flag: Flag, setting: Setting, report: Report) -> None:
    missing = [key for key in flag.requires if key not in program.flags]
    if missing:
        message = f"needs {', '.join(key.replace('_', '-') for key in missing)} beside it"
        report.put("error", setting.document, setting.path, message, "flag-requires")


def bare(spelling: str) -> str:
    """A spelling as a key of the recipe."""
    return spelling.lstrip("-")
