"""A head that solves ridge regression from random features to classes, out of sums over all tasks.

Shapes: N images or B samples, D features, M random features, C classes of a task, K classes so far.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.errors import ModelError
from clare.heads.head import Form, FormSettings, ScaleSettings
from clare.heads.solved import SolvedHead
from clare.seeds import generator_at

CANDIDATES = tuple(10.0**power for power in range(-8, 9))
LARGEST_RIDGE = 1e16
FIT_SHARE = 0.8
NUM_ROWS = 4096
"""Images whose random features are in memory at a time."""


def projected(features_ND: Tensor, projection_DM: Tensor) -> Tensor:
    """Return relu(features @ projection) in the projection's type, whatever autocast says, shape (N, M)."""
    with torch.autocast(features_ND.device.type, enabled=False):
        return (features_ND.to(projection_DM.dtype) @ projection_DM).relu()


def add_sums(gram_MM: Tensor, sums_CM: Tensor, features: Tensor, labels: Tensor, projection: Tensor) -> None:
    """Add H^T H and Y^T H of some images to the sums, a chunk of images at a time."""
    for part, part_labels in zip(torch.split(features, NUM_ROWS), torch.split(labels, NUM_ROWS), strict=True):
        hidden = projected(part, projection)
        gram_MM.addmm_(hidden.T, hidden)
        sums_CM.addmm_(F.one_hot(part_labels, len(sums_CM)).to(hidden).T, hidden)


def ridge_errors(features: Tensor, labels: Tensor, num_classes: int, projection: Tensor) -> Tensor:
    """Return each candidate's mean squared error on the last fifth of the images, fitted to those before them."""
    num_fit, size = int(FIT_SHARE * len(features)), projection.shape[1]
    fit, judged = features[:num_fit], projected(features[num_fit:], projection)
    targets = F.one_hot(labels, num_classes).to(judged)
    if num_fit <= size:
        # The same predictions from products of images: a smaller system, and no zero eigenvalues to be rounded.
        hidden = projected(fit, projection)
        system, right, reader = hidden @ hidden.T, targets[:num_fit], judged @ hidden.T
    else:
        system, sums = judged.new_zeros(size, size), judged.new_zeros(num_classes, size)
        add_sums(system, sums, fit, labels[:num_fit], projection)
        right, reader = sums.T, judged
    errors = []
    for ridge in CANDIDATES:
        factor, failed = _factor(system, ridge)
        error = (reader @ torch.cholesky_solve(right, factor) - targets[num_fit:]).square().mean()
        errors.append(torch.where(failed == 0, error, torch.inf))
    return torch.stack(errors).nan_to_num(torch.inf, torch.inf)


def best_ridge(errors: Tensor) -> float:
    """Return the first candidate with the smallest error."""
    values: list[float] = errors.tolist()
    return CANDIDATES[values.index(min(values))]


def solve_ridge(gram_MM: Tensor, sums_KM: Tensor, ridge: float) -> tuple[Tensor, float]:
    """Return rows (K, M) with rows @ (gram + ridge I) = sums, and the ridge: ten times as large until that works."""
    while ridge <= LARGEST_RIDGE:
        factor, failed = _factor(gram_MM, ridge)
        if not bool(failed):
            return torch.cholesky_solve(sums_KM.T, factor).T.contiguous(), ridge
        ridge *= 10
    raise ModelError("the random features have no usable sums; look for features that are not finite numbers")


def _factor(system: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factor of system + ridge I, and a number that is not zero when there is none."""
    shifted = system.clone()
    shifted.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    return factor, failed


def pack_symmetric(matrix: Tensor) -> Tensor:
    """Return the lower triangle of a symmetric matrix as a rectangle: row i follows row M - 1 - i."""
    if len(matrix) % 2:
        matrix = F.pad(matrix, (0, 1, 0, 1))
    size = len(matrix)
    long, short = F.pad(matrix[size // 2 :].flip(0), (0, 1)), F.pad(matrix[: size // 2].flip(1), (1, 0))
    return torch.where(_is_long(size, matrix.device), long, short)


def unpack_symmetric(packed: Tensor, size: int) -> Tensor:
    """Undo `pack_symmetric`."""
    even = 2 * len(packed)
    is_long = _is_long(even, packed.device)
    long, short = torch.where(is_long, packed, 0)[:, :-1].flip(0), torch.where(is_long, 0, packed)[:, 1:].flip(1)
    lower = torch.cat([short, long])[:size, :size]
    return lower + lower.tril(-1).T


def _is_long(size: int, device: torch.device) -> Tensor:
    """Mark the places of a packed matrix of even size that hold the longer row of a pair."""
    columns, rows = torch.arange(size + 1, device=device), torch.arange(size // 2, device=device)
    return columns < size - rows[:, None]


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
    finished_form = "ridge"
    """Products with random features, which only this head can make."""

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
            own = {"gram": weighted.T @ hidden, "hidden": F.one_hot(labels, num_classes).to(hidden).T @ weighted}
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
