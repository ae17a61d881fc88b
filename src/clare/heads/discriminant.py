"""A head whose finished rows are the linear discriminant of all classes, solved anew after every task.

Shapes: B samples, K classes so far, D features.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.heads.drift import Drift, moved, stretched
from clare.heads.head import FormSettings, ShrinkageSettings
from clare.heads.precision import Precision, Strangers
from clare.heads.solved import SolvedHead
from clare.heads.statistics import (
    added_scatter,
    discriminant_rows,
    scatter_sums,
    shrinkage_for,
    shrunk_covariance,
    within_scatter,
)


class DiscriminantSettings(FormSettings, ShrinkageSettings):
    """The linear discriminant."""

    kind: Literal["discriminant"] = Field(
        "discriminant", description="The linear discriminant of class means and one covariance of all classes."
    )

    def make(self, num_features: int, seed: int) -> "DiscriminantHead":
        """Return the head of so many features."""
        return DiscriminantHead(num_features, self)


class DiscriminantHead(SolvedHead):
    """Class means and one covariance of all classes."""

    settings: ShrinkageSettings
    scatter: Tensor
    scale = 1.0
    """The scores are log posteriors already."""

    def __init__(self, num_features: int, settings: ShrinkageSettings) -> None:
        super().__init__(num_features, settings)
        self.register_buffer("scatter", torch.zeros(num_features, num_features))
        self._strangers: tuple[Tensor, Strangers] | None = None

    @property
    def finished_size(self) -> int:
        """Numbers in a finished row: a weight for each feature and a bias."""
        return self.num_features + 1

    @property
    def finished_form(self) -> str:
        """Products plus biases, of features of length one where the task was trained with cosines."""
        return "unit-linear" if self.is_unit else "linear"

    def logits(self, features: Tensor) -> Tensor:
        """Return the scores of all classes so far, shape (B, K)."""
        with torch.autocast(self.rows.device.type, enabled=False):
            return F.linear(self.seen(features), self.rows[:, :-1], self.rows[:, -1])

    def statistic(self, features: Tensor, labels: Tensor, weights: Tensor, num_classes: int) -> dict[str, Tensor]:
        """Return count and sum per class, and one sum of outer products."""
        return scatter_sums(self.seen(features), labels, weights, num_classes)

    def add_classes(self, sums: dict[str, Tensor]) -> None:
        """Take over the sums of new classes."""
        super().add_classes(sums)
        self.gather(sums)

    def add_samples(self, places: Tensor, sums: dict[str, Tensor]) -> None:
        """Take over the sums of more samples of known classes."""
        self.gather_more(places, sums)
        super().add_samples(places, sums)

    def gather(self, sums: dict[str, Tensor]) -> None:
        """Add how samples of new classes scatter."""
        self.scatter.add_(within_scatter(sums).to(self.scatter))

    def gather_more(self, places: Tensor, sums: dict[str, Tensor]) -> None:
        """Add how more samples of known classes scatter, and how far the means of both lie apart."""
        self.scatter.add_(added_scatter(self.counts[places], self.means[places], sums).to(self.scatter))

    def sums_of(self, chosen: Tensor) -> dict[str, Tensor]:
        """Return the sums of some classes whose samples all lie at the mean of their class."""
        sums = super().sums_of(chosen)
        return {**sums, "outer": self.means[chosen].double().T @ sums["sum"]}

    def add_shared(self, other: SolvedHead) -> None:
        """Take over the scatter of another head."""
        assert isinstance(other, DiscriminantHead)
        self.scatter.add_(other.scatter)

    def solve(self) -> Tensor:
        """Return the rows of all classes, made out of the statistics."""
        return discriminant_rows(self.means, self.scatter, float(self.counts.sum()), self.shrinkage)

    def strangers(self) -> Strangers:
        """Return what tells how well samples go with the classes, made anew whenever the rows were."""
        if self._strangers is None or self._strangers[0] is not self.rows:
            # What names classes best may shrink so much that strangers look as near as anybody.
            usual = shrinkage_for(self.num_features, float(self.counts.sum()))
            self._strangers = self.rows, Strangers(self.means, self.counts, self.precision(usual))
        return self._strangers[1]

    def precision(self, shrinkage: float) -> Precision:
        """Return the inverse of the covariance of all classes, shrunk as much."""
        number = float(self.counts.sum())
        return Precision.of_matrix(shrunk_covariance(self.means, self.scatter, number, shrinkage))

    @property
    def shrinkage(self) -> float:
        """Weight of the identity in the covariance of all classes so far."""
        chosen = self.settings.shrinkage
        return shrinkage_for(self.num_features, float(self.counts.sum())) if chosen == "auto" else chosen

    @property
    def directions(self) -> Tensor:
        """Rows that compare with those of the block: class means, or the linear rows themselves."""
        return self.means if self.is_unit else self.rows.data

    def forget(self, place: int) -> None:
        """Let the scatter stand for as many samples as the other classes have; whose they were is not known."""
        self.scatter.mul_(1 - self.counts[place] / self.counts.sum())
        super().forget(place)

    def carry_over(self, drift: Drift) -> None:
        """Move class means and the covariance to where a task's training took the features."""
        self.means = moved(self.means, drift)
        # The root of a covariance is stretched on one side, the covariance itself on both.
        self.scatter.copy_(stretched(stretched(self.scatter, drift).T, drift))
