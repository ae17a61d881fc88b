"""SLCA moves the whole backbone a hundred times slower than the rows, and slower still after the milestone."""

from collections.abc import Callable

import torch
from clare_runs import learn, phases_of

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.optim import rate_at
from clare.heads.realigned import RealignedHead
from clare.methods.slca import Slca, SlcaSettings


def test_the_backbone_is_a_slow_learner(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    head = {"align_epochs": 1, "align_samples": 4}
    settings = SlcaSettings.model_validate({"epochs": 3, "milestone": 2, "batch_size": 8, "head": head})
    method = Slca(tiny_backbone(), settings, 0)
    phases = phases_of(method)
    learn(context(), method, tiny_stream().tasks[:2])
    weights, rows = phases[0].groups
    assert (weights.rate_factor, rows.rate_factor) == (0.01, 1.0)
    assert weights.parameter is method.weights.values
    rates = [rate_at(phases[0].optimizer, epoch, 3) for epoch in range(3)]
    torch.testing.assert_close(torch.tensor(rates), torch.tensor([0.01, 0.01, 0.001]))
    moved = (method.weights.values - torch.cat([each.flatten() for each in method.backbone.parameters()])).abs()
    assert 0 < float(moved.max()) < 0.1
    assert isinstance(method.head, RealignedHead)
    # The rows that classify were trained again; those of the tasks are kept for the next one.
    assert not torch.equal(method.head.trained, method.head.rows.data)
    assert torch.equal(method.head.trained[2:], method.head.block.data)
