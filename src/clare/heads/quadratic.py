"""A head of one Gaussian per class, whose covariance is the class's own drawn towards that of all classes.

Friedman, "Regularized Discriminant Analysis" (1989), with the class's own covariance in its leading directions alone.
Shapes: B samples, K classes so far, D features, R leading directions of a class.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.heads.discriminant import DiscriminantHead
from clare.heads.drift import Drift, stretched
from clare.heads.head import FormSettings, ShrinkageSettings
from clare.heads.precision import Precision
from clare.heads.statistics import class_means, own_share_for, scatter_sums
from clare.steps import Collect, Pass

NUM_SWEEPS = 8
"""Sweeps of subspace iteration; the leading directions of features stand out, so that few are enough."""
SPARE = 8
"""Directions that are sought beyond twice those that are asked for, so that these are found in few sweeps."""
NUM_ROWS = 4096
"""Samples whose outer products are in memory at a time."""
NUM_CLASSES = 512
"""Classes whose rows are solved at a time, in double precision."""


def leading_root(rows_ND: Tensor, num_directions: int) -> Tensor:
    """Return a root (D, R) of the rows' sum of outer products where it is largest; zeros where it has no more."""
    rows, size = rows_ND.double(), rows_ND.shape[1]
    width = min(size, 2 * num_directions + SPARE)
    # Any start will do, but the same rows must have the same root everywhere.
    start = torch.randn(size, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    basis, _ = torch.linalg.qr(start.to(rows))
    for _ in range(NUM_SWEEPS if width < size else 0):
        basis, _ = torch.linalg.qr(rows.T @ (rows @ basis))
    within = rows @ basis
    values, vectors = torch.linalg.eigh(within.T @ within)
    kept = min(width, num_directions)
    root = (basis @ vectors[:, -kept:]) * values[-kept:].clamp(min=0).sqrt()
    return F.pad(root, (0, num_directions - kept))


def quadratic_rows(means_KD: Tensor, precision: Precision, factors_KDR: Tensor, own_share: float) -> Tensor:
    """Return 1 + R rows of D weights and a bias for each class, shape (K, 1 + R, D + 1).

    A class's log posterior, but for a constant, is the first row's product plus half the sum of squares of the others.
    """
    # What all classes have in common is left out: it decides nothing, and would cost digits.
    centre = means_KD.double().mean(0)
    pairs = zip(torch.split(means_KD, NUM_CLASSES), torch.split(factors_KDR, NUM_CLASSES), strict=True)
    parts = [_rows_around(centre, means, precision, factors, own_share).to(means_KD) for means, factors in pairs]
    return torch.cat(parts)


def _rows_around(
    centre: Tensor, means_KD: Tensor, precision: Precision, factors_KDR: Tensor, own_share: float
) -> Tensor:
    """Return the rows of some classes, in double precision."""
    means, factors = means_KD.double(), factors_KDR.double()
    num_classes, size, num_directions = factors.shape
    ratio = own_share / (1 - own_share)
    weights = precision.solve((means - centre).T).T / (1 - own_share)
    flat = factors.permute(1, 0, 2).reshape(size, num_classes * num_directions)
    solved = precision.solve(flat).view(size, num_classes, num_directions).permute(1, 2, 0)
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


def _apart(sums: dict[str, Tensor]) -> Iterator[Tensor]:
    """Return how far the samples of each class lie from its mean, class by class."""
    means, labels = class_means(sums), sums["labels"]
    own = torch.split(labels.argsort(stable=True), torch.bincount(labels, minlength=len(means)).tolist())
    for places, mean in zip(own, means, strict=True):
        yield sums["values"][places].double() - mean


class QuadraticSettings(FormSettings, ShrinkageSettings):
    """The quadratic discriminant."""

    kind: Literal["quadratic"] = Field(
        "quadratic", description="The quadratic discriminant, in which each class has a covariance of its own as well."
    )
    own_share: Annotated[float, Field(ge=0, lt=1)] | Literal["auto"] = Field(
        0.1,
        description="Weight of a class's own covariance beside that of all classes; auto: by how many images there "
        "are to a class.",
    )
    num_directions: int = Field(
        32, ge=1, le=10_000, description="Directions, the leading ones, of a class's own covariance."
    )

    def make(self, num_features: int, seed: int) -> "QuadraticHead":
        """Return the head of so many features."""
        return QuadraticHead(num_features, self)


class QuadraticHead(DiscriminantHead):
    """Class means, one covariance of all classes, and the leading directions of each class's own."""

    settings: QuadraticSettings
    merges_exactly = False

    def __init__(self, num_features: int, settings: QuadraticSettings) -> None:
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
        return self.rows.view(-1, 1 + self.settings.num_directions, self.num_features + 1)

    def sweep(self, num_classes: int) -> Pass | Collect:
        """Ask for the features themselves: square matrices of all classes would take more room than they do."""
        return Collect("statistics", self.seen, of="features")

    def summed(self, found: dict[str, Tensor], num_classes: int) -> dict[str, Tensor]:
        """Return count and sum per class, one sum of outer products, and the features with their labels."""
        pairs = zip(torch.split(found["values"], NUM_ROWS), torch.split(found["labels"], NUM_ROWS), strict=True)
        total: dict[str, Tensor] = {}
        for features, labels in pairs:
            # A few samples of thousands of classes: only those that are there take time and room.
            there = torch.bincount(labels, minlength=num_classes) > 0
            present = there.nonzero().squeeze(1) if len(labels) else labels.new_zeros(1)
            own = torch.searchsorted(present, labels)
            part = scatter_sums(features, own, torch.ones_like(own), len(present))
            for name in ("count", "sum"):
                room = part[name].new_zeros(num_classes, *part[name].shape[1:])
                total[name] = total.get(name, room).index_add(0, present, part[name])
            total["outer"] = total["outer"] + part["outer"] if "outer" in total else part["outer"]
        return {**found, **total}

    def add_classes(self, sums: dict[str, Tensor]) -> None:
        """Take over the sums of new classes."""
        roots = [self._root(rows, count) for rows, count in zip(_apart(sums), sums["count"], strict=True)]
        self.factors = torch.cat([self.factors, *(root[None] for root in roots)])
        super().add_classes(sums)

    def add_samples(self, places: Tensor, sums: dict[str, Tensor]) -> None:
        """Take over the sums of more samples of known classes."""
        means, counts = class_means(sums), sums["count"]
        for place, rows, mean, new in zip(places.tolist(), _apart(sums), means, counts, strict=True):
            old = self.counts[place].double()
            # The kept root and the way between the means stand for the samples of before.
            between = (mean - self.means[place].double()) * (old * new / (old + new).clamp(min=1)).sqrt()
            before = old.sqrt() * self.factors[place].double().T
            self.factors[place] = self._root(torch.cat([before, rows, between[None]]), old + new)
        super().add_samples(places, sums)

    def _root(self, rows: Tensor, count: Tensor) -> Tensor:
        """Return the leading root of a covariance as it is kept."""
        return leading_root(rows / count.clamp(min=1).sqrt(), self.settings.num_directions).to(self.factors)

    def sums_of(self, chosen: Tensor) -> dict[str, Tensor]:
        """Return the sums of some classes, and as their samples the kept roots around the means."""
        sums, places = super().sums_of(chosen), chosen.nonzero().squeeze(1)
        roots = sums["count"].sqrt()[:, None, None] * self.factors[places].double().mT
        values = self.means[places].double()[:, None] + roots
        labels = torch.arange(len(places), device=places.device).repeat_interleave(roots.shape[1])
        return {**sums, "values": values.flatten(0, 1), "labels": labels}

    def solve(self) -> Tensor:
        """Return the rows of all classes, made out of the statistics."""
        return quadratic_rows(self.means, self.precision(self.shrinkage), self.factors, self.own_share).flatten(1)

    @property
    def own_share(self) -> float:
        """Weight of a class's own covariance, one for all: with different ones, logits of classes would not compare."""
        chosen = self.settings.own_share
        return own_share_for(float(self.counts.mean())) if chosen == "auto" else chosen

    @property
    def directions(self) -> Tensor:
        """Rows that compare with those of the block: class means, or the linear parts."""
        return self.means if self.is_unit else self._parts()[:, 0].data

    def carry_over(self, drift: Drift) -> None:
        """Move class means and all covariances to where a task's training took the features."""
        super().carry_over(drift)
        self.factors = stretched(self.factors, drift)
