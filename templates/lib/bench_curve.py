"""A picture of the sweep: throughput per GPU against interactivity, as SVG by the standard library alone."""

from __future__ import annotations

import math
from typing import Any, List, Mapping, NamedTuple, Sequence, Tuple
from xml.sax.saxutils import escape

from bench_plan import Plan

WIDTH, HEIGHT = 860, 540
LEFT, RIGHT, TOP, BOTTOM = 92, 40, 78, 66
INK, SOFT, GRID, LINE = "#1d2433", "#5b6475", "#e3e6ec", "#1f5fbf"
FONT = "font-family='DejaVu Sans, Helvetica, Arial, sans-serif'"


class Mark(NamedTuple):
    """One valid point in data units."""

    x: float
    y: float
    label: str


def steps(largest: float) -> List[float]:
    """Round tick values from 0 to the first one that is not below `largest`."""
    if largest <= 0:
        return [0.0, 1.0]
    raw = largest / 5
    power = 10.0 ** math.floor(math.log10(raw))
    size = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    return [size * index for index in range(math.ceil(largest / size - 1e-9) + 1)]


def _plain(value: float) -> str:
    return ("%.10g" % value) if value < 10000 else "{:,.0f}".format(value)


def _text(x: float, y: float, size: int, anchor: str, words: str, colour: str = INK, extra: str = "") -> str:
    return "<text x='%.1f' y='%.1f' font-size='%d' text-anchor='%s' fill='%s' %s %s>%s</text>" % (
        x, y, size, anchor, colour, FONT, extra, escape(words))


def _axes(xs: Sequence[float], ys: Sequence[float]) -> List[str]:
    parts = []
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for value in ys:
        y = bottom - (bottom - TOP) * value / ys[-1]
        parts.append("<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='%s'/>" % (LEFT, y, right, y, GRID))
        parts.append(_text(LEFT - 10, y + 4, 12, "end", _plain(value), SOFT))
    for value in xs:
        x = LEFT + (right - LEFT) * value / xs[-1]
        parts.append("<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='%s'/>" % (x, TOP, x, bottom, GRID))
        parts.append(_text(x, bottom + 20, 12, "middle", _plain(value), SOFT))
    parts.append("<path d='M%d %d V%d H%d' fill='none' stroke='%s'/>" % (LEFT, TOP, bottom, right, SOFT))
    middle = (TOP + bottom) / 2
    parts.append(_text((LEFT + right) / 2, HEIGHT - 20, 13, "middle", "interactivity: output tokens/s per user (1000 / median TPOT in ms)"))
    parts.append(_text(24, middle, 13, "middle", "total tokens/s per GPU", INK, "transform='rotate(-90 24 %.1f)'" % middle))
    return parts


def _place(mark: Mark, xs: Sequence[float], ys: Sequence[float]) -> Tuple[float, float]:
    x = LEFT + (WIDTH - RIGHT - LEFT) * mark.x / xs[-1]
    return x, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * mark.y / ys[-1]


def _clear_of(spot: Tuple[float, float], taken: List[Tuple[float, float]]) -> Tuple[float, float]:
    """A place for a label beside a dot that no earlier label occupies."""
    for dx, dy in ((8, -8), (8, 18), (-36, -8), (-36, 18), (8, -22), (8, 32)):
        place = (spot[0] + dx, spot[1] + dy)
        if all(abs(place[0] - x) > 40 or abs(place[1] - y) > 13 for x, y in taken):
            return place
    return spot[0] + 8, spot[1] - 8


def svg(title: str, note: str, marks: Sequence[Mark]) -> str:
    """The picture; `marks` in the order in which the line joins them."""
    xs, ys = steps(max([mark.x for mark in marks], default=0) * 1.04), steps(max([mark.y for mark in marks], default=0) * 1.04)
    parts = [
        "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d'>" % (WIDTH, HEIGHT, WIDTH, HEIGHT),
        "<rect width='100%' height='100%' fill='white'/>",
        _text(LEFT, 34, 17, "start", title), _text(LEFT, 56, 12, "start", note, SOFT),
    ] + _axes(xs, ys)
    spots = [_place(mark, xs, ys) for mark in marks]
    if len(spots) > 1:
        path = " ".join("%.1f,%.1f" % spot for spot in spots)
        parts.append("<polyline points='%s' fill='none' stroke='%s' stroke-width='2'/>" % (path, LINE))
    taken: List[Tuple[float, float]] = []
    for mark, spot in zip(marks, spots):
        taken.append(_clear_of(spot, taken))
        parts.append("<circle cx='%.1f' cy='%.1f' r='4.5' fill='%s'/>" % (spot[0], spot[1], LINE))
        parts.append(_text(taken[-1][0], taken[-1][1], 12, "start", mark.label))
    if not marks:
        parts.append(_text(WIDTH / 2, HEIGHT / 2, 16, "middle", "no valid point", SOFT))
    return "\n".join(parts + ["</svg>"]) + "\n"


def draw(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> str:
    """Picture of the valid rows that have both figures."""
    good = [row for row in rows if row["valid"] and row["interactivity"] and row["total_tok_s_per_gpu"]]
    marks = [Mark(row["interactivity"], row["total_tok_s_per_gpu"], "c%d" % row["concurrency"])
             for row in sorted(good, key=lambda row: row["concurrency"])]
    note = "%d in / %d out tokens, range ratio %s, %d serving GPUs; %d of %d points valid; labels: concurrency" % (
        plan.isl, plan.osl, plan.ratio, plan.worker_gpus, len(good), len(rows))
    return svg("%s, %s" % (plan.model, plan.name), note, marks)
