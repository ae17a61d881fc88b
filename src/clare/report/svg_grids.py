"""Heat maps and histograms as SVG for the page."""

import json
import math
from collections import defaultdict
from html import escape

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.ticker import MaxNLocator

from clare.report.grids import Grid, Histogram
from clare.report.svg import Axis
from clare.report.tables import count

CELLS = 260.0
MARGIN = 46.0
NUM_LEVELS = 100
MAX_NUMBERED = 12
WIDTH, HEIGHT = 340.0, 190.0
BOTTOM = 44.0


def draw_grid(grid: Grid) -> str:
    """A heat map as an SVG element; cells of one shade are one path, which keeps long streams small."""
    num_rows, num_columns = grid.values.shape
    wide, high = CELLS / num_columns, CELLS / num_rows
    shades: defaultdict[int, list[str]] = defaultdict(list)
    numbers = []
    for row, column in zip(*np.nonzero(~np.isnan(grid.values)), strict=True):
        value = float(grid.values[row, column])
        level = min(max(round(NUM_LEVELS * value / grid.top), 0), NUM_LEVELS)
        x, y = MARGIN + column * wide, MARGIN + row * high
        shades[level].append(f"M{x:.2f},{y:.2f}h{wide:.2f}v{high:.2f}h-{wide:.2f}z")
        if max(num_rows, num_columns) <= MAX_NUMBERED:
            ink = ' class="bright"' if level < 55 else ""
            text = f"{value:.0f}" if grid.top >= 10 else f"{value:.1f}"
            numbers.append(f'<text{ink} x="{x + wide / 2:.1f}" y="{y + high / 2:.1f}">{text}</text>')
    cells = "".join(f'<path fill="{shade(level)}" d="{"".join(paths)}"/>' for level, paths in sorted(shades.items()))
    values = [[None if math.isnan(value) else round(value, 1) for value in row] for row in grid.values.tolist()]
    data = escape(json.dumps(values, separators=(",", ":")), quote=True)
    size = MARGIN + CELLS
    label = f"{grid.label}: {grid.downward} downward, {grid.across} across"
    return (
        f'<svg class="grid" viewBox="0 0 {size + 4:.0f} {size + 4:.0f}" role="img" aria-label="{escape(label)}" '
        f'data-across="{grid.across}" data-downward="{grid.downward}" '
        f'data-box="[{MARGIN:g},{MARGIN:g},{CELLS:g},{CELLS:g}]" data-values="{data}">'
        f'<g shape-rendering="crispEdges">{cells}</g><g class="numbers">{"".join(numbers)}</g>{_names(grid)}</svg>'
    )


def _names(grid: Grid) -> str:
    """Ticks and names of a heat map's sides."""
    num_rows, num_columns = grid.values.shape
    parts = [
        f'<text class="name" x="{MARGIN + CELLS:.0f}" y="12" text-anchor="end">{grid.across} →</text>',
        f'<text class="name" transform="translate(11,{MARGIN + CELLS:.0f}) rotate(-90)">← {grid.downward}</text>',
    ]
    for place in _whole(num_columns):
        x = MARGIN + (place - 0.5) * CELLS / num_columns
        # Above the last of many columns a number would stick out.
        side = "end" if x > MARGIN + CELLS - 8 else "middle"
        x = MARGIN + CELLS if side == "end" else x
        parts.append(f'<text class="tick {side}" x="{x:.1f}" y="{MARGIN - 7:.0f}">{place}</text>')
    for place in _whole(num_rows):
        y = MARGIN + (place - 0.5) * CELLS / num_rows
        parts.append(f'<text class="tick end" x="{MARGIN - 7:.0f}" y="{y:.1f}" dy=".35em">{place}</text>')
    return "".join(parts)


def _whole(number: int) -> list[int]:
    """Some of the places from 1 to a number, the first among them."""
    ticks = [round(tick) for tick in MaxNLocator(5, integer=True).tick_values(1, number)]
    return [1, *(tick for tick in ticks if 1 + number // 10 < tick <= number)] if number > 1 else [1]


def shade(level: int) -> str:
    """The colour of a level from 0 to 100."""
    return to_hex(colormaps["cividis"](level / NUM_LEVELS))


def draw_scale(top: float) -> str:
    """The colours of a heat map and what they mean."""
    stops = ", ".join(shade(level) for level in range(0, NUM_LEVELS + 1, 10))
    return (
        f'<p class="scale"><span>0</span><i style="background:linear-gradient(90deg, {stops})"></i>'
        f"<span>{top:.3g} %</span></p>"
    )


def draw_histogram(histogram: Histogram) -> str:
    """How many coordinates moved how far, those that were chosen in the strong colour."""
    low, high = histogram.edges[0], histogram.edges[-1]
    across = Axis(low, high, 6, WIDTH - 6, is_log=True)
    bottom = HEIGHT - BOTTOM
    upward = Axis(0, max(max(histogram.counts), 1), bottom, 22)
    threshold = math.inf if histogram.threshold is None else histogram.threshold
    bars = {"quiet": "", "chosen": ""}
    for left, right, number in zip(histogram.edges, histogram.edges[1:], histogram.counts, strict=False):
        # The bin with the threshold in it is cut there.
        cut = min(max(threshold, left), right)
        for name, start, end in (("quiet", left, cut), ("chosen", cut, right)):
            if number and end > start:
                x, y = across.at(start), upward.at(number)
                bars[name] += f"M{x:.1f},{bottom:.0f}V{y:.1f}H{across.at(end):.1f}V{bottom:.0f}z"
    parts = [f'<path class="{name}" d="{path}"/>' for name, path in bars.items() if path]
    parts += _decades(low, high, across, bottom)
    if math.isfinite(threshold):
        parts.append(_threshold(across.at(threshold), threshold, bottom))
    label = f"{histogram.label}: sizes of updates of task {histogram.task + 1}"
    return (
        f'<svg class="histogram" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _decades(low: float, high: float, across: Axis, bottom: float) -> list[str]:
    """Ticks at powers of ten, every second or third one where there are many."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    parts = [f'<path class="axis" d="M6,{bottom:.0f}H{WIDTH - 6:.0f}"/>']
    for power in range(last, first - 1, -max(math.ceil((last - first + 1) / 6), 1)):
        x = across.at(10.0**power)
        side = "end" if x > WIDTH - 20 else "middle" if x > 20 else ""
        parts.append(f'<path class="stub" d="M{x:.1f},{bottom:.0f}v4"/>')
        parts.append(
            f'<text class="tick {side}" x="{x:.1f}" y="{bottom + 7:.0f}" dy="1em">10<tspan dy="-.4em" '
            f'font-size="75%">{"&minus;" if power < 0 else ""}{abs(power)}</tspan></text>'
        )
    return parts


def _threshold(x: float, threshold: float, bottom: float) -> str:
    """A line at the smallest movement that was chosen."""
    side = "end" if x > WIDTH / 2 else ""
    nudge = -5 if side else 5
    return (
        f'<path class="threshold" d="M{x:.1f},8V{bottom:.0f}"/>'
        f'<text class="tick {side}" x="{x + nudge:.1f}" y="16">threshold {threshold:.1e}</text>'
    )


def describe_histogram(histogram: Histogram) -> str:
    """What a histogram counts, in words."""
    moved = sum(histogram.counts)
    most = count(max(histogram.counts))
    return f"{count(moved)} candidates moved, {count(histogram.num_unmoved)} did not; the highest bar is {most}"
