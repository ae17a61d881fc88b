"""How well samples go with the classes at all: relative to how well they go with everything that was ever shown.

Lee and others, "A Simple Unified Framework for Detecting Out-of-Distribution Samples" (2018), take the distance to the
nearest class in the metric of the common covariance; Ren and others, "A Simple Fix to Mahalanobis Distance" (2021),
what is left of it beside the distance to the middle of all classes. Shapes: B samples, K classes, D features.
"""

import torch
from torch import Tensor

from clare.heads.precision import Precision

RELATIVE = 0.95
"""Share of the distance to the middle of all classes that is taken off the distance to the nearest class."""


class Strangers:
    """Squared distances to the classes and to the middle of all, in double precision."""

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

    def familiarity(self, features_BD: Tensor, left_out_B: Tensor | None = None) -> Tensor:
        """Return how well samples go with the nearest class, of all or of all but one; larger is better known."""
        features = features_BD.double() - self.centre
        own, products = self.precision.squares(features), features @ self.solved
        squares = own[:, None] - 2 * products + self.lengths
        if left_out_B is not None:
            squares[torch.arange(len(squares), device=squares.device), left_out_B] = torch.inf
        inner: Tensor = torch.linalg.solve_triangular(self.cholesky, (products * self.roots).T, upper=False)
        return RELATIVE * (own - inner.square().sum(0)) - squares.amin(1)
