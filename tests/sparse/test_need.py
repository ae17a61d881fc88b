"""What a task needs of its budget, by hand."""

import pytest
import torch

from clare.methods._shared.need import likeness, needed_part


@pytest.mark.parametrize(
    ("losses", "part"),
    [
        ([2.0, 1.05, 1.05, 1.0, 1.0], 0.125),
        ([2.0, 1.2, 1.05, 1.0, 1.0], 0.25),
        ([2.0, 1.9, 1.8, 1.5, 1.0], 1.0),
        # More than all of them do together is enough as well.
        ([2.0, 1.9, 1.8, 0.5, 1.0], 0.5),
        # Where the loss does not fall, the least will do.
        ([1.0, 2.0, 2.0, 2.0, 1.0], 0.125),
        ([1.0, 0.5, 0.5, 0.5, 1.5], 0.125),
    ],
)
def test_the_smallest_part_that_nearly_does_what_all_do(losses: list[float], part: float) -> None:
    assert needed_part(losses) == part


def test_likeness_is_what_lies_on_claimed_coordinates_beyond_chance() -> None:
    gradient, is_claimed = torch.tensor([3.0, 1.0, 1.0, 1.0]), torch.tensor([True, False, False, False])
    # 9 of 12 lie where chance puts a quarter.
    assert likeness(gradient, is_claimed) == pytest.approx((0.75 - 0.25) / 0.75)
    assert likeness(torch.ones(4), is_claimed) == 0
    assert likeness(torch.tensor([0.0, 1, 1, 1]), is_claimed) == 0
    assert likeness(torch.tensor([2.0, 0, 0, 0]), is_claimed) == 1
    assert likeness(torch.zeros(4), is_claimed) == 0
    assert likeness(torch.ones(2), torch.ones(2, dtype=torch.bool)) == 0
