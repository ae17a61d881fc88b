"""Budgets and selections, against their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clare.sparse.select import above_quantile, budget_of, select_random, select_top


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(deadline=None)
@given(num_candidates=st.integers(1, 10_000_000), share=st.floats(0, 1))
def test_a_budget_is_the_rounded_share_and_at_least_one(num_candidates: int, share: float) -> None:
    budget = budget_of(num_candidates, share)
    assert 1 <= budget <= num_candidates
    assert abs(budget - share * num_candidates) <= 0.5 or (budget == 1 and share * num_candidates < 0.5)


@pytest.mark.parametrize(
    ("num_candidates", "share", "budget"),
    [
        (0, 0.05, 0),
        (0, 1.0, 0),
        (1, 0.05, 1),
        (9, 0.0, 1),
        (100, 0.05, 5),
        (110, 0.05, 6),
        (7, 1.0, 7),
        (7, 3.0, 7),
        (1_189_632, 1 - 0.95, 59_482),
    ],
)
def test_budgets_by_hand(num_candidates: int, share: float, budget: int) -> None:
    assert budget_of(num_candidates, share) == budget


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[float], list[bool], int]:
    """Scores with many ties and zeros, candidates, and a budget that may be out of reach."""
    size = draw(st.integers(1, 30))
    scores = draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, math.nan]), min_size=size, max_size=size))
    candidates = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return scores, candidates, draw(st.integers(0, size + 2))


@settings(deadline=None, max_examples=200)
@given(pools())
def test_select_top_follows_its_definition(pool: tuple[list[float], list[bool], int]) -> None:
    scores, candidates, budget = pool
    moved = sorted((s for s, free in zip(scores, candidates, strict=True) if free and s > 0), reverse=True)
    reach = min(budget, len(moved))
    threshold = moved[reach - 1] if reach else math.inf
    expected = [free and s >= threshold for s, free in zip(scores, candidates, strict=True)]
    assert select_top(torch.tensor(scores), torch.tensor(candidates), budget).tolist() == expected


def test_ties_at_the_threshold_are_all_taken() -> None:
    scores = torch.tensor([3.0, 1.0, 1.0, 1.0, 0.5, 2.0])
    chosen = select_top(scores, torch.ones(6, dtype=torch.bool), 3)
    assert chosen.tolist() == [True, True, True, True, False, True]


def test_zero_scores_are_not_taken_to_fill_the_budget() -> None:
    scores = torch.tensor([0.0, 0.0, 1e-30, 0.0])
    chosen = select_top(scores, torch.ones(4, dtype=torch.bool), 3)
    assert chosen.tolist() == [False, False, True, False]
    assert not select_top(torch.zeros(4), torch.ones(4, dtype=torch.bool), 3).any()


def test_nan_is_never_taken_and_does_not_displace_a_number() -> None:
    scores = torch.tensor([math.nan, 1.0, 3.0, math.nan, 2.0, math.inf])
    chosen = select_top(scores, torch.ones(6, dtype=torch.bool), 3)
    assert chosen.tolist() == [False, False, True, False, True, True]


def test_a_high_score_outside_the_candidates_counts_for_nothing() -> None:
    scores = torch.tensor([9.0, 1.0, 2.0])
    chosen = select_top(scores, torch.tensor([False, True, True]), 1)
    assert chosen.tolist() == [False, False, True]


def test_an_exhausted_pool_gives_an_empty_mask() -> None:
    nothing = torch.zeros(5, dtype=torch.bool)
    for chosen in (select_top(torch.ones(5), nothing, 2), select_random(nothing, 2, generator())):
        assert chosen.dtype == torch.bool
        assert chosen.tolist() == [False] * 5


@settings(deadline=None, max_examples=30)
@given(sparsity=st.sampled_from([0.0, 0.5, 0.9, 0.95, 0.99]), num_coordinates=st.integers(1, 3000), seed=st.integers())
def test_tasks_are_disjoint_and_the_pool_shrinks_geometrically(
    sparsity: float, num_coordinates: int, seed: int
) -> None:
    source = generator(seed % 2**32)
    free = torch.ones(num_coordinates, dtype=torch.bool)
    taken = torch.zeros(num_coordinates, dtype=torch.long)
    for task in range(1, 61):
        num_free = int(free.sum())
        budget = budget_of(num_free, 1 - sparsity)
        # Distinct scores, so that no tie adds to the budget.
        scores = 1 + torch.randperm(num_coordinates, generator=source).float()
        chosen = select_top(scores, free, budget)
        taken += chosen
        free = free & ~chosen
        assert int(chosen.sum()) == budget
        assert int(free.sum()) == num_free - budget
        if (1 - sparsity) * num_free >= 0.5:
            # Each task rounds by at most a half, and later tasks shrink earlier roundings by the sparsity.
            used = 1 - int(free.sum()) / num_coordinates
            assert abs(used - (1 - sparsity**task)) <= 0.5 / (1 - sparsity) / num_coordinates + 1e-9
    assert int(taken.max()) <= 1


def test_the_published_schedule() -> None:
    num_free = 1_189_632
    shares = {}
    for task in range(1, 101):
        num_free -= budget_of(num_free, 1 - 0.95)
        shares[task] = 1 - num_free / 1_189_632
    assert [round(shares[task], 3) for task in (10, 50, 100)] == [0.401, 0.923, 0.994]


@settings(deadline=None)
@given(candidates=st.lists(st.booleans(), min_size=1, max_size=50), budget=st.integers(0, 60), seed=st.integers(0, 9))
def test_a_random_mask_has_the_exact_count_and_only_candidates(candidates: list[bool], budget: int, seed: int) -> None:
    mask = torch.tensor(candidates)
    chosen = select_random(mask, budget, generator(seed))
    assert int(chosen.sum()) == min(budget, sum(candidates))
    assert not (chosen & ~mask).any()
    assert torch.equal(chosen, select_random(mask, budget, generator(seed)))


def test_a_random_mask_depends_on_the_seed_and_is_uniform() -> None:
    mask = torch.ones(20, dtype=torch.bool)
    mask[::2] = False
    draws = torch.stack([select_random(mask, 3, generator(seed)) for seed in range(400)])
    frequency = draws.double().mean(0)[mask]
    # 0.3 expected, standard error 0.023: five of them.
    assert float((frequency - 0.3).abs().max()) < 0.115
    assert len({tuple(draw) for draw in draws.tolist()}) > 50


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.floats(0, 1))
def test_what_is_above_a_quantile_is_above_numpys(sizes: list[int], share: float) -> None:
    expected = np.array(sizes) > np.quantile(sizes, share, method="lower")
    assert above_quantile(torch.tensor(sizes), share).tolist() == expected.tolist()
    between = np.array(sizes) > np.quantile(sizes, share)
    # Between two sizes lies none, so that only rounding tells the interpolated quantile from the lower one.
    assert (expected == between).all() or abs(share * (len(sizes) - 1) % 1 - 0.5) > 0.499
