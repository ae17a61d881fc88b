"""A head that solves ridge regression from random features to classes, out of sums over all tasks.

Shapes: B samples, K classes so far, D features, M random features.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from clare.errors import ModelError
from clare.heads.head import Form, FormSettings, ScaleSettings
from clare.heads.random_features import (
    add_sums,
    best_ridge,
    one_hot,
    pack_symmetric,
    projected,
    ridge_errors,
    solve_ridge,
    unpack_symmetric,
)
from clare.heads.solved import SolvedHead
from clare.seeds import generator_at


class ProjectionSettings(ScaleSettings):
    """What every ridge regression on random features has."""

    kind: Literal["ridge"] = Field("ridge", description="Ridge regression on random features.")
    num_projected: int = Field(4000, ge=1, le=100_000, description="Random features of an image.")


class FixedRidgeSettings(ProjectionSettings):
    """Ridge regression at a ridge that a number says, of features as they are."""

    @property
    def row_form(self) -> Form:
        """Products of features as they are."""
        return "linear"


class RidgeSettings(ProjectionSettings, FormSettings):
    """Ridge regression whose ridge follows the sums."""

    ridge_share: float = Field(
        0.1, gt=0, le=1000, description="Ridge in units of the mean over random features of their sum of squares."
    )

    def make(self, num_features: int, seed: int) -> "RidgeHead":
        """Return the head of so many features, whose projection depends on the seed alone."""
        return RidgeHead(num_features, self, generator_at(seed, "head"), self.ridge_share)


class RidgeHead(SolvedHead):
    """Sums of random features as they were when each task was learnt; they cannot follow a drift of the features."""

    settings: ProjectionSettings
    projection: Tensor
    gram: Tensor
    sums: Tensor
    follows_drift = False
    per_class = (*SolvedHead.per_class, "sums")

    def __init__(
        self,
        num_features: int,
        settings: ProjectionSettings,
        generator: torch.Generator,
        ridge_share: float = 0.0,
        dtype: torch.dtype = torch.float32,
        keeps_classes: bool = True,
    ) -> None:
        super().__init__(num_features, settings)
        size, half = settings.num_projected, (settings.num_projected + 1) // 2
        self.ridge_share, self.dtype, self.keeps_classes = ridge_share, dtype, keeps_classes
        self.register_buffer("counts", self.counts, persistent=keeps_classes)
        self.register_buffer("projection", torch.randn(num_features, size, generator=generator))
        # Half of what the square matrix would take, in memory and in every checkpoint.
        self.register_buffer("gram", torch.zeros(half, 2 * half + 1, dtype=dtype))
        self.register_buffer("sums", torch.zeros(0, size, dtype=dtype))

    @property
    def finished_size(self) -> int:
        """Numbers in a finished row: a weight for each random feature."""
        return self.settings.num_projected

    @property
    def scale(self) -> float:
        """The scores regress to zero and one."""
        return self.settings.scale

    @property
    def finished_form(self) -> str:
        """Products with random features, which only this head can make."""
        return "ridge"

    def logits(self, features: Tensor) -> Tensor:
        """Return the products of the random features with the rows."""
        hidden = projected(self.seen(features), self.projection)
        with torch.autocast(hidden.device.type, enabled=False):
            return hidden @ self.rows.T

    def statistic(self, features: Tensor, labels: Tensor, weights: Tensor, num_classes: int) -> dict[str, Tensor]:
        """Return the sums over a batch that the rows are made of."""
        hidden = projected(self.seen(features), self.projection)
        with torch.autocast(hidden.device.type, enabled=False):
            weighted = hidden * weights.to(hidden)[:, None]
            own = {"gram": weighted.T @ hidden, "hidden": one_hot(labels, num_classes, hidden).T @ weighted}
        return {**super().statistic(features, labels, weights, num_classes), **own}

    def add_classes(self, sums: dict[str, Tensor]) -> None:
        """Take over the sums of new classes."""
        super().add_classes(sums)
        self.gram.add_(pack_symmetric(sums["gram"].to(self.gram)))
        self.sums = torch.cat([self.sums, sums["hidden"].to(self.sums)])

    def add_samples(self, places: Tensor, sums: dict[str, Tensor]) -> None:
        """Take over the sums of more samples of known classes."""
        super().add_samples(places, sums)
        self.gram.add_(pack_symmetric(sums["gram"].to(self.gram)))
        self.sums[places] += sums["hidden"].to(self.sums)

    def sums_of(self, chosen: Tensor) -> dict[str, Tensor]:
        """Return the sums of some classes, and none of products."""
        none = self.gram.new_zeros(self.finished_size, self.finished_size)
        return {**super().sums_of(chosen), "gram": none, "hidden": self.sums[chosen]}

    def add_shared(self, other: SolvedHead) -> None:
        """Take over the products of another head."""
        assert isinstance(other, RidgeHead)
        if not torch.equal(self.projection, other.projection):
            raise ModelError("the models draw other random features; make them with the same --seed to merge them")
        self.gram.add_(other.gram)

    def add(self, features: Tensor, labels: Tensor, num_new: int) -> None:
        """Add features of a task's images to the sums, in the precision of these."""
        first = len(self.sums)
        self.sums = torch.cat([self.sums, self.sums.new_zeros(num_new, self.finished_size)])
        self.show(features, labels + first)

    def show(self, features: Tensor, labels: Tensor) -> None:
        """Add images of known classes to the sums."""
        gram = unpack_symmetric(self.gram, self.finished_size)
        add_sums(gram, self.sums, features, labels, self.projection.to(self.dtype))
        self.gram.copy_(pack_symmetric(gram))

    def choose_ridge(self, features: Tensor, labels: Tensor, num_new: int) -> float:
        """Return the ridge that predicts the last fifth of a task's images best from those before them."""
        return best_ridge(ridge_errors(features, labels, num_new, self.projection.to(self.dtype)))

    def solve(self) -> Tensor:
        """Return the rows of all classes at a ridge that follows the sums."""
        gram = unpack_symmetric(self.gram, self.finished_size)
        # Random features that are all nothing leave a ridge of nothing, which no factor of ten would raise.
        return self.solve_at(max(float(self.ridge_share * gram.diagonal().mean()), torch.finfo(gram.dtype).tiny))[0]

    def solve_at(self, ridge: float) -> tuple[Tensor, float]:
        """Return the rows of all classes, and the ridge that made them solvable."""
        rows, used = solve_ridge(unpack_symmetric(self.gram, self.finished_size), self.sums, ridge)
        return rows.float(), used

    def reserve(self, num_rows: int) -> None:
        """Make room for a block only where a task's training may need one."""
        if self.keeps_classes:
            super().reserve(num_rows)
