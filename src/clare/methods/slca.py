"""SLCA: the whole backbone tuned slowly on task after task, and its rows trained again on drawn features.

Zhang, Wang, Kang, Chen, Wei: "SLCA: Slow Learner with Classifier Alignment for Continual Learning on a Pre-trained
Model" (ICCV 2023).
"""

from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.heads.kinds import AnyHead
from clare.heads.realigned import RealignedSettings
from clare.methods.base import HeadOnlySettings, Method, register
from clare.methods.protocols import HasTinySettings
from clare.steps import Group, Learning, Phase, Sgd, TaskInfo
from clare.tuners.backbone_weights import BackboneWeights

SLCA_HEAD = RealignedSettings(form="linear", align_ridge=1e-4, align_temperature=0.1, restores=True)


class SlcaSettings(HeadOnlySettings):
    """The authors' hyper-parameters on CIFAR-100."""

    head: AnyHead = Field(SLCA_HEAD, description="The classifier.")
    epochs: int = Field(20, ge=1, le=10_000, description="Epochs of training a task.")
    milestone: int = Field(18, ge=1, le=10_000, description="Epochs after which the rates are a tenth.")
    batch_size: int = Field(128, ge=1, le=65_536, description="Images per step, over all ranks together.")
    learning_rate: float = Field(0.01, gt=0, le=100, description="Learning rate of the rows.")
    backbone_factor: float = Field(0.01, gt=0, le=1, description="The backbone's share of that rate.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of SGD.")
    weight_decay: float = Field(5e-4, ge=0, le=1, description="Weight decay of what is being trained.")


@register
class Slca(Method, HasTinySettings):
    """A second set of the backbone's weights, which move a hundred times slower than the rows."""

    name = "slca"
    summary = "trains the whole backbone at a low rate on task after task, then all rows on drawn features"
    family = "references"
    tiny: ClassVar[dict[str, Any]] = {"milestone": 1, "head": {"align_epochs": 2, "align_samples": 8}}
    fixed_shapes = True
    settings_type = SlcaSettings
    settings: SlcaSettings

    def __init__(self, backbone: Backbone, settings: SlcaSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.weights = BackboneWeights(backbone.vit)

    def features(self, images: Tensor) -> Tensor:
        """Return the features of the tuned weights; the backbone's own stay what they are."""
        return self.weights.features(self.backbone, images)

    def learn(self, task: TaskInfo) -> Learning:
        """Train the weights slowly with fresh rows, then train all rows again."""
        settings = self.settings
        self.head.open_block(len(task.classes), task.generator("rows"))
        groups = [Group(self.weights.values, rate_factor=settings.backbone_factor), *self.head.groups()]
        optimizer = Sgd(
            settings.learning_rate,
            settings.momentum,
            settings.weight_decay,
            schedule="constant",
            milestones=(settings.milestone,),
        )
        yield Phase("train", settings.epochs, groups, self.loss, optimizer, settings.batch_size)
        yield from self.head.finish(len(task.classes))
