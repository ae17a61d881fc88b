"""Margins, Gaussians and logits of published alignments, against numbers worked out by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clare.heads.alignment import decoupled, margin_logits, mean_factors, ridged_factors, task_norms
from clare.heads.statistics import class_sums

TASKS = torch.tensor([0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize(("margin", "expected"), [(0.0, [0.000001, 0.018195]), (0.3, [0.000336, 2.129109])])
def test_cosface_by_hand(margin: float, expected: list[float]) -> None:
    cosines, labels = torch.tensor([[0.8, 0.1, -0.2], [0.3, 0.5, 0.0]]), torch.tensor([0, 1])
    losses = F.cross_entropy(margin_logits(20 * cosines, labels, 20 * margin), labels, reduction="none")
    torch.testing.assert_close(losses, torch.tensor(expected), rtol=0, atol=1e-6)


def test_older_means_are_drawn_in() -> None:
    rising = torch.tensor([0.933333, 0.933333, 0.966667, 0.966667, 1, 1])
    torch.testing.assert_close(mean_factors(TASKS, "older"), rising, rtol=0, atol=1e-6)
    assert mean_factors(TASKS, "none").tolist() == [1] * 6
    # Of tasks of other sizes too, a class has the factor of its own task.
    factors = mean_factors(torch.tensor([0, 0, 0, 1]), "older")
    torch.testing.assert_close(factors, torch.tensor([0.95, 0.95, 0.95, 1]))


def test_newer_means_are_drawn_in_as_some_code_has_it() -> None:
    falling = torch.tensor([0.933333, 0.9, 0.9, 0.866667, 0.866667, 0.833333])
    torch.testing.assert_close(mean_factors(TASKS, "newer"), falling, rtol=0, atol=1e-6)


def test_decoupled_logits_by_hand() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5, -1.0]])
    found = decoupled(logits, TASKS[:4], 0.1)
    torch.testing.assert_close(task_norms(logits, TASKS[:4]), torch.tensor([[1.677051]]), rtol=0, atol=1e-6)
    expected = torch.tensor([[5.962848, 11.925695, 2.981424, -5.962848]])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    losses = [float(F.cross_entropy(found, torch.tensor([label]))) for label in (1, 0)]
    assert losses == pytest.approx([0.002699, 5.965547], abs=1e-5)


def test_ridged_factors_are_roots_of_the_unbiased_covariance() -> None:
    features = torch.randn(7, 4, generator=torch.Generator().manual_seed(0)) + 3
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    factors = ridged_factors(class_sums(features, labels, torch.ones(7), 2, outer=True), 1e-3)
    for label in (0, 1):
        expected = np.cov(features[labels == label].double().numpy().T) + 1e-3 * np.eye(4)
        np.testing.assert_allclose((factors[label] @ factors[label].T).numpy(), expected, atol=1e-9)


def test_variances_alone_make_diagonal_factors() -> None:
    features = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)).double()
    sums = class_sums(features, torch.zeros(9, dtype=torch.int64), torch.ones(9), 1, outer=True)
    factors = ridged_factors(sums, 0.01, diagonal=True)[0]
    torch.testing.assert_close(factors, (features.var(0) + 0.01).sqrt().diag())


def test_one_image_leaves_the_ridge_alone() -> None:
    sums = class_sums(torch.tensor([[100.0, -3.0]]), torch.tensor([0]), torch.ones(1), 1, outer=True)
    expected = 0.1 * torch.eye(2, dtype=torch.float64)
    torch.testing.assert_close(ridged_factors(sums, 0.01)[0], expected, rtol=0, atol=1e-6)
