"""What the heads have in common whose finished rows are solved from sums over all tasks.

Shapes: B samples, K classes so far, D features.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clare.heads.head import Head, HeadSettings
from clare.heads.statistics import class_means
from clare.steps import Learning, Solve


class SolvedHead(Head, ABC):
    """Class means and further sums; a task is trained with the rows of its form, which are then dropped."""

    per_class = (*Head.per_class, "counts")
    counts: Tensor

    def __init__(self, num_features: int, settings: HeadSettings) -> None:
        super().__init__(num_features, settings)
        self.register_buffer("counts", torch.zeros(0))
        self.rows = nn.Parameter(torch.zeros(0, self.finished_size), requires_grad=False)

    @property
    @abstractmethod
    def finished_size(self) -> int:
        """Numbers in a finished row."""

    @abstractmethod
    def solve(self) -> Tensor:
        """Return the rows of all classes, made out of the sums."""

    @property
    def is_unit(self) -> bool:
        """Whether features are brought to length one, as in the cosines that the task was trained with."""
        return self.settings.row_form == "cosine"

    @property
    def directions(self) -> Tensor:
        """Rows that compare with those of the block: class means, if linear with a bias for the nearest to win."""
        if self.is_unit:
            return self.means
        return torch.cat([self.means, -0.5 * self.means.square().sum(1, keepdim=True)], 1)

    def seen(self, features: Tensor) -> Tensor:
        """Return features as the statistics of classes take them, at least in single precision."""
        features = features.to(torch.promote_types(features.dtype, torch.float32))
        return F.normalize(features, dim=1) if self.is_unit else features

    def finish(self, num_new: int) -> Learning:
        """Add the task's classes, and make all rows anew."""
        found = yield self.sweep(num_new)
        self.add_classes(self.summed(found, num_new))
        yield from self.solved(self.solve)

    def solved(self, solve: Callable[[], Tensor]) -> Learning:
        """Make the rows of all classes anew."""
        # Ranks may round differently; what the first one finds counts.
        found = yield Solve("rows", lambda: {"rows": solve()})
        self.replace(found["rows"])

    def replace(self, rows: Tensor) -> None:
        """Take over the rows of all classes."""
        self.rows = nn.Parameter(rows.to(self.rows), requires_grad=False)

    def add_classes(self, sums: dict[str, Tensor]) -> None:
        """Take over the sums of new classes."""
        self.means = torch.cat([self.means, class_means(sums).to(self.means)])
        self.counts = torch.cat([self.counts, sums["count"].to(self.counts)])

    def add_samples(self, places: Tensor, sums: dict[str, Tensor]) -> None:
        """Take over the sums of more samples of known classes."""
        old, new = self.counts[places].double()[:, None], sums["count"][:, None]
        means = (old * self.means[places].double() + sums["sum"]) / (old + new)
        self.means[places] = means.to(self.means)
        self.counts[places] += sums["count"].to(self.counts)

    def renew(self, places: Tensor, counts: Tensor, sums: dict[str, Tensor]) -> Learning:
        """Take over the sums of more samples, and make all rows anew."""
        self.add_samples(places, sums)
        self.replace(self.solve())
        yield from ()

    def sums_of(self, chosen: Tensor) -> dict[str, Tensor]:
        """Return the sums of some classes as samples would have given them that add nothing to what all share."""
        counts = self.counts[chosen].double()
        return {"count": counts, "sum": counts[:, None] * self.means[chosen].double()}

    def add_shared(self, other: "SolvedHead") -> None:
        """Take over the sums over all classes of another head."""

    def merge(self, other: Head, places: Tensor, before: Tensor, counts: Tensor) -> None:
        """Add the sums of both, and make all rows anew."""
        assert isinstance(other, SolvedHead)
        is_new = places >= self.num_classes
        self.add_samples(places[~is_new], other.sums_of(~is_new))
        self.add_classes(other.sums_of(is_new))
        self.add_shared(other)
        self.replace(self.solve())
