"""What a task's images say of the budget that it needs, as steps over them."""

from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from clare.sparse.need import PARTS, likeness, needed_part
from clare.steps import Loss, Pass, Result, Step
from clare.tuners.adapter import FlatAdapter

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
