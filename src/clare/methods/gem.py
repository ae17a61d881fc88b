"""GEM: a step may not raise the loss on the kept pictures of any earlier task.

Lopez-Paz, Ranzato: "Gradient Episodic Memory for Continual Learning" (NeurIPS 2017). Shapes: N numbers, G earlier
tasks.
"""

from functools import partial
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from clare.methods._shared.replayed import MemorySettings, ReplayMethod, ReplaySettings
from clare.methods.base import register
from clare.steps import Correction

NUM_ROUNDS = 100
"""Rounds of coordinate descent, after which nothing moves any more; as many for every step, so that it is recorded."""


class GemSettings(ReplaySettings):
    """The recipe without momentum and decay, and how far a step goes towards earlier tasks."""

    defaults: ClassVar[Any] = {
        "momentum": 0.0,
        "weight_decay": 0.0,
        "memory": MemorySettings(choice="balanced"),
    }
    margin: float = Field(
        0.5, ge=0, le=10, description="Least part of each earlier task's gradient that is added once any is harmed."
    )
    ridge: float = Field(1e-3, ge=0, le=1, description="Added to the diagonal of the gradients' products.")


@register
class Gem(ReplayMethod):
    """Steps that do no harm to any earlier task."""

    name = "gem"
    summary = "bends each step so that it raises the loss on the kept pictures of no earlier task"
    settings: GemSettings

    def pools(self, every: Tensor) -> tuple[Tensor, ...]:
        """Put a kept picture of every earlier task beside every image."""
        sizes = torch.tensor([len(task) for task in self.tasks])
        tasks = torch.repeat_interleave(sizes)[self.kept[1].cpu()]
        # A reservoir may have lost all pictures of a task.
        return tuple((tasks == task).nonzero().squeeze(1) for task in sorted(set(tasks.tolist())))

    def correction(self, num_pools: int) -> Correction:
        """Bend a step so that it raises the loss on the pictures of no earlier task."""
        losses = tuple(partial(self.loss_at, place) for place in range(1, 1 + num_pools))
        return Correction("gem", losses, partial(bent, margin=self.settings.margin, ridge=self.settings.ridge))


def bent(gradient_N: Tensor, others_GN: Tensor, margin: float, ridge: float) -> Tensor:
    """Return the gradient nearest to this one that points against none of the others, pushed towards them by a margin.

    The dual min ½ vᵀPv + qᵀv over v ≥ margin, P = MMᵀ + ridge, q = Mg, is solved coordinate by coordinate; the gradient
    is g + Mᵀv, or g as it is where it harms nobody.
    """
    products = others_GN @ others_GN.T
    products.diagonal().add_(ridge)
    harm = others_GN @ gradient_N
    sizes = products.diagonal().clamp(min=torch.finfo(products.dtype).tiny)
    weights = torch.full_like(harm, margin)
    for _ in range(NUM_ROUNDS):
        for place in range(len(harm)):
            slope = products[place] @ weights + harm[place]
            weights[place] = (weights[place] - slope / sizes[place]).clamp(min=margin)
    return gradient_N + torch.where((harm < 0).any(), others_GN.T @ weights, 0)
