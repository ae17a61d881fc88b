"""A head whose rows are trained again, on features drawn from one Gaussian for each class.

Shapes: K classes so far, D features.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.heads.drift import Drift, moved, stretched
from clare.heads.head import USUAL_SHRINKAGE, FormSettings, Head, ScaleSettings, ShrinkageSettings
from clare.heads.statistics import class_means, covariances, gaussian_factors, merged
from clare.steps import Group, Learning, Phase, Sgd


class AlignedSettings(FormSettings, ScaleSettings, ShrinkageSettings):
    """The Gaussians, and the recipe of training on them."""

    kind: Literal["aligned"] = Field(
        "aligned", description="Rows trained again on features drawn from one Gaussian per class."
    )
    align_epochs: int = Field(10, ge=1, le=1000, description="Epochs of training the rows again.")
    align_samples: int = Field(64, ge=1, le=100_000, description="Features drawn per class and epoch.")
    align_learning_rate: float = Field(0.1, gt=0, le=100, description="Learning rate of training the rows again.")
    align_batch_size: int = Field(256, ge=1, le=1_000_000, description="Batch size of training the rows again.")

    @property
    def class_shrinkage(self) -> float:
        """Weight of the identity in the covariance of one class by itself, for which there is no rule."""
        return USUAL_SHRINKAGE if self.shrinkage == "auto" else self.shrinkage

    def make(self, num_features: int, seed: int) -> "AlignedHead":
        """Return the head of so many features."""
        return AlignedHead(num_features, self)


class DrawnHead(Head):
    """What the heads have in common that train rows on features drawn from one Gaussian for each class."""

    sums_products = True

    def add_gaussians(self, sums: dict[str, Tensor], factors: Tensor) -> None:
        """Add the means and the roots of the covariances of new classes."""
        self.means = torch.cat([self.means, class_means(sums).to(self.means)])
        self.factors = torch.cat([self.factors, factors.to(self.factors)])

    def carry_over(self, drift: Drift) -> None:
        """Move means and covariances to where a task's training took the features."""
        self.means, self.factors = moved(self.means, drift), stretched(self.factors, drift)


class AlignedHead(DrawnHead):
    """Rows, and for each class the mean and the root of the covariance of its features."""

    settings: AlignedSettings

    def finish(self, num_new: int) -> Learning:
        """Add the Gaussians of the task's classes, and train all rows on all Gaussians."""
        sums = yield self.sweep(num_new)
        self.append(class_means(sums) if self.settings.form == "cosine" else self.block.data[:num_new])
        self.add_gaussians(sums, self._factors(sums))
        yield self._alignment()

    def renew(self, places: Tensor, counts: Tensor, sums: dict[str, Tensor]) -> Learning:
        """Widen the Gaussians of these classes, and train all rows again."""
        within = covariances(self.means[places], self.factors[places], self.settings.class_shrinkage)
        together = merged(counts.to(places.device), self.means[places], within, sums)
        self.means[places] = class_means(together).to(self.means)
        self.factors[places] = self._factors(together).to(self.factors)
        yield self._alignment()

    def _factors(self, sums: dict[str, Tensor]) -> Tensor:
        """Return the roots of the covariances."""
        return gaussian_factors(sums, self.settings.class_shrinkage)

    def _alignment(self) -> Phase:
        """Ask for a training of all rows on features drawn from the class Gaussians; cosine rows start at the means."""
        settings = self.settings
        if settings.form == "cosine":
            self.rows.data.copy_(F.normalize(self.means, dim=1))
        return Phase(
            "align",
            settings.align_epochs,
            [Group(self.rows)],
            self.row_loss,
            Sgd(settings.align_learning_rate),
            settings.align_batch_size,
            GaussianFeatures(self.means, self.factors, settings.align_samples),
        )


class GaussianFeatures:
    """Features drawn afresh for every epoch from one Gaussian per class, the same number for each class.

    Where they fade, those of a class are shorter the older it is; how much shorter is drawn as well.
    """

    def __init__(
        self, means: Tensor, factors: Tensor, samples_per_class: int, ages: Tensor | None = None, fade: float = 0.0
    ) -> None:
        self.means, self.factors, self.ages, self.fade = means, factors, ages, fade
        self.samples_per_class = samples_per_class
        self.num_samples = len(means) * samples_per_class
        self.device = means.device
        self.features = means.new_zeros(0)

    def begin_epoch(self, generator: torch.Generator) -> None:
        """Draw the features of an epoch, all samples of a class with one matrix product."""
        num_classes, size = self.means.shape
        noise = torch.randn(num_classes, self.samples_per_class, size, generator=generator).to(self.means)
        self.features = (self.means[:, None] + noise @ self.factors.mT).flatten(0, 1)
        if self.ages is not None and self.fade > 0:
            spread = 0.02 * (torch.rand(self.num_samples, generator=generator).to(self.features) - 0.5)
            ages = self.ages.to(self.features).repeat_interleave(self.samples_per_class)
            self.features = self.features / (1 + (self.fade + spread) * ages)[:, None]

    def draw(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features at these positions and their classes."""
        return self.features[positions], positions // self.samples_per_class
