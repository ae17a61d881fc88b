"""PGM: options, chances and groups worked out by hand, and networks that stay."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.learn import learn_task
from clare.methods.pgm import PgmSettings, ProbabilisticGroupMasks, chances, grouped, options_of

GATES = torch.tensor([[0.02, -0.01, 0.03, 0.0]])


def test_options_by_hand() -> None:
    assert options_of(1).int().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert options_of(2).shape == (6, 4)
    assert options_of(2).sum(1).tolist() == [2] * 6


def test_chances_by_hand() -> None:
    first = [0.075816, 0.000042, 0.923631, 0.000511]
    assert chances(GATES, 1e3, 4.0, 0.0)[0].tolist() == pytest.approx(first, abs=1e-6)
    assert chances(GATES, 1e4, 0.1, 0.0)[0].tolist() == pytest.approx([0, 0, 1, 0], abs=1e-6)
    # What noise adds to a gate counts as if the gate had it.
    noise = torch.tensor([[20.0, 0, 0, 0]])
    expected = chances(torch.tensor([[0.04, -0.01, 0.03, 0.0]]), 1e3, 4.0, 0.0)
    torch.testing.assert_close(chances(GATES, 1e3, 4.0, noise), expected)


def test_groups_by_hand() -> None:
    assert grouped([5, 3, 8, 3], [True, False, True, True]).tolist() == [0, 1, 2, 3, *range(8, 16)]


def test_a_drawn_network_hardens(tiny_backbone: Callable[..., Backbone]) -> None:
    method = ProbabilisticGroupMasks(tiny_backbone(), PgmSettings(keep=1), 0)
    found = []
    for progress in (0.0, 1.0):
        method.progress.fill_(progress)
        torch.manual_seed(0)
        mask = method.running() / method.values
        groups = mask[method.places].view(-1, 4)
        torch.testing.assert_close(groups.sum(1), torch.ones(len(groups)))
        found.append(float(groups.amax(1).mean()))
    # Gates that lie closer than chance at first are told apart in the end.
    assert found[0] < 0.9 < 0.99 < found[1]


@pytest.mark.parametrize(("tunes", "outside", "keep"), [("adapter", "zero", 1), ("backbone", "start", 2)])
def test_networks_have_their_share_of_each_group_and_stay(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    tunes: Any,
    outside: Any,
    keep: int,
) -> None:
    stream, run = tiny_stream(), context()
    settings = PgmSettings(epochs=2, batch_size=8, learning_rate=0.01, tunes=tunes, outside=outside, keep=keep)
    method = ProbabilisticGroupMasks(tiny_backbone(), settings, 0)
    networks = []
    for task in stream.tasks:
        before = method.gates.clone()
        learn_task(run, method, task)
        networks.append(method.network(task.index).clone())
        assert not torch.equal(method.gates, before)
        assert float(method.progress) == 1
    for index, network in enumerate(networks):
        assert torch.equal(method.network(index), network)
        assert (method.masks[index][method.places].view(-1, 4).sum(1) == keep).all()
    is_grouped = torch.zeros_like(method.masks[0]).scatter(0, method.places, True)
    assert method.masks[:, ~is_grouped].all()
    assert not torch.equal(method.masks[0], method.masks[1])
