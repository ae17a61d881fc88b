"""Stochastic gradient descent on groups with masks: what is outside a mask keeps every bit."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from clare.sparse.update import penalty_gradient, soft_threshold, write_masked
from clare.steps import Group, Sgd


def cosine_rate(base: float, epoch: int, epochs: int) -> float:
    """Return the learning rate of an epoch: cosine from the base at epoch 0 to zero at the end."""
    return 0.5 * base * (1 + math.cos(math.pi * epoch / epochs))


def sgd_update(group: Group, gradient: Tensor, momentum: Tensor, rate: Tensor, settings: Sgd) -> None:
    """Apply one step of SGD with decay, momentum and penalty, inside the group's mask only."""
    value = group.parameter.data
    direction = gradient
    if settings.weight_decay:
        towards = value if group.decay_towards is None else value - group.decay_towards
        direction = direction + settings.weight_decay * towards
    penalty = group.penalty
    if penalty is not None and penalty.form != "l1-proximal":
        direction = direction + penalty_gradient(value - penalty.anchor, penalty.weight, penalty.form)
    momentum.mul_(settings.momentum).add_(direction)
    moved = value - rate * momentum
    if penalty is not None and penalty.form == "l1-proximal":
        # Momentum multiplies the pull of a subgradient by 1 / (1 - momentum) in the long run; so does this threshold.
        threshold = rate * penalty.weight / (1 - settings.momentum)
        offset = soft_threshold(moved - penalty.anchor, threshold)
        # Not anchor + offset alone: a coordinate that did not move must be the anchor to the bit.
        moved = torch.where(offset == 0, penalty.anchor, penalty.anchor + offset)
    write_masked(value, moved, group.mask)


class MaskedSgd:
    """The optimiser of one phase; its state is one momentum tensor per group and a rate on the device."""

    def __init__(self, groups: list[Group], settings: Sgd) -> None:
        self.groups = groups
        self.settings = settings
        self.momenta = [torch.zeros_like(group.parameter.data) for group in groups]
        self.rate = torch.zeros((), device=groups[0].parameter.device)

    def set_rate(self, rate: float) -> None:
        """Write the learning rate into its tensor, so that a captured step sees it."""
        self.rate.fill_(rate)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Update every group from its gradient."""
        for group, gradient, momentum in zip(self.groups, gradients, self.momenta, strict=True):
            sgd_update(group, gradient, momentum, self.rate, self.settings)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by name, for a checkpoint."""
        return {f"momentum.{i}": momentum for i, momentum in enumerate(self.momenta)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Load the state that `tensors` returned."""
        for i, momentum in enumerate(self.momenta):
            momentum.copy_(tensors[f"momentum.{i}"])
