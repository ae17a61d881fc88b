"""CaRE: in every block an expert, a router and a prober for each task; an image asks the routers of the surest probers.

Lou et al.: "CaRE" (ICML 2026, arXiv 2602.03473).
"""

from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.heads.head import margin_logits
from clare.heads.kinds import PrototypeAfterTraining
from clare.heads.realigned import RealignedHead, RealignedSettings
from clare.heads.trained import TrainedSettings
from clare.methods._shared.recipe import MarginSettings, RecipeMethod
from clare.methods.base import bare_features, register
from clare.methods.protocols import PassesSeveralTimes
from clare.seeds import generator_at
from clare.steps import Collect, Group, Learning, Phase, Pull, TaskInfo, answered
from clare.tuners.experts import Experts, ExpertSettings

CARE_HEAD = RealignedSettings(
    align_epochs=30, align_samples=320, align_learning_rate=0.005, align_ridge=1e-4, align_decay="none"
)
PROBER_SCALE = 20.0
"""Factor on a prober's outputs in its loss."""
MAX_TASKS = 60
"""Tasks up to which an image is asked about each of them."""


class CareSettings(MarginSettings):
    """The authors' hyper-parameters on CIFAR-100."""

    defaults: ClassVar[Any] = {"batch_size": 64, "learning_rate": 0.05}
    head: RealignedSettings | TrainedSettings | PrototypeAfterTraining = Field(CARE_HEAD, description="The classifier.")
    experts: ExpertSettings = Field(ExpertSettings(), description="The experts of every block.")
    epochs: int = Field(60, ge=1, le=10_000, description="Epochs of training a task, of a later one in two halves.")
    iterative: bool = Field(
        True, description=f"Classify also as an image of each of up to {MAX_TASKS} tasks, and add the surest answer."
    )
    as_published: bool = Field(
        False, description="Train the shared adapter after the first task too, and pull it back before every step."
    )


@register
class Care(RecipeMethod, PassesSeveralTimes):
    """Experts that are mixed for each image, and an adapter from the first task that all tasks share."""

    name = "care"
    summary = "adds an expert, a router and a prober to every block for each task and asks the routers that are surest"
    family = "adapters"
    tiny: ClassVar[dict[str, Any]] = {
        "experts": {"bottleneck": 4, "shared_bottleneck": 4},
        "head": {"align_epochs": 2, "align_samples": 8},
    }
    settings: CareSettings

    def __init__(self, backbone: Backbone, settings: CareSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.experts = Experts(backbone.vit, settings.experts, generator_at(seed, "shared"))

    def learn(self, task: TaskInfo) -> Learning:
        """Add experts and train them, of a later task in two halves, each of which ends with the head."""
        settings, num_new, rate = self.settings, len(task.classes), self.settings.learning_rate
        self.experts.grow(num_new, task.generator("experts"))
        self.head.open_block(num_new, task.generator("rows"))
        first = settings.epochs // 2 if self.tasks else 0
        if first:
            yield self._phase("first half", first, rate, rate / 2)
            if isinstance(self.head, RealignedHead):
                yield from self._finish(num_new)
                # The task's classes are taken back, to go on from their rows.
                self.head.block.data[:num_new] = self.head.rows.data[-num_new:]
                for _ in range(num_new):
                    self.head.forget(self.head.num_classes - 1)
            yield self._phase("second half", settings.epochs - first, rate / 2, 0.0)
        else:
            yield self._phase("train", settings.epochs, rate, 0.0)
        yield from self._finish(num_new)

    def _phase(self, name: str, epochs: int, rate: float, least: float) -> Phase:
        """Return a training of the newest experts, routers and probers, of the shared adapter, and of the rows."""
        groups = [group for block in self.experts.blocks for group in block.groups()]
        if not self.tasks or self.settings.as_published:
            for parameter in (parameter for block in self.experts.blocks for parameter in block.shared()):
                pull = Pull(0.999, parameter.detach().clone()) if self.tasks else None
                groups.append(Group(parameter, pull=pull))
        optimizer = replace(self.settings.optimizer, learning_rate=rate, least_rate=least)
        return self.phase(name, epochs, [*groups, *self.head.groups()], optimizer=optimizer)

    def _finish(self, num_new: int) -> Learning:
        """Finish the rows with features of images whose task is known."""
        found = yield Collect("features", self.known_features)
        yield from answered(self.head.finish(num_new), found)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy, and what the probers of all blocks lack to tell the classes apart."""
        size = int(self.experts.sizes[-1])
        with self.experts.spread(len(self.tasks)) as probed:
            features = bare_features(self, images)
        logits = self.head.block_logits(features)[:, :size]
        scale, margin = self.head.block_scale, self.settings.margin
        main = F.cross_entropy(margin_logits(logits, labels, margin * scale), labels, reduction="none")
        teacher = (logits / scale).detach()
        parts = [
            prober_loss(own[:, :size], teacher, labels, margin, 1.0 if 2 * index < len(probed) else 2.0)
            for index, own in enumerate(probed)
        ]
        return main + torch.stack(parts).mean(0)

    def known_features(self, images: Tensor) -> Tensor:
        """Return the features of images of the newest task."""
        return self._features(images, len(self.experts.sizes) - 1)

    def features(self, images: Tensor) -> Tensor:
        """Return the features of images of no known task, and beside them those as images of each task."""
        if not len(self.experts.sizes):
            return bare_features(self, images)
        tasks: list[int | None] = [None, *range(self.num_passes - 1)]
        return torch.cat([self._features(images, task) for task in tasks], dim=1)

    def _features(self, images: Tensor, task: int | None) -> Tensor:
        """Return the features of images of a task, if it is known."""
        with self.experts.spread(task):
            return bare_features(self, images)

    @property
    def num_passes(self) -> int:
        """One where the task is not known, and one for each task where there are not too many."""
        num_tasks = len(self.tasks)
        return 1 + num_tasks if self.settings.iterative and 1 < num_tasks <= MAX_TASKS else 1

    def classify(self, features: Tensor) -> Tensor:
        """Return logits, or, of several passes, the logarithm of the first one's and the surest other one's chances."""
        size, scale = self.head.num_features, self.head.scale
        if features.shape[1] == size:
            return self.head.logits(features)
        parts = [scale * self.head.logits(part) for part in torch.split(features, size, dim=1)]
        return together(torch.stack(parts, 1)).log() / scale


def prober_loss(own: Tensor, teacher: Tensor, labels: Tensor, margin: float, temperature: float) -> Tensor:
    """Return half of a prober's cross-entropy and of its divergence from the classifier, for each sample."""
    scaled = margin_logits(PROBER_SCALE * own, labels, PROBER_SCALE * margin)
    hard = F.cross_entropy(scaled, labels, reduction="none")
    chances, logs = (teacher / temperature).softmax(1), (own / temperature).log_softmax(1)
    soft = F.kl_div(logs, chances, reduction="none").sum(1) * temperature**2
    return (hard + soft) / 2


def together(logits_BPK: Tensor) -> Tensor:
    """Return the mean of the first answer's chances and of the chances of the least unsure of the others."""
    chances = logits_BPK.softmax(2)
    others = chances[:, 1:]
    unsure = -(others * others.clamp(min=1e-30).log()).sum(2)
    surest = others[torch.arange(len(others), device=others.device), unsure.argmin(1)]
    return ((chances[:, 0] + surest) / 2).clamp(min=1e-30)
