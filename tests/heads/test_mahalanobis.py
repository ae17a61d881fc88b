"""Distances in the metric of a class's own correlations, against the authors' code and numbers worked out by hand."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from clare.heads.mahalanobis import MahalanobisHead, MahalanobisSettings, correlations, inverted
from clare.heads.statistics import class_means, unbiased_covariances

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "fecam.safetensors")
BY_HAND = torch.tensor(
    [[3, 1, 0], [2, 2, 1], [4, 0, 1], [3, 2, 2], [0, 3, 1], [1, 4, 0], [0, 2, 2], [1, 3, 3]], dtype=torch.float32
)
SHARES = [(1.0, 0.0), (10.0, 10.0)]


def taught(features: Tensor, labels: Tensor, shares: tuple[float, float], *sizes: int) -> MahalanobisHead:
    """Return a head that has learnt the classes in tasks of these sizes."""
    head = MahalanobisSettings(diagonal_share=shares[0], others_share=shares[1]).make(features.shape[1], 0)
    first = 0
    for size in sizes:
        is_own = (labels >= first) & (labels < first + size)
        own, weights = features[is_own], torch.ones(int(is_own.sum()))
        learning = head.finish(size)
        next(learning)
        solve: Any = learning.send(head.statistic(own, labels[is_own] - first, weights, size))
        with pytest.raises(StopIteration):
            learning.send(solve.function())
        first += size
    return head


@pytest.mark.parametrize("shares", SHARES)
def test_distances_and_correlations_are_the_recorded_ones(shares: tuple[float, float]) -> None:
    tag = f"{shares[0]:.0f}_{shares[1]:.0f}"
    head = taught(GOLDEN["features"], GOLDEN["labels"], shares, 2, 1)
    torch.testing.assert_close(-head.logits(GOLDEN["queries"]), GOLDEN[f"distances_{tag}"], rtol=1e-5, atol=1e-5)
    sums = head.statistic(GOLDEN["features"], GOLDEN["labels"], torch.ones(60), 3)
    found = torch.stack([correlations(covariance, *shares) for covariance in unbiased_covariances(sums)])
    torch.testing.assert_close(found.float(), GOLDEN[f"correlations_{tag}"], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("shares", "expected"), [(SHARES[0], [0.136648, 0.422738]), (SHARES[1], [0.110829, 0.345462])])
def test_two_classes_by_hand(shares: tuple[float, float], expected: list[float]) -> None:
    labels = torch.arange(2).repeat_interleave(4)
    distances = -taught(BY_HAND, labels, shares, 2).logits(torch.tensor([[2, 2, 0.5]]))[0]
    torch.testing.assert_close(distances, torch.tensor(expected), rtol=0, atol=1e-5)
    # Another toolbox's variant, correlations of the covariance's rows, gives these.
    assert not torch.allclose(distances, torch.tensor([0.104199, 0.272893]), atol=1e-3)


def test_one_class_by_hand() -> None:
    head = taught(BY_HAND[:4], torch.zeros(4, dtype=torch.int64), SHARES[0], 1)
    sums = head.statistic(BY_HAND[:4], torch.zeros(4, dtype=torch.int64), torch.ones(4), 1)
    expected = torch.tensor([0.828275, 0.366991, 0.265235], dtype=torch.float64)
    torch.testing.assert_close(class_means(sums)[0], expected, rtol=0, atol=1e-6)
    found = correlations(unbiased_covariances(sums)[0], *SHARES[0])
    expected = torch.tensor([-0.41013, -0.283205, 0.211431], dtype=torch.float64)
    torch.testing.assert_close(found[[0, 0, 1], [1, 2, 2]], expected, rtol=0, atol=1e-5)


def test_one_image_and_a_matrix_without_an_inverse_give_finite_numbers() -> None:
    head = taught(BY_HAND[:1], torch.zeros(1, dtype=torch.int64), SHARES[0], 1)
    assert torch.isfinite(head.logits(BY_HAND)).all()
    singular = torch.ones(2, 2, dtype=torch.float64)
    torch.testing.assert_close(inverted(singular), torch.full((2, 2), 0.25, dtype=torch.float64))
