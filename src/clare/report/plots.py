"""Every figure as files for a paper, of the width of its column, drawn without any global state of matplotlib."""

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, ScalarFormatter

from clare.files import write_bytes
from clare.report.charts import Chart, Curve, at_tick, make_charts
from clare.report.grids import Grid, Histogram, accuracy_grids, claims_grid, movement_histograms
from clare.report.groups import Group, group_runs
from clare.report.looks import COLOURS, DASHES, EMPHASIS, Look, looks_of
from clare.report.record import RunRecord

INK = "#1b1f24"
FAINT = "#c9ced6"
DPI = 300
WIDTH = 3.3
"""Inches: one column of a paper."""
TEXT, SMALL = 8.0, 7.0
MARKERS = ("o", "s", "^", "D", "v", "P", "p")
MAX_MARKS = 25
MAX_NUMBERED = 12
WIDE_FONTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "WenQuanYi Micro Hei",
    "Hiragino Sans",
    "PingFang SC",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Noto Sans Arabic",
    "Noto Emoji",
    "Symbola",
)
"""Fonts, as far as they are installed, for characters that matplotlib's own lacks."""


def write_plots(runs: Sequence[RunRecord], folder: Path) -> list[Path]:
    """Write every figure as a PNG and an SVG file, in place of those of an earlier report; matrices are means."""
    paths = []
    for name, figure in draw_figures(runs).items():
        for path, content in ((folder / f"{name}.png", to_png(figure)), (folder / f"{name}.svg", to_svg(figure, name))):
            write_bytes(path, content)
            paths.append(path)
    _remove_others(folder, paths)
    return paths


def _remove_others(folder: Path, paths: Sequence[Path]) -> None:
    """Remove figures of an earlier report: of theirs, as of ours, there is both a PNG and an SVG file."""
    for drawing in folder.glob("*.svg"):
        picture = drawing.with_suffix(".png")
        if drawing not in paths and picture.exists():
            drawing.unlink()
            picture.unlink()


def draw_figures(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    """All figures by the names of their files, as far as the runs have something to show."""
    groups = group_runs(runs)
    looks = looks_of(groups)
    figures = {chart.name: chart_figure(chart, looks) for chart in make_charts(groups)}
    names = _file_names([group.label for group in groups])
    for name, group in zip(names, groups, strict=True):
        figures |= {f"{kind}-{name}": figure for kind, figure in _own_figures(group).items()}
    return figures


def _own_figures(group: Group) -> dict[str, Figure]:
    """The figures of one group."""
    figures = {}
    matrices, claims = accuracy_grids(group), claims_grid(group) if group.counted[0].tasks else None
    if matrices:
        figures["matrix"] = grid_figure(matrices[None], "accuracy (%)")
    if claims is not None:
        figures["claims"] = grid_figure(claims, "share of the layer (%)")
    for histogram in movement_histograms(group):
        figures[f"updates-task-{histogram.task + 1}"] = histogram_figure(histogram)
    return figures


def _file_names(labels: Sequence[str]) -> list[str]:
    """Labels as parts of file names, each another."""
    names: list[str] = []
    for index, label in enumerate(labels):
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", label)
        names.append(f"{name}-{index}" if name in names else name)
    return names


def chart_figure(chart: Chart, looks: Mapping[str, Look]) -> Figure:
    """Curves with their bands; the legend stands below, where it covers none of them."""
    num_columns = _legend_columns([curve.label for curve in chart.curves])
    num_lines = math.ceil(len(chart.curves) / num_columns)
    figure, axes = _figure(chart.across, chart.upward, 2.1 + 0.145 * num_lines)
    for curve in chart.curves:
        _draw(axes, curve, looks[curve.label])
    low, high = chart.span
    if chart.is_log:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        margin = 0.04 * (high - low or 1.0)
        axes.set_ylim(low if low == 0 else low - margin, high + margin)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: at_tick(value, chart.unit)))
    legend = figure.legend(
        loc="outside lower center",
        ncols=num_columns,
        frameon=False,
        fontsize=SMALL,
        labelcolor=INK,
        handlelength=2.4,
        columnspacing=1.0,
        handletextpad=0.5,
        labelspacing=0.3,
    )
    for text in legend.get_texts():
        _plain(text)
    return figure


def _legend_columns(labels: Sequence[str]) -> int:
    """How many names of this length stand side by side in one column of a paper."""
    longest = max(map(len, labels))
    return min(len(labels), 3 if longest <= 12 else 2 if longest <= 22 else 1)


def _draw(axes: Axes, curve: Curve, look: Look) -> None:
    """Add one curve and its band."""
    colour, is_dashed = COLOURS[look.colour], DASHES[look.dash]
    axes.plot(
        curve.places,
        curve.values,
        color=colour,
        linewidth=1.7 if look.is_strong else 0.9,
        linestyle=(0, is_dashed) if is_dashed else "-",
        marker=MARKERS[look.marker],
        markersize=3.4 if look.is_strong else 2.8,
        markeredgewidth=0,
        markevery=math.ceil(len(curve.places) / MAX_MARKS),
        label=curve.label,
        zorder=3 if look.is_strong else 2,
    )
    if curve.deviations and len(curve.places) > 1:
        axes.fill_between(curve.places, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0, zorder=1)


def grid_figure(grid: Grid, name: str) -> Figure:
    """A heat map."""
    figure, axes = _figure(grid.across, grid.downward, 2.7)
    num_rows, num_columns = grid.values.shape
    extent = (0.5, num_columns + 0.5, num_rows + 0.5, 0.5)
    image = axes.imshow(
        grid.values, cmap="cividis", vmin=0, vmax=grid.top, extent=extent, aspect="auto", interpolation="nearest"
    )
    axes.grid(visible=False)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    bar = figure.colorbar(image, ax=axes, shrink=0.9)
    bar.set_label(name, color=INK, fontsize=TEXT)
    bar.ax.tick_params(colors=INK, labelsize=SMALL)
    bar.outline.set_visible(False)
    if max(num_rows, num_columns) <= MAX_NUMBERED:
        for row, column in zip(*np.nonzero(~np.isnan(grid.values)), strict=True):
            value = grid.values[row, column]
            text = f"{value:.0f}" if grid.top >= 10 else f"{value:.1f}"
            colour = "#ffffff" if value < 0.55 * grid.top else "#000000"
            axes.text(column + 1, row + 1, text, ha="center", va="center", color=colour, fontsize=6)
    return figure


def histogram_figure(histogram: Histogram) -> Figure:
    """How many coordinates moved how far, and the threshold of those that were chosen."""
    figure, axes = _figure("size of the update", "coordinates", 1.9)
    edges = np.array(histogram.edges)
    threshold = math.inf if histogram.threshold is None else histogram.threshold
    for colour, low, high in ((FAINT, 0.0, threshold), (EMPHASIS, threshold, math.inf)):
        left, right = np.clip(edges[:-1], low, high), np.clip(edges[1:], low, high)
        axes.bar(left, histogram.counts, width=right - left, align="edge", color=colour)
    axes.set_xscale("log")
    # Exponents are smaller than the numbers they belong to, and must be legible too.
    axes.tick_params(axis="x", labelsize=1.25 * SMALL)
    if math.isfinite(threshold):
        axes.axvline(threshold, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    return figure


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
        return _saved(figure, format="svg", metadata={"Date": None, "Creator": None})


def _saved(figure: Figure, **options: Any) -> bytes:
    """Draw a figure; of a character that no font here has a box is shown, and nothing is said."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ |Matplotlib currently does not support ", UserWarning)
        figure.savefig(buffer, **options)
    return buffer.getvalue()


def _figure(across: str, upward: str, height: float) -> tuple[Figure, Axes]:
    """An empty figure with plain axes; its title is for the caption to say."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(across, color=INK, fontsize=TEXT)
    axes.set_ylabel(upward, color=INK, fontsize=TEXT)
    axes.tick_params(colors=INK, labelsize=SMALL, length=2.5)
    axes.grid(visible=True, color=FAINT, linewidth=0.4)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return figure, axes


def _plain(text: Text) -> None:
    """Take a dollar sign for a dollar sign: names come from the user."""
    text.set_parse_math(False)
