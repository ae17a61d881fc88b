"""The finished rows of earlier classes, against which a task's classes are told apart while they are learnt."""

import math

import torch
from torch import Tensor, nn

from clare.heads.head import Head


class Contrast(nn.Module):
    """Copies of finished rows in a place that is filled from task to task, so that shapes stay the same."""

    rows: Tensor
    closed: Tensor

    def __init__(self, row_size: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(0, row_size), persistent=False)
        self.register_buffer("closed", torch.zeros(0), persistent=False)

    def reserve(self, num_rows: int) -> None:
        """Make room for at least this many rows."""
        if num_rows > len(self.rows):
            self.rows = self.rows.new_zeros(num_rows, self.rows.shape[1])
            self.closed = self.rows.new_zeros(num_rows)

    def place(self, rows: Tensor) -> None:
        """Copy the rows of all earlier classes; room without a class is closed."""
        if len(rows) > len(self.rows):
            # Twice the room: where the number of classes is unknown, places change seldom.
            self.reserve(2 * len(rows))
        self.rows.zero_()
        self.rows[: len(rows)] = rows
        self.closed.fill_(-math.inf)
        self.closed[: len(rows)] = 0

    def logits(self, head: Head, features: Tensor) -> Tensor:
        """Return the scaled scores of the current task's classes, and after them those of earlier classes."""
        earlier = head.block_scale * head.scores(features, self.rows) + self.closed
        return torch.cat([head.block_logits(features), earlier], dim=1)
