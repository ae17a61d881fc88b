"""WSN: winners and both gradients worked out by hand, and networks that overlap and stay."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.learn import learn_task
from clare.methods.wsn import WinningSubnetworks, WsnSettings, chosen, winners

SCORES = torch.tensor([0.9, -0.1, 0.4, 0.7, -0.2, 0.3])
VALUES = torch.tensor([0.2, -0.5, 0.1, 0.4, 0.3, -0.6])


def test_winners_by_hand() -> None:
    # One more than half, as the authors' percentile has it.
    assert winners(0.5, SCORES.abs()).int().tolist() == [1, 0, 1, 1, 0, 1]
    assert winners(0.3, SCORES.abs()).int().tolist() == [1, 0, 0, 1, 0, 0]
    assert winners(1.0, SCORES.abs()).all()


@pytest.mark.parametrize("outside", [0.0, 0.25])
def test_gradients_by_hand(outside: float) -> None:
    scores, values = SCORES.clone().requires_grad_(), VALUES.clone().requires_grad_()
    mask = winners(0.5, SCORES.abs())
    found = chosen(mask, scores, values, torch.tensor(outside))
    torch.testing.assert_close(found, torch.where(mask, VALUES, outside))
    gradient = torch.tensor([0.1, 0.2, -0.3, 0.4, 0.5, -0.6])
    found.backward(gradient)
    assert scores.grad is not None
    assert values.grad is not None
    torch.testing.assert_close(scores.grad, gradient * (VALUES - outside) * SCORES.sign())
    if not outside:
        assert scores.grad.tolist() == pytest.approx([0.02, 0.1, -0.03, 0.16, -0.15, 0.36])
    assert values.grad.tolist() == pytest.approx([0.1, 0, -0.3, 0.4, 0, -0.6])


@pytest.mark.parametrize(("tunes", "outside"), [("adapter", "zero"), ("adapter", "start"), ("backbone", "start")])
def test_networks_overlap_and_stay(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    tunes: Any,
    outside: Any,
) -> None:
    stream, run = tiny_stream(), context()
    settings = WsnSettings(epochs=3, batch_size=8, learning_rate=0.02, keep=0.3, tunes=tunes, outside=outside)
    method = WinningSubnetworks(tiny_backbone(), settings, 0)
    networks = []
    for task in stream.tasks:
        scores = method.scores.detach().clone()
        learn_task(run, method, task)
        networks.append(method.network(task.index).clone())
        assert not torch.equal(method.scores, scores)
    for index, network in enumerate(networks):
        assert torch.equal(method.network(index), network)
    matrices = zip(torch.split(method.masks, method.layer_sizes, 1), method.is_matrix, strict=True)
    masks = torch.cat([part for part, is_matrix in matrices if is_matrix], 1)
    assert (masks[0] & masks[1]).any()
    assert (masks[1] & ~masks[0]).any()
    assert float(masks.float().mean()) == pytest.approx(0.3, abs=0.02)
