"""A head that solves ridge regression on random features of all tasks.

Shapes: B samples, K classes so far, D features, M random features.
"""

import torch
from torch import Tensor

from clare.heads.head import HeadSettings
from clare.heads.ridge import one_hot, pack_symmetric, projected, solve_ridge, unpack_symmetric
from clare.heads.solved import SolvedHead


class ProjectedHead(SolvedHead):
    """Sums of random features as they were when each task was learnt; they cannot follow a drift of the features."""

    per_class = (*SolvedHead.per_class, "sums")
    projection: Tensor
    gram: Tensor
    sums: Tensor

    def __init__(self, num_features: int, settings: HeadSettings, generator: torch.Generator) -> None:
        super().__init__(num_features, settings)
        size, half = settings.num_projected, (settings.num_projected + 1) // 2
        self.register_buffer("projection", torch.randn(num_features, size, generator=generator))
        # Half of what the square matrix would take, in memory and in every checkpoint.
        self.register_buffer("gram", torch.zeros(half, 2 * half + 1))
        self.register_buffer("sums", torch.zeros(0, size))

    @property
    def follows_drift(self) -> bool:
        """What a drift does to random features cannot be told from what it does to features."""
        return False

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
        return "projected"

    def logits(self, features: Tensor) -> Tensor:
        """Return the products of the random features with the rows."""
        hidden = projected(self.seen(features), self.projection)
        with torch.autocast(hidden.device.type, enabled=False):
            return hidden @ self.rows.T

    def statistic(self, features: Tensor, labels: Tensor, weights: Tensor, num_new: int) -> dict[str, Tensor]:
        """Return the sums over a batch that the rows are made of."""
        hidden = projected(self.seen(features), self.projection)
        with torch.autocast(hidden.device.type, enabled=False):
            weighted = hidden * weights.to(hidden)[:, None]
            own = {"gram": weighted.T @ hidden, "hidden": one_hot(labels, num_new, hidden).T @ weighted}
        return {**super().statistic(features, labels, weights, num_new), **own}

    def add_classes(self, sums: dict[str, Tensor]) -> None:
        """Take over the sums of new classes."""
        super().add_classes(sums)
        self._add(sums["gram"])
        self.sums = torch.cat([self.sums, sums["hidden"].to(self.sums)])

    def add_samples(self, places: Tensor, sums: dict[str, Tensor]) -> None:
        """Take over the sums of more samples of known classes."""
        super().add_samples(places, sums)
        self._add(sums["gram"])
        self.sums[places] += sums["hidden"].to(self.sums)

    def _add(self, gram: Tensor) -> None:
        """Add a square matrix to the packed one."""
        self.gram.add_(pack_symmetric(gram.to(self.gram)))

    def solve(self) -> Tensor:
        """Return the rows of all classes, made out of the sums."""
        gram = unpack_symmetric(self.gram, self.settings.num_projected)
        # Random features that are all nothing leave a ridge of nothing, which no factor of ten would raise.
        ridge = max(float(self.settings.ridge_share * gram.diagonal().mean()), torch.finfo(gram.dtype).tiny)
        rows, _ = solve_ridge(gram, self.sums, ridge)
        return rows

    def resize(self, num_classes: int, block_size: int) -> None:
        """Make room for saved rows and sums before they are loaded."""
        super().resize(num_classes, block_size)
        self.sums = self.sums.new_zeros(num_classes, self.settings.num_projected)
