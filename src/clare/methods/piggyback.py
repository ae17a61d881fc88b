"""Piggyback: numbers that never change again, and for each task a learnt mask that switches some of them off.

Mallya, Davis, Lazebnik: "Piggyback: Adapting a Single Network to Multiple Tasks by Learning to Mask Weights" (ECCV
2018).
"""

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.vit import Backbone
from clare.methods._shared.masked import MaskedMethod, NetworksSettings, passing
from clare.methods.base import register
from clare.methods.protocols import HasTinySettings
from clare.steps import Choosing, Group, TaskInfo


class PiggybackSettings(NetworksSettings):
    """Where scores begin, where they switch a number off, and how fast they move."""

    defaults: ClassVar[Any] = {"optimize": "adam", "weight_decay": 0.0, "learning_rate": 1e-3}
    score_start: float = Field(0.01, gt=-1, lt=1, description="Score that all numbers have when a task begins.")
    threshold: float = Field(0.005, gt=-1, lt=1, description="Score above which a number stays on.")
    score_factor: float = Field(
        0.1, gt=0, le=1000, description="The scores' learning rate, as a share of that of the rows."
    )


@register
class Piggyback(MaskedMethod, HasTinySettings):
    """Masks on an adapter that the first task trained, or, as in the paper, on the frozen backbone: a bit a weight."""

    name = "piggyback"
    summary = "learns for each task which numbers of the first task's adapter, or of the backbone, to switch off"
    tiny: ClassVar[dict[str, Any]] = {"score_factor": 1.0}
    settings_type = PiggybackSettings
    settings: PiggybackSettings

    def __init__(self, backbone: Backbone, settings: PiggybackSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        # A tuple hides the scores from what is saved: no task needs those of another.
        self._scores: tuple[nn.Parameter, ...] = ()
        if settings.tunes == "backbone":
            frozen = self.values.detach()
            del self.tuner.values
            self.tuner.register_buffer("values", frozen, persistent=False)

    def find_mask(self, task: TaskInfo) -> Choosing:
        """Train scores and rows and keep what is on; before that, the first task trains an adapter whose all is on."""
        settings = self.settings
        if not self.tasks and settings.tunes == "adapter":
            yield self.phase("train", settings.epochs, [Group(self.values), *self.head.groups()], loss=self.whole_loss)
            return torch.ones_like(self.values, dtype=torch.bool)
        # Made here, where the device is known, and once, so that recorded steps find them in their place.
        self._scores = self._scores or (nn.Parameter(torch.zeros_like(self.values), requires_grad=False),)
        self._scores[0].fill_(settings.score_start)
        groups = [Group(self._scores[0], rate_factor=settings.score_factor), *self.head.groups()]
        yield self.phase("train", settings.epochs, groups)
        return self.on()

    def on(self) -> Tensor:
        """Mark the numbers whose scores are above the threshold, and all that are in no matrix."""
        return self.per_layer(lambda scores: scores > self.settings.threshold, self._scores[0])

    def running(self) -> Tensor:
        """Return the numbers that are on, whose gradients pass to the scores."""
        return passing(self.on().to(self.values), self._scores[0]) * self.values

    def whole_loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each image's cross-entropy over the task's classes, under all numbers."""
        return self.head.block_loss(self.features_at(images), labels)
