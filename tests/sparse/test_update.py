"""Thresholds, penalties and masked writes, to the bit where that is promised."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clare.sparse.gates import log_alphas, open_chance
from clare.sparse.update import PROXIMAL, held_in_groups, penalty_gradient, soft_threshold, write_masked

TURN = 0.3
SPECIAL = [0.0, -0.0, 1.5, -2.25, 1e-42, 3e38, math.inf, -math.inf, math.nan]


def bits(tensor: Tensor) -> list[int]:
    """Return the bit patterns, in which NaN equals itself and -0 differs from 0."""
    numbers: list[int] = tensor.detach().contiguous().view(torch.int32).tolist()
    return numbers


@pytest.mark.parametrize(
    ("value", "threshold", "expected"), [(3.0, 1.0, 2.0), (-3.0, 1.0, -2.0), (1.0, 1.0, 0.0), (-0.5, 1.0, 0.0)]
)
def test_soft_threshold_by_hand(value: float, threshold: float, expected: float) -> None:
    assert float(soft_threshold(torch.tensor(value), threshold)) == expected
    assert float(soft_threshold(torch.tensor(value), torch.tensor(threshold))) == expected


@settings(deadline=None)
@given(value=st.floats(-100, 100), threshold=st.floats(0, 100))
def test_soft_threshold_is_the_proximal_step_of_the_absolute_value(value: float, threshold: float) -> None:
    point = soft_threshold(torch.tensor(value, dtype=torch.float64), threshold)

    def objective(x: Tensor) -> Tensor:
        return 0.5 * (x - value) ** 2 + threshold * x.abs()

    others = torch.linspace(-100, 100, 2001, dtype=torch.float64)
    assert bool((objective(point) <= objective(others) + 1e-9).all())


@settings(deadline=None)
@given(
    offsets=st.lists(st.floats(-10, 10), min_size=1, max_size=8),
    weight=st.floats(0, 5),
    form=st.sampled_from(["l1-subgradient", "l2", "transformed-l1", "l0"]),
)
def test_penalty_gradients_are_autograd_of_the_penalty(offsets: list[float], weight: float, form: str) -> None:
    offset = torch.tensor(offsets, dtype=torch.float64, requires_grad=True)
    penalty = {
        "l1-subgradient": offset.abs(),
        "l2": offset**2,
        "transformed-l1": (TURN + 1) * offset.abs() / (TURN + offset.abs()),
        "l0": open_chance(log_alphas(offset)),
    }[form].sum()
    (expected,) = torch.autograd.grad(weight * penalty, offset)
    torch.testing.assert_close(penalty_gradient(offset.detach(), weight, form, TURN), expected)  # type: ignore[arg-type]


def test_the_proximal_penalty_has_no_gradient() -> None:
    for form in PROXIMAL:
        assert penalty_gradient(torch.tensor([1.0, -2.0]), 3.0, form).tolist() == [0.0, 0.0]  # type: ignore[arg-type]


def test_transformed_l1_rises_to_its_published_value() -> None:
    """Ma and others (2019) with a = 1: the integral of the gradient from 0 to 0.5 is 2/3."""
    steps = torch.linspace(0, 0.5, 10_001, dtype=torch.float64)
    assert float(torch.trapezoid(penalty_gradient(steps, 1.0, "transformed-l1"), steps)) == pytest.approx(
        2 / 3, abs=1e-4
    )


def test_groups_are_drawn_back_by_hand() -> None:
    """Wen and others (2016): (3, 4) becomes (2.4, 3.2) under a threshold of 1; a smaller group goes back as a whole."""
    anchor, mask = torch.tensor([1.0, 1.0, 0.1, 0.1]), torch.ones(4, dtype=torch.bool)

    def norms(offset: Tensor) -> Tensor:
        return offset.view(2, 2).norm(dim=1, keepdim=True).expand(2, 2).flatten()

    moved = anchor + torch.tensor([3.0, 4.0, 0.5, 0.5])
    held = held_in_groups(moved, anchor, mask, 1.0, norms)
    torch.testing.assert_close(held, torch.tensor([3.4, 4.2, 0.1, 0.1]))
    assert bits(held[2:]) == bits(anchor[2:])
    assert bits(held_in_groups(anchor, anchor, mask, 0.0, norms)) == bits(anchor)
    # What is outside the mask has no say in how long its group is.
    mask[1] = False
    torch.testing.assert_close(held_in_groups(moved, anchor, mask, 1.0, norms)[0], torch.tensor(3.0))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(SPECIAL), st.sampled_from(SPECIAL), st.booleans()), min_size=1, max_size=12))
def test_a_masked_write_keeps_every_bit_outside_the_mask(cells: list[tuple[float, float, bool]]) -> None:
    target, values, mask = (torch.tensor(column) for column in zip(*cells, strict=True))
    before = target.clone()
    write_masked(target, values, mask)
    assert bits(target[~mask]) == bits(before[~mask])
    assert bits(target[mask]) == bits(values[mask])


def test_a_write_without_a_mask_takes_everything_and_stays_in_place() -> None:
    target = torch.zeros(3)
    alias = target
    write_masked(target, torch.tensor([1.0, math.nan, 2.0]), None)
    assert bits(alias) == bits(torch.tensor([1.0, math.nan, 2.0]))
