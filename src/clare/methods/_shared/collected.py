"""What was collected of a task's images, as inputs of a phase."""

import torch
from torch import Tensor


class Collected:
    """One row for each image, the same in every epoch, and the images' classes."""

    def __init__(self, rows: Tensor, labels: Tensor) -> None:
        self.rows, self.labels = rows, labels
        self.num_samples, self.device = len(rows), rows.device

    def begin_epoch(self, _: torch.Generator) -> None:
        """Draw nothing."""

    def draw(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows at these positions and their classes."""
        return self.rows[positions], self.labels[positions]
