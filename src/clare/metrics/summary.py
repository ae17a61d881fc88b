"""All figures of one run in one place."""

import math
from collections.abc import Sequence
from typing import Protocol, TypedDict

import numpy as np

from clare.metrics.accuracy import (
    FloatArray,
    backward_transfer,
    forgetting,
    matrix_from_rows,
    mean_over_tasks,
    new_task_accuracy,
)
from clare.record import TaskEvent


class EvaluatedRun(Protocol):
    """What the summary needs to know of a run."""

    @property
    def tasks(self) -> Sequence[TaskEvent]:
        """The finished tasks in order."""


class RunSummary(TypedDict):
    """The figures of one run as fractions in [0, 1]; None where there is nothing to measure."""

    average_accuracy: float | None
    final_accuracy: float | None
    forgetting: float | None
    backward_transfer: float | None
    new_task_accuracy: float | None
    average_given: float | None
    final_given: float | None
    forgetting_given: float | None
    task_right: float | None
    accuracy_matrix: list[list[float | None]]
    capacity_used: float | None
    seconds: float


def run_matrix(run: EvaluatedRun) -> FloatArray:
    """The accuracy matrix of a run's finished tasks."""
    return matrix_from_rows([task.per_task for task in run.tasks])


def summarise(run: EvaluatedRun) -> RunSummary:
    """Compute every figure of a run from its finished tasks, rounded to six digits."""
    seen = [task.seen for task in run.tasks]
    matrix = run_matrix(run)
    # Lines of older versions lack them; what is not known of one task is not known of the run.
    given = [math.nan if task.given is None else task.given for task in run.tasks]
    matrix_given = matrix_from_rows([task.given_per_task or () for task in run.tasks])
    is_untold = bool(seen) and not math.isnan(seen[-1])
    is_given = bool(seen) and not np.isnan(given).any()
    return {
        "average_accuracy": _rounded(float(np.mean(seen))) if seen else None,
        "final_accuracy": _rounded(seen[-1]) if seen else None,
        "forgetting": _rounded(forgetting(matrix)) if is_untold else None,
        "backward_transfer": _rounded(backward_transfer(matrix)) if is_untold else None,
        "new_task_accuracy": _rounded(float(mean_over_tasks(new_task_accuracy(matrix)))) if is_untold else None,
        "average_given": _rounded(float(np.mean(given))) if is_given else None,
        "final_given": _rounded(given[-1]) if is_given else None,
        "forgetting_given": _rounded(forgetting(matrix_given)) if is_given else None,
        "task_right": _rounded(run.tasks[-1].task_right) if seen else None,
        "accuracy_matrix": [[_rounded(value) for value in row] for row in matrix.tolist()],
        "capacity_used": _rounded(run.tasks[-1].capacity_used) if seen else None,
        "seconds": round(sum(task.seconds for task in run.tasks), 6),
    }


def _rounded(value: float | None) -> float | None:
    """Six digits, and None for what is not a number, which JSON cannot hold."""
    return None if value is None or math.isnan(value) else round(value, 6)
