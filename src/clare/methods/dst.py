"""Dynamic sparse training: a task's mask is found while it is trained, by dropping small numbers and growing others.

Yildirim and others: "Continual Learning with Dynamic Sparse Training" (CPAL 2024). Shapes: N numbers of a layer.
"""

import math
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods._shared.masked import MaskedMethod, MaskedSettings
from clare.methods.base import register
from clare.steps import Choosing, Group, Pass, TaskInfo


class DstSettings(MaskedSettings):
    """How dense a network is, and how its mask is moved."""

    defaults: ClassVar[Any] = {"optimize": "adam", "weight_decay": 0.0, "learning_rate": 1e-3}
    density: float = Field(0.2, gt=0, le=1, description="Share of each layer that a task's network has.")
    rounds: int = Field(4, ge=1, le=1000, description="Parts of the epochs; between them masks are moved.")
    drop: float = Field(0.5, ge=0, le=1, description="Share of a mask that is dropped first; it falls along a cosine.")
    least_drop: float = Field(0.005, ge=0, le=1, description="Share towards which it falls.")
    grow: Literal["gradient", "random"] = Field("gradient", description="What grows: steepest numbers, or any.")


@register
class DynamicSparse(MaskedMethod):
    """Networks that overlap, each as dense as the others; what an earlier task has is used and never changed."""

    name = "dst"
    summary = "moves each task's sparse mask while it trains, from small numbers to steep ones"
    settings_type = DstSettings
    settings: DstSettings
    mask: Tensor

    def __init__(self, backbone: Backbone, settings: DstSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed, settings.outside)
        self.register_buffer("mask", torch.zeros_like(self.values, dtype=torch.bool), persistent=False)

    def find_mask(self, task: TaskInfo) -> Choosing:
        """Train the free numbers in a random mask, and move the mask between the rounds."""
        settings, free, generator = self.settings, self.free, task.generator("mask")
        draw = torch.rand(len(free), generator=generator).to(self.values)
        self.mask.copy_(self.per_layer(partial(densest, settings.density), draw))
        rounds = min(settings.rounds, settings.epochs)
        for index in range(rounds):
            groups = [Group(self.values, mask=free & self.mask, decay_towards=self.outside), *self.head.groups()]
            yield self.phase(f"round {index + 1}", (settings.epochs + index) // rounds, groups)
            if index + 1 < rounds:
                growth = torch.rand(len(free), generator=generator).to(self.values)
                if settings.grow == "gradient":
                    growth = (yield Pass("growth", self.slopes, of="images"))["slopes"].abs()
                share = dropped_share(settings.drop, settings.least_drop, index / (rounds - 1))
                sizes = (self.values - self.outside).abs()
                self.mask.copy_(self.per_layer(partial(moved, share), sizes, self.mask, growth))
                self.values.copy_(torch.where(free & ~self.mask, self.outside, self.values))
        return self.mask.clone()

    def running(self) -> Tensor:
        """Return the numbers inside the mask, and what stands in for those outside."""
        return torch.where(self.mask, self.values, self.outside)

    def slopes(self, images: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """Return the gradient of the loss in all numbers, those outside the mask too."""
        values = self.running().requires_grad_()
        with torch.enable_grad():
            losses = self.head.block_loss(self.features_of(images, values), labels)
            return {"slopes": torch.autograd.grad((losses * weights).sum(), values)[0]}


def densest(density: float, draw_N: Tensor) -> Tensor:
    """Mark the share of a layer that drew the largest numbers."""
    chosen = draw_N.topk(max(1, round(density * len(draw_N)))).indices
    return torch.zeros_like(draw_N, dtype=torch.bool).scatter(0, chosen, True)


def dropped_share(first: float, least: float, position: float) -> float:
    """Return the share of a mask that is dropped at a place in training, from 0 for its start to 1 for its end."""
    return least + (first - least) * (1 + math.cos(math.pi * position)) / 2


def moved(share: float, sizes_N: Tensor, mask_N: Tensor, growth_N: Tensor) -> Tensor:
    """Return a layer's mask without its smallest numbers, and with as many others that grow most."""
    number = math.ceil(share * int(mask_N.sum()))
    dropped = sizes_N.masked_fill(~mask_N, torch.inf).topk(number, largest=False).indices
    kept = mask_N.scatter(0, dropped, False)
    grown = growth_N.masked_fill(kept, -torch.inf).topk(number).indices
    return kept.scatter(0, grown, True)
