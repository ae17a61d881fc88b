"""The drift of earlier classes is told from the images at hand, and only as far as they can tell it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clare.heads.drift import accuracy_lost, fit_drift, fit_drift_of_parts, kernel_moves, moved, stretched


def drawn(num_classes: int, per_class: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return features around class centres, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    centres = 3 * torch.randn(num_classes, size, generator=generator)
    labels = torch.arange(num_classes).repeat_interleave(per_class)
    return centres[labels] + torch.randn(len(labels), size, generator=generator), labels


def test_a_common_shift_is_found_and_applied_to_classes_that_were_not_seen() -> None:
    before, labels = drawn(6, 40, 5, seed=0)
    shift = torch.tensor([1.0, -2.0, 0.0, 0.5, 3.0])
    drift = fit_drift(before, before + shift, labels)
    elsewhere = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(moved(elsewhere, drift), elsewhere + shift, rtol=0, atol=1e-4)


def test_a_linear_map_is_found_for_means_and_covariances() -> None:
    before, labels = drawn(10, 50, 4, seed=2)
    generator = torch.Generator().manual_seed(3)
    slope = 0.3 * torch.randn(4, 4, generator=generator)
    drift = fit_drift(before, before + before @ slope, labels)
    mean, factor = torch.randn(1, 4, generator=generator), torch.randn(1, 4, 4, generator=generator)
    torch.testing.assert_close(moved(mean, drift), mean + mean @ slope, rtol=0, atol=0.05)
    map_ = torch.eye(4) + slope
    covariance = stretched(factor, drift)[0] @ stretched(factor, drift)[0].T
    torch.testing.assert_close(covariance, map_.T @ (factor[0] @ factor[0].T) @ map_, rtol=0.05, atol=0.05)


def test_moves_that_tell_nothing_of_other_classes_are_not_carried_over() -> None:
    before, labels = drawn(4, 30, 6, seed=4)
    generator = torch.Generator().manual_seed(5)
    # Each class goes its own way, and the ways of all classes cancel.
    ways = 5 * torch.randn(2, 6, generator=generator)
    after = before + torch.stack([ways[0], -ways[0], ways[1], -ways[1]])[labels]
    features = torch.randn(3, 6, generator=generator)
    drift = fit_drift(before, after, labels)
    assert (moved(features, drift) - features).norm() < 0.5 * ways.norm()


def test_one_class_alone_tells_nothing() -> None:
    before = torch.randn(20, 3, generator=torch.Generator().manual_seed(6))
    drift = fit_drift(before, before + 1, torch.zeros(20, dtype=torch.int64))
    assert torch.equal(moved(before, drift), before)


@given(seed=st.integers(0, 1000), num_classes=st.integers(2, 7))
def test_features_that_stay_move_nothing(seed: int, num_classes: int) -> None:
    before, labels = drawn(num_classes, 5, 4, seed)
    drift = fit_drift(before, before, labels)
    torch.testing.assert_close(moved(before, drift), before)
    factors = torch.eye(4).expand(2, 4, 4)
    torch.testing.assert_close(stretched(factors, drift), factors.clone())


@pytest.mark.parametrize("size", [1, 8])
def test_fewer_images_than_features_and_equal_images_give_finite_drifts(size: int) -> None:
    before = torch.ones(4, size)
    drift = fit_drift(before, before + 0.5, torch.tensor([0, 0, 1, 1]))
    assert all(value.isfinite().all() for value in drift.values())
    torch.testing.assert_close(moved(before, drift), before + 0.5)


def test_parts_drift_each_by_itself() -> None:
    generator = torch.Generator().manual_seed(7)
    before = torch.randn(90, 6, generator=generator)
    labels = torch.arange(90) % 3
    # The first part is turned and shifted, the second stands still.
    after = torch.cat([before[:, :3] @ torch.tensor([[1.0, 0.3, 0], [-0.3, 1, 0], [0, 0, 1]]) + 1, before[:, 3:]], 1)
    drift = fit_drift_of_parts(before, after, labels, 3)
    first, second = fit_drift(before[:, :3], after[:, :3], labels), fit_drift(before[:, 3:], after[:, 3:], labels)
    for key in ("centre", "shift"):
        assert torch.equal(drift[key], torch.cat([first[key], second[key]]))
    assert torch.equal(drift["slope"], torch.block_diag(first["slope"], second["slope"]))
    means = torch.randn(4, 6, generator=generator)
    torch.testing.assert_close(moved(means, drift)[:, :3], moved(means[:, :3], first))
    assert torch.equal(moved(means, drift)[:, 3:], means[:, 3:])


@pytest.mark.parametrize(
    ("width", "expected"),
    # In the narrowest, no image is near, and all count the same.
    [(1.0, [0.368055, 0.099632]), (4.0, [0.179018, 0.315967]), (0.01, [0.166667, 0.333333])],
)
def test_moves_of_nearby_images_count_most(width: float, expected: list[float]) -> None:
    before = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    after = torch.tensor([[0.5, 0.0], [2.0, 1.0], [0.0, 3.0]])
    moves = kernel_moves(before, after, torch.tensor([[0.0, 1.0]]), width)
    torch.testing.assert_close(moves, torch.tensor([expected]), rtol=0, atol=1e-6)


def test_what_a_move_costs_earlier_classes() -> None:
    means = 5 * torch.eye(4, 8)
    before, labels = drawn(6, 40, 8, seed=0)
    for follows in (False, True):
        assert float(accuracy_lost(means, before, before, labels, follows)["lost"]) == 0
        # Where all features end around one point, three of four classes are lost, wherever their means went.
        gone = 1 + 0.5 * torch.randn(before.shape, generator=torch.Generator().manual_seed(1))
        assert float(accuracy_lost(means, before, gone, labels, follows)["lost"]) > 0.5
    # A common shift costs rows that stay behind; one class is enough to tell.
    for chosen in (labels, torch.zeros_like(labels)):
        near, far = before[chosen == 0], before[chosen == 0] + 100 * torch.eye(8)[0]
        was, now = (accuracy_lost(means, near, each, chosen[chosen == 0], False)["lost"] for each in (near, far))
        assert float(was) == 0
        assert float(now) > 0.5


def test_what_goes_over_to_the_tasks_own_classes_is_lost() -> None:
    """A shift that all features share: earlier classes are still told from each other, but not from the new one."""
    earlier, noise = 10 * torch.eye(8)[:2], torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    before, labels = 10 * torch.eye(8)[2] + 0.1 * noise, torch.zeros(6, dtype=torch.long)
    after = before + 30 * torch.eye(8)[3]
    assert float(accuracy_lost(earlier, before, after, labels, False)["lost"]) == 1
    assert float(accuracy_lost(earlier, before, before, labels, False)["lost"]) == 0
