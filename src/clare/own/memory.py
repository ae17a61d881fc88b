"""What a taught model remembers of its pictures: how many there were of each class, and features held back.

Shapes: K classes, D features, N pictures that were held back.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clare.model.folder import EXTRA

MAX_HELD_BACK = 50
"""Held-back pictures per class whose features are kept."""


@dataclass(frozen=True)
class Memory:
    """Counts of the pictures learnt from, and the features of held-back pictures with their classes."""

    counts: Tensor
    held: Tensor
    labels: Tensor

    @classmethod
    def empty(cls, num_classes: int, width: int) -> "Memory":
        """Remember nothing of these classes."""
        return cls(
            torch.zeros(num_classes, dtype=torch.float64),
            torch.zeros(0, width),
            torch.zeros(0, dtype=torch.int64),
        )

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], num_classes: int) -> "Memory":
        """Read what was saved; a model that was saved without it remembers nothing."""
        if EXTRA + "counts" not in tensors:
            return cls.empty(num_classes, 0)
        return cls(*(tensors[EXTRA + name] for name in ("counts", "held", "labels")))

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to be saved."""
        return {EXTRA + name: getattr(self, name) for name in ("counts", "held", "labels")}

    def grown(self, num_classes: int, width: int) -> "Memory":
        """Make room for more classes; features of another width than today's are of no use any more."""
        counts = torch.cat([self.counts, self.counts.new_zeros(num_classes - len(self.counts))])
        kept = self if self.held.shape[1] == width else Memory.empty(num_classes, width)
        return replace(kept, counts=counts)

    def added(self, places: Tensor, counts: Tensor) -> "Memory":
        """Add to the counts of the classes at these places."""
        return replace(self, counts=self.counts.index_add(0, places, counts.cpu()))

    def holding(self, held: Tensor, labels: Tensor) -> "Memory":
        """Add features of held-back pictures; of each class the newest are kept."""
        held, labels = torch.cat([self.held, held]), torch.cat([self.labels, labels])
        num_later = torch.tensor([int((labels[place:] == label).sum()) for place, label in enumerate(labels)])
        chosen = (num_later <= MAX_HELD_BACK).nonzero().squeeze(1)
        return replace(self, held=held[chosen], labels=labels[chosen])

    def without(self, place: int) -> "Memory":
        """Forget a class; those behind it move up."""
        rest = torch.arange(len(self.counts)) != place
        kept = self.labels != place
        labels = self.labels[kept]
        return Memory(self.counts[rest], self.held[kept], labels - (labels > place).long())


def covariances(means_KD: Tensor, factors_KDD: Tensor, shrinkage: float) -> Tensor:
    """Return the class covariances of which `gaussian_factors` made these factors."""
    means, factors = means_KD.double(), factors_KDD.double()
    shrunk = factors @ factors.mT
    rounding = 1e-13 * means.square().sum(1)
    variance = (shrunk.diagonal(dim1=1, dim2=2).mean(1) - rounding) / (1 + 1e-6)
    identity = torch.eye(means.shape[1], dtype=torch.float64, device=means.device)
    if shrinkage == 1:
        return variance[:, None, None] * identity
    added = shrinkage * variance + 1e-6 * variance + rounding
    return (shrunk - added[:, None, None] * identity) / (1 - shrinkage)


def merged(counts_K: Tensor, means_KD: Tensor, covariances_KDD: Tensor, sums: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return count, sum and sum of outer products of the pictures behind the Gaussians and of new ones together."""
    means = means_KD.double()
    outer = covariances_KDD + means[:, :, None] * means[:, None, :]
    old = {"count": counts_K, "sum": counts_K[:, None] * means, "outer": counts_K[:, None, None] * outer}
    return {name: old[name].to(sums[name]) + sums[name] for name in old}
