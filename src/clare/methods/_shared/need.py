"""What a task's images say of the budget that it needs, as steps over them."""

from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from clare.steps import Loss, Pass, Result, Step
from clare.tuners.adapter import FlatAdapter

PARTS = (0.125, 0.25, 0.5, 1.0)
"""Parts of a budget that are tried, the smallest first."""
ENOUGH = 0.9
"""What a part must reach of the fall in the loss that the whole budget brings."""


def needed_part(losses: Sequence[float]) -> float:
    """Return the smallest part that does nearly what all do, from the loss without and with each of the parts."""
    before, fall = losses[0], losses[0] - losses[-1]
    if fall <= 0:
        return PARTS[0]
    return next(part for part, loss in zip(PARTS, losses[1:], strict=True) if before - loss >= ENOUGH * fall)


def likeness(gradient: Tensor, is_claimed: Tensor) -> float:
    """Return how much more of a squared gradient lies on claimed coordinates than chance puts there, from 0 to 1."""
    squares, by_chance = gradient.double().square(), float(is_claimed.double().mean())
    total = float(squares.sum())
    if total == 0 or by_chance == 1:
        return 0.0
    return max(0.0, (float(squares[is_claimed].sum()) / total - by_chance) / (1 - by_chance))


Finding = Generator[Step, Result, float]
"""Like Learning, and returns a number."""


def find_likeness(adapter: FlatAdapter, loss: Loss, is_claimed: Tensor) -> Finding:
    """Find how much of the gradient on the shared adapter lies on claimed coordinates, beyond chance."""
    if not is_claimed.any():
        return 0.0

    def statistic(images: Tensor, labels: Tensor, weights: Tensor) -> Result:
        values = adapter.values.detach().clone().requires_grad_()
        with torch.enable_grad(), adapter.replaced(values):
            (gradient,) = torch.autograd.grad((loss(images, labels) * weights).sum(), values)
        return {"gradient": gradient.float()}

    found = yield Pass("likeness", statistic, of="images")
    return likeness(found["gradient"], is_claimed)


def find_part(adapter: FlatAdapter, loss: Loss, start: Tensor, moved: Tensor, masks: Sequence[Tensor]) -> Finding:
    """Find how much of a budget a task needs: `masks` mark what each part of it would choose."""
    tried = [start, *(torch.where(mask, moved, start) for mask in masks)]

    def statistic(images: Tensor, labels: Tensor, weights: Tensor) -> Result:
        sums = []
        for values in tried:
            with adapter.replaced(values):
                sums.append((loss(images, labels) * weights).sum().double())
        return {"losses": torch.stack(sums)}

    assert len(masks) == len(PARTS)
    found = yield Pass("need", statistic, of="images")
    return needed_part(found["losses"].tolist())
