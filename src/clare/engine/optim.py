"""Optimisers on groups with masks: what is outside a mask keeps every bit."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from clare.errors import SettingsError
from clare.sparse.select import above_quantile
from clare.sparse.update import PROXIMAL, held, held_in_groups, penalty_gradient, write_masked
from clare.steps import Adam, Group, Optimizer, Schedule, Sgd, Steepest


def scheduled_rate(base: float, schedule: Schedule, epoch: float, epochs: float) -> float:
    """Return the learning rate after so many epochs, or parts of them."""
    if schedule == "constant":
        return base
    if schedule in ("cosine", "cosine-steps"):
        return 0.5 * base * (1 + math.cos(math.pi * epoch / epochs))
    # CODA-Prompt's and InfLoRA's: 99 per cent of a quarter turn, and the second epoch keeps the rate of the first.
    return base * math.cos(0.99 * math.pi / 2 * max(epoch - 1, 0) / max(epochs - 1, 1))


def rate_at(optimizer: Optimizer, epoch: float, epochs: int, num_batches: int = 1) -> float:
    """Return the learning rate of a phase after so many epochs, or parts of them."""
    base = optimizer.learning_rate
    if isinstance(optimizer, Sgd):
        least, epoch = optimizer.least_rate, optimizer.start + epoch
        rate = least + scheduled_rate(base - least, optimizer.schedule, epoch, optimizer.turn or epochs)
        return float(rate * 0.1 ** sum(epoch >= milestone for milestone in optimizer.milestones))
    # A task of few steps would be over before it had begun.
    step, warm_up = round(epoch * num_batches), min(optimizer.warm_up, epochs * num_batches // 2)
    if step < warm_up:
        return base * (step + 1) / warm_up
    return scheduled_rate(base, optimizer.schedule, epoch - warm_up / num_batches, epochs - warm_up / num_batches)


def direction_of(group: Group, gradient: Tensor, weight_decay: float) -> Tensor:
    """Return the gradient with the pulls of decay and penalty; a proximal penalty is applied after the step."""
    value, direction = group.parameter.data, gradient
    if weight_decay:
        towards = value if group.decay_towards is None else value - group.decay_towards
        direction = direction + weight_decay * towards
    penalty = group.penalty
    if penalty is not None and penalty.form not in PROXIMAL:
        direction = direction + penalty_gradient(value - penalty.anchor, penalty.weight, penalty.form, penalty.turn)
    return direction


def sgd_update(group: Group, gradient: Tensor, momentum: Tensor, rate: Tensor, settings: Sgd) -> None:
    """Apply one step of SGD with decay, momentum and penalty, inside the group's mask only."""
    value, penalty = group.parameter.data, group.penalty
    momentum.mul_(settings.momentum).add_(direction_of(group, gradient, settings.weight_decay))
    moved = value - rate * momentum
    if penalty is not None and penalty.form in PROXIMAL:
        # Momentum multiplies the pull of a subgradient by 1 / (1 - momentum) in the long run; so does this threshold.
        threshold = rate * penalty.weight / (1 - settings.momentum)
        if penalty.norms is None:
            moved = held(moved, penalty.anchor, threshold)
        else:
            mask = torch.ones_like(value, dtype=torch.bool) if group.mask is None else group.mask
            moved = held_in_groups(moved, penalty.anchor, mask, threshold, penalty.norms)
    write_masked(value, moved, group.mask)


def adam_update(
    group: Group, gradient: Tensor, mean: Tensor, square: Tensor, count: Tensor, rate: Tensor, settings: Adam
) -> None:
    """Apply one step of Adam with decay and penalty, inside the group's mask only; `count` includes this step."""
    direction = direction_of(group, gradient, 0.0 if settings.decoupled else settings.weight_decay)
    beta_mean, beta_square = settings.betas
    mean.lerp_(direction, 1 - beta_mean)
    square.mul_(beta_square).addcmul_(direction, direction, value=1 - beta_square)
    size = square.sqrt() / (1 - beta_square**count).sqrt() + settings.epsilon
    value = group.parameter.data
    start = value - rate * settings.weight_decay * value if settings.decoupled else value
    moved = start - rate / (1 - beta_mean**count) * mean / size
    write_masked(group.parameter.data, moved, group.mask)


def clip_gradients(gradients: Sequence[Tensor], norm: float) -> list[Tensor]:
    """Return the gradients, shortened together where their common norm is larger than the given one."""
    total = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    factor = (norm / (total + 1e-6)).clamp(max=1)
    return [gradient * factor for gradient in gradients]


def steepest(gradient: Tensor, choice: Steepest) -> Tensor:
    """Mark in each layer the share of numbers whose gradients are the largest."""
    layers = torch.split(gradient.abs(), list(choice.sizes))
    return torch.cat([above_quantile(layer, 1 - choice.share) for layer in layers])


class MaskedOptimizer:
    """The optimiser of one phase; its state are tensors that stay in place, and the rate is one of them."""

    def __init__(self, groups: list[Group], settings: Optimizer) -> None:
        self.groups, self.settings = groups, settings
        self.rate = torch.zeros((), device=groups[0].parameter.device)
        names = ("momentum",) if isinstance(settings, Sgd) else ("mean", "square")
        self.state = {
            f"{name}.{i}": torch.zeros_like(group.parameter.data) for i, group in enumerate(groups) for name in names
        }
        if isinstance(settings, Adam):
            self.state["count"] = torch.zeros_like(self.rate)
            if any(group.penalty and group.penalty.form in PROXIMAL for group in groups):
                raise SettingsError("Adam has no threshold for a proximal penalty; use l1-subgradient or SGD")

        # Beside the numbers that move, how many steps were taken; numbers, as all that is rewound and compared.
        for i, group in enumerate(groups):
            if group.steepest is not None:
                self.state[f"moves.{i}"] = torch.zeros_like(group.parameter.data)
                self.state[f"steps.{i}"] = torch.zeros_like(self.rate)

    def reset(self) -> None:
        """Forget all steps taken so far."""
        for tensor in self.state.values():
            tensor.zero_()

    def set_rate(self, rate: float) -> None:
        """Write the learning rate into its tensor, so that a recorded step sees it."""
        self.rate.fill_(rate)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Update every group from its gradient."""
        if isinstance(self.settings, Adam):
            self.state["count"] += 1
        for i, (group, gradient) in enumerate(zip(self.groups, gradients, strict=True)):
            rate = self.rate * group.rate_factor
            if group.steepest is not None:
                gradient = self._steep(i, group, group.steepest, gradient)
            if isinstance(self.settings, Sgd):
                sgd_update(group, gradient, self.state[f"momentum.{i}"], rate, self.settings)
            else:
                mean, square, count = self.state[f"mean.{i}"], self.state[f"square.{i}"], self.state["count"]
                adam_update(group, gradient, mean, square, count, rate, self.settings)

    def _steep(self, place: int, group: Group, choice: Steepest, gradient: Tensor) -> Tensor:
        """Return a gradient where it is steepest, or was when that was last chosen, and zero elsewhere."""
        moves, steps = self.state[f"moves.{place}"], self.state[f"steps.{place}"]
        inside = gradient if group.mask is None else torch.where(group.mask, gradient, 0)
        moves.copy_(torch.where(steps % choice.every == 0, steepest(inside, choice), moves))
        steps += 1
        return inside * moves

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Load a saved state."""
        for name, tensor in self.state.items():
            tensor.copy_(tensors[name])
