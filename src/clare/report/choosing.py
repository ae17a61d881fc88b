"""One picture to choose a method by: final accuracy against what is kept, passes for an image and time to learn."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from clare.report.charts import MAX_RATIO
from clare.report.groups import Group
from clare.report.plots import INK, POINTS, Size, Style, add_legend, draw_line, plain_axes
from clare.report.tables import count, duration

AXES = ("numbers stored", "passes for an image", "time to learn")
WIDE = Size(496.0, 150.0, 8.0)
"""Two columns of a paper."""
PAGE_WIDE = Size(900.0, 330.0, 13.0, 1.9, (52.0, 16.0, 50.0, 24.0))
GAP = 0.12
"""Between two parts of the picture, as a share of one."""


@dataclass(frozen=True)
class Choice:
    """A method's final accuracy in percent and what it costs."""

    label: str
    accuracy: float
    num_stored: float
    num_passes: float
    seconds: float
    is_heavy: bool
    """Whether what it keeps takes more room than the training images would."""

    @property
    def costs(self) -> tuple[tuple[float, str], ...]:
        """Its place in each part of the picture, as a number and in words."""
        passes = f"{self.num_passes:g} pass{'es' * (self.num_passes > 1)}"
        stored = f"{count(round(self.num_stored))} numbers"
        return (self.num_stored, stored), (self.num_passes, passes), (self.seconds, duration(self.seconds))


def choices_of(groups: Sequence[Group]) -> list[Choice]:
    """The methods of which accuracy and costs are known and that are not told the task."""
    found = []
    for group in groups:
        accuracy, costs = group.figures["final_accuracy"].mean, group.costs
        stored, passes = costs["num_stored"], costs["passes_per_image"]
        if accuracy is not None and stored and passes and not group.is_told_task:
            seconds = statistics.fmean(sum(task.learn_seconds for task in run.tasks) for run in group.counted)
            found.append(Choice(group.label, 100 * accuracy, stored, passes, seconds, group.is_heavy))
    return found


def choosing_figure(
    choices: Sequence[Choice], styles: Mapping[str, Style], size: Size = WIDE, training_bytes: int | None = None
) -> Figure:
    """A mark for each method in each part; those that keep more than the training images would take are hollow."""
    num_columns = min(len(choices), 5)
    extra = 0.0 if size.margins else 10.5 * math.ceil(len(choices) / num_columns)
    figure = Figure((size.width / POINTS, (size.height + extra) / POINTS), dpi=POINTS, facecolor="none")
    parts = figure.subplots(1, len(AXES), sharey=True)
    for place, (axes, across) in enumerate(zip(parts, AXES, strict=True)):
        plain_axes(axes, across, "" if place else "final accuracy (%)", size.text)
        for choice in choices:
            line = draw_line(axes, [choice.costs[place][0]], [choice.accuracy], styles[choice.label], size.weight)
            line.set(label=choice.label if place == 0 else "_", gid=f"{choice.label} {place}")
            if choice.is_heavy:
                line.set(markeredgecolor=line.get_color(), markerfacecolor="white", markeredgewidth=size.weight)
        limits = [training_bytes / 4] if training_bytes and place == 0 else []
        for limit in limits:
            axes.axvline(limit, color=INK, linewidth=0.9 * size.weight, linestyle=(0, (4, 3)))
        _scale(axes, [*limits, *(choice.costs[place][0] for choice in choices)], place)
    if size.margins is None:
        figure.set_layout_engine("constrained")
        add_legend(figure, num_columns)
    else:
        left, right, below, above = size.margins
        edges = {"left": left / size.width, "right": 1 - right / size.width}
        figure.subplots_adjust(**edges, bottom=below / size.height, top=1 - above / size.height, wspace=GAP)
    return figure


def _scale(axes: Axes, values: Sequence[float], place: int) -> None:
    """Give an axis few ticks in the words of its cost, and a logarithmic scale where costs lie far apart."""
    axes.margins(x=0.08, y=0.08)
    if 0 < MAX_RATIO * min(values) < max(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=5))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    words = (lambda value: count(round(value)), lambda value: f"{value:g}", duration)[place]
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))
