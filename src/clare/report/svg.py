"""Curves as SVG for the page, which lends them its colours and its type."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from matplotlib.ticker import LogLocator, MaxNLocator

from clare.report.charts import Chart, Curve, at_tick, shown
from clare.report.looks import DASHES, Look

WIDTH, HEIGHT = 600.0, 350.0
LEFT, RIGHT, TOP, BOTTOM = 66.0, 16.0, 34.0, 58.0
MAX_MARKS = 25
Point = tuple[float, float]

# Outlines around (0, 0), all of about the same weight: where they start, and how they go on from there.
MARKS = (
    (-4.0, 0.0, "a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z"),
    (-3.6, -3.6, "h7.2v7.2h-7.2z"),
    (0.0, -4.8, "l4.6,8.2h-9.2z"),
    (0.0, -5.0, "l5,5l-5,5l-5,-5z"),
    (0.0, 4.8, "l4.6,-8.2h-9.2z"),
    (-1.6, -4.6, "h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z"),
    (0.0, -5.0, "l4.8,3.5l-1.9,5.6h-5.8l-1.9,-5.6z"),
)


@dataclass(frozen=True)
class Axis:
    """Maps values to places between two ends."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """The place of a value."""
        low, high, value = (math.log(each) if self.is_log else each for each in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (value - low) / ((high - low) or 1.0)


def draw_chart(chart: Chart, looks: Mapping[str, Look], keys: Mapping[str, int]) -> str:
    """A figure as an SVG element; the numbers behind each curve go with it for the page's script."""
    across, upward, ticks = _axes(chart)
    parts = [_grid(chart, across, upward, ticks)]
    # The strong one is drawn last, over the others.
    for curve in sorted(chart.curves, key=lambda curve: looks[curve.label].is_strong):
        parts.append(_series(chart, curve, looks[curve.label], keys[curve.label], across, upward))
    label = f"{chart.title}: {chart.upward} against {chart.across}"
    return (
        f'<svg class="curves" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def draw_swatch(look: Look) -> str:
    """A piece of a method's line for the legend."""
    return (
        f'<svg class="swatch{" strong" if look.is_strong else ""}" viewBox="0 0 34 12" aria-hidden="true" '
        f'style="--c:var(--c{look.colour})"><path class="line" d="M1,6H33"{_dashes(look)}/>'
        f'<path class="marks" d="{_mark(look, 17, 6)}"/></svg>'
    )


def _axes(chart: Chart) -> tuple[Axis, Axis, tuple[Sequence[float], Sequence[float]]]:
    """Both axes and where their ticks are."""
    low, high = chart.span
    places = [place for curve in chart.curves for place in curve.places]
    first, last = min(places), max(places)
    across = Axis(first, last, LEFT + 12, WIDTH - RIGHT - 8) if last > first else Axis(first - 1, last + 1, LEFT, WIDTH)
    right_ticks = _from_first(first, last)
    bottom, top = HEIGHT - BOTTOM, TOP
    if chart.is_log:
        decades = LogLocator(subs=(1.0, 2.0, 5.0)).tick_values(low, high)
        ticks = [float(tick) for tick in decades if low / 1.05 <= tick <= high * 1.05]
        return across, Axis(low / 1.15, high * 1.15, bottom, top, is_log=True), (right_ticks, _thinned(ticks))
    steps = [float(tick) for tick in MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, max(high, low + 1e-9))]
    margin = 0.03 * (high - low or 1.0)
    floor = low if low == 0 else low - margin
    upward = Axis(floor, high + margin, bottom, top)
    return across, upward, (right_ticks, [tick for tick in steps if floor <= tick <= high + margin])


def _from_first(first: float, last: float) -> list[float]:
    """The first place and whole ones after it, round and not too near."""
    ticks = MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]).tick_values(first, last)
    return [first, *(float(tick) for tick in ticks if first + (last - first) / 15 < tick <= last)]


def _thinned(ticks: list[float]) -> list[float]:
    """Whole decades alone where there are many ticks."""
    decades = [tick for tick in ticks if abs(math.log10(tick) - round(math.log10(tick))) < 1e-9]
    return decades if len(ticks) > 9 and len(decades) > 1 else ticks


def _grid(chart: Chart, across: Axis, upward: Axis, ticks: tuple[Sequence[float], Sequence[float]]) -> str:
    """Lines, ticks and names of the axes."""
    bottom = HEIGHT - BOTTOM
    parts = []
    for tick in ticks[1]:
        place = upward.at(tick)
        parts.append(f'<path class="rule" d="M{LEFT:.0f},{place:.1f}H{WIDTH - RIGHT:.0f}"/>')
        parts.append(
            f'<text class="tick end" x="{LEFT - 8:.0f}" y="{place:.1f}" dy=".35em">{at_tick(tick, chart.unit)}</text>'
        )
    for tick in ticks[0]:
        place = across.at(tick)
        parts.append(f'<path class="stub" d="M{place:.1f},{bottom:.0f}v5"/>')
        parts.append(f'<text class="tick middle" x="{place:.1f}" y="{bottom + 8:.0f}" dy="1em">{tick:g}</text>')
    parts.append(f'<path class="axis" d="M{LEFT:.0f},{bottom:.0f}H{WIDTH - RIGHT:.0f}"/>')
    scale = ", log scale" if chart.is_log else ""
    parts.append(f'<text class="name" x="0" y="4" dy=".8em">{escape(chart.upward + scale)}</text>')
    right, below = WIDTH - RIGHT, bottom + 8
    parts.append(f'<text class="name end" x="{right:.0f}" y="{below:.0f}" dy="2.3em">{escape(chart.across)}</text>')
    return f'<g class="frame">{"".join(parts)}</g>'


def _series(chart: Chart, curve: Curve, look: Look, key: int, across: Axis, upward: Axis) -> str:
    """One method's band, line and marks."""
    floor = upward.low if upward.is_log else -math.inf
    points = [
        (across.at(place), upward.at(value)) if not math.isnan(value) else None
        for place, value in zip(curve.places, curve.values, strict=True)
    ]
    known = [point for point in points if point]
    band = ""
    if curve.deviations and len(known) == len(points) > 1:
        edges = [
            [(across.at(place), upward.at(max(value, floor))) for place, value in zip(curve.places, edge, strict=True)]
            for edge in (curve.low.tolist(), curve.high.tolist())
        ]
        band = f'<path class="band" d="{_line([*edges[0], *reversed(edges[1])])}z"/>'
    every = math.ceil(len(known) / MAX_MARKS)
    marks = "".join(_mark(look, *point) for point in [*known[:-1:every], known[-1]])
    data = escape(json.dumps(_told(chart, curve, points), ensure_ascii=False, separators=(",", ":")), quote=True)
    return (
        f'<g class="series{" strong" if look.is_strong else ""}" style="--c:var(--c{look.colour})" data-key="{key}" '
        f'data-label="{escape(curve.label)}" data-points="{data}">{band}'
        f'<path class="line" d="{_broken_line(points)}"{_dashes(look)}/><path class="marks" d="{marks}"/></g>'
    )


def _told(chart: Chart, curve: Curve, points: Sequence[Point | None]) -> list[list[float | str]]:
    """Where each point is, and what it says."""
    told: list[list[float | str]] = []
    for index, point in enumerate(points):
        if point:
            place = f"{curve.places[index]:g}"
            where = f"{place} {chart.across}" if chart.across == "classes seen" else f"{chart.across} {place}"
            told.append([round(point[0], 1), round(point[1], 1), where, value_text(chart, curve, index)])
    return told


def value_text(chart: Chart, curve: Curve, index: int) -> str:
    """The value of a curve at one of its places, with its deviation."""
    value = shown(curve.values[index], chart.unit)
    return f"{value} ± {shown(curve.deviations[index], chart.unit)}" if curve.deviations else value


def _line(points: Sequence[Point]) -> str:
    """A path from point to point."""
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _broken_line(points: Sequence[Point | None]) -> str:
    """A path that leaves out what was not measured."""
    gaps = [-1, *np.flatnonzero([point is None for point in points]).tolist(), len(points)]
    pieces = [points[start + 1 : end] for start, end in pairwise(gaps)]
    return "".join(_line([point for point in piece if point]) for piece in pieces if piece)


def _mark(look: Look, x: float, y: float) -> str:
    """The outline of a method's mark at a place."""
    right, down, outline = MARKS[look.marker]
    return f"M{x + right:.1f},{y + down:.1f}{outline}"


def _dashes(look: Look) -> str:
    """The dashes of a method's line as an attribute."""
    dash = DASHES[look.dash]
    return f' stroke-dasharray="{" ".join(f"{each:g}" for each in dash)}"' if dash else ""
