"""A head that compares features with each class mean in the metric of that class's own correlations.

Goswami, Liu, Twardowski, van de Weijer: "FeCAM: Exploiting the Heterogeneity of Class Distributions in Exemplar-Free
Continual Learning" (NeurIPS 2023). Shapes: B samples, K classes so far, D features.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clare.heads.head import Head, ScaleSettings
from clare.heads.statistics import class_means, unbiased_covariances
from clare.steps import Learning, Solve

NUM_CLASSES = 16
"""Classes whose products with all samples are in memory at a time."""


class MahalanobisSettings(ScaleSettings):
    """How the covariance of a class is made usable where images are few."""

    kind: Literal["mahalanobis"] = Field(
        "mahalanobis", description="Distances to class means in the metric of each class's own correlations."
    )
    diagonal_share: float = Field(
        1.0, gt=0, le=1e6, description="What is added to variances, in units of their mean over the features."
    )
    others_share: float = Field(
        0.0, ge=0, le=1e6, description="What is added to covariances, in units of their mean over pairs of features."
    )
    scale: float = Field(20.0, gt=0, le=1000, description="Factor on distances where probabilities are asked for.")

    def make(self, num_features: int, seed: int) -> "MahalanobisHead":
        """Return the head of so many features."""
        return MahalanobisHead(num_features, self)


class MahalanobisHead(Head):
    """A mean and an inverted matrix of correlations for each class; the rows are what is linear in the distances."""

    per_class = (*Head.per_class, "inverses")
    sums_products = True
    refuses = "this model keeps correlations of its classes"
    finished_form = "mahalanobis"
    """Distances, which only this head can make."""
    settings: MahalanobisSettings
    inverses: Tensor
    follows_drift = False
    keeps_classes = False

    def __init__(self, num_features: int, settings: MahalanobisSettings) -> None:
        super().__init__(num_features, settings)
        self.row_size = num_features + 1
        self.rows = nn.Parameter(torch.zeros(0, self.row_size), requires_grad=False)
        self.register_buffer("inverses", torch.zeros(0, num_features, num_features))

    def seen(self, features: Tensor) -> Tensor:
        """Return features of length one, at least in single precision."""
        return F.normalize(features.to(torch.promote_types(features.dtype, torch.float32)), dim=1)

    def logits(self, features: Tensor) -> Tensor:
        """Return the squared distances with their sign turned, shape (B, K)."""
        with torch.autocast(self.rows.device.type, enabled=False):
            unit = self.seen(features)
            parts = [
                torch.einsum("bd,kde,be->bk", unit, part, unit) for part in torch.split(self.inverses, NUM_CLASSES)
            ]
            return F.linear(unit, self.rows[:, :-1], self.rows[:, -1]) - torch.cat([unit[:, :0], *parts], dim=1)

    def reserve(self, num_rows: int) -> None:
        """No rows are trained, so none are reserved."""

    def finish(self, num_new: int) -> Learning:
        """Add the task's classes; those of before stay what they are."""
        sums = yield self.sweep(num_new)
        solved = yield Solve("correlations", lambda: self._solve(sums))
        self.append(solved["rows"])
        self.inverses = torch.cat([self.inverses, solved["inverses"].to(self.inverses)])

    def _solve(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the rows and the inverted correlations of new classes."""
        settings, means = self.settings, class_means(sums)
        parts = [
            inverted(correlations(covariance, settings.diagonal_share, settings.others_share))
            for covariance in unbiased_covariances(sums)
        ]
        inverses = torch.stack(parts)
        weights = torch.einsum("kde,ke->kd", inverses, means)
        rows = torch.cat([2 * weights, -(weights * means).sum(1, keepdim=True)], 1)
        return {"rows": rows.float(), "inverses": inverses.float()}


def spread_out(covariance: Tensor, diagonal_share: float, others_share: float) -> Tensor:
    """Return a covariance with shares of the mean variance and of the mean covariance added to each of their kind."""
    is_own = torch.eye(len(covariance), dtype=torch.bool, device=covariance.device)
    others = covariance[~is_own]
    num_others = (others != 0).sum().clamp(min=1)
    added = torch.where(is_own, diagonal_share * covariance.diagonal().mean(), others_share * others.sum() / num_others)
    return covariance + added


def correlations(covariance: Tensor, diagonal_share: float, others_share: float) -> Tensor:
    """Return a covariance, shrunk in variances and in covariances, over the roots of its variances."""
    shrunk = spread_out(covariance, diagonal_share, others_share)
    # A class of one image has no variance in any direction: all directions count the same.
    roots = shrunk.diagonal().clamp(min=torch.finfo(shrunk.dtype).tiny).sqrt()
    return (shrunk / (roots[:, None] * roots)).fill_diagonal_(1.0)


def inverted(matrix: Tensor) -> Tensor:
    """Return the inverse of a symmetric matrix, or its pseudo-inverse where it has none."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if not bool(failed):
        return torch.cholesky_inverse(factor)
    inverse: Tensor = torch.linalg.pinv(matrix, hermitian=True)
    return inverse
