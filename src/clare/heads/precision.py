"""The inverse of a covariance, from a square matrix or from few rows beside a multiple of the identity.

Shapes: B samples, K classes, D features, N rows, M columns.
"""

import torch
from torch import Tensor


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
