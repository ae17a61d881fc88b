"""EASE: an adapter of its own for each task, and prototypes of all classes in all of their subspaces.

Zhou, Sun, Ye, Zhan: "Expandable Subspace Ensemble for Pre-Trained Model-Based Class-Incremental Learning" (CVPR 2024).
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.growth import Growing
from clare.heads.kinds import PrototypeAfterTraining
from clare.heads.statistics import class_means, class_sums
from clare.heads.subspaces import subspace_weights, synthesise, weighted_cosines, whole_cosines
from clare.methods._shared.task_adapters import GrowingAdapterMethod, TaskAdapterSettings
from clare.methods.base import bare_features, register
from clare.methods.protocols import HasStructure
from clare.settings import Acts
from clare.steps import Group, Learning, Pass, TaskInfo
from clare.tuners.adapter import AdapterSettings


class EaseSettings(TaskAdapterSettings):
    """The published recipe for CIFAR-100 with five classes per task, and the weights of the subspaces."""

    acts: ClassVar[Acts] = {
        "cross_weight": {"reweighted": (True,)},
        "bare_weight": {"reweighted": (True,), "bare_subspace": (True,)},
    }

    defaults: ClassVar[Any] = {"adapter": AdapterSettings(), "batch_size": 48, "learning_rate": 0.025}
    head: PrototypeAfterTraining = Field(
        PrototypeAfterTraining(learnt_scale=True), description="The classifier that a task is trained with."
    )
    cross_weight: float = Field(
        0.1, ge=0, le=100, description="Weight that all subspaces but a class's own share in its logit."
    )
    reweighted: bool = Field(
        True, description="Weigh a cosine for each subspace, or take one cosine over all subspaces side by side."
    )
    bare_subspace: bool = Field(False, description="Use the features of the bare backbone as one more subspace.")
    bare_weight: float = Field(1.0, ge=0, le=100, description="Weight of the bare backbone's cosine in a logit.")
    chunk_size: int = Field(
        0,
        ge=0,
        le=1024,
        description="Subspaces that go through the backbone together; 0 takes as many as keep the device busy.",
    )


@register
class Ease(GrowingAdapterMethod, HasStructure, Growing):
    """One adapter per task; a class is judged in all subspaces, most of all in that of its own task."""

    name = "ease"
    summary = "trains an adapter for each task and classifies by class means in the subspaces of all adapters"
    family = "adapters"
    # Features and prototypes grow by one subspace with each task; the adapter being trained stays in its place.
    fixed_shapes = True
    grows = ("prototypes",)
    settings: EaseSettings
    prototypes: Tensor
    weights: Tensor

    def __init__(self, backbone: Backbone, settings: EaseSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.num_bare = int(settings.bare_subspace)
        self.register_buffer("prototypes", torch.zeros(0, self.num_bare, self.head.num_features))
        self.register_buffer("weights", torch.zeros(0, self.num_bare), persistent=False)

    def learn(self, task: TaskInfo) -> Learning:
        """Train a fresh adapter with throw-away rows, then place the classes in all subspaces."""
        num_new = len(task.classes)
        self.begin(task)
        if self.tasks:
            self.adapters.draw(task.generator("adapter"))
        yield self.phase("train", self.settings.epochs, [Group(self.adapters.current), *self.head.groups()])

        def statistic(features: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
            return class_sums(features, labels, weights, num_new, outer=False)

        sums = yield Pass("prototypes", statistic)
        self._place(class_means(sums), [*map(len, self.tasks), num_new])

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the task's classes, in the task's own subspace."""
        return self.head.block_loss(self.task_features(images), labels)

    def _place(self, means: Tensor, sizes: list[int]) -> None:
        """Add the new classes' prototypes, and make those of the old classes in later subspaces anew."""
        new = means.to(self.prototypes).view(len(means), -1, self.head.num_features)
        # The old classes have nothing in the new subspace yet.
        placed = torch.cat([F.pad(self.prototypes, (0, 0, 0, 1)), new])
        bare, own = placed[:, : self.num_bare], placed[:, self.num_bare :]
        self.prototypes = torch.cat([bare, synthesise(own, sizes)], 1)
        self._weigh(sizes)

    def _weigh(self, sizes: list[int]) -> None:
        """Set what each subspace counts for each class."""
        weights = subspace_weights(sizes, self.settings.cross_weight, self.prototypes.device)
        self.weights = F.pad(weights, (self.num_bare, 0), value=self.settings.bare_weight)

    @property
    def num_parts(self) -> int:
        """The bare backbone, if it is a subspace, and every adapter."""
        return self.num_bare + len(self.adapters)

    def features(self, images: Tensor) -> Tensor:
        """Return the features of all subspaces side by side, the bare backbone's first if it is one."""
        later = self.later_parts(images, self.num_bare)
        return torch.cat([bare_features(self, images), later], 1) if self.num_bare else later

    def later_parts(self, images: Tensor, first: int) -> Tensor:
        """Return the features of the adapters from a subspace on, side by side."""
        adapters = self.adapters.values[first - self.num_bare :]
        return self.adapters.features(images, adapters, self.settings.chunk_size).flatten(1)

    def classify(self, features: Tensor) -> Tensor:
        """Return the weighted cosines over every class learnt so far."""
        parts = features.float().view(-1, *self.prototypes.shape[1:])
        # In half precision cosines of different classes become equal.
        with torch.autocast(features.device.type, enabled=False):
            if self.settings.reweighted:
                return weighted_cosines(parts, self.prototypes, self.weights)
            return whole_cosines(parts, self.prototypes)

    def rebuild(self, structure: dict[str, Any]) -> None:
        """Set what the subspaces count, which nobody saves."""
        self._weigh([len(task) for task in self.tasks])
