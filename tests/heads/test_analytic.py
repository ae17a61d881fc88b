"""A regression whose sums take in more of known classes, against numbers worked out by hand."""

import torch

from clare.methods.min import AnalyticSettings


def test_a_regression_by_hand() -> None:
    head = AnalyticSettings(num_projected=3, ridge=0.5).make(3, 0)
    head.projection.copy_(torch.eye(3))
    head.add(torch.tensor([[1.0, 0, 2], [0, 1, 1], [2, 1, 0]]), torch.tensor([0, 1, 0]), 2)
    head.add(torch.tensor([[1.0, 1, 1]]), torch.tensor([0]), 1)
    head.show(torch.tensor([[0.0, 2, 1]]), torch.tensor([2]))
    expected = torch.tensor(
        [[0.449339, -0.129641, 0.156073], [-0.105727, 0.114537, 0.114537], [-0.061674, 0.376337, 0.090623]]
    )
    torch.testing.assert_close(head.solve_at(0.5)[0], expected, rtol=0, atol=1e-6)
    assert head.sums.dtype == head.gram.dtype == torch.float64


def test_the_projection_is_drawn_within_bounds_and_from_the_seed() -> None:
    first, again, other = (AnalyticSettings(num_projected=64).make(8, seed).projection for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert 0.12 < float(first.abs().max()) <= 1 / 8
