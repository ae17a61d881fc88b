"""PackNet: a task trains all that is free, gives most of it back, and trains what it keeps once more.

Mallya, Lazebnik: "PackNet: Adding Multiple Tasks to a Single Network by Iterative Pruning" (CVPR 2018).
Shapes: N numbers of a layer.
"""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods._shared.masked import MaskedMethod, MaskedSettings
from clare.methods.base import register
from clare.methods.protocols import HasTinySettings
from clare.steps import Choosing, Group, Phase, TaskInfo


class PackNetSettings(MaskedSettings):
    """What a task gives back, and how long it trains the rest."""

    prune: float = Field(0.75, ge=0, lt=1, description="Share of a layer's free numbers that a task gives back.")
    retrain_epochs: int = Field(10, ge=0, le=10_000, description="Epochs of training what a task keeps.")
    retrain_factor: float = Field(
        0.1, gt=0, le=100, description="Learning rate of these epochs, as a share of that before them."
    )


@register
class PackNet(MaskedMethod, HasTinySettings):
    """Networks inside each other: a task's own numbers, and beside them those of all tasks before it."""

    name = "packnet"
    summary = "trains what no task has, keeps the largest of it for the task, and sees earlier tasks' numbers beside it"
    tiny: ClassVar[dict[str, Any]] = {"retrain_epochs": 2}
    settings_type = PackNetSettings
    settings: PackNetSettings

    def __init__(self, backbone: Backbone, settings: PackNetSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed, settings.outside)

    def find_mask(self, task: TaskInfo) -> Choosing:
        """Train what is free, prune it layer by layer, and train what is left again."""
        settings, free = self.settings, self.free
        yield self.trained("train", settings.epochs, free, 1.0)
        sizes = (self.values - self.outside).abs()
        kept = free & self.per_layer(partial(survivors, settings.prune), sizes, free)
        self.values.copy_(torch.where(free & ~kept, self.outside, self.values))
        if settings.retrain_epochs:
            yield self.trained("retrain", settings.retrain_epochs, kept, settings.retrain_factor)
        return kept | ~free

    def trained(self, name: str, epochs: int, mask: Tensor, factor: float) -> Phase:
        """Return a training of some numbers, beside which all others act as they are."""
        optimizer = replace(self.settings.stepper, learning_rate=factor * self.settings.learning_rate)
        groups = [Group(self.values, mask=mask, decay_towards=self.outside), *self.head.groups()]
        return self.phase(name, epochs, groups, optimizer=optimizer)


def survivors(prune: float, sizes_N: Tensor, free_N: Tensor) -> Tensor:
    """Mark the free numbers that are larger than the largest of those that make up the share to be pruned."""
    num_pruned = round(prune * int(free_N.sum()))
    if num_pruned == 0:
        return free_N
    return free_N & (sizes_N > sizes_N[free_N].kthvalue(num_pruned).values)
