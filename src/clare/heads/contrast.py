"""Which classes a task's loss tells apart: its own, or all so far, whose finished rows stand beside the new ones."""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clare.heads.head import Head
from clare.heads.trained import TrainedHead
from clare.steps import Group

Over = Literal["task", "seen", "seen-trained"]
"""The task's classes; all so far with old rows fixed; all so far with old rows trained as well."""


class Contrast(nn.Module):
    """Copies of finished rows in a place that is filled from task to task, so that shapes stay the same."""

    closed: Tensor

    def __init__(self, row_size: int, over: Over) -> None:
        super().__init__()
        self.over = over
        self.rows = nn.Parameter(torch.zeros(0, row_size), requires_grad=False)
        self.register_buffer("closed", torch.zeros(0), persistent=False)

    def _save_to_state_dict(self, *_: Any) -> None:
        """Save nothing: between tasks the head has all that counts."""

    def reserve(self, num_rows: int) -> None:
        """Make room for at least this many rows where the loss is over all classes."""
        if self.over != "task" and num_rows > len(self.rows):
            self.rows = nn.Parameter(self.rows.new_zeros(num_rows, self.rows.shape[1]), requires_grad=False)
            self.closed = self.rows.new_zeros(num_rows)

    def take(self, head: Head) -> None:
        """Copy the rows of all earlier classes; room without a class is closed."""
        num_rows = len(head.directions)
        if num_rows > len(self.rows):
            # Twice the room: where the number of classes is unknown, places change seldom.
            self.reserve(2 * num_rows)
        if self.over != "task":
            self.rows.data.zero_()
            self.rows.data[:num_rows] = head.directions
            self.closed.fill_(-math.inf)
            self.closed[:num_rows] = 0

    def give_back(self, head: Head) -> None:
        """Let the head have the earlier rows as they were trained; rows made of statistics are not of training."""
        if self.over == "seen-trained" and isinstance(head, TrainedHead):
            head.rows.data.copy_(self.rows.data[: head.num_classes])

    def groups(self) -> list[Group]:
        """Return what a task trains of the earlier rows."""
        return [Group(self.rows)] if self.over == "seen-trained" and len(self.rows) else []

    def logits(self, head: Head, features: Tensor) -> Tensor:
        """Return the scaled scores of the current task's classes, and after them those of earlier classes."""
        earlier = head.block_scale * head.scores(features, self.rows) + self.closed
        return torch.cat([head.block_logits(features), earlier], dim=1)

    def loss(self, head: Head, features: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's cross-entropy over the classes to tell apart."""
        if self.over == "task":
            return head.block_loss(features, labels)
        return F.cross_entropy(self.logits(head, features), labels, reduction="none")
