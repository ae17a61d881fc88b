"""A trust region: a task that costs earlier classes too much is shortened along its way, or taken back."""

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clare.heads.drift import accuracy_lost
from clare.heads.head import Head
from clare.methods.base import Method
from clare.steps import Collect, Notice, Result, Solve, Step
from clare.tuners.adapter import FlatAdapter

LENGTHS = (1.0, 0.5, 0.25, 0.125)
"""Parts of a task's way that are tried, the longest first."""
HOPELESS = 0.25
"""A cost from which on nothing of a way is gone: features so far away say little of where a shorter one ends."""


@dataclass
class Trust:
    """What a task may cost, and the features and values of before it."""

    limit: float
    follows: bool
    shared: Tensor
    before: Result
    found: dict[str, Any] = field(default_factory=dict)
    """What the record keeps."""

    def hold(self, method: Method, adapter: FlatAdapter, chosen: Tensor) -> Generator[Step, Result, Tensor]:
        """Leave the adapter at the longest part of the way that is within the limit, and return what is claimed."""
        trained, lost, head = adapter.values.detach().clone(), [], method.head
        for length in LENGTHS:
            adapter.values.copy_(torch.where(chosen, self.shared.lerp(trained, length), self.shared))
            after = yield Collect("trusted features", method.features)
            moves = (head.seen(self.before["values"]), head.seen(after["values"]), after["labels"])
            found = yield Solve("trust", partial(accuracy_lost, means_of(head), *moves, self.follows))
            lost.append(float(found["lost"]))
            if lost[-1] <= self.limit or lost[-1] > HOPELESS:
                break
        if lost[-1] > self.limit:
            adapter.values.copy_(self.shared)
            length, chosen = 0.0, torch.zeros_like(chosen)
        self.found = {"length": length, "lost": lost}
        if length < 1:
            done = f"goes {length:.0%} of its way" if length else "is taken back, and only the head learns its classes"
            yield Notice(f"about {lost[0]:.0%} of what is known of earlier classes would be lost: the task {done}")
        return chosen


def means_of(head: Head) -> Tensor:
    """Return what a head keeps of where the features of each class are."""
    return head.means if len(head.means) else head.rows.data
