"""Hard-concrete gates against the published numbers and by their definition."""

import pytest
import torch

from clare.sparse.gates import Gates, log_alphas, open_chance, sampled_gates, settled_gates


def test_the_penalty_at_log_alpha_zero_is_the_published_one() -> None:
    assert float(open_chance(torch.zeros((), dtype=torch.float64))) == pytest.approx(0.831822, abs=5e-7)


def test_gates_are_open_as_often_as_the_penalty_says() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for log_alpha in (-2.0, 0.0, 3.0):
            drawn = sampled_gates(torch.full((100_000,), log_alpha))
            assert float(drawn.min()) >= 0
            assert float(drawn.max()) <= 1
            expected = float(open_chance(torch.tensor(log_alpha)))
            assert float((drawn > 0).float().mean()) == pytest.approx(expected, abs=0.006)
    assert settled_gates(torch.tensor([-9.0, 0.0, 9.0])).tolist() == [0.0, 0.5, 1.0]


def test_movement_passes_within_the_mask_only() -> None:
    gates = Gates(3)
    gates.begin(torch.zeros(3), torch.tensor([True, True, False]))
    gates.trained.data.copy_(torch.tensor([-1.0, 1.0, -1.0]))
    assert log_alphas(gates.trained).tolist() == [-98.0, 102.0, -98.0]
    values = torch.tensor([5.0, 6.0, 7.0])
    assert gates.settled(values).tolist() == gates.sampled(values).tolist() == [0.0, 6.0, 7.0]
    assert not gates.state_dict()
    gates.begin(torch.ones(3), torch.ones(3, dtype=torch.bool))
    assert gates.trained.tolist() == [0.0, 0.0, 0.0]
