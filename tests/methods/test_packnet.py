"""PackNet: pruning worked out by hand, and networks that no later task changes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.learn import learn_task
from clare.methods.packnet import PackNet, PackNetSettings, survivors

FIRST = torch.tensor([0.9, -0.1, 0.4, 0.05, -0.7, 0.2, -0.3, 0.6])


def test_pruning_by_hand() -> None:
    free = torch.ones(8, dtype=torch.bool)
    kept = survivors(0.75, FIRST.abs(), free)
    assert kept.nonzero().flatten().tolist() == [0, 4]
    second = torch.tensor([0.9, 0.5, -0.2, 0.1, -0.7, 0.8, -0.05, 0.3])
    # Four and a half of six are rounded to the even number.
    assert survivors(0.75, second.abs(), free & ~kept).nonzero().flatten().tolist() == [1, 5]
    start = torch.tensor([0.3, -0.3, 0.1, 0.0, 0.0, 0.2, -0.1, 0.05])
    moved = survivors(0.75, (FIRST - start).abs(), free)
    expected = torch.tensor([0.9, -0.3, 0.1, 0.0, -0.7, 0.2, -0.1, 0.05])
    torch.testing.assert_close(torch.where(moved, FIRST, start), expected)
    assert survivors(0.0, FIRST.abs(), kept) is kept


@pytest.mark.parametrize("tunes", ["adapter", "backbone"])
@pytest.mark.parametrize("outside", ["start", "zero"])
def test_no_task_changes_the_network_of_another(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    tunes: Any,
    outside: Any,
) -> None:
    stream, run = tiny_stream(), context()
    settings = PackNetSettings(
        epochs=2, batch_size=8, learning_rate=0.01, retrain_epochs=1, tunes=tunes, outside=outside, weight_decay=0.1
    )
    method = PackNet(tiny_backbone(), settings, 0)
    start = method.values.detach().clone()
    networks = []
    for task in stream.tasks:
        learn_task(run, method, task)
        networks.append(method.network(task.index).clone())
    for index, network in enumerate(networks):
        assert torch.equal(method.network(index), network)
        left = start if outside == "start" else torch.zeros_like(start)
        assert torch.equal(network[~method.masks[index]], left[~method.masks[index]])
    # Each mask holds those before it, and of each matrix a quarter of what was free.
    assert not (method.masks[:-1] & ~method.masks[1:]).any()
    matrices = zip(torch.split(method.masks, method.layer_sizes, 1), method.is_matrix, strict=True)
    for masks, is_matrix in matrices:
        size = masks.shape[1]
        num_kept = size - round(0.75 * size)
        assert int(masks[0].sum()) == (num_kept if is_matrix else size)
        assert int(masks[1].sum()) >= int(masks[0].sum())
    assert ("outside" in method.state_dict()) is ((tunes, outside) == ("adapter", "start"))
    assert 0.5 < method.diagnosis()["share_used"] < 0.7
