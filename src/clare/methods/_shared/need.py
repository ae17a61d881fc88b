"""What a task's images say of the budget that it needs, and of what it costs earlier classes, as steps over them."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clare.heads.drift import accuracy_lost
from clare.methods.base import Method
from clare.steps import Collect, Loss, Notice, Pass, Result, Solve, Step
from clare.tuners.adapter import FlatAdapter

PARTS = (0.125, 0.25, 0.5, 1.0)
"""Parts of a budget that are tried, the smallest first."""
ENOUGH = 0.9
"""What a part must reach of the fall in the loss that the whole budget brings."""

LENGTHS = (1.0, 0.5, 0.25, 0.125)
"""Parts of a task's way that are tried, the longest first."""
HOPELESS = 0.25
"""A cost from which on nothing of a way is gone: features so far away say little of where a shorter one ends."""


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


@dataclass
class Trust:
    """A trust region: a task that costs earlier classes too much is shortened along its way, or taken back."""

    limit: float
    follows: bool
    shared: Tensor
    before: Result
    found: dict[str, Any] = field(default_factory=dict)
    """What the record keeps."""

    def hold(self, method: Method, adapter: FlatAdapter, chosen: Tensor) -> Generator[Step, Result, Tensor]:
        """Leave the adapter at the longest part of the way that is within the limit, and return what is claimed."""
        trained, lost, head = adapter.values.detach().clone(), [], method.head
        for length in LENGTHS:
            adapter.values.copy_(torch.where(chosen, self.shared.lerp(trained, length), self.shared))
            after = yield Collect("trusted features", method.features)
            moves = (head.seen(self.before["values"]), head.seen(after["values"]), after["labels"])
            found = yield Solve("trust", partial(accuracy_lost, head.centres, *moves, self.follows))
            lost.append(float(found["lost"]))
            if lost[-1] <= self.limit or lost[-1] > HOPELESS:
                break
        if lost[-1] > self.limit:
            adapter.values.copy_(self.shared)
            length, chosen = 0.0, torch.zeros_like(chosen)
        self.found = {"length": length, "lost": lost}
        if length < 1:
            done = f"goes {length:.0%} of its way" if length else "is taken back, and only the head learns its classes"
            yield Notice(f"about {lost[0]:.0%} of what is known of earlier classes would be lost: the task {done}")
        return chosen
