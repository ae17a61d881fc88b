"""MagMax: the backbone tuned on task after task, and at test, of every weight, the largest change of any task.

Marczak, Twardowski, Trzciński, Cygert: "MagMax: Leveraging Model Merging for Seamless Continual Learning" (ECCV 2024).
"""

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.heads.kinds import AnyHead, PrototypeAfterTraining
from clare.methods._shared.recipe import EpochSettings, RecipeMethod
from clare.methods.base import register
from clare.steps import Adam, Group, Learning, TaskInfo
from clare.tuners.backbone_weights import BackboneWeights, flat_weights


class MagMaxSettings(EpochSettings):
    """The authors' hyper-parameters on CIFAR-100, and how fast our rows learn, in whose place they have words."""

    defaults: ClassVar[Any] = {"epochs": 10, "batch_size": 128}
    head: AnyHead = Field(PrototypeAfterTraining(), description="The classifier.")
    learning_rate: float = Field(1e-5, gt=0, le=100, description="Largest learning rate of AdamW.")
    row_factor: float = Field(
        1000.0, gt=0, le=1e6, description="The rows' learning rate, as a multiple of that of the weights."
    )
    weight_decay: float = Field(0.1, ge=0, le=1, description="Weight decay, apart from the gradient.")
    warm_up: int = Field(
        500, ge=0, le=1_000_000, description="Steps in which the rate rises, at most half of a task's."
    )
    clip_norm: float = Field(1.0, gt=0, le=1e6, description="Largest norm of the gradient.")
    share: float = Field(0.5, gt=0, le=10, description="Share of the largest changes that is used at test.")


@register
class MagMax(RecipeMethod):
    """The weights of the last task, for the next one to go on from, and the merged ones, which classify."""

    name = "magmax"
    summary = "trains the whole backbone on task after task and uses, of each weight, the largest change of any task"
    family = "merging"
    tiny: ClassVar[dict[str, Any]] = {"learning_rate": 2e-3, "row_factor": 20.0, "warm_up": 2, "head": {"scale": 5.0}}
    fixed_shapes = True
    settings: MagMaxSettings
    start: Tensor
    largest: Tensor

    def __init__(self, backbone: Backbone, settings: MagMaxSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.weights = BackboneWeights(backbone.vit)
        self.register_buffer("start", flat_weights(backbone.vit), persistent=False)
        self.register_buffer("largest", torch.zeros_like(self.start))

    def features(self, images: Tensor) -> Tensor:
        """Return the features of the weights in training, or of the merged ones."""
        if self.training:
            return self.weights.features(self.backbone, images)
        return self.weights.features(self.backbone, images, self.start + self.settings.share * self.largest)

    def learn(self, task: TaskInfo) -> Learning:
        """Train the last task's weights with fresh rows, merge what they came to, then finish the rows."""
        settings = self.settings
        self.head.open_block(len(task.classes), task.generator("rows"))
        rows = [Group(group.parameter, rate_factor=settings.row_factor) for group in self.head.groups()]
        recipe: Any = {"weight_decay": settings.weight_decay, "decoupled": True, "warm_up": settings.warm_up}
        own = {"optimizer": Adam(settings.learning_rate, schedule="cosine-steps", **recipe)}
        groups = [Group(self.weights.values), *rows]
        yield self.phase("train", settings.epochs, groups, clip_norm=settings.clip_norm, **own)
        self.largest.copy_(larger(self.largest, self.weights.values.data - self.start))
        yield from self.head.finish(len(task.classes))


def larger(old: Tensor, new: Tensor) -> Tensor:
    """Return of each pair of changes the larger one, and of two as large the newer one."""
    return torch.where(new.abs() >= old.abs(), new, old)
