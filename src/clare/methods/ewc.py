"""EWC and online EWC: what the answers of earlier tasks hang on is held where it was, each number by its importance.

Kirkpatrick and others: "Overcoming catastrophic forgetting in neural networks" (PNAS 2017); Schwarz and others:
"Progress & Compress" (ICML 2018). Shapes: N numbers, B images, C classes of the task.
"""

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.backbones.vit import Backbone
from clare.methods._shared.sample_gradients import NUM_AT_ONCE, Single, sample_gradients, some_of
from clare.methods._shared.tuned import TunedMethod, TunedSettings
from clare.methods.base import register
from clare.methods.protocols import KeepsRowsAlone
from clare.settings import Acts
from clare.steps import Group, Learning, Pass, TaskInfo

Labels = Literal["true", "sampled", "exact"]


class EwcSettings(TunedSettings):
    """How importance is measured, added up and paid for."""

    acts: ClassVar[Acts] = {**TunedSettings.acts, "decay": {"online": (True,)}}

    weight: float = Field(
        100.0, ge=0, le=1e9, description="Factor on the penalty; half of importance times squared movement is paid."
    )
    online: bool = Field(
        True,
        description="Keep one running importance and pull each number to its value after the last task; otherwise pull "
        "to its value after each earlier task, by that task's own importance.",
    )
    decay: float = Field(
        1.0, ge=0, le=1, description="Factor on the running importance when a new task comes; below 1 it fades."
    )
    labels: Labels = Field(
        "true",
        description="Labels for whose log-likelihood importance is the squared gradient: the images' own, labels drawn "
        "from the model's probabilities, or all labels weighted by these.",
    )
    fisher_share: float = Field(
        1.0, gt=0, le=1, description="Share of a task's images, drawn at random, on which importance is measured."
    )
    normalise: bool = Field(
        True, description="Divide a task's importance by its mean over all numbers, so that tasks weigh the same."
    )


@register
class Ewc(TunedMethod, KeepsRowsAlone):
    """Training with springs, as stiff as the answers of earlier tasks are sensitive."""

    name = "ewc"
    summary = "holds each tuned number to its value before, by how much earlier answers depend on it"
    family = "regularisation"
    settings: EwcSettings
    fisher: Tensor
    centre: Tensor
    stiffness: Tensor

    def __init__(self, backbone: Backbone, settings: EwcSettings, seed: int) -> None:
        super().__init__(backbone, settings, seed)
        self.register_buffer("fisher", torch.zeros_like(self.values.data))
        # Online, the next task begins at the centre.
        self.register_buffer("centre", self.values.detach().clone(), persistent=not settings.online)
        self.register_buffer("stiffness", torch.zeros_like(self.values.data), persistent=False)

    def learn(self, task: TaskInfo) -> Learning:
        """Train against the springs, measure what this task's answers depend on, then finish the rows."""
        settings, num_new = self.settings, len(task.classes)
        decay = settings.decay if settings.online else 1.0
        self.head.open_block(num_new, task.generator("rows"))
        if settings.online or not self.tasks:
            self.centre.copy_(self.values)
        # A stiffer spring would throw a number past its centre, and further at every step.
        self.stiffness.copy_((settings.weight * decay * self.fisher).clamp(max=1 / settings.learning_rate))
        groups = [Group(self.values, decay_towards=self.values.detach().clone()), *self.head.groups()]
        yield self.phase("train", settings.epochs, groups)
        found = yield Pass("importance", self.importance_on(num_new), of="images")
        fisher = found["squares"] / found["count"].clamp(min=1)
        fisher = fisher / fisher.mean().clamp(min=torch.finfo(fisher.dtype).tiny) if settings.normalise else fisher
        total = decay * self.fisher + fisher
        if not settings.online:
            self.centre.copy_(centre_of(self.fisher, self.centre, fisher, self.values.data))
        self.fisher.copy_(total)
        yield from self.head.finish(num_new)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return each image's cross-entropy over the task's classes, and the penalty beside it."""
        return super().loss(images, labels) + penalty(self.values, self.centre, self.stiffness)

    def importance_on(self, num_new: int) -> Any:
        """Return the statistic that adds up squared gradients of the log-likelihood of so many classes' labels."""

        def likelihood(values: Tensor, image: Tensor, label: Tensor) -> Tensor:
            return F.log_softmax(self.new_logits(image[None], values, num_new), dim=1)[0].gather(0, label[None])[0]

        def statistic(images: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
            images, labels = some_of(images, labels, weights, self.settings.fisher_share)
            values = self.values.data
            if not len(images):
                return {"squares": torch.zeros_like(values), "count": values.new_tensor(0)}
            shares = F.softmax(self.new_logits(images, values, num_new).float(), dim=1)
            weighed = weighed_labels(self.settings.labels, labels, shares)
            squares = summed_squares(likelihood, values, images, weighed)
            return {"squares": squares, "count": squares.new_tensor(len(images))}

        return statistic

    def new_logits(self, images: Tensor, values: Tensor, num_new: int) -> Tensor:
        """Return the scaled scores of the task's classes with these values."""
        return self.head.block_logits(self.features_at(images, values))[:, :num_new]


def summed_squares(
    likelihood: Single, values_N: Tensor, images: Tensor, weighed: list[tuple[Tensor, Tensor]]
) -> Tensor:
    """Return the sum over images of the squared gradients of their log-likelihoods, each label with its weight."""
    squares = torch.zeros_like(values_N)
    for labels, shares in weighed:
        parts = torch.split(shares, NUM_AT_ONCE)
        for gradients, part in zip(sample_gradients(likelihood, values_N, images, labels), parts, strict=True):
            squares += part @ gradients.square()
    return squares


def penalty(values_N: Tensor, centre_N: Tensor, stiffness_N: Tensor) -> Tensor:
    """Return half the squared distances to the centre, each by its stiffness."""
    return 0.5 * (stiffness_N * (values_N - centre_N).square()).sum()


def centre_of(fisher_N: Tensor, centre_N: Tensor, new_N: Tensor, values_N: Tensor) -> Tensor:
    """Return where springs to an earlier centre and to new values together pull, but for a constant, to one point."""
    total = fisher_N + new_N
    return torch.where(total > 0, (fisher_N * centre_N + new_N * values_N) / total, values_N)


def weighed_labels(choice: Labels, labels_B: Tensor, shares_BC: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the labels whose likelihoods are taken, each with its weight for every image."""
    if choice == "exact":
        return [(torch.full_like(labels_B, label), shares_BC[:, label]) for label in range(shares_BC.shape[1])]
    drawn = labels_B if choice == "true" else torch.multinomial(shares_BC, 1)[:, 0]
    return [(drawn, torch.ones_like(shares_BC[:, 0]))]
