"""Batches cover every sample once, with one shape everywhere."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clare.engine.images import batches


@settings(deadline=None, max_examples=150)
@given(
    num_samples=st.integers(0, 60),
    batch_size=st.integers(1, 25),
    world_size=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_ranks_share_every_batch_without_overlap(num_samples: int, batch_size: int, world_size: int, seed: int) -> None:
    order = torch.randperm(num_samples, generator=torch.Generator().manual_seed(seed))
    ranks = [list(batches(order, batch_size, rank, world_size)) for rank in range(world_size)]
    num_batches = -(-num_samples // batch_size)
    share = -(-batch_size // world_size)
    assert [len(parts) for parts in ranks] == [num_batches] * world_size
    for index in range(num_batches):
        parts = [rank[index] for rank in ranks]
        whole = order[index * batch_size : (index + 1) * batch_size].tolist()
        assert all(part.positions.shape == part.weights.shape == (share,) for part in parts)
        real = [int(p) for part in parts for p, w in zip(part.positions, part.weights, strict=True) if w == 1]
        assert sorted(real) == sorted(whole)
        assert {float(weight) for part in parts for weight in part.weights} <= {0.0, 1.0}
        assert sum(float(part.weights.sum()) for part in parts) == len(whole)
        assert {part.num_samples for part in parts} == {len(whole)}


@settings(deadline=None, max_examples=50)
@given(num_samples=st.integers(1, 40), batch_size=st.integers(1, 50), world_size=st.integers(1, 4))
def test_padding_repeats_a_sample_that_exists(num_samples: int, batch_size: int, world_size: int) -> None:
    order = torch.arange(100, 100 + num_samples)
    for rank in range(world_size):
        for batch in batches(order, batch_size, rank, world_size):
            assert set(batch.positions[batch.weights == 0].tolist()) <= {100}


def test_the_mean_over_ranks_is_the_mean_over_samples() -> None:
    values = torch.randn(11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    order = torch.arange(11)
    for world_size in (1, 2, 3):
        parts = [batch for rank in range(world_size) for batch in batches(order, 11, rank, world_size)]
        mean = sum((values[part.positions] * part.weights).sum() / part.num_samples for part in parts)
        torch.testing.assert_close(mean, values.mean())
