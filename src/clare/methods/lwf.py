"""LwF: the network of before a task sees the task's images too, and its answers over earlier classes are kept.

Li, Hoiem: "Learning without Forgetting" (ECCV 2016, TPAMI 2017).
"""

from pydantic import Field
from torch import Tensor, no_grad

from clare.backbones.vit import Backbone
from clare.heads.contrast import Contrast
from clare.methods._shared.distil import distilled
from clare.methods._shared.recipe import ContrastMethod
from clare.methods._shared.tuned import TunedMethod, TunedSettings
from clare.methods.base import register
from clare.methods.protocols import KeepsRowsAlone
from clare.steps import Group, Learning, TaskInfo


class LwfSettings(TunedSettings):
    """The weight of earlier answers."""

    distillation: float = Field(1.0, ge=0, le=1000, description="Weight of keeping the answers over earlier classes.")
    temperature: float = Field(2.0, gt=0, le=100, description="What logits are divided by in distillation.")
    row_epochs: int = Field(
        0,
        ge=0,
        le=10_000,
        description="Epochs in which a task's rows are trained alone, while the features stand still.",
    )


@register
class LearningWithoutForgetting(TunedMethod, ContrastMethod, KeepsRowsAlone):
    """Training that keeps what the network of before would have said of the same images."""

    name = "lwf"
    summary = "keeps the answers over earlier classes that the network of before a task gives on its images"
    family = "regularisation"
    settings: LwfSettings
    anchor: Tensor

    def __init__(self, backbone: Backbone, settings: LwfSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.contrast = Contrast(self.head.row_size, "seen")
        self.register_buffer("anchor", self.values.detach().clone(), persistent=False)

    def learn(self, task: TaskInfo) -> Learning:
        """Train the values and fresh rows beside the network of before, then finish the rows."""
        settings = self.settings
        self.head.open_block(len(task.classes), task.generator("rows"))
        self.contrast.take(self.head)
        self.anchor.copy_(self.values)
        if settings.row_epochs:
            yield self.phase("rows", settings.row_epochs, self.head.groups())
        # A softmax over no earlier class is no number, so the first task has a loss without it.
        loss = self.kept_loss if self.tasks else self.loss
        yield self.phase("train", settings.epochs, [Group(self.values), *self.head.groups()], loss=loss)
        yield from self.head.finish(len(task.classes))

    def kept_loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy over the task's classes, and how far the answers over earlier ones have changed."""
        features = self.features(images)
        with no_grad():
            before = self.old_logits(self.features_at(images, self.anchor))
        changed = distilled(self.old_logits(features), before, self.settings.temperature)
        return self.head.block_loss(features, labels) + self.settings.distillation * changed

    def old_logits(self, features: Tensor) -> Tensor:
        """Return the scaled scores of earlier classes; places without a class are closed."""
        return self.head.settings.row_scale * self.head.scores(features, self.contrast.rows) + self.contrast.closed
