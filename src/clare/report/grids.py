"""The numbers behind heat maps and histograms: accuracy matrices, claims in each layer, sizes of updates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clare.metrics.accuracy import FloatArray
from clare.metrics.summary import run_matrix
from clare.report.groups import Group

NUM_HISTOGRAMS = 3


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


def accuracy_grids(group: Group) -> dict[int | None, Grid]:
    """The accuracy matrix of each seed, and first, without a seed, their mean as far as all of them go."""
    matrices = {int(run.preset["seed"]): 100 * run_matrix(run) for run in group.counted if run.tasks}
    if not matrices:
        return {}
    shortest = min(map(len, matrices.values()))
    mean = np.mean([matrix[:shortest, :shortest] for matrix in matrices.values()], axis=0)
    values: list[tuple[int | None, FloatArray]] = [(None, mean), *matrices.items()]
    return {seed: Grid(group.label, "task", "after task", matrix, 100.0) for seed, matrix in values}


def claims_grid(group: Group) -> Grid | None:
    """The share of each layer's coordinates that each task claimed, a mean over seeds; none where not recorded."""
    shares = []
    for run in group.counted:
        told = [task.diagnosis for task in run.tasks]
        if not told or any("claimed_per_block" not in each for each in told):
            return None
        shares.append(np.stack([np.divide(each["claimed_per_block"], each["coordinates_per_block"]) for each in told]))
    shortest = min(map(len, shares))
    mean = 100 * np.mean([each[:shortest] for each in shares], axis=0)
    return Grid(group.label, "layer", "task", mean, float(mean.max()) or 1.0)


def movement_histograms(group: Group) -> list[Histogram]:
    """The sizes of updates at the first, the middle and the last task with any, of the first seed."""
    told = [task for task in group.counted[0].tasks if any(task.diagnosis.get("movement", {}).get("counts", ()))]
    places = sorted({round(place) for place in np.linspace(0, len(told) - 1, NUM_HISTOGRAMS)}) if told else []
    return [_histogram(group.label, told[place].task, told[place].diagnosis["movement"]) for place in places]


def _histogram(label: str, task: int, movement: Mapping[str, Any]) -> Histogram:
    """One task's histogram without the empty bins before the first that counts."""
    counts = [int(each) for each in movement["counts"]]
    start = next((place for place, each in enumerate(counts) if each), len(counts) - 1)
    edges = [float(edge) for edge in movement["edges"]]
    threshold = movement.get("threshold")
    return Histogram(
        label=label,
        task=task,
        edges=tuple(edges[start:]),
        counts=tuple(counts[start:]),
        num_unmoved=int(movement["num_unmoved"]),
        threshold=None if threshold is None else float(threshold),
    )
