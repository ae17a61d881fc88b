"""The summary of runs worked out by hand."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from clare.metrics.summary import summarise
from clare.record import TaskEvent


def after(*rows: Sequence[float], used: Sequence[float | None] = (None, None)) -> list[TaskEvent]:
    """Return what is recorded after tasks: the accuracy over all classes, and those on each task."""
    return [
        TaskEvent(
            task=task,
            seen=seen,
            new=per_task[-1],
            first=per_task[0],
            per_task=tuple(per_task),
            capacity_used=used[task],
            learn_seconds=1.5,
            evaluate_seconds=1.0,
        )
        for task, (seen, *per_task) in enumerate(rows)
    ]


@dataclass(frozen=True)
class Run:
    tasks: Sequence[TaskEvent]


def test_every_figure_by_hand() -> None:
    summary = summarise(Run(after([0.9, 0.9], [0.65, 0.6, 0.7], used=[0.05, 1 - 0.95**2])))
    assert summary == {
        "average_accuracy": 0.775,
        "final_accuracy": 0.65,
        "forgetting": pytest.approx(0.3),
        "backward_transfer": pytest.approx(-0.3),
        "new_task_accuracy": 0.8,
        "average_given": None,
        "final_given": None,
        "forgetting_given": None,
        "task_right": None,
        "accuracy_matrix": [[0.9, None], [0.6, 0.7]],
        "capacity_used": 0.0975,
        "seconds": 5.0,
    }


def test_average_is_the_plain_mean_and_final_the_last() -> None:
    summary = summarise(Run(after([0.9, 0.9], [0.6, 0.6, 0.6], [0.3, 0.3, 0.3, 0.3], used=[None] * 3)))
    assert (summary["average_accuracy"], summary["final_accuracy"]) == (0.6, 0.3)


def test_values_have_six_digits() -> None:
    summary = summarise(Run(after([1 / 3, 2 / 3])))
    assert summary["average_accuracy"] == 0.333333
    assert summary["accuracy_matrix"] == [[0.666667]]
    assert summary["capacity_used"] is None


def test_a_run_without_a_task_has_no_figures() -> None:
    summary = summarise(Run([]))
    assert summary["average_accuracy"] is summary["final_accuracy"] is summary["forgetting"] is None
    assert summary["accuracy_matrix"] == []
    assert summary["seconds"] == 0


def test_what_is_not_a_number_becomes_none() -> None:
    summary = summarise(Run(after([float("nan"), float("nan")])))
    assert summary["average_accuracy"] is None
    assert summary["accuracy_matrix"] == [[None]]


def test_figures_with_the_task_given_stand_beside_the_others() -> None:
    plain = after([0.5, 0.5], [0.4, 0.3, 0.5])
    rows = [(0.9, (0.9,)), (0.8, (0.7, 0.9))]
    tasks = [
        task.model_copy(update={"given": given, "given_per_task": per_task, "task_right": 0.6})
        for task, (given, per_task) in zip(plain, rows, strict=True)
    ]
    summary = summarise(Run(tasks))
    figures = (summary["average_given"], summary["final_given"], summary["forgetting_given"], summary["task_right"])
    assert figures == pytest.approx((0.85, 0.8, 0.2, 0.6))
    assert summary["final_accuracy"] == 0.4
    assert summarise(Run([plain[0], tasks[1]]))["average_given"] is None


def test_a_run_that_is_told_the_task_has_no_class_incremental_figures() -> None:
    nothing = float("nan")
    tasks = [
        task.model_copy(update={"given": 0.9, "given_per_task": (0.9,) * (place + 1)})
        for place, task in enumerate(after([nothing] * 2, [nothing] * 3))
    ]
    summary = summarise(Run(tasks))
    assert summary["final_accuracy"] is summary["forgetting"] is summary["new_task_accuracy"] is None
    assert (summary["final_given"], summary["forgetting_given"]) == (0.9, 0.0)
