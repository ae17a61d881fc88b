"""What the tests of heads that are solved from sums have in common."""

from contextlib import suppress

import torch
from torch import Tensor

from clare.heads.drift import Drift
from clare.heads.head import Head
from clare.heads.solved import SolvedHead
from clare.methods.base import MethodSettings
from clare.settings import build_settings
from clare.steps import Collect, Pass, Solve, found_in


def head_of(num_features: int, seed: int = 0, **settings: object) -> Head:
    """Return a head of so many features; `kind` says which, as in a preset."""
    return build_settings(MethodSettings, {"head": settings}, "method").head.make(num_features, seed)


def small(kind: str) -> dict[str, object]:
    """Return a head's settings with little to train or to project."""
    alignment = {"align_epochs": 2, "align_samples": 8}
    own = {"aligned": alignment, "realigned": alignment, "ridge": {"num_projected": 64}}
    return {"kind": kind, **own.get(kind, {})}


def finish(head: SolvedHead, features: Tensor, labels: Tensor, num_new: int) -> None:
    """Finish a task whose images have these features, as the engine would."""
    steps = head.finish(num_new)
    step = next(steps)
    assert isinstance(step, Pass | Collect)
    result = found_in(step, features, labels)
    with suppress(StopIteration):
        while True:
            solve = steps.send(result)
            assert isinstance(solve, Solve)
            result = solve.function()


def a_drift(features: Tensor) -> Drift:
    """Return a shift and a slope about the centre of these features."""
    size = features.shape[1]
    slope = 0.2 * torch.randn(size, size, generator=torch.Generator().manual_seed(3))
    return {"centre": features.mean(0), "shift": torch.full((size,), 0.5), "slope": slope}
