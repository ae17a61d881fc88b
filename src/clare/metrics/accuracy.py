"""The measures of class-incremental learning, as plain functions on numpy arrays."""

# R, the accuracy matrix, has one row per evaluation and one column per task: R[t, i] is the accuracy after
# task t on the test images of task i. What was not yet seen, or has no test images, is NaN.

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def matrix_from_rows(rows: Sequence[Sequence[float]]) -> FloatArray:
    """R from its rows of growing length, NaN where a row has ended."""
    matrix = np.full((len(rows), len(rows)), np.nan)
    for task, row in enumerate(rows):
        matrix[task, : len(row)] = row
    return matrix


def forgotten(matrix: FloatArray) -> FloatArray:
    """For each task i before the last, max over t >= i of R[t, i], minus R[T, i]; leading axes are kept."""
    best: FloatArray = np.fmax.reduce(matrix, axis=-2)
    return best[..., :-1] - matrix[..., -1, :-1]


def forgetting(matrix: FloatArray) -> float:
    """Mean over i < T of max over t >= i of R[t, i], minus R[T, i]: never negative, 0 after a single task."""
    return float(mean_over_tasks(forgotten(matrix)))


def backward_transfer(matrix: FloatArray) -> float:
    """Mean over i < T of R[T, i] - R[i, i]: negative when later tasks did harm, 0 after a single task."""
    return float(mean_over_tasks(matrix[-1, :-1] - new_task_accuracy(matrix)[:-1]))


def new_task_accuracy(matrix: FloatArray) -> FloatArray:
    """R[i, i]: the accuracy on each task's test images directly after that task."""
    return np.diagonal(matrix).copy()


def mean_over_tasks(values: FloatArray) -> FloatArray:
    """Mean over the last axis of the values that are not NaN, 0 where there are none."""
    known = ~np.isnan(values)
    total: FloatArray = np.where(known, values, 0.0).sum(axis=-1)
    mean: FloatArray = total / np.maximum(known.sum(axis=-1), 1)
    return mean
