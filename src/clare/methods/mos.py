"""MOS: adapters that are drawn to the mean of those before; an image's own is found by asking the classifier again.

Sun, Zhou, Zhao, Gan, Zhan, Ye: "MOS: Model Surgery for Pre-Trained Model-Based Class-Incremental Learning" (AAAI 2025).
Shapes: B samples, K classes so far, S adapters, D features.
"""

from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.growth import Growing
from clare.heads.kinds import PrototypeAfterTraining
from clare.heads.realigned import RealignedSettings
from clare.heads.statistics import class_means, class_sums
from clare.heads.subspaces import task_of_classes
from clare.methods._shared.task_adapters import TASK_HEAD, GrowingAdapterMethod, TaskAdapterSettings
from clare.methods.base import register
from clare.steps import Group, Learning, Pass, Pull, TaskInfo

MOS_HEAD = TASK_HEAD.model_copy(update={"form": "linear", "align_samples": 240})
TEMPERATURE = 0.8
"""What products of features are divided by where they are to be told apart."""
NUM_ROUNDS = 4
"""How often the classifier is asked at most."""


class MosSettings(TaskAdapterSettings):
    """The authors' hyper-parameters on CIFAR-100 with five classes per task."""

    defaults: ClassVar[Any] = {"batch_size": 48}
    head: RealignedSettings | PrototypeAfterTraining = Field(MOS_HEAD, description="The classifier.")
    learning_rate: float = Field(0.03, gt=0, le=100, description="Learning rate of the adapter, along a cosine.")
    row_factor: float = Field(0.1, gt=0, le=1000, description="The rows' learning rate, as a share of the adapter's.")
    apart_weight: float = Field(
        0.1, ge=0, le=1e6, description="Weight of the loss that keeps class means and a batch's images apart."
    )
    pull: float = Field(
        0.1, ge=0, lt=1, description="Share of the way to the mean of earlier adapters that a pull goes."
    )
    as_published: bool = Field(
        False, description="Pull once for every block in each forward pass as well, as the authors' code does."
    )


@register
class Mos(GrowingAdapterMethod, Growing):
    """Adapters that stay near each other, and class means under the first one, which say whom to ask first."""

    name = "mos"
    summary = "draws each task's adapter to the mean of those before, and looks for an image's own in rounds"
    family = "adapters"
    tiny: ClassVar[dict[str, Any]] = {"head": {"align_epochs": 2, "align_samples": 8}, "learning_rate": 0.05}
    grows = ("prototypes",)
    settings: MosSettings
    prototypes: Tensor

    def __init__(self, backbone: Backbone, settings: MosSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.register_buffer("prototypes", torch.zeros(0, self.head.num_features))

    def learn(self, task: TaskInfo) -> Learning:
        """Train an adapter that is pulled before every step and once after the last; finish rows and prototypes."""
        self.begin(task)
        current, share = self.adapters.current, self.pull_share
        pull = Pull(share, self.adapters.kept.mean(0)) if self.tasks and share else None
        rows = [replace(group, rate_factor=self.settings.row_factor) for group in self.head.groups()]
        phase = self.phase("train", self.settings.epochs, [Group(current, pull=pull), *rows])
        yield replace(phase, loss=self.coupled_loss, couples=True)
        if pull is not None:
            current.lerp_(pull.anchor, share)
        yield from self.finish(task)

        def statistic(images: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
            return class_sums(self.later_parts(images, 0, 1), labels, weights, len(task.classes), outer=False)

        sums = yield Pass("prototypes", statistic, of="images")
        self.prototypes = torch.cat([self.prototypes, class_means(sums).to(self.prototypes)])

    @property
    def pull_share(self) -> float:
        """Share of the way that all pulls between two steps go together."""
        num_pulls = 1 + len(self.adapters.widths) * self.settings.as_published
        return 1 - (1 - self.settings.pull) ** num_pulls

    def coupled_loss(self, images: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the task's classes, and its share of what tells all apart."""
        features = self.task_features(images)
        apart = apartness(features, self.head.centres, weights)
        return self.head.block_loss(features, labels) + self.settings.apart_weight * apart

    def features(self, images: Tensor) -> Tensor:
        """Return the features under all adapters side by side."""
        return self.later_parts(images, 0)

    def later_parts(self, images: Tensor, first: int, end: int | None = None) -> Tensor:
        """Return the features under the adapters from one on, side by side."""
        return self.adapters.features(images, self.adapters.values[first:end]).flatten(1)

    def classify(self, features: Tensor) -> Tensor:
        """Return the logarithm of the mean chances of the first adapter's means and of rows under an adapter found."""
        parts = features.view(len(features), -1, self.head.num_features)
        with torch.autocast(features.device.type, enabled=False):
            first = F.normalize(parts[:, 0].float(), dim=1) @ F.normalize(self.prototypes, dim=1).T
        tasks = task_of_classes([len(task) for task in self.tasks], features.device)
        images, logits = torch.arange(len(parts), device=parts.device), first
        for _ in range(NUM_ROUNDS):
            # Under the adapter of the task that was named; where it is named again, the same logits come again.
            logits = self.head.logits(parts[images, tasks[logits.argmax(1)]])
        chances = (self.head.scale * logits).softmax(1) + (len(self.tasks) * first).softmax(1)
        return (chances / 2).clamp(min=1e-30).log() / self.head.scale


def apartness(features_BD: Tensor, means_KD: Tensor, weights_B: Tensor) -> Tensor:
    """Return each sample's share of a cross-entropy in which class means and samples are each a class of their own."""
    with torch.autocast(features_BD.device.type, enabled=False):
        rows = torch.cat([means_KD, features_BD.to(means_KD)])
        counts = F.pad(weights_B, (len(means_KD), 0), value=1.0) > 0
        is_own = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
        alike = (rows @ rows.T / TEMPERATURE).masked_fill(~(counts | is_own), -torch.inf)
        losses = alike.logsumexp(1) - alike.diagonal()
    size, num_means = weights_B.sum().clamp(min=1), len(means_KD)
    # All rows count the same, while the engine divides by the samples.
    return (losses[num_means:] + losses[:num_means].sum() / size) * size / (num_means + size)
