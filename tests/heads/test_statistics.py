"""Class sums, means and Gaussians against numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clare.heads.statistics import class_means, class_sums, gaussian_factors


def sample(num_samples: int, num_features: int, seed: int = 0) -> Tensor:
    return torch.randn(num_samples, num_features, generator=torch.Generator().manual_seed(seed))


def test_sums_by_hand_with_padding() -> None:
    features = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [100.0, 100.0]])
    labels, weights = torch.tensor([0, 2, 0, 0]), torch.tensor([1.0, 1.0, 1.0, 0.0])
    sums = class_sums(features, labels, weights, 3, outer=True)
    assert sums["count"].tolist() == [2, 0, 1]
    assert sums["sum"].tolist() == [[6, 8], [0, 0], [3, 4]]
    assert sums["outer"].tolist() == [[[26, 32], [32, 40]], [[0, 0], [0, 0]], [[9, 12], [12, 16]]]
    assert {tensor.dtype for tensor in sums.values()} == {torch.float64}
    assert class_means(sums)[[0, 2]].tolist() == [[3, 4], [3, 4]]


def test_outer_products_are_made_only_when_asked() -> None:
    sums = class_sums(sample(3, 2), torch.tensor([0, 1, 0]), torch.ones(3), 2, outer=False)
    assert set(sums) == {"count", "sum"}


@settings(deadline=None, max_examples=40)
@given(cut=st.integers(0, 20), padding=st.integers(0, 5), seed=st.integers(0, 99))
def test_sums_add_up_over_batches_whatever_the_padding(cut: int, padding: int, seed: int) -> None:
    features, labels = sample(20, 3, seed), torch.arange(20) % 4
    whole = class_sums(features, labels, torch.ones(20), 4, outer=True)

    def padded(part: slice) -> dict[str, Tensor]:
        rows = torch.cat([features[part], features[:1].repeat(padding, 1)])
        weights = torch.cat([torch.ones(len(rows) - padding), torch.zeros(padding)])
        return class_sums(rows, torch.cat([labels[part], labels[:1].repeat(padding)]), weights, 4, outer=True)

    first, second = padded(slice(0, cut)), padded(slice(cut, 20))
    for name, tensor in whole.items():
        torch.testing.assert_close(first[name] + second[name], tensor)


@pytest.mark.parametrize("shrinkage", [0.0, 0.2, 1.0])
def test_factors_reproduce_the_shrunk_covariance_of_numpy(shrinkage: float) -> None:
    features, labels = sample(60, 4) * torch.tensor([1.0, 2.0, 0.5, 3.0]) + 5, torch.arange(60) % 2
    sums = class_sums(features, labels, torch.ones(60), 2, outer=True)
    factors = gaussian_factors(sums, shrinkage)
    for label in range(2):
        own = features[labels == label].double().numpy()
        np.testing.assert_allclose(class_means(sums)[label].numpy(), own.mean(0), rtol=1e-12)
        covariance = np.cov(own, rowvar=False, bias=True)
        identity = np.eye(4) * np.trace(covariance) / 4
        expected = (1 - shrinkage) * covariance + shrinkage * identity
        factor = factors[label].numpy()
        np.testing.assert_allclose(factor @ factor.T, expected, rtol=1e-5, atol=1e-5)
        assert np.array_equal(factor, np.tril(factor))


@pytest.mark.parametrize("shrinkage", [0.0, 0.2])
@pytest.mark.parametrize("spread", [0.0, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("num_samples", [1, 3])
def test_few_or_alike_features_still_have_factors(num_samples: int, spread: float, shrinkage: float) -> None:
    """A class of fewer images than features has a covariance without full rank, and rounding makes it worse."""
    features = 10 * sample(1, 192) + 10 * spread * sample(num_samples, 192, seed=1)
    sums = class_sums(features, torch.zeros(num_samples, dtype=torch.long), torch.ones(num_samples), 1, outer=True)
    factors = gaussian_factors(sums, shrinkage)
    assert bool(torch.isfinite(factors).all())
    covariance = np.cov(features.double().numpy(), rowvar=False, bias=True)
    identity = np.eye(192) * np.trace(covariance) / 192
    expected = (1 - shrinkage) * covariance + shrinkage * identity
    tolerance = 1e-4 * expected.max() + 1e-8
    np.testing.assert_allclose((factors[0] @ factors[0].T).numpy(), expected, rtol=1e-4, atol=tolerance)
