"""The numbers behind heat maps and histograms: accuracy matrices, claims in each layer, sizes of updates."""

from collections.abc import Mapping, Sequence
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
    grids: dict[int | None, Grid] = {None: Grid(group.label, "task", "after task", mean, 100.0)}
    for seed, matrix in matrices.items():
        grids[seed] = Grid(group.label, "task", "after task", matrix, 100.0)
    return grids


def claims_grid(group: Group) -> Grid | None:
    """The share of each layer's coordinates that each task claimed, a mean over seeds; none where not recorded."""
    shares = []
    for run in group.counted:
        rows = [_claims(task.diagnosis) for task in run.tasks]
        known = [row for row in rows if row is not None]
        if not known or len(known) < len(rows):
            return None
        shares.append(np.stack(known))
    shortest = min(map(len, shares))
    mean = 100 * np.mean([each[:shortest] for each in shares], axis=0)
    return Grid(group.label, "layer", "task", mean, float(mean.max()) or 1.0)


def _claims(diagnosis: Mapping[str, Any]) -> FloatArray | None:
    """The share of each layer that one task claimed."""
    if "claimed_per_block" not in diagnosis:
        return None
    claimed = np.asarray(diagnosis["claimed_per_block"], dtype=np.float64)
    shares: FloatArray = claimed / np.asarray(diagnosis["coordinates_per_block"])
    return shares


def movement_histograms(group: Group) -> list[Histogram]:
    """The sizes of updates at the first, the middle and the last task with any, of the first seed."""
    told = [task for task in group.counted[0].tasks if any(task.diagnosis.get("movement", {}).get("counts", ()))]
    chosen = [told[place] for place in _spread_out(len(told))]
    return [_histogram(group.label, task.task, task.diagnosis["movement"]) for task in chosen]


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


def _spread_out(number: int) -> Sequence[int]:
    """The first, middle and last of so many places."""
    return sorted({round(place) for place in np.linspace(0, number - 1, NUM_HISTOGRAMS)}) if number else []
