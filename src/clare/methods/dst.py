"""Dynamic sparse training: a task's mask is found while it is trained, by dropping small numbers and growing others.

Yildirim and others: "Continual Learning with Dynamic Sparse Training" (CPAL 2024). Shapes: N numbers of a layer.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods._shared.masked import MaskedMethod, MaskedSettings
from clare.methods.base import register
from clare.steps import Choosing, Group, Pass, TaskInfo

MOMENTUM = 0.9
"""What of the mean gradient stays from round to round, as from step to step in Adam."""


class DstSettings(MaskedSettings):
    """How dense a network is, and how its mask is moved."""

    defaults: ClassVar[Any] = {"optimize": "adam", "weight_decay": 0.0, "learning_rate": 1e-3}
    density: float = Field(0.2, gt=0, le=1, description="Share of all matrices that a task's network has.")
    distribution: Literal["uniform", "erk"] = Field(
        "uniform", description="The same share of each matrix, or (ERK) one as its rows and columns to its numbers."
    )
    rounds: int = Field(4, ge=1, le=1000, description="Parts of the epochs; between them masks are moved.")
    drop: float = Field(0.5, ge=0, le=1, description="Share of a mask that is dropped first; it falls along a cosine.")
    least_drop: float = Field(0.005, ge=0, le=1, description="Share towards which it falls.")
    grow: Literal["gradient", "momentum", "random", "untried"] = Field(
        "gradient",
        description="What grows: numbers that are steepest now, or were over all rounds so far; any; or any that the "
        "task's mask never had.",
    )


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
        self.mask.copy_(self.first_mask(generator))
        tried, mean = self.mask.clone(), torch.zeros_like(self.values)
        rounds = min(settings.rounds, settings.epochs)
        for index in range(rounds):
            groups = [Group(self.values, mask=free & self.mask, decay_towards=self.outside), *self.head.groups()]
            yield self.phase(f"round {index + 1}", (settings.epochs + index) // rounds, groups)
            if index + 1 < rounds:
                growth = torch.rand(len(free), generator=generator).to(self.values)
                if settings.grow == "untried":
                    growth = growth + ~tried
                elif settings.grow != "random":
                    slopes = (yield Pass("growth", self.slopes, of="images"))["slopes"]
                    mean = MOMENTUM * mean + (1 - MOMENTUM) * slopes if settings.grow == "momentum" else slopes
                    growth = mean.abs()
                share = dropped_share(settings.drop, settings.least_drop, index / (rounds - 1))
                sizes = (self.values - self.outside).abs()
                self.mask.copy_(self.per_layer(partial(moved, share), sizes, self.mask, growth))
                tried |= self.mask
                self.values.copy_(torch.where(free & ~self.mask, self.outside, self.values))
        return self.mask.clone()

    def first_mask(self, generator: torch.Generator) -> Tensor:
        """Draw a mask in which each matrix has its share; all else is marked."""
        shapes = [
            shape for shape, is_matrix in zip(self.tuner.shapes.values(), self.is_matrix, strict=True) if is_matrix
        ]
        density = self.settings.density
        shares = iter(erk(density, shapes) if self.settings.distribution == "erk" else [density] * len(shapes))
        draws = torch.split(torch.rand(len(self.mask), generator=generator).to(self.values), self.layer_sizes)
        every = [next(shares) if is_matrix else 1.0 for is_matrix in self.is_matrix]
        return torch.cat([densest(share, draw) for share, draw in zip(every, draws, strict=True)])

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


def erk(density: float, shapes: Sequence[tuple[int, ...]]) -> list[float]:
    """Return the share of each matrix: in proportion to (rows + columns) / (rows · columns), and none above one."""
    rest, num_left = set(range(len(shapes))), density * sum(map(math.prod, shapes))
    while rest:
        factor = num_left / sum(sum(shapes[place]) for place in rest)
        full = {place for place in rest if factor * sum(shapes[place]) > math.prod(shapes[place])}
        if not full:
            break
        # What they cannot hold falls to the others.
        rest, num_left = rest - full, num_left - sum(math.prod(shapes[place]) for place in full)
    return [factor * sum(shape) / math.prod(shape) if place in rest else 1.0 for place, shape in enumerate(shapes)]


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
