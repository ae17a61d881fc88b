"""iCaRL: herded pictures of each class, distillation, and the nearest mean of a class's kept pictures as the answer.

Rebuffi, Kolesnikov, Sperl, Lampert: "iCaRL: Incremental Classifier and Representation Learning" (CVPR 2017). Shapes: B
images, K earlier classes, Q kept pictures, D features.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clare.backbones.vit import Backbone
from clare.heads.kinds import PrototypeAfterTraining
from clare.methods._shared.distil import distilled
from clare.methods._shared.replayed import MemorySettings, ReplayMethod, ReplaySettings
from clare.methods.base import register
from clare.steps import Collect, Learning, Phase, TaskInfo


class EvenSettings(MemorySettings):
    """Equally many pictures of each class, whose mean is its row."""

    choice: Literal["balanced", "herding"] = Field(
        "herding", description="Equally many pictures of each class at random, or the nearest to its mean together."
    )


class IcarlSettings(ReplaySettings):
    """The pictures that stand for their classes, and the weight of distillation."""

    head: PrototypeAfterTraining = Field(PrototypeAfterTraining(), description="The classifier.")
    memory: EvenSettings = Field(EvenSettings(), description="The pictures that are kept.")
    distillation: float = Field(1.0, ge=0, le=1000, description="Weight of keeping the answers over earlier classes.")
    temperature: float = Field(2.0, gt=0, le=100, description="What logits are divided by in distillation.")


@register
class Icarl(ReplayMethod):
    """Classes as means of a few pictures each, made anew as features change."""

    name = "icarl"
    summary = "herds pictures of each class, mixes them among a task's, and classifies by their means"
    settings: IcarlSettings
    anchor: Tensor
    old_rows: Tensor

    def __init__(self, backbone: Backbone, settings: IcarlSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.register_buffer("anchor", self.values.detach().clone(), persistent=False)
        self.register_buffer("old_rows", torch.zeros(0, self.head.row_size), persistent=False)

    def train_phase(self) -> Phase:
        """Return the phase beside the network as it is now."""
        self.anchor.copy_(self.values)
        rows = self.contrast.rows.data
        self.old_rows = rows.clone() if self.old_rows.shape != rows.shape else self.old_rows.copy_(rows)
        return super().train_phase()

    def pools(self, every: Tensor) -> tuple[Tensor, ...]:
        """Mix all kept pictures among the images."""
        return ()

    def replay_loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy over all classes so far, and how far the answers over earlier ones have changed."""
        logits = self.logits(images)
        with torch.no_grad():
            before = self.head.scale * self.head.scores(self.features_at(images, self.anchor), self.old_rows)
        changed = distilled(logits[:, len(self.head.block) :], before + self.contrast.closed, self.settings.temperature)
        return F.cross_entropy(logits, labels, reduction="none") + self.settings.distillation * changed

    def learn(self, task: TaskInfo) -> Learning:
        """Train, choose pictures, and make the rows of all classes of the kept ones as the network sees them now."""
        self.head.open_block(len(task.classes), task.generator("rows"))
        self.contrast.take(self.head)
        yield self.train_phase()
        yield from self.remember(task)
        found = yield Collect("means", self.features, pictures=self.memory.pictures)
        rows = exemplar_means(found["values"], self.kept[1], len(self.classes) + len(task.classes))
        self.head.rows = nn.Parameter(rows.to(self.head.rows), requires_grad=False)


def exemplar_means(features_QD: Tensor, classes_Q: Tensor, num_classes: int) -> Tensor:
    """Return the unit mean of the unit features of each class's pictures."""
    members = F.one_hot(classes_Q, num_classes).T.to(features_QD)
    return F.normalize(members @ F.normalize(features_QD, dim=1), dim=1)
