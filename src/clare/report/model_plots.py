"""Pictures of one model: what its tasks claimed in each layer, and which classes it takes for which."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from clare.report.plots import INK, SCALE, titled_axes

MAX_NAMED_CLASSES = 40
MAX_NUMBERED_CLASSES = 15
MAX_NAMED_TASKS = 20


def capacity_figure(claims: Sequence[Sequence[int]], num_coordinates: int) -> Figure:
    """Coordinates that each task claimed: all together on the left, in each layer on the right."""
    counts_TL = np.array(claims, dtype=np.float64)
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    num_tasks, num_layers = counts_TL.shape
    shares = 100 * counts_TL.sum(axis=1) / num_coordinates
    tasks = np.arange(1, num_tasks + 1)
    # From dark to light, which a reader without colour vision can tell apart.
    colours = [tuple(colour) for colour in SCALE(np.linspace(0.05, 0.95, num_tasks))]
    left.bar(tasks, shares, color=colours)
    titled_axes(left, "Claimed by each task", "task", "share of all coordinates (%)")
    bottom = np.zeros(num_layers)
    layers = np.arange(1, num_layers + 1)
    per_layer = 100 * counts_TL * num_layers / num_coordinates
    for task, (row, colour) in enumerate(zip(per_layer, colours, strict=True), start=1):
        label = f"task {task}" if num_tasks <= MAX_NAMED_TASKS else None
        right.bar(layers, row, bottom=bottom, color=colour, label=label)
        bottom += row
    titled_axes(right, "Claimed in each layer", "layer", "share of the layer's coordinates (%)")
    if num_tasks <= MAX_NAMED_TASKS:
        right.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, labelcolor=INK)
    return figure


def confusion_figure(classes: Sequence[str], confusion: Sequence[Sequence[int]]) -> Figure:
    """What pictures of each class (rows) were taken for (columns), as shares of the row."""
    counts = np.array(confusion, dtype=np.float64)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(100 * counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)
    num_classes = len(classes)
    side = min(4.0 + 0.25 * num_classes, 16.0)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="cividis", vmin=0, vmax=100)
    figure.colorbar(image, ax=axes, shrink=0.8, label="share of the class (%)").outline.set_visible(False)
    titled_axes(axes, "What each class is taken for", "guessed class", "true class")
    axes.grid(visible=False)
    if num_classes <= MAX_NAMED_CLASSES:
        axes.set_xticks(range(num_classes), list(classes), rotation=90)
        axes.set_yticks(range(num_classes), list(classes))
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            # Names come from the user: a dollar sign is a dollar sign.
            label.set_parse_math(False)
    if num_classes <= MAX_NUMBERED_CLASSES:
        for row, column in zip(*np.nonzero(counts), strict=True):
            colour = "#ffffff" if shares[row, column] < 55 else "#000000"
            axes.text(column, row, f"{counts[row, column]:.0f}", ha="center", va="center", color=colour, fontsize=8)
    return figure
