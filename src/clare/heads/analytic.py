"""Ridge regression on very many random features, at a ridge that stays, with sums in double precision."""

import math

import torch
from pydantic import Field

from clare.heads.head import Form
from clare.heads.ridge import ProjectionSettings, RidgeHead
from clare.seeds import generator_at


class AnalyticSettings(ProjectionSettings):
    """The random features and the regression on them."""

    num_projected: int = Field(16_384, ge=1, le=100_000, description="Random features of an image.")
    ridge: float = Field(100.0, gt=0, le=1e12, description="Ridge of the regression.")

    @property
    def row_form(self) -> Form:
        """Products of features as they are."""
        return "linear"

    def make(self, num_features: int, seed: int) -> RidgeHead:
        """Return the head of so many features, whose projection depends on the seed alone."""
        generator = generator_at(seed, "projection")
        head = RidgeHead(num_features, self, generator, dtype=torch.float64, keeps_classes=False)
        bound = 1 / math.sqrt(self.num_projected)
        head.projection.uniform_(-bound, bound, generator=generator)
        return head
