"""MagMax merges as the authors' code, goes on from the last task's weights, and classifies with the merged ones."""

from collections.abc import Callable
from pathlib import Path

import torch
from clare_runs import learn
from safetensors.torch import load_file

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.methods.magmax import MagMax, MagMaxSettings, larger

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "magmax.safetensors")


def test_merged_weights_are_the_recorded_ones() -> None:
    largest = torch.zeros_like(GOLDEN["start"])
    for weights in GOLDEN["tasks"]:
        largest = larger(largest, weights - GOLDEN["start"])
    torch.testing.assert_close(largest, GOLDEN["largest"], rtol=0, atol=1e-6)
    torch.testing.assert_close(GOLDEN["start"] + 0.5 * largest, GOLDEN["merged"], rtol=0, atol=1e-6)


def test_of_two_changes_as_large_the_newer_counts() -> None:
    old, new = torch.tensor([0.25, -0.25, 0.0, 0.125]), torch.tensor([0.125, 0.25, -0.5, 0.125])
    assert larger(old, new).tolist() == [0.25, 0.25, -0.5, 0.125]


def test_training_goes_on_from_unmerged_weights(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    settings = MagMaxSettings(epochs=1, batch_size=8, learning_rate=1e-3, row_factor=10, warm_up=0)
    method = MagMax(tiny_backbone(), settings, 0)
    changes = []
    for task in tiny_stream().tasks[:2]:
        learn(context(), method, [task])
        changes.append(method.weights.values.data - method.start)
    expected = larger(changes[0], changes[1])
    assert torch.equal(method.largest, expected)
    assert not torch.equal(expected, changes[1])
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    merged = method.weights.features(method.backbone, images, method.start + 0.5 * expected)
    torch.testing.assert_close(method.features(images), merged)
    method.train()
    torch.testing.assert_close(method.features(images), method.weights.features(method.backbone, images))
