"""What the tests of heads that are solved from sums have in common."""

import pytest
import torch
from torch import Tensor

from clare.heads.drift import Drift
from clare.heads.solved import SolvedHead
from clare.steps import Collect, Pass, Solve, found_in


def finish(head: SolvedHead, features: Tensor, labels: Tensor, num_new: int) -> None:
    """Finish a task whose images have these features, as the engine would."""
    steps = head.finish(num_new)
    step = next(steps)
    assert isinstance(step, Pass | Collect)
    solve = steps.send(found_in(step, features, labels))
    assert isinstance(solve, Solve)
    with pytest.raises(StopIteration):
        steps.send(solve.function())


def a_drift(features: Tensor) -> Drift:
    """Return a shift and a slope about the centre of these features."""
    size = features.shape[1]
    slope = 0.2 * torch.randn(size, size, generator=torch.Generator().manual_seed(3))
    return {"centre": features.mean(0), "shift": torch.full((size,), 0.5), "slope": slope}
