"""TUNA: an adapter for each task, of which an image asks the surest one, and one that is merged from all of them.

"Integrating Task-Specific and Universal Adapters for Pre-Trained Model-based Class-Incremental Learning" (ICCV 2025).
Shapes: T adapters, N coordinates of an adapter, L blocks, R bottleneck.
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods._shared.recipe import MarginSettings
from clare.methods._shared.task_adapters import TaskAdapterMethod, TaskAdapterSettings
from clare.methods.base import register
from clare.methods.care import together
from clare.methods.protocols import PassesSeveralTimes
from clare.steps import Group, Learning, TaskInfo


class TunaSettings(TaskAdapterSettings, MarginSettings):
    """The authors' hyper-parameters on CIFAR-100 with five classes per task."""

    defaults: ClassVar[Any] = {"epochs": 15, "batch_size": 16, "learning_rate": 0.01}
    orthogonality: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="Weight of the penalty on what an adapter's up-projections share with earlier ones; it falls by a "
        "factor e from task to task.",
    )
    as_published: bool = Field(
        False, description="Use the newest adapter instead of the merged one, as the authors' code does."
    )


@register
class Tuna(TaskAdapterMethod, PassesSeveralTimes):
    """Adapters of single tasks, and a universal one of their largest values; an answer is the sum of two."""

    name = "tuna"
    summary = "trains an adapter for each task and adds up the answers of the surest one and of all of them merged"
    family = "adapters"
    tiny: ClassVar[dict[str, Any]] = {"head": {"align_epochs": 2, "align_samples": 8}, "orthogonality": 1e-3}
    settings: TunaSettings
    merged: Tensor

    def __init__(self, backbone: Backbone, settings: TunaSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.register_buffer("merged", torch.zeros_like(self.adapters.current))

    def learn(self, task: TaskInfo) -> Learning:
        """Train an adapter that goes on from the last task's, merge all of them, then finish the rows."""
        self.begin(task)
        groups = [Group(self.adapters.current), *self.head.groups()]
        yield self.phase("train", self.settings.epochs, groups)
        self.merged.copy_(unified(self.adapters.values))
        yield from self.finish(task)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy with a margin, and what the adapter shares with those of earlier tasks."""
        losses = self.head.block_loss(self.task_features(images), labels, self.settings.margin)
        weight = self.settings.orthogonality * math.exp(-len(self.adapters))
        if weight == 0 or len(self.adapters) == 1:
            return losses
        newest, earlier = (self._directions(each) for each in (self.adapters.current[None], self.adapters.kept))
        return losses + weight * overlap(newest, earlier)

    def _directions(self, adapters: Tensor) -> Tensor:
        """Return the mean over the rows, each of length one, of all up-projections of adapters, shape (L, T, R)."""
        return torch.stack([F.normalize(up, dim=2).mean(1) for _, _, up, _ in self.adapters.spread(adapters)])

    def features(self, images: Tensor) -> Tensor:
        """Return the features under the universal adapter, and beside them those under the adapter of each task."""
        adapters = self.adapters.values
        if len(adapters) > 1:
            universal = adapters[-1] if self.settings.as_published else self.merged
            adapters = torch.cat([universal[None], adapters])
        return self.adapters.features(images, adapters).flatten(1)

    @property
    def num_passes(self) -> int:
        """One for each adapter, and where there are several, one for the universal one."""
        return len(self.adapters) + (len(self.adapters) > 1)

    def classify(self, features: Tensor) -> Tensor:
        """Return logits, or, of several adapters, the logarithm of the universal one's and the surest one's chances."""
        scale = self.head.scale
        parts = [scale * self.head.logits(part) for part in torch.split(features, self.head.num_features, dim=1)]
        return parts[0] / scale if len(parts) == 1 else together(torch.stack(parts, 1)).log() / scale


def unified(adapters_TN: Tensor) -> Tensor:
    """Return for each coordinate the largest value of the sign that its mean has, shape (N,)."""
    sign = torch.where(adapters_TN.mean(0) > 0, 1.0, -1.0).to(adapters_TN)
    return (adapters_TN * sign).clamp(min=0).amax(0) * sign


def overlap(newest_L1R: Tensor, earlier_LTR: Tensor) -> Tensor:
    """Return the mean cosine of rows of two up-projections, unsigned, as a mean over blocks and a sum over tasks."""
    return (newest_L1R * earlier_LTR).sum(2).abs().mean(0).sum()
