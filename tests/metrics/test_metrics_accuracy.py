"""Measures against cases worked out by hand, and what must hold for every matrix."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clare.metrics.accuracy import (
    FloatArray,
    backward_transfer,
    forgetting,
    forgotten,
    matrix_from_rows,
    mean_over_tasks,
    new_task_accuracy,
)

MATRIX = matrix_from_rows([[0.9], [0.7, 0.8], [0.75, 0.5, 0.6]])


@st.composite
def matrices(draw: st.DrawFn) -> FloatArray:
    num_tasks = draw(st.integers(1, 6))
    share = st.floats(0, 1)
    return matrix_from_rows([draw(st.lists(share, min_size=task + 1, max_size=task + 1)) for task in range(num_tasks)])


def test_forgetting_by_hand() -> None:
    # Task 1: best 0.9, last 0.75. Task 2: best 0.8, last 0.5. The last task does not count.
    np.testing.assert_allclose(forgotten(MATRIX), [0.15, 0.3])
    assert forgetting(MATRIX) == pytest.approx(0.225)


def test_backward_transfer_by_hand() -> None:
    assert backward_transfer(MATRIX) == pytest.approx((0.75 - 0.9 + 0.5 - 0.8) / 2)


def test_a_task_that_improves_is_not_forgotten_and_transfers_backwards() -> None:
    matrix = matrix_from_rows([[0.5], [0.8, 0.9]])
    assert forgetting(matrix) == 0
    assert backward_transfer(matrix) == pytest.approx(0.3)


def test_the_best_accuracy_may_come_after_the_task_itself() -> None:
    matrix = matrix_from_rows([[0.5], [0.8, 0.9], [0.6, 0.9, 0.9]])
    np.testing.assert_allclose(forgotten(matrix), [0.2, 0.0])
    assert backward_transfer(matrix) == pytest.approx(0.05)


def test_new_task_accuracy_is_the_diagonal() -> None:
    np.testing.assert_array_equal(new_task_accuracy(MATRIX), [0.9, 0.8, 0.6])


def test_a_single_task_forgets_nothing() -> None:
    assert forgetting(matrix_from_rows([[0.4]])) == 0
    assert backward_transfer(matrix_from_rows([[0.4]])) == 0


def test_a_task_without_test_images_is_unknown_and_left_out() -> None:
    matrix = matrix_from_rows([[1.0], [1.0, np.nan], [0.0, np.nan, 1.0]])
    assert forgetting(matrix) == 1.0
    assert backward_transfer(matrix) == -1.0


def test_mean_over_tasks_keeps_leading_axes_and_skips_unknown_values() -> None:
    values = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])
    np.testing.assert_array_equal(mean_over_tasks(values), [2.0, 0.0])


@given(matrices())
def test_forgetting_is_never_negative_and_bounds_the_harm_done(matrix: FloatArray) -> None:
    assert 0 <= forgetting(matrix) <= 1
    assert forgetting(matrix) >= -backward_transfer(matrix) - 1e-12


@given(st.lists(matrices(), min_size=1, max_size=4))
def test_a_stack_of_matrices_is_measured_one_by_one(stack: list[FloatArray]) -> None:
    same_size = [matrix for matrix in stack if matrix.shape == stack[0].shape]
    together = mean_over_tasks(forgotten(np.stack(same_size)))
    np.testing.assert_allclose(together, [forgetting(matrix) for matrix in same_size])
