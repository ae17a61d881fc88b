"""The numbers behind the figures: curves as means over seeds, heat maps of accuracies and claims, sizes of updates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from clare.metrics.accuracy import FloatArray, forgotten, new_task_accuracy
from clare.metrics.summary import run_matrix
from clare.record import TaskEvent
from clare.report.groups import Group
from clare.report.record import RunRecord
from clare.report.tables import NONE, amount, count, duration

Summary = Literal["last", "mean", "most"]
Unit = Literal["percent", "points", "numbers", "seconds", "gigabytes"]
NUM_HISTOGRAMS = 3
MAX_RATIO = 30
"""Where the largest value is more times the smallest, a linear axis would press the small ones together."""


@dataclass(frozen=True)
class Curve:
    """One method's means over seeds, and their standard deviations where there are several seeds."""

    label: str
    places: tuple[float, ...]
    values: tuple[float, ...]
    deviations: tuple[float, ...] | None

    @property
    def band(self) -> tuple[FloatArray, FloatArray]:
        """The lower and the upper edge of the band."""
        values, around = np.array(self.values), np.array(self.deviations or 0.0)
        return values - around, values + around


@dataclass(frozen=True)
class Chart:
    """A figure of curves."""

    name: str
    title: str
    note: str
    across: str
    upward: str
    unit: Unit
    curves: tuple[Curve, ...]
    summary: Summary = "last"

    def summarised(self, curve: Curve) -> float:
        """The one number that stands for a curve."""
        values = np.array(curve.values)
        if self.summary == "last":
            return float(values[-1])
        return float(np.nanmean(values) if self.summary == "mean" else np.nanmax(values))

    @property
    def has_bands(self) -> bool:
        """Whether any curve has deviations."""
        return any(curve.deviations for curve in self.curves)

    @property
    def is_log(self) -> bool:
        """Whether the upward axis is logarithmic: for sizes and times that lie far apart."""
        if self.unit in ("percent", "points"):
            return False
        values = np.concatenate([curve.values for curve in self.curves])
        return bool(np.nanmin(values) > 0 and np.nanmax(values) > MAX_RATIO * np.nanmin(values))

    @property
    def span(self) -> tuple[float, float]:
        """The lowest and the highest value with its band; sizes and times on a linear axis count from zero."""
        low = min(float(np.nanmin(np.minimum(curve.band[0], curve.values))) for curve in self.curves)
        high = max(float(np.nanmax(curve.band[1])) for curve in self.curves)
        if self.is_log:
            low = min(float(np.nanmin(curve.values)) for curve in self.curves)
        elif self.unit not in ("percent", "points") or self.name == "capacity":
            low = 0.0
        elif self.unit == "percent":
            low, high = max(low, 0.0), min(high, 100.0)
        return low, high


@dataclass(frozen=True)
class Grid:
    """A heat map in percent: rows downward, columns across, NaN where there is nothing."""

    label: str
    across: str
    downward: str
    values: FloatArray
    top: float


@dataclass(frozen=True)
class Histogram:
    """How far a task's first stage moved the candidates; those that moved as far as the threshold were chosen."""

    label: str
    task: int
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    num_unmoved: int
    threshold: float | None


def shown(value: float, unit: Unit) -> str:
    """A value as a reader would write it."""
    return NONE if np.isnan(value) else WRITTEN.get(unit, "{:.1f}".format)(value)


def at_tick(value: float, unit: Unit) -> str:
    """A value as it stands at an axis, whose name tells the unit."""
    return count(round(value)) if unit == "numbers" else f"{value:g}"


def make_charts(groups: Sequence[Group]) -> list[Chart]:
    """All figures of curves, as far as the groups have something to show."""
    groups = [group for group in groups if all(run.tasks for run in group.counted)]
    without_bounds = leave_out_bounds(groups)
    charts = [_filled(chart, groups if chart.name == LARGE else without_bounds) for chart in FIGURES]
    return [chart for chart in charts if chart.curves]


def leave_out_bounds(groups: Sequence[Group]) -> list[Group]:
    """Leave out groups that met in one task what others met in several: they have no place on an axis of tasks."""
    longest = max((len(group.counted[0].start.task_sizes) for group in groups), default=1)
    return [group for group in groups if longest == 1 or len(group.counted[0].start.task_sizes) > 1]


def _filled(chart: Chart, groups: Sequence[Group]) -> Chart:
    """Fill a figure with one curve for each group in which something was measured."""
    curves = []
    for group in groups:
        rows = [VALUES[chart.name](run) for run in group.counted]
        # A single task has nothing to forget, and all() of nothing is true.
        if not any(np.isnan(row).all() for row in rows):
            seen = group.counted[0].num_classes_seen
            # The mean of the seeds' rows, as far as all of them go, and their standard deviation.
            shortest = min(map(len, rows))
            values_SN = np.stack([row[:shortest] for row in rows])
            places = map(float, seen if chart.name == LARGE else range(1, shortest + 1))
            deviations = tuple(values_SN.std(axis=0, ddof=1).tolist()) if len(rows) > 1 else None
            values = tuple(values_SN.mean(axis=0).tolist())
            curves.append(Curve(group.label, tuple(places)[:shortest], values, deviations))
    return replace(chart, curves=tuple(curves))


def _known(run: RunRecord, value: Callable[[TaskEvent], float | None]) -> FloatArray:
    """A value of every task, NaN where it was not measured."""
    values = [value(task) for task in run.tasks]
    return np.array([np.nan if each is None else each for each in values], dtype=np.float64)


def accuracy_grids(group: Group) -> dict[int | None, Grid]:
    """The accuracy matrix of each seed, and first, without a seed, their mean as far as all of them go."""
    matrices = {int(run.preset["seed"]): 100 * run_matrix(run) for run in group.counted if run.tasks}
    if not matrices or group.is_told_task:
        return {}
    shortest = min(map(len, matrices.values()))
    mean = np.mean([matrix[:shortest, :shortest] for matrix in matrices.values()], axis=0)
    values: list[tuple[int | None, FloatArray]] = [(None, mean), *matrices.items()]
    return {seed: Grid(group.label, "task", "after task", matrix, 100.0) for seed, matrix in values}


def claims_grid(group: Group) -> Grid | None:
    """The share of each layer's coordinates that each task claimed, a mean over seeds; none where not recorded."""
    shares = []
    for run in group.counted:
        diagnosed = [task.diagnosis for task in run.tasks]
        if not diagnosed or any("claimed_per_block" not in each for each in diagnosed):
            return None
        shares.append(
            np.stack([np.divide(each["claimed_per_block"], each["coordinates_per_block"]) for each in diagnosed])
        )
    shortest = min(map(len, shares))
    mean = 100 * np.mean([each[:shortest] for each in shares], axis=0)
    return Grid(group.label, "layer", "task", mean, float(mean.max()) or 1.0)


def movement_histograms(group: Group) -> list[Histogram]:
    """The sizes of updates at the first, the middle and the last task with any, of the first seed."""
    diagnosed = [task for task in group.counted[0].tasks if any(task.diagnosis.get("movement", {}).get("counts", ()))]
    places = sorted({round(place) for place in np.linspace(0, len(diagnosed) - 1, NUM_HISTOGRAMS)}) if diagnosed else []
    return [_histogram(group.label, diagnosed[place].task, diagnosed[place].diagnosis["movement"]) for place in places]


def _histogram(label: str, task: int, movement: Mapping[str, Any]) -> Histogram:
    """One task's histogram without the empty bins before the first that counts."""
    counts, threshold = movement["counts"], movement.get("threshold")
    start = next((place for place, each in enumerate(counts) if each), len(counts) - 1)
    return Histogram(
        label, task, tuple(movement["edges"][start:]), tuple(counts[start:]), movement["num_unmoved"], threshold
    )


WRITTEN: dict[Unit, Callable[[float], str]] = {
    "numbers": lambda value: count(round(value)),
    "seconds": duration,
    "gigabytes": lambda value: amount(1e9 * value),
}
LARGE = "accuracy"
"""The figure that says most."""
LEARNT = "Accuracy on each task directly after it was learnt."
CLAIMED = "Claimed by all tasks so far."
MASKS = "After each task; a bit of a mask counts as a 32nd."
RIGHT = "Share of the test images of all classes seen so far that are named rightly."
FALLEN = "How far each task has fallen from its best accuracy, in points."
EVALUATED = "On the test images of all classes seen so far."
PROCESS = "Of the process so far, or of a GPU's tensors during the task."
FIGURES = (
    Chart(LARGE, "Incremental accuracy", RIGHT, "classes seen", "accuracy (%)", "percent", (), "last"),
    Chart("new-task", "New tasks", LEARNT, "task", "accuracy (%)", "percent", (), "mean"),
    Chart("forgetting", "Forgotten by the end", FALLEN, "task", "forgotten (points)", "points", (), "mean"),
    Chart("capacity", "Share of the adapter in use", CLAIMED, "task", "coordinates (%)", "percent", (), "last"),
    Chart("stored", "Numbers stored beside the backbone", MASKS, "task", "numbers", "numbers", (), "last"),
    Chart("learn-time", "Time to learn", "Each task by itself.", "task", "time per task (s)", "seconds", (), "mean"),
    Chart("evaluate-time", "Time to evaluate", EVALUATED, "task", "time per evaluation (s)", "seconds", (), "last"),
    Chart("memory", "Peak memory", PROCESS, "task", "memory (GB)", "gigabytes", (), "most"),
)
VALUES: dict[str, Callable[[RunRecord], FloatArray]] = {
    LARGE: lambda run: 100 * _known(run, lambda task: task.seen),
    "new-task": lambda run: 100 * new_task_accuracy(run_matrix(run)),
    "forgetting": lambda run: 100 * forgotten(run_matrix(run)),
    "capacity": lambda run: 100 * _known(run, lambda task: task.capacity_used),
    "stored": lambda run: _known(run, lambda task: task.num_stored),
    "learn-time": lambda run: _known(run, lambda task: task.learn_seconds),
    "evaluate-time": lambda run: _known(run, lambda task: task.evaluate_seconds),
    "memory": lambda run: _known(run, lambda task: task.peak_memory) / 1e9,
}
