"""A way to lead a head through a recorded training of its rows on drawn features."""

from typing import Any

import torch
from torch import Tensor

from clare.engine.optim import rate_at
from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings
from clare.engine.step import TrainStep
from clare.heads.aligned import GaussianFeatures
from clare.heads.realigned import RealignedSettings
from clare.steps import Phase


def realigned(settings: RealignedSettings, golden: dict[str, Tensor], start: str = "start") -> Tensor:
    """Return the rows after tasks of two classes with the recorded means, trained again on the recorded features."""
    means, rows = golden["means"].double(), golden[start]
    head = settings.make(means.shape[1], 0)
    step: Any = None
    for first in range(0, len(means), 2):
        own = means[first : first + 2]
        outer = 2 * own[:, :, None] * own[:, None] + torch.eye(len(own[0]))
        head.open_block(2, torch.Generator())
        head.block.data.copy_(rows[first : first + 2])
        learning = head.finish(2)
        next(learning)
        try:
            step = learning.send({"count": torch.full((2,), 2.0).double(), "sum": 2 * own, "outer": outer})
        except StopIteration:
            assert first == 0
        head.rows.data.copy_(rows[: first + 2])
    assert isinstance(step, Phase)
    assert isinstance(step.data, GaussianFeatures)
    torch.testing.assert_close(step.data.means, golden["given_means"].float(), rtol=0, atol=1e-5)
    run, size = TrainStep(Ranks(EngineSettings(device="cpu")), step), settings.align_samples
    head.rows.requires_grad_(True)
    labels = torch.arange(len(rows)).repeat_interleave(size)
    for epoch, order in enumerate(golden["orders"].long()):
        run.optimizer.set_rate(rate_at(step.optimizer, epoch, step.epochs))
        for chosen in order.split(size):
            run(golden["features"][epoch].float()[chosen], labels[chosen], torch.ones(size), size)
    return head.rows.data
