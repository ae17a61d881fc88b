"""A head whose trained rows are trained again on drawn features, as SLCA began it and its successors do.

Shapes: B samples, K classes so far, T tasks so far, D features, W numbers in a row.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.heads.aligned import DrawnHead, GaussianFeatures
from clare.heads.head import FormSettings, Head, TrainingSettings
from clare.heads.statistics import ridged_factors
from clare.steps import Group, Learning, Phase, Sgd

Decay = Literal["none", "older", "newer"]
"""Which classes' means are drawn closer to zero: none, those of older tasks, or, as some code has it, of newer ones."""
LEAST = 0.9
"""Factor on the mean of a class that is as old, or as new, as can be."""


class RealignedSettings(FormSettings, TrainingSettings):
    """The Gaussians, and the published recipe of training on them; what differs between methods are settings."""

    kind: Literal["realigned"] = Field(
        "realigned", description="Rows trained by the task, then all of them again on features drawn for each class."
    )
    align_epochs: int = Field(5, ge=1, le=1000, description="Epochs of training the rows again.")
    align_samples: int = Field(256, ge=1, le=100_000, description="Features drawn per class and epoch, and per step.")
    align_learning_rate: float = Field(0.01, gt=0, le=100, description="Learning rate of training the rows again.")
    align_weight_decay: float = Field(5e-4, ge=0, le=1, description="Weight decay of training the rows again.")
    align_turn: int = Field(
        0, ge=0, le=1000, description="Epochs in which that rate falls to zero, before it rises again; 0: all epochs."
    )
    align_ridge: float = Field(1e-3, ge=1e-12, le=1e6, description="What is added to the variances of a class.")
    align_diagonal: bool = Field(
        False, description="Keep only the variances of a class, and draw features with independent entries."
    )
    align_decay: Decay = Field(
        "older", description="Whose means are made shorter by up to a tenth: nobody's, older tasks', or newer tasks'."
    )
    align_temperature: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="Temperature of logits over the mean norm of a task's logits; 0 scales them as in training.",
    )
    align_fade: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share by which drawn features get shorter, and features at test longer, with each task since.",
    )
    restores: bool = Field(
        False,
        description="Before a task, put the rows back to what the tasks had trained, without their second training.",
    )

    def make(self, num_features: int, seed: int) -> "RealignedHead":
        """Return the head of so many features."""
        return RealignedHead(num_features, self)


class RealignedHead(DrawnHead):
    """Rows, for each class a Gaussian and the number of its task, and the rows as tasks trained them."""

    per_class = (*Head.per_class, "tasks", "trained")
    settings: RealignedSettings
    tasks: Tensor
    trained: Tensor
    keeps_classes = False

    def __init__(self, num_features: int, settings: RealignedSettings) -> None:
        super().__init__(num_features, settings)
        self.register_buffer("tasks", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("trained", torch.zeros(0, self.row_size))

    @property
    def finished_form(self) -> str:
        """How finished rows are applied to features; where features count by their class's age, only by this head."""
        return super().finished_form if self.settings.align_fade == 0 else "realigned"

    def logits(self, features: Tensor) -> Tensor:
        """Return the scores of all classes so far, shape (B, K), older ones of features that count for more."""
        if self.settings.align_fade == 0 or not len(self.tasks):
            return super().logits(features)
        ages = (self.tasks.max() - self.tasks).to(self.rows.dtype)
        # A bias does not grow with the features.
        bias = self.rows[:, -1] if self.settings.form == "linear" else 0.0
        return (self.scores(features, self.rows) - bias) * (1 + self.settings.align_fade * ages) + bias

    def finish(self, num_new: int) -> Learning:
        """Add the task's rows and Gaussians, and from the second task on train all rows on all Gaussians."""
        sums = yield self.sweep(num_new)
        if self.settings.restores:
            self.rows.data.copy_(self.trained)
        task = int(self.tasks.max()) + 1 if len(self.tasks) else 0
        self.append(self.block.data[:num_new])
        if self.settings.restores:
            self.trained = self.rows.data.clone()
        self.add_gaussians(sums, ridged_factors(sums, self.settings.align_ridge, self.settings.align_diagonal))
        self.tasks = torch.cat([self.tasks, self.tasks.new_full((num_new,), task)])
        if task > 0:
            yield self._alignment()

    def _alignment(self) -> Phase:
        """Ask for a training of all rows on features drawn from the class Gaussians."""
        settings = self.settings
        means = self.means * mean_factors(self.tasks, settings.align_decay).to(self.means)[:, None]
        ages = self.tasks.max() - self.tasks
        return Phase(
            "align",
            settings.align_epochs,
            [Group(self.rows)],
            self.align_loss,
            Sgd(settings.align_learning_rate, 0.9, settings.align_weight_decay, turn=settings.align_turn),
            settings.align_samples,
            GaussianFeatures(means, self.factors, settings.align_samples, ages, settings.align_fade),
        )

    def align_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return each drawn feature's cross-entropy over all classes so far."""
        logits = self.scores(features, self.rows)
        temperature = self.settings.align_temperature
        scaled = decoupled(logits, self.tasks, temperature) if temperature else self.scale * logits
        return F.cross_entropy(scaled, labels, reduction="none")


def mean_factors(tasks_K: Tensor, decay: Decay) -> Tensor:
    """Return the factor on the mean of each class, whose task is counted from 0, while the last task is learnt."""
    if decay == "none":
        return torch.ones(len(tasks_K), device=tasks_K.device)
    num_tasks = int(tasks_K.max()) + 1
    if decay == "older":
        return LEAST + (1 - LEAST) * (tasks_K + 1) / num_tasks
    # The code divides a class's number by the task's size with its sign turned, and rounds down.
    size = int((tasks_K == tasks_K.max()).sum())
    place = torch.arange(len(tasks_K), device=tasks_K.device)
    return LEAST + (1 - LEAST) * (1 - torch.ceil(place / size)) / num_tasks


def task_norms(logits_BK: Tensor, tasks_K: Tensor) -> Tensor:
    """Return the mean over tasks of the norm of each task's logits, shape (B, 1)."""
    num_tasks = int(tasks_K.max()) + 1
    members = F.one_hot(tasks_K, num_tasks).to(logits_BK)
    squares: Tensor = (logits_BK.square() @ members).clamp(min=1e-20)
    return squares.sqrt().mean(1, keepdim=True) + 1e-7


def decoupled(logits_BK: Tensor, tasks_K: Tensor, temperature: float) -> Tensor:
    """Return logits divided by the mean norm of a task's logits and by a temperature."""
    return logits_BK / task_norms(logits_BK, tasks_K) / temperature
