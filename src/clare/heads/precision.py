"""The inverse of a covariance, from a square matrix or from few rows beside a multiple of the identity, and its metric.

Shapes: B samples, K classes, D features, N rows, M columns.
"""

import torch
from torch import Tensor

SHARES = {"contrast": (0.85, 0.5), "distance": (0.95, 0.0)}
"""How much the distance to the middle of all samples counts, and how much nearer the nearest class is than others are;
`distance` is what folders were calibrated with before."""


class Precision:
    """The inverse of a covariance, ready to be multiplied with; everything is in double precision."""

    def __init__(self, cholesky: Tensor, rows_ND: Tensor | None = None, floor: float = 1.0) -> None:
        """Take the Cholesky factor of the covariance, or of what `of_rows` makes of its rows."""
        self.cholesky, self.rows, self.floor = cholesky, rows_ND, floor

    @classmethod
    def of_matrix(cls, covariance_DD: Tensor) -> "Precision":
        """Return the inverse of a covariance, of which the lower half counts."""
        return cls(torch.linalg.cholesky(covariance_DD.double()))

    @classmethod
    def of_rows(cls, rows_ND: Tensor, weight: float, floor: float) -> "Precision":
        """Return the inverse of `weight` times the rows' sum of outer products plus `floor` times the identity."""
        rows = rows_ND.double() * weight**0.5
        identity = torch.eye(len(rows), dtype=torch.float64, device=rows.device)
        # By the formula of Woodbury a square of as many numbers as there are rows is all that is to be inverted.
        return cls(torch.linalg.cholesky(rows @ rows.T + floor * identity), rows, floor)

    def solve(self, columns_DM: Tensor) -> Tensor:
        """Return the inverse times some columns."""
        if self.rows is None:
            return torch.cholesky_solve(columns_DM, self.cholesky)
        return (columns_DM - self.rows.T @ torch.cholesky_solve(self.rows @ columns_DM, self.cholesky)) / self.floor

    def squares(self, features_BD: Tensor) -> Tensor:
        """Return each sample's squared length in the metric of the inverse, shape (B,)."""
        if self.rows is None:
            return _squares(self.cholesky, features_BD.T)
        return (features_BD.square().sum(1) - _squares(self.cholesky, self.rows @ features_BD.T)) / self.floor


def _squares(cholesky: Tensor, columns: Tensor) -> Tensor:
    """Return the columns' squared lengths in the metric of the inverse."""
    solved: Tensor = torch.linalg.solve_triangular(cholesky, columns, upper=False)
    return solved.square().sum(0)


class Strangers:
    """How well samples go with the classes at all: relative to how well they go with everything that was ever shown.

    Lee and others, "A Simple Unified Framework for Detecting Out-of-Distribution Samples" (2018), take the distance to
    the nearest class in the metric of the common covariance; Ren and others, "A Simple Fix to Mahalanobis Distance"
    (2021), what is left of it beside the distance to the middle of all classes. Among classes that resemble each other
    a stranger is about as far from all of them, so the mean distance to the classes counts as well.
    """

    def __init__(self, means_KD: Tensor, counts_K: Tensor, precision: Precision) -> None:
        """Solve once what every question needs."""
        means, self.precision = means_KD.double(), precision
        self.centre = (shares := counts_K.double() / counts_K.sum()) @ means
        apart = means - self.centre
        self.solved = precision.solve(apart.T)
        between = apart @ self.solved
        self.lengths = between.diagonal()
        # All samples together scatter around their middle as within classes, and as the class means do around it.
        self.roots = shares.sqrt()
        identity = torch.eye(len(means), dtype=torch.float64, device=means.device)
        self.cholesky = torch.linalg.cholesky(identity + self.roots[:, None] * between * self.roots)

    def familiarity(self, features_BD: Tensor, left_out_B: Tensor | None = None, by: str = "contrast") -> Tensor:
        """Return how well samples go with the nearest class, of all or of all but one; larger is better known."""
        features = features_BD.double() - self.centre
        own, products = self.precision.squares(features), features @ self.solved
        squares = own[:, None] - 2 * products + self.lengths
        total, number = squares.sum(1), squares.shape[1]
        if left_out_B is not None:
            total, number = total - squares.gather(1, left_out_B[:, None]).squeeze(1), number - 1
            squares.scatter_(1, left_out_B[:, None], torch.inf)
        inner: Tensor = torch.linalg.solve_triangular(self.cholesky, (products * self.roots).T, upper=False)
        nearest, to_middle = squares.amin(1), own - inner.square().sum(0)
        of_middle, of_contrast = SHARES[by]
        return of_middle * to_middle + of_contrast * total / max(number, 1) - (1 + of_contrast) * nearest
