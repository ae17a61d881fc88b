"""What a taught model remembers of its pictures: how many there were of each class, and features held back.

Shapes: K classes, D features, N pictures that were held back.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clare.heads.drift import Drift, moved
from clare.model.folder import EXTRA

MAX_HELD_BACK, MIN_HELD_BACK = 50, 4
"""Held-back pictures per class whose features are kept, at the most, and where features are wide or classes many."""
BYTES_PER_CLASS, BYTES_IN_ALL = 2**18, 36 * 2**20
"""Room for the features of the held-back pictures of a class, and of all, as far as the least number of them fits."""
LARGEST = 65504.0
"""Largest number of half precision, in which features are kept."""


def num_held(width: int, num_classes: int) -> int:
    """Return how many held-back pictures of each of so many classes are kept as features of this width."""
    room = min(BYTES_PER_CLASS, BYTES_IN_ALL // max(1, num_classes))
    return max(MIN_HELD_BACK, min(MAX_HELD_BACK, room // max(1, 2 * width)))


def as_kept(features: Tensor) -> Tensor:
    """Return features as they come back from half precision, so that a model answers alike before and after saving."""
    return features.clamp(-LARGEST, LARGEST).half().float()


@dataclass(frozen=True)
class Memory:
    """Counts of the pictures learnt from, and the features of held-back pictures with their classes."""

    counts: Tensor
    held: Tensor
    labels: Tensor
    estimated: Tensor
    """Of each class whether its held-back features were moved by an estimate since they were computed."""

    @classmethod
    def empty(cls, num_classes: int, width: int) -> "Memory":
        """Remember nothing of these classes."""
        return cls(
            torch.zeros(num_classes, dtype=torch.float64),
            torch.zeros(0, width),
            torch.zeros(0, dtype=torch.int64),
            torch.zeros(num_classes, dtype=torch.bool),
        )

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], num_classes: int) -> "Memory":
        """Read what was saved; a model that was saved without it remembers nothing."""
        if EXTRA + "counts" not in tensors:
            return cls.empty(num_classes, 0)
        counts, held, labels = (tensors[EXTRA + name] for name in ("counts", "held", "labels"))
        # Folders of before kept features of earlier tasks as they once were.
        unsure = torch.ones(num_classes, dtype=torch.bool)
        return cls(counts, held.float(), labels, tensors.get(EXTRA + "estimated", unsure).bool())

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to be saved."""
        kept = {"counts": self.counts, "held": self.held.half(), "labels": self.labels, "estimated": self.estimated}
        return {EXTRA + name: tensor for name, tensor in kept.items()}

    def grown(self, num_classes: int, width: int) -> "Memory":
        """Make room for more classes; features of another width than today's are of no use any more."""
        num_new = num_classes - len(self.counts)
        counts = torch.cat([self.counts, self.counts.new_zeros(num_new)])
        kept = self if self.held.shape[1] == width else Memory.empty(len(self.counts), width)
        return replace(kept, counts=counts, estimated=torch.cat([kept.estimated, kept.estimated.new_zeros(num_new)]))

    def drifted(self, drift: Drift) -> "Memory":
        """Move the held-back features of all classes to where a task's training took them, by an estimate."""
        estimated = self.estimated.clone()
        estimated[self.labels] = True
        return replace(self, held=as_kept(moved(self.held, drift)), estimated=estimated)

    def added(self, places: Tensor, counts: Tensor) -> "Memory":
        """Add to the counts of the classes at these places."""
        return replace(self, counts=self.counts.index_add(0, places, counts.cpu()))

    def holding(self, held: Tensor, labels: Tensor) -> "Memory":
        """Add features of held-back pictures; of each class the newest are kept."""
        held, labels = torch.cat([self.held, as_kept(held)]), torch.cat([self.labels, labels])
        most = num_held(held.shape[1], len(self.counts))
        newest = [(labels == label).nonzero().squeeze(1)[-most:] for label in sorted(set(labels.tolist()))]
        chosen = torch.cat(newest).sort().values if newest else labels[:0]
        return replace(self, held=held[chosen], labels=labels[chosen])

    def without(self, place: int) -> "Memory":
        """Forget a class; those behind it move up."""
        rest = torch.arange(len(self.counts)) != place
        kept = self.labels != place
        labels = self.labels[kept]
        moved_up = labels - (labels > place).long()
        return Memory(self.counts[rest], self.held[kept], moved_up, self.estimated[rest])
