"""MIN: small maps after every block, one more for each task, mixed into one pass; a regression reads what comes out.

"Mixture of Noise for Pre-Trained Model-Based Class-Incremental Learning" (NeurIPS 2025).
Shapes: K classes so far, M random features, D features, T tasks.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.growth import Growing
from clare.heads.ridge import FixedRidgeSettings, RidgeHead, projected
from clare.methods._shared.prompted import frozen
from clare.methods._shared.recipe import RecipeMethod, SgdSettings
from clare.methods.base import register
from clare.seeds import generator_at
from clare.settings import Acts
from clare.steps import Collect, Group, Learning, Phase, TaskInfo
from clare.tuners.backbone_weights import BackboneWeights
from clare.tuners.noise_maps import NoiseMaps


class AnalyticSettings(FixedRidgeSettings):
    """The random features and the regression on them."""

    num_projected: int = Field(16_384, ge=1, le=100_000, description="Random features of an image.")
    ridge: float = Field(100.0, gt=0, le=1e12, description="Ridge of the regression.")

    def make(self, num_features: int, seed: int) -> RidgeHead:
        """Return the head of so many features, whose projection depends on the seed alone."""
        generator = generator_at(seed, "projection")
        head = RidgeHead(num_features, self, generator, dtype=torch.float64, keeps_classes=False)
        bound = 1 / math.sqrt(self.num_projected)
        head.projection.uniform_(-bound, bound, generator=generator)
        return head


class MinSettings(SgdSettings):
    """The authors' hyper-parameters on CIFAR-100."""

    defaults: ClassVar[Any] = {"batch_size": 128}
    acts: ClassVar[Acts] = {"temperature": {"as_published": (False,)}}

    head: AnalyticSettings = Field(AnalyticSettings(), description="The classifier, which is solved, not trained.")
    hidden: int = Field(192, ge=1, le=4096, description="Width of the space in which the maps are.")
    first_epochs: int = Field(10, ge=1, le=10_000, description="Epochs of training the first task.")
    epochs: int = Field(10, ge=1, le=10_000, description="Epochs of training a later task.")
    learning_rate: float = Field(0.001, gt=0, le=100, description="Learning rate, which stays.")
    opens_backbone: bool = Field(
        True, description="Train full linear maps and the backbone's norms on the first task, beyond the paper's text."
    )
    num_sweeps: int = Field(3, ge=1, le=100, description="Sweeps over augmented images that the regression sees.")
    temperature: float = Field(
        2.0, gt=0, le=1000, description="Temperature of the softmax over tasks' cosines that the mixture starts with."
    )
    as_published: bool = Field(
        False,
        description="Mix as the authors' code does, with weights that are not trained: zero in the first two tasks, "
        "then from the cosines with the task before.",
    )


@register
class Min(RecipeMethod, Growing):
    """Maps that gradients train with rows that are dropped, and sums of random features in which all images stay."""

    name = "min"
    summary = "adds maps of each task to the residual stream, mixed, and solves a regression on random features"
    family = "projections"
    tiny: ClassVar[dict[str, Any]] = {"hidden": 4, "first_epochs": 2, "head": {"num_projected": 64, "ridge": 1.0}}
    grows = ("prototypes", "auxiliary", "auxiliary_bias")
    settings: MinSettings
    head: RidgeHead
    prototypes: Tensor

    def __init__(self, backbone: Backbone, settings: MinSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.maps = NoiseMaps(backbone.vit, settings.hidden, generator_at(seed, "maps"))
        self.norms = BackboneWeights(backbone.vit, "norm")
        self.register_buffer("prototypes", torch.zeros(0, self.head.num_features))
        self._open_auxiliary(0)

    def _open_auxiliary(self, num_classes: int) -> None:
        """Make rows of zeros, which serve the training of one task."""
        self.auxiliary = frozen(self.prototypes.new_zeros(num_classes, self.head.finished_size))
        self.auxiliary_bias = frozen(self.prototypes.new_zeros(num_classes))

    def features(self, images: Tensor) -> Tensor:
        """Return the features under the mixed maps and the trained norms; the backbone's own stay what they are."""
        with self.maps.spread():
            return self.norms.features(self.backbone, images)

    def learn(self, task: TaskInfo) -> Learning:
        """Show the images as they look to the network, train the task's maps, and show the images once more."""
        num_new = len(task.classes)
        augmented: list[Literal["train", "test"]] = ["train"] * self.settings.num_sweeps
        if self.tasks:
            yield from self._memorise(num_new, augmented)
        yield from self._mix()
        yield self._phase(num_new)
        self._open_auxiliary(0)
        own = yield Collect("prototype", self.features)
        self.prototypes = torch.cat([self.prototypes, own["values"].mean(0, keepdim=True)])
        yield from self._memorise(num_new, ["test"] if self.tasks else [*augmented, "test"])

    def _memorise(self, num_new: int, views: list[Literal["train", "test"]]) -> Learning:
        """Show the task's images to the regression in these views, and solve it."""
        for view in views:
            found = yield Collect("features to memorise", self.features, view=view)
            if len(self.head.sums) == len(self.classes):
                self.head.add(found["values"], found["labels"], num_new)
            else:
                self.head.show(found["values"], found["labels"] + len(self.classes))
        ridge = self.settings.head.ridge
        yield from self.head.solved(lambda: self.head.solve_at(ridge)[0])

    def _mix(self) -> Learning:
        """Give the task maps, and say what each task's count for."""
        earlier = self.prototypes
        if self.settings.as_published:
            shares = mixture(earlier[-1], earlier, 1.0) if len(earlier) > 1 else earlier.new_zeros(len(earlier) + 1)
        else:
            found = yield Collect("images as they are", self.features)
            shares = mixture(found["values"].mean(0), earlier, self.settings.temperature)
        self.maps.begin(shares)

    def _phase(self, num_new: int) -> Phase:
        """Return the training of the task's maps, and of what the first task opens, beside rows of all classes."""
        settings, is_first = self.settings, not self.tasks
        self._open_auxiliary(len(self.classes) + num_new)
        trained = [self.maps.current, self.auxiliary, *([] if settings.as_published else [self.maps.shares])]
        if is_first:
            trained.append(self.auxiliary_bias)
        if is_first and settings.opens_backbone:
            trained += [self.maps.linear, self.norms.values]
        epochs = settings.first_epochs if is_first else settings.epochs
        optimizer = replace(settings.optimizer, schedule="constant")
        return self.phase("train", epochs, [Group(parameter) for parameter in trained], optimizer=optimizer)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over all classes so far, for what the regression lacks to tell them."""
        features = self.features(images)
        hidden = projected(features, self.head.projection)
        with torch.autocast(hidden.device.type, enabled=False):
            logits = F.linear(hidden, self.auxiliary, self.auxiliary_bias)
        if self.tasks:
            logits = logits + self.head.logits(features.detach())
        return F.cross_entropy(logits, labels + len(self.classes), reduction="none")


def mixture(own_D: Tensor, earlier_TD: Tensor, temperature: float) -> Tensor:
    """Return what each task counts for by its cosine with one's own, which is the last and has one with itself."""
    cosines = F.cosine_similarity(own_D[None], earlier_TD, dim=1)
    return (F.pad(cosines, (0, 1), value=1.0) / temperature).softmax(0)
