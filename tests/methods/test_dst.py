"""Dynamic sparse training: shares, drops and growth worked out by hand, and networks that stay."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.learn import learn_task
from clare.methods.dst import DstSettings, DynamicSparse, densest, dropped_share, erk, moved
from clare.tuners.adapter import AdapterSettings


def test_shares_by_hand() -> None:
    assert [dropped_share(0.5, 0.005, place) for place in (0, 0.5, 1)] == pytest.approx([0.5, 0.2525, 0.005])
    sizes, mask = torch.arange(20.0), torch.arange(20) < 10
    numbers = []
    for place in (0, 0.5, 1):
        found = moved(dropped_share(0.5, 0.005, place), sizes, mask, sizes)
        numbers.append(int((mask & ~found).sum()))
        assert int(found.sum()) == 10
    assert numbers == [5, 3, 1]


def test_a_first_mask_by_hand() -> None:
    draw = torch.tensor([0.1, 0.9, 0.3, 0.4])
    assert densest(0.5, draw).int().tolist() == [0, 1, 0, 1]
    # A layer without any number would be no layer.
    assert densest(0.01, draw).int().tolist() == [0, 1, 0, 0]


def test_shares_of_layers_by_hand() -> None:
    # Raw shares of 12 / 32 and 6 / 8, times 10 / 9.
    assert erk(0.5, [(4, 8), (2, 4)]) == pytest.approx([0.416667, 0.833333], abs=1e-6)
    # 0.75 of 40 numbers: the smaller matrix would have 5/3 · 6 of its 8, is full, and leaves 22 for the other's 32.
    assert erk(0.75, [(4, 8), (2, 4)]) == pytest.approx([22 / 32, 1])
    assert erk(1, [(4, 8), (2, 4), (3, 3)]) == pytest.approx([1, 1, 1])


def test_a_move_by_hand() -> None:
    weights = torch.tensor([0.5, 0, -0.3, 0.1, 0, -0.05, 0.2, 0])
    slopes = torch.tensor([0, 0.4, 0, 0.9, -0.8, 0.1, 0, 0.2]).abs()
    kept = moved(0.4, weights.abs(), weights != 0, torch.tensor([0, 9.0, 0, 0, 0, 0, 0, 9]))
    assert kept.int().tolist() == [1, 1, 1, 0, 0, 0, 1, 1]
    assert moved(0.4, weights.abs(), weights != 0, slopes).nonzero().flatten().tolist() == [0, 2, 3, 4, 6]
    assert torch.equal(moved(0, weights.abs(), weights != 0, slopes), weights != 0)
    assert moved(1, weights.abs(), torch.ones(8, dtype=torch.bool), slopes).all()


@pytest.mark.parametrize(
    ("tunes", "outside", "grow"),
    [("adapter", "zero", "gradient"), ("adapter", "start", "momentum"), ("backbone", "start", "untried")],
)
def test_networks_are_as_dense_as_was_asked_and_stay(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    tunes: Any,
    outside: Any,
    grow: Any,
) -> None:
    stream, run = tiny_stream(), context()
    recipe = {"epochs": 4, "rounds": 3, "batch_size": 8, "learning_rate": 0.01}
    settings = DstSettings(**recipe, tunes=tunes, outside=outside, grow=grow, density=0.3)  # type: ignore[arg-type]
    method = DynamicSparse(tiny_backbone(), settings, 0)
    start = method.values.detach().clone() if outside == "start" else torch.zeros_like(method.values)
    networks = []
    for task in stream.tasks:
        learn_task(run, method, task)
        networks.append(method.network(task.index).clone())
        assert torch.equal(method.network(task.index), method.running())
    for index, network in enumerate(networks):
        assert torch.equal(method.network(index), network)
        assert torch.equal(network[~method.masks[index]], start[~method.masks[index]])
    for masks, is_matrix in zip(torch.split(method.masks, method.layer_sizes, 1), method.is_matrix, strict=True):
        size = masks.shape[1]
        assert masks.sum(1).tolist() == [max(1, round(0.3 * size)) if is_matrix else size] * 3
    assert (method.masks[0] & method.masks[1]).any()
    assert not torch.equal(method.masks[0], method.masks[1])


def test_slopes_are_gradients_in_all_numbers(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    stream, run = tiny_stream(), context()
    method = DynamicSparse(tiny_backbone(), DstSettings(epochs=1, density=0.5), 0)
    learn_task(run, method, stream.tasks[0])
    images, labels = run.transforms.test(stream.tasks[0].train.batch(torch.arange(4))[0]), torch.tensor([0, 0, 1, 1])
    found = method.slopes(images, labels, torch.tensor([1.0, 1, 1, 0]))["slopes"]
    values = method.running().requires_grad_()
    losses = F.cross_entropy(method.head.block_logits(method.features_at(images[:3], values)), labels[:3])
    torch.testing.assert_close(found, 3 * torch.autograd.grad(losses, values)[0], rtol=1e-3, atol=1e-6)
    assert found[~method.mask].any()


def test_the_smaller_matrices_are_denser_under_erk(tiny_backbone: Callable[..., Backbone]) -> None:
    settings = DstSettings(density=0.3, distribution="erk", adapter=AdapterSettings(bottleneck=4))
    method = DynamicSparse(tiny_backbone(), settings, 0)
    shapes = list(method.tuner.shapes.values())
    parts = torch.split(method.first_mask(torch.Generator().manual_seed(0)), method.layer_sizes)
    shares = erk(0.3, [shape for shape in shapes if len(shape) == 2])
    found = [part for part, is_matrix in zip(parts, method.is_matrix, strict=True) if is_matrix]
    assert [int(part.sum()) for part in found] == [
        round(share * len(part)) for share, part in zip(shares, found, strict=True)
    ]


def test_what_was_never_tried_grows_first(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masks = []

    def noted(share: float, sizes: torch.Tensor, mask: torch.Tensor, growth: torch.Tensor) -> torch.Tensor:
        masks.append((mask, moved(share, sizes, mask, growth)))
        return masks[-1][1]

    monkeypatch.setattr("clare.methods.dst.moved", noted)
    recipe = {"epochs": 3, "rounds": 3, "drop": 0.4, "least_drop": 0.4, "density": 0.3, "grow": "untried"}
    method = DynamicSparse(tiny_backbone(), DstSettings(**recipe), 0)  # type: ignore[arg-type]
    learn_task(context(), method, tiny_stream().tasks[0])
    num_matrices = len(masks) // 2
    for first, second in zip(masks[:num_matrices], masks[num_matrices:], strict=True):
        tried = first[0] | first[1]
        # Some 0.3 + 0.12 of all were tried by then, and 0.12 are to grow.
        assert not (second[1] & ~second[0] & tried).any()
