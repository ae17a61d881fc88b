"""SLCA: the whole backbone tuned slowly on task after task, and its rows trained again on drawn features.

Zhang, Wang, Kang, Chen, Wei: "SLCA: Slow Learner with Classifier Alignment for Continual Learning on a Pre-trained
Model" (ICCV 2023).
"""

from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.heads.kinds import AnyHead
from clare.heads.realigned import RealignedSettings
from clare.methods._shared.recipe import RecipeMethod, SgdSettings
from clare.methods.base import register
from clare.steps import Group, Learning, TaskInfo
from clare.tuners.backbone_weights import BackboneWeights

SLCA_HEAD = RealignedSettings(form="linear", align_ridge=1e-4, align_temperature=0.1, restores=True)


class SlcaSettings(SgdSettings):
    """The authors' hyper-parameters on CIFAR-100."""

    defaults: ClassVar[Any] = {"batch_size": 128}
    head: AnyHead = Field(SLCA_HEAD, description="The classifier.")
    milestone: int = Field(18, ge=1, le=10_000, description="Epochs after which the rates are a tenth.")
    learning_rate: float = Field(0.01, gt=0, le=100, description="Learning rate of the rows.")
    backbone_factor: float = Field(
        0.01, gt=0, le=1, description="The backbone's learning rate, as a share of the rows'."
    )


@register
class Slca(RecipeMethod):
    """A second set of the backbone's weights, which move a hundred times slower than the rows."""

    name = "slca"
    summary = "trains the whole backbone at a low rate on task after task, then all rows on drawn features"
    family = "references"
    tiny: ClassVar[dict[str, Any]] = {"milestone": 1, "head": {"align_epochs": 2, "align_samples": 8}}
    fixed_shapes = True
    settings: SlcaSettings

    def __init__(self, backbone: Backbone, settings: SlcaSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.weights = BackboneWeights(backbone.vit)

    def features(self, images: Tensor) -> Tensor:
        """Return the features of the tuned weights; the backbone's own stay what they are."""
        return self.weights.features(self.backbone, images)

    def learn(self, task: TaskInfo) -> Learning:
        """Train the weights slowly with fresh rows, then train all rows again."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        settings = self.settings
        slow = Group(self.weights.values, rate_factor=settings.backbone_factor)
        optimizer = replace(settings.optimizer, schedule="constant", milestones=(settings.milestone,))
        yield self.phase("train", settings.epochs, [slow, *self.head.groups()], optimizer=optimizer)
        yield from self.head.finish(len(task.classes))
