"""A head of one Gaussian per class, whose covariance is the class's own drawn towards that of all classes.

Friedman, "Regularized Discriminant Analysis" (1989), with the class's own covariance in its leading directions alone.
Shapes: B samples, K classes so far, D features, R leading directions of a class.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from clare.heads.discriminant import DiscriminantHead
from clare.heads.drift import Drift, stretched
from clare.heads.head import HeadSettings
from clare.heads.scatter import shrunk_covariance
from clare.heads.statistics import class_sums

NUM_SWEEPS = 8
"""Sweeps of subspace iteration; the leading directions of features stand out, so that few are enough."""
SPARE = 8
"""Directions that are sought beyond twice those that are asked for, so that these are found in few sweeps."""


def class_scatter(sums: dict[str, Tensor], place: int) -> Tensor:
    """Return one class's sum of outer products around its mean, shape (D, D)."""
    total = sums["sum"][place]
    return sums["outer"][place] - torch.outer(total, total) / sums["count"][place].clamp(min=1)


def leading_factor(covariance_DD: Tensor, num_directions: int) -> Tensor:
    """Return the root (D, R) of a covariance in the directions where it is largest; zeros where it has no more."""
    size = len(covariance_DD)
    width = min(size, 2 * num_directions + SPARE)
    # Any start will do, but the same covariance must have the same root everywhere.
    start = torch.randn(size, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    basis, _ = torch.linalg.qr(start.to(covariance_DD))
    for _ in range(NUM_SWEEPS if width < size else 0):
        basis, _ = torch.linalg.qr(covariance_DD @ basis)
    values, vectors = torch.linalg.eigh(basis.T @ covariance_DD @ basis)
    kept = min(width, num_directions)
    root = (basis @ vectors[:, -kept:]) * values[-kept:].clamp(min=0).sqrt()
    return F.pad(root, (0, num_directions - kept))


def quadratic_rows(means_KD: Tensor, covariance_DD: Tensor, factors_KDR: Tensor, own_share: float) -> Tensor:
    """Return 1 + R rows of D weights and a bias for each class, shape (K, 1 + R, D + 1).

    A class's log posterior, but for a constant, is the first row's product plus half the sum of squares of the others.
    """
    means, factors = means_KD.double(), factors_KDR.double()
    num_classes, size, num_directions = factors.shape
    cholesky = torch.linalg.cholesky(covariance_DD)
    ratio = own_share / (1 - own_share)
    # What all classes have in common is left out: it decides nothing, and would cost digits.
    centre = means.mean(0)
    weights = torch.cholesky_solve((means - centre).T, cholesky).T / (1 - own_share)
    flat = factors.permute(1, 0, 2).reshape(size, num_classes * num_directions)
    solved = torch.cholesky_solve(flat, cholesky).view(size, num_classes, num_directions).permute(1, 2, 0)
    identity = torch.eye(num_directions, dtype=torch.float64, device=means.device)
    # By the formula of Woodbury, the inverse of a class's covariance is that of all classes less a part of rank R.
    inner = torch.linalg.cholesky(identity + ratio * solved @ factors)
    turned = torch.linalg.solve_triangular(inner, solved, upper=False) * math.sqrt(ratio / (1 - own_share))
    log_volume = inner.diagonal(dim1=1, dim2=2).log().sum(1, keepdim=True)
    bias = -0.5 * (weights * (means + centre)).sum(1, keepdim=True) - log_volume
    linear = torch.cat([weights, bias], 1)
    return torch.cat([linear[:, None], torch.cat([turned, -turned @ means[:, :, None]], 2)], 1)


def quadratic_scores(features_BD: Tensor, rows_KRW: Tensor) -> Tensor:
    """Return log posteriors but for a constant, shape (B, K)."""
    products = F.linear(features_BD, rows_KRW[..., :-1].flatten(0, 1), rows_KRW[..., -1].flatten())
    products = products.view(-1, *rows_KRW.shape[:2])
    return products[..., 0] + 0.5 * products[..., 1:].square().sum(2)


class QuadraticHead(DiscriminantHead):
    """Class means, one covariance of all classes, and the leading directions of each class's own."""

    def __init__(self, num_features: int, settings: HeadSettings) -> None:
        super().__init__(num_features, settings)
        self.factors = self.factors.new_zeros(0, num_features, settings.num_directions)

    @property
    def finished_size(self) -> int:
        """Numbers in a finished row: a linear part and one for each direction, each with a bias."""
        return (1 + self.settings.num_directions) * (self.num_features + 1)

    @property
    def finished_form(self) -> str:
        """Products plus half a sum of squares, of features of length one where the task was trained with cosines."""
        return "unit-quadratic" if self.is_unit else "quadratic"

    def logits(self, features: Tensor) -> Tensor:
        """Return the scores of all classes so far, shape (B, K)."""
        with torch.autocast(self.rows.device.type, enabled=False):
            return quadratic_scores(self.seen(features), self._parts())

    def _parts(self) -> Tensor:
        """Return the finished rows by their parts, shape (K, 1 + R, D + 1)."""
        return self.rows.view(len(self.rows), -1, self.num_features + 1)

    def statistic(self, features: Tensor, labels: Tensor, weights: Tensor, num_new: int) -> dict[str, Tensor]:
        """Return count, sum and sum of outer products per class."""
        return class_sums(self.seen(features), labels, weights, num_new, outer=True)

    def add_classes(self, sums: dict[str, Tensor]) -> None:
        """Take over the sums of new classes."""
        counts = sums["count"].clamp(min=1)
        # One class at a time: with several blocks read, the square matrices of all classes fill a memory.
        roots = [self._root(class_scatter(sums, place) / count) for place, count in enumerate(counts)]
        self.factors = torch.cat([self.factors, *(root[None] for root in roots)])
        super().add_classes(self._shared(sums))

    def add_samples(self, places: Tensor, sums: dict[str, Tensor]) -> None:
        """Take over the sums of more samples of known classes."""
        for number, place in enumerate(places.tolist()):
            old, new = self.counts[place].double(), sums["count"][number]
            root, total = self.factors[place].double(), (old + new).clamp(min=1)
            apart = sums["sum"][number] / new.clamp(min=1) - self.means[place].double()
            scatter = old * root @ root.T + class_scatter(sums, number) + torch.outer(apart, apart) * old * new / total
            self.factors[place] = self._root(scatter / total)
        super().add_samples(places, self._shared(sums))

    def _root(self, covariance: Tensor) -> Tensor:
        """Return the leading root of a covariance as it is kept."""
        return leading_factor(covariance, self.settings.num_directions).to(self.factors)

    @staticmethod
    def _shared(sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return sums as a head keeps them that knows one covariance alone."""
        return {**sums, "outer": sums["outer"].sum(0)}

    def solve(self) -> Tensor:
        """Return the rows of all classes, made out of the statistics."""
        covariance = shrunk_covariance(self.means, self.scatter, float(self.counts.sum()), self.settings.shrinkage)
        return quadratic_rows(self.means, covariance, self.factors, self.settings.own_share).flatten(1)

    @property
    def directions(self) -> Tensor:
        """Rows that compare with those of the block: class means, or the linear parts."""
        return self.means if self.is_unit else self._parts()[:, 0].data

    def carry_over(self, drift: Drift) -> None:
        """Move class means and all covariances to where a task's training took the features."""
        super().carry_over(drift)
        self.factors = stretched(self.factors, drift)

    def resize(self, num_classes: int, block_size: int) -> None:
        """Make room for saved rows and statistics before they are loaded."""
        super().resize(num_classes, block_size)
        self.factors = self.rows.new_zeros(num_classes, self.num_features, self.settings.num_directions)
