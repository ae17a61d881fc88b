"""Figures of one or more runs, drawn without any global state of matplotlib."""

import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from clare.files import write_bytes
from clare.metrics.accuracy import FloatArray, forgotten, new_task_accuracy
from clare.metrics.summary import run_matrix
from clare.report.compare import DEFAULT_REFERENCE, label_runs
from clare.report.groups import Group, group_runs
from clare.report.record import RunRecord
from clare.report.tables import count

# Okabe and Ito's palette, which colour-blind readers can tell apart; its yellow is too faint on white.
EMPHASIS = "#d55e00"
COLOURS = ("#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7")
MARKERS = ("s", "^", "D", "v", "P")
LINES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")
INK = "#1b1f24"
FAINT = "#c9ced6"
DPI = 150
MAX_TASKS_WITH_MARKERS = 25
MAX_TASKS_WITH_NUMBERS = 12


def accuracy_curves(runs: Sequence[RunRecord]) -> Figure:
    """Accuracy over all seen classes against the number of classes seen."""
    figure, axes = _figure("Accuracy over all classes seen so far", "classes seen", "accuracy (%)")
    for style, group in _styled(runs):
        places = np.array(group.counted[0].num_classes_seen, dtype=np.float64)
        _draw(axes, style, places, [100 * np.array([task.seen for task in run.tasks]) for run in group.counted])
    return _finish(figure, axes)


def new_task_curves(runs: Sequence[RunRecord]) -> Figure:
    """Accuracy on each task directly after it was learnt."""
    figure, axes = _figure("Accuracy on the newest task, directly after it", "task", "accuracy (%)")
    for style, group in _without_bounds(_styled(runs)):
        _draw_tasks(axes, style, [100 * new_task_accuracy(run_matrix(run)) for run in group.counted])
    return _finish(figure, axes)


def forgetting_curves(runs: Sequence[RunRecord]) -> Figure:
    """How far each task has fallen from its best accuracy by the end."""
    figure, axes = _figure("Forgotten by the end, task by task", "task", "best minus last accuracy (points)")
    for style, group in _styled(runs):
        if all(len(run.tasks) > 1 for run in group.counted):
            _draw_tasks(axes, style, [100 * forgotten(run_matrix(run)) for run in group.counted])
    axes.axhline(0, color=FAINT, linewidth=1, zorder=0)
    return _finish(figure, axes)


def capacity_curves(runs: Sequence[RunRecord]) -> Figure:
    """Share of the adapter that is claimed after each task."""
    figure, axes = _figure("Share of the adapter in use", "task", "coordinates claimed (%)")
    for style, group in _styled(runs):
        if all(map(_counts_capacity, group.counted)):
            _draw_tasks(axes, style, [100 * _known([task.capacity_used for task in r.tasks]) for r in group.counted])
    _finish(figure, axes)
    axes.set_ylim(bottom=0)
    return figure


def storage_curves(runs: Sequence[RunRecord]) -> Figure:
    """Numbers kept beside the backbone after each task."""
    figure, axes = _figure("Numbers stored beside the backbone", "task", "numbers stored")
    for style, group in _without_bounds(_styled(runs)):
        if all(map(_counts_storage, group.counted)):
            _draw_tasks(axes, style, [_known([task.num_stored for task in run.tasks]) for run in group.counted])
    _finish(figure, axes)
    axes.set_ylim(bottom=0)
    _plain_numbers(axes)
    return figure


def accuracy_heat_map(run: RunRecord, label: str) -> Figure:
    """The accuracy matrix of a run: after which task (rows) how good on which task (columns)."""
    matrix = 100 * run_matrix(run)
    figure, axes = _figure(
        f"{label}: accuracy on each task (%)", "on the test images of task", "after task", (5.2, 4.4)
    )
    num_tasks = len(matrix)
    axes.grid(visible=False)
    extent = (0.5, num_tasks + 0.5, num_tasks + 0.5, 0.5)
    image = axes.imshow(matrix, cmap="cividis", vmin=0, vmax=100, extent=extent)
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.ax.tick_params(colors=INK)
    bar.outline.set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if num_tasks <= MAX_TASKS_WITH_NUMBERS:
        for row, column in zip(*np.nonzero(~np.isnan(matrix)), strict=True):
            value = matrix[row, column]
            colour = "#ffffff" if value < 55 else "#000000"
            axes.text(column + 1, row + 1, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=8)
    return figure


def draw_curves(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    """The figures that show all runs at once, by name, as far as the runs have something to show."""
    figures: dict[str, Figure] = {}
    if any(run.tasks for run in runs):
        figures["accuracy"] = accuracy_curves(runs)
        figures["new-task"] = new_task_curves(runs)
    if any(len(run.tasks) > 1 for run in runs):
        figures["forgetting"] = forgetting_curves(runs)
    if any(map(_counts_capacity, runs)):
        figures["capacity"] = capacity_curves(runs)
    if any(map(_counts_storage, runs)):
        figures["stored"] = storage_curves(runs)
    return figures


def write_plots(runs: Sequence[RunRecord], folder: Path) -> list[Path]:
    """Write every figure, also the accuracy matrix of each run, as a PNG file."""
    figures = draw_curves(runs)
    for index, (label, run) in enumerate(zip(label_runs(runs), runs, strict=True)):
        if run.tasks:
            name = "matrix-" + re.sub(r"[^A-Za-z0-9._-]+", "-", label)
            figures[f"{name}-{index}" if name in figures else name] = accuracy_heat_map(run, label)
    paths = []
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        write_bytes(path, to_png(figure))
        paths.append(path)
    return paths


def to_png(figure: Figure) -> bytes:
    """Draw a figure as PNG on white."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    return buffer.getvalue()


def to_svg(figure: Figure, name: str) -> str:
    """Draw a figure as an SVG element for a page, from which it takes its ink; `name` keeps its ids apart."""
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    drawing = buffer.getvalue()
    # A page needs no name spaces, and has one style sheet and one set of ids for all its drawings.
    drawing = re.sub(r' xmlns(:xlink)?="[^"]*"', "", drawing[drawing.index("<svg") :])
    drawing = re.sub(r"<style.*?</style>", "", drawing, count=1, flags=re.DOTALL)
    drawing = re.sub(r' id="[\w.]+_\d+"', "", drawing)
    drawing = drawing.replace(INK, "currentColor").replace(FAINT, "var(--faint)")
    title = escape(figure.axes[0].get_title(loc="left"))
    return drawing.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)


def _styled(runs: Sequence[RunRecord]) -> list[tuple[Line2D, Group]]:
    """Give each evaluated group the look of its line: CLARE's is strong, the others' are told apart by three means."""
    styled: list[tuple[Line2D, Group]] = []
    num_others = 0
    for group in group_runs(runs):
        if group.method == DEFAULT_REFERENCE:
            num_before = sum(other.method == DEFAULT_REFERENCE for _, other in styled)
            line = LINES[num_before % len(LINES)]
            style = Line2D([], [], color=EMPHASIS, marker="o", linestyle=line, linewidth=2.8, zorder=3)
        else:
            turn, colour = divmod(num_others, len(COLOURS))
            line = LINES[turn % len(LINES)]
            style = Line2D([], [], color=COLOURS[colour], marker=MARKERS[colour], linestyle=line, linewidth=1.4)
            num_others += 1
        style.set_label(group.label)
        styled.append((style, group))
    return [(style, group) for style, group in styled if all(run.tasks for run in group.counted)]


def _without_bounds(styled: list[tuple[Line2D, Group]]) -> list[tuple[Line2D, Group]]:
    """Leave out groups that met in one task what others met in several: they have no place on an axis of tasks."""
    longest = max((len(run.start.task_sizes) for _, group in styled for run in group.counted), default=1)
    return [each for each in styled if longest == 1 or len(each[1].counted[0].start.task_sizes) > 1]


def _draw_tasks(axes: Axes, style: Line2D, rows: Sequence[FloatArray]) -> None:
    """Add one line over the tasks as people count them, from 1."""
    _draw(axes, style, np.arange(1, max(map(len, rows)) + 1, dtype=np.float64), rows)


def _draw(axes: Axes, style: Line2D, places: FloatArray, rows: Sequence[FloatArray]) -> None:
    """Add the mean of the seeds' rows as one line, and their standard deviation as a band around it."""
    shortest = min(map(len, rows))
    places, values_SN = places[:shortest], np.stack([row[:shortest] for row in rows])
    mean = values_SN.mean(axis=0)
    style.set_data(places, mean)
    style.set_markersize(4.5 if len(places) <= MAX_TASKS_WITH_MARKERS else 0)
    axes.add_line(style)
    if len(rows) > 1 and shortest > 1:
        width = values_SN.std(axis=0, ddof=1)
        edge = [*zip(places, mean - width, strict=True), *zip(places[::-1], (mean + width)[::-1], strict=True)]
        # A patch, not a collection: only patches count when the axes are fitted to what they show.
        axes.add_patch(Polygon(edge, facecolor=style.get_color(), alpha=0.18, linewidth=0, zorder=1))


def _figure(title: str, across: str, upward: str, size: tuple[float, float] = (7.2, 4.0)) -> tuple[Figure, Axes]:
    """An empty figure with plain axes."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    _plain(axes.set_title(title, color=INK, loc="left", fontsize=11, fontweight="bold"))
    axes.set_xlabel(across, color=INK)
    axes.set_ylabel(upward, color=INK)
    axes.tick_params(colors=INK)
    axes.grid(visible=True, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return figure, axes


def _finish(figure: Figure, axes: Axes) -> Figure:
    """Fit the axes to their lines and name the lines beside them."""
    axes.relim()
    axes.autoscale_view()
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, labelcolor=INK)
    for text in legend.get_texts():
        _plain(text)
    return figure


def _plain(text: Text) -> None:
    """Take a dollar sign for a dollar sign: names come from the user."""
    text.set_parse_math(False)


def _plain_numbers(axes: Axes) -> None:
    """Write large numbers as people say them."""
    axes.yaxis.set_major_formatter(lambda value, _: count(round(value)))


def _known(values: Sequence[float | None]) -> FloatArray:
    """Numbers with gaps as an array."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _counts_capacity(run: RunRecord) -> bool:
    """Whether the run's method keeps account of its adapter."""
    return any(task.capacity_used is not None for task in run.tasks)


def _counts_storage(run: RunRecord) -> bool:
    """Whether the run tells how many numbers it keeps."""
    return any(task.num_stored is not None for task in run.tasks)
