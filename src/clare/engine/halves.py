"""Random halves of a batch's classes, and the way that one half's gradient leads."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from clare.engine.ranks import Ranks
from clare.steps import Agreement

Half = tuple[Tensor, Tensor]
"""The weight of each sample, and one over the samples of the half on all ranks."""


class Halves:
    """What is random in gradient-aligned steps, in tensors whose places never change."""

    def __init__(self, agreement: Agreement, parameters: Sequence[nn.Parameter]) -> None:
        self.agreement = agreement
        device = parameters[0].device
        self.keys = torch.zeros(agreement.num_classes, device=device)
        self.length = torch.zeros((), device=device)
        self.moved = [parameter for parameter in parameters if any(parameter is own for own in agreement.parameters)]
        self.is_moved = [any(parameter is own for own in agreement.parameters) for parameter in parameters]

    def draw(self, generator: torch.Generator) -> None:
        """Draw the order of the classes and the length of the way."""
        self.keys.copy_(torch.rand(len(self.keys), generator=generator))
        self.length.copy_(self.agreement.radius * torch.rand((), generator=generator))

    def split(self, labels: Tensor, weights: Tensor, ranks: Ranks) -> tuple[Half, Half, Tensor]:
        """Return both halves of the classes in this step, the first the smaller one, and whether there are two."""
        counts = torch.zeros_like(self.keys).index_add_(0, labels, (weights > 0).to(self.keys.dtype))
        is_here = ranks.sum_(counts) > 0
        is_before = (self.keys[:, None] > self.keys) & is_here
        num_first = (is_here.sum() // 2).clamp(min=1)
        is_first = (is_before.sum(1) < num_first)[labels]
        halves = [torch.where(is_own, weights, 0) for is_own in (is_first, ~is_first)]
        first, second = ((half, 1 / ranks.sum_((half > 0).sum().float()).clamp(min=1)) for half in halves)
        return first, second, is_here.sum() > 1

    def ways(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return where the moved parameters go: against the gradient, each entry of a parameter equally far."""
        chosen = [gradient for gradient, is_moved in zip(gradients, self.is_moved, strict=True) if is_moved]
        norms = [gradient.flatten(1).norm(dim=1) + 1e-12 for gradient in chosen]
        return [
            -self.length * gradient / norm.view(-1, *[1] * (gradient.dim() - 1))
            for gradient, norm in zip(chosen, norms, strict=True)
        ]

    def go(self, ways: Sequence[Tensor], factor: float) -> None:
        """Move the parameters along their ways."""
        for parameter, way in zip(self.moved, ways, strict=True):
            parameter.data.add_(way, alpha=factor)
