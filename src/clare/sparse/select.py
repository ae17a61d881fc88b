"""Choose coordinates under a budget; masks are booleans over all N coordinates."""

import math

import torch
from torch import Tensor


def budget_of(num_candidates: int, share: float) -> int:
    """Return round(share * candidates), at least one and at most all when there is any."""
    if num_candidates == 0:
        return 0
    return min(num_candidates, max(1, round(share * num_candidates)))


def select_top(scores: Tensor, candidates: Tensor, budget: int, unmoved: bool = False) -> Tensor:
    """Mark the candidates whose score reaches the budget-th largest; ties are all taken, zero scores only on demand."""
    moved = candidates if unmoved else candidates & (scores > 0)
    budget = min(budget, int(moved.sum()))
    if budget == 0:
        return torch.zeros_like(candidates)
    threshold = scores[moved].topk(budget, sorted=True).values[-1]
    return moved & (scores >= threshold)


def above_quantile(sizes: Tensor, share: float) -> Tensor:
    """Mark what is larger than the quantile below which this share lies, whether between two sizes or on one."""
    return sizes > sizes.kthvalue(1 + math.floor(share * (len(sizes) - 1))).values


def select_random(candidates: Tensor, budget: int, generator: torch.Generator) -> Tensor:
    """Mark as many candidates as the budget says, drawn uniformly without replacement."""
    positions = candidates.nonzero().squeeze(1)
    drawn = torch.randperm(len(positions), generator=generator)[:budget].to(positions.device)
    chosen = torch.zeros_like(candidates)
    chosen[positions[drawn]] = True
    return chosen
