"""Every figure, drawn by matplotlib without its global state: of a paper's column for files, larger for the page."""

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from clare.report.charts import Chart, Grid, Histogram, at_tick
from clare.report.groups import DEFAULT_REFERENCE, Group

# Okabe and Ito's palette, which colour-blind readers can tell apart, without its yellow, which is too faint on white.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#4d4d4d")
COLOURS_ON_DARK = ("#ff8a3d", "#4a9fe0", "#2cc79b", "#f2b632", "#9ad7ff", "#e8a0c8", "#c4c9d1")
EMPHASIS = COLOURS[0]
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2.5), (1.6, 2), (7, 2, 1.6, 2))
"""Lengths of strokes and gaps in units of the line, one pattern after another; the first is solid."""
INK = "#1b1f24"
FAINT = "#c9ced6"
DPI = 300
POINTS = 72
"""In an inch, as matplotlib sizes figures."""
MARKERS = ("o", "s", "^", "D", "v", "P", "p")
MAX_MARKS = 25
MAX_NUMBERED = 12
SCALE = colormaps["cividis"]
NUM_SHADES = 100
CELL = np.array([(0.5, 0.5), (1.5, 0.5), (1.5, 1.5), (0.5, 1.5), (0.5, 0.5)])
"""The outline of the first cell of a heat map."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
WIDE_FONTS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "WenQuanYi Micro Hei", "Hiragino Sans", "PingFang SC"),
    *("Microsoft YaHei", "Malgun Gothic", "Noto Sans Arabic", "Noto Emoji", "Symbola"),
)
"""Fonts, as far as they are installed, for characters that matplotlib's own lacks."""


@dataclass(frozen=True)
class Style:
    """How a method is drawn; CLARE is strong."""

    colour: int
    marker: int
    dash: int
    is_strong: bool


def styles_of(groups: Sequence[Group]) -> dict[str, Style]:
    """Give each group its style by label: CLARE has the first colour, the others are told apart by three means."""
    styles: dict[str, Style] = {}
    own = [group.label for group in groups if group.method == DEFAULT_REFERENCE]
    others = [group.label for group in groups if group.method != DEFAULT_REFERENCE]
    for place, label in enumerate(own):
        styles[label] = Style(0, place % len(MARKERS), place % len(DASHES), True)
    for place, label in enumerate(others):
        # Six colours and seven markers: a pair comes again only after forty-two methods.
        turn, colour = divmod(place, len(COLOURS) - 1)
        styles[label] = Style(1 + colour, (place + 1) % len(MARKERS), turn % len(DASHES), False)
    return {group.label: styles[group.label] for group in groups}


@dataclass(frozen=True)
class Size:
    """Width and height in points, the size of type and the weight of lines; space around axes, or none to find it."""

    width: float
    height: float
    text: float
    weight: float = 1.0
    margins: tuple[float, float, float, float] | None = None
    """Left, right, below and above. The page has legends and scales of its own, a file needs them inside."""


COLUMN = Size(237.6, 151.0, 8.0)
"""One column of a paper."""
PAGE = Size(600.0, 350.0, 13.0, 1.9, (66.0, 16.0, 50.0, 24.0))
PAGE_GRID = Size(310.0, 310.0, 12.0, 1.0, (34.0, 6.0, 4.0, 44.0))
PAGE_BARS = Size(340.0, 190.0, 12.0, 1.4, (40.0, 8.0, 44.0, 26.0))


def chart_figure(chart: Chart, styles: Mapping[str, Style], size: Size = COLUMN) -> Figure:
    """Curves with their bands; the legend of a file stands below, where it covers none of them."""
    # As many names of this length as stand side by side in one column of a paper.
    longest = max(len(curve.label) for curve in chart.curves)
    num_columns = min(len(chart.curves), 3 if longest <= 12 else 2 if longest <= 22 else 1)
    legend = 10.5 * math.ceil(len(chart.curves) / num_columns)
    scale = ", log scale" if chart.is_log else ""
    figure, axes = _figure(size, chart.across, chart.upward + scale, legend)
    for curve in chart.curves:
        line = draw_line(axes, curve.places, curve.values, styles[curve.label], size.weight)
        line.set(label=curve.label, gid=curve.label, markevery=math.ceil(len(curve.places) / MAX_MARKS))
        if curve.deviations and len(curve.places) > 1:
            band = axes.fill_between(curve.places, *curve.band, alpha=0.15, linewidth=0, zorder=1)
            band.set(color=line.get_color(), gid=f"{curve.label} band")
    low, high = chart.span
    if chart.is_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        margin = 0.04 * (high - low or 1.0)
        axes.set_ylim(low if low == 0 else low - margin, high + margin)
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: at_tick(value, chart.unit)))
    places = [place for curve in chart.curves for place in curve.places]
    # The first place and whole ones after it, round and not too near.
    first, last = min(places), max(places)
    ticks = MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]).tick_values(first, last)
    axes.set_xticks([first, *(float(tick) for tick in ticks if first + (last - first) / 15 < tick <= last)])
    axes.margins(x=0.025)
    if size.margins is None:
        add_legend(figure, num_columns)
    return figure


def add_legend(figure: Figure, num_columns: int) -> None:
    """Name the curves below the axes."""
    legend = figure.legend(
        loc="outside lower center",
        ncols=num_columns,
        frameon=False,
        fontsize=COLUMN.text - 1,
        labelcolor=INK,
        handlelength=2.4,
        columnspacing=1.0,
        handletextpad=0.5,
        labelspacing=0.3,
    )
    for text in legend.get_texts():
        # Names come from the user: a dollar sign is a dollar sign.
        text.set_parse_math(False)


def draw_line(axes: Axes, places: Sequence[float], values: Sequence[float], style: Style, weight: float) -> Any:
    """Add a line with its marks in a method's style."""
    dashes = DASHES[style.dash]
    (line,) = axes.plot(
        places,
        values,
        color=COLOURS[style.colour],
        linewidth=weight * (1.7 if style.is_strong else 0.9),
        linestyle=(0, dashes) if dashes else "-",
        marker=MARKERS[style.marker],
        markersize=weight * (4.3 if style.is_strong else 3.7),
        markeredgecolor="white",
        markeredgewidth=0.4 * weight,
        zorder=3 if style.is_strong else 2,
    )
    return line


def swatch_figure(style: Style) -> Figure:
    """A piece of a method's line for a legend."""
    figure = Figure((34 / POINTS, 12 / POINTS), dpi=POINTS, facecolor="none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    draw_line(axes, (1, 17, 33), (6, 6, 6), style, PAGE.weight).set_markevery([1])
    axes.set(xlim=(0, 34), ylim=(0, 12))
    return figure


def grid_figure(grid: Grid, name: str, size: Size = COLUMN) -> Figure:
    """A heat map; cells of one shade are one outline, which keeps long streams small."""
    figure, axes = _figure(size, "", "", 45)
    num_rows, num_columns = grid.values.shape
    levels = np.clip(np.round(NUM_SHADES * grid.values / grid.top), 0, NUM_SHADES)
    for level in np.unique(levels[~np.isnan(levels)]):
        corners = np.argwhere(levels == level)[:, None, ::-1] + CELL
        outline = Outline.make_compound_path(*map(Outline, corners))
        axes.add_patch(PathPatch(outline, facecolor=shade(level / NUM_SHADES), linewidth=0, antialiased=False))
    axes.set(xlim=(0.5, num_columns + 0.5), ylim=(num_rows + 0.5, 0.5))
    for axis, number in ((axes.xaxis, num_columns), (axes.yaxis, num_rows)):
        ticks = MaxNLocator(5, integer=True).tick_values(1, number)
        axis.set_ticks([1, *(tick for tick in ticks if 1 + number // 10 < tick <= number)])
    axes.xaxis.tick_top()
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(f"↓ {grid.downward}", loc="left", color=INK, fontsize=size.text)
    axes.set_title(f"{grid.across} →", loc="right", color=INK, fontsize=size.text)
    if size.margins is None:
        figure.colorbar(matplotlib.cm.ScalarMappable(matplotlib.colors.Normalize(0, grid.top), SCALE), ax=axes)
        bar = figure.axes[1]
        bar.set_ylabel(name, color=INK, fontsize=size.text)
        bar.tick_params(colors=INK, labelsize=size.text - 1)
        bar.spines[:].set_visible(False)
    if max(num_rows, num_columns) <= MAX_NUMBERED:
        text_size = size.text - (1.5 if size.margins else 2)
        for row, column in np.argwhere(~np.isnan(grid.values)):
            value = grid.values[row, column]
            text = f"{value:.0f}" if grid.top >= 10 else f"{value:.1f}"
            colour = "#ffffff" if value < 0.55 * grid.top else "#000000"
            axes.text(column + 1, row + 1, text, ha="center", va="center", color=colour, fontsize=text_size)
    return figure


def shade(share: float) -> str:
    """The colour of a share of a heat map's highest value."""
    return to_hex(SCALE(share))


def histogram_figure(histogram: Histogram, size: Size = COLUMN) -> Figure:
    """How many coordinates moved how far, and the threshold of those that were chosen."""
    figure, axes = _figure(size, "size of the update", "coordinates", -14)
    edges = np.array(histogram.edges)
    threshold = math.inf if histogram.threshold is None else histogram.threshold
    for colour, low, high in ((FAINT, 0.0, threshold), (EMPHASIS, threshold, math.inf)):
        left, right = np.clip(edges[:-1], low, high), np.clip(edges[1:], low, high)
        axes.bar(left, histogram.counts, width=right - left, align="edge", color=colour)
    axes.set_xscale("log")
    power = FuncFormatter(lambda value, _: f"10{str(round(math.log10(value))).translate(SUPERSCRIPTS)}")
    axes.xaxis.set_major_formatter(power)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: at_tick(value, "numbers")))
    if math.isfinite(threshold):
        axes.axvline(threshold, color=INK, linewidth=0.9 * size.weight, linestyle=(0, (4, 3)))
        axes.set_title(f"threshold {threshold:.1e}", loc="right", color=INK, fontsize=size.text - 1)
    return figure


def _figure(size: Size, across: str, upward: str, extra: float) -> tuple[Figure, Axes]:
    """An empty figure with plain axes, in a file higher by some points; its title is for the caption to say."""
    high = size.height + (0 if size.margins else extra)
    figure = Figure((size.width / POINTS, high / POINTS), dpi=POINTS, facecolor="none")
    if size.margins is None:
        figure.set_layout_engine("constrained")
        axes = figure.add_subplot()
    else:
        left, right, below, above = size.margins
        box = (left / size.width, below / high, 1 - (left + right) / size.width, 1 - (below + above) / high)
        axes = figure.add_axes(box)
    plain_axes(axes, across, upward, size.text)
    return figure, axes


def plain_axes(axes: Axes, across: str, upward: str, text_size: float) -> None:
    """Give axes names and quiet lines."""
    axes.set_facecolor("none")
    axes.set_title(upward, loc="left", color=INK, fontsize=text_size)
    axes.set_xlabel(across, loc="right", color=INK, fontsize=text_size)
    axes.tick_params(which="both", colors=INK, labelsize=text_size - 1, length=2.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="y", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(INK)
    axes.spines["bottom"].set_linewidth(0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def titled_axes(axes: Axes, title: str, across: str, upward: str) -> None:
    """Give one of several axes in a figure a title, names and quiet lines."""
    plain_axes(axes, across, "", 10.0)
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold")
    axes.set_ylabel(upward, color=INK)


def to_png(figure: Figure) -> bytes:
    """Draw a figure as PNG on white."""
    installed = {font.name for font in fontManager.ttflist}
    families = [*matplotlib.rcParams["font.family"], *(name for name in WIDE_FONTS if name in installed)]
    for text in figure.findobj(Text):
        text.set_fontfamily(families)
    return _saved(figure, format="png", dpi=DPI, facecolor="white")


def to_svg(figure: Figure, name: str) -> bytes:
    """Draw a figure as SVG whose text stays text; the same figure always gives the same bytes."""
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        return _saved(figure, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})


def _saved(figure: Figure, **options: Any) -> bytes:
    """Draw a figure; of a character that no font here has a box is shown, and nothing is said."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ |Matplotlib currently does not support ", UserWarning)
        figure.savefig(buffer, **options)
    return buffer.getvalue()
