"""Figure 1: how far full fine-tuning moves the weights, and what updating only a share of them reaches."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clare.paper.results import Cell, Results
from clare.presets.load import parse_override
from clare.report.plots import COLOURS, EMPHASIS, INK, titled_axes
from clare.report.tables import count
from clare.report.write import write_figure
from clare.sparse.diagnosis import LARGE

SMALL = 0.01
QUIET = COLOURS[1]


def movement_of(cell: Cell) -> Mapping[str, Any] | None:
    """Return the histogram of the updates of a cell's first run, where its method recorded one."""
    tasks = cell.records[0].tasks if cell.records else ()
    movement = tasks[-1].diagnosis.get("movement") if tasks else None
    return movement if isinstance(movement, Mapping) else None


def count_large(movement: Mapping[str, Any]) -> int:
    """Return how many updates are at 0.05 or more."""
    return int(movement[f"num_at_least_{LARGE}"])


def share_below(movement: Mapping[str, Any], bound: float) -> float:
    """Return the share of updates in bins that end at or below a bound, and of those that are zero."""
    edges, counts = movement["edges"], movement["counts"]
    unmoved = int(movement["num_unmoved"])
    below = unmoved + sum(number for edge, number in zip(edges[1:], counts, strict=True) if edge <= bound)
    return float(below / (unmoved + sum(counts)))


def sentences(results: Results) -> list[str]:
    """Say what the histograms of full fine-tuning tell."""
    found = []
    for setting in results.settings:
        movement, name = movement_of(results.cells[setting.preset, results.study.reference]), setting.experiment.name
        if movement is None:
            found.append(f"{name}: full fine-tuning left no histogram.")
            continue
        total = int(movement["num_unmoved"]) + sum(movement["counts"])
        # Rounded down: nearly all is not all.
        percent = math.floor(1e4 * share_below(movement, SMALL)) / 100
        found.append(
            f"{name}: of {count(total)} weights {count_large(movement)} moved by {LARGE} or more, and at least "
            f"{percent:.2f} % by less than {SMALL}."
        )
    return found


def draw(results: Results, preset: str) -> Figure:
    """Histogram of the updates on the left, accuracy against the share that is updated on the right."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    movement = movement_of(results.cells[preset, results.study.reference])
    titled_axes(left, "Updates of full fine-tuning", "size of the update", "weights")
    if movement is not None:
        _histogram(left, movement["edges"], movement["counts"])
    titled_axes(right, "Updating only a share of the weights", "share that is updated (%)", "accuracy (%)")
    points = [
        (100 * float(parse_override(cell.row.overrides[0])["method"]["share"]), cell.figures["final"].mean)
        for cell in results.rows(preset)
    ]
    known = [(share, mean) for share, mean in points if mean is not None]
    if known:
        right.plot(*zip(*known, strict=True), color=EMPHASIS, marker="o", linewidth=2.4)
    full = points[0][1]
    if full is not None:
        right.axhline(full, color=QUIET, linestyle="--", label="full fine-tuning")
        right.legend(frameon=False, labelcolor=INK)
    right.set_xscale("log")
    return figure


def _histogram(axes: Axes, edges: Sequence[float], counts: Sequence[int]) -> None:
    """Draw counts on a logarithmic scale, and the bound above which updates are large."""
    axes.stairs(counts, edges, fill=True, color=QUIET)
    axes.set_xscale("log")
    if any(counts):
        axes.set_yscale("log")
    axes.axvline(LARGE, color=EMPHASIS, linestyle="--", label=f"{LARGE}")
    axes.legend(frameon=False, labelcolor=INK)


def write_figures(results: Results, folder: Path) -> list[str]:
    """Write the figure of every preset as PNG and SVG, and return the lines that show them on the page."""
    lines = []
    for setting in results.settings:
        name = results.study.name if len(results.settings) == 1 else f"{results.study.name}-{setting.experiment.name}"
        write_figure(draw(results, setting.preset), folder, name)
        lines.append(f"![Updates and accuracy on {setting.experiment.name}]({name}.png)")
    return lines


def as_values(results: Results) -> dict[str, Any]:
    """The histograms for the JSON file."""
    movements = {
        setting.preset: movement_of(results.cells[setting.preset, results.study.reference])
        for setting in results.settings
    }
    return {
        "movement": {
            preset: None if movement is None else {**movement, "share_below_0.01": share_below(movement, SMALL)}
            for preset, movement in movements.items()
        }
    }
