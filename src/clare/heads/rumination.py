"""An analytic head that is shown features of earlier classes once more: those of new classes that are like them.

Shapes: N images, K classes so far, D features.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from clare.heads.head import Form
from clare.heads.ridge import ProjectionSettings, RidgeHead
from clare.seeds import generator_at


class MoalHeadSettings(ProjectionSettings):
    """The random features and the regression on them."""

    num_projected: int = Field(5000, ge=1, le=100_000, description="Random features of an image.")
    ridge: float = Field(
        0.0, ge=0, le=1e12, description="Ridge of the regression; 0 chooses it on a fifth of the first task's images."
    )

    @property
    def row_form(self) -> Form:
        """Products of features as they are."""
        return "linear"

    def make(self, num_features: int, seed: int) -> "MoalHead":
        """Return the head of so many features, whose projection depends on the seed alone."""
        generator = generator_at(seed, "projection")
        head = MoalHead(num_features, self, generator, keeps_classes=False)
        bound = 1 / math.sqrt(num_features)
        head.projection.uniform_(-bound, bound, generator=generator)
        return head


class MoalHead(RidgeHead):
    """Sums of random features, to which more of known classes can be added, and class means."""

    chosen: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("chosen", torch.zeros((), dtype=torch.float64))

    def mistaken(self, features: Tensor, labels: Tensor) -> Tensor:
        """Mark the images that the rows take for another class."""
        return self.logits(features).argmax(1) != labels

    def resize(self, num_classes: int, block_size: int) -> None:
        """Make room for saved rows, sums and means before they are loaded."""
        super().resize(num_classes, block_size)
        self.means = self.rows.new_zeros(num_classes, self.num_features)


def ruminated(features: Tensor, labels: Tensor, means: Tensor, num_old: int) -> tuple[Tensor, Tensor]:
    """Return features and labels of old classes: those of the new class whose mean is most alike, moved over."""
    unit = F.normalize(means, dim=1)
    alike = num_old + (unit[:num_old] @ unit[num_old:].T).argmax(1)
    parts = [features[labels == new] - means[new] + means[old] for old, new in enumerate(alike.tolist())]
    sizes = torch.tensor([len(part) for part in parts], device=labels.device)
    return torch.cat(parts), torch.arange(num_old, device=labels.device).repeat_interleave(sizes)
