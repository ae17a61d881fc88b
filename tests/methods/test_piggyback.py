"""Piggyback: masks and gradients worked out by hand, and weights that never change."""

from collections.abc import Callable

import torch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.evaluate import count_parameters
from clare.engine.learn import learn_task
from clare.engine.optim import MaskedOptimizer
from clare.methods._shared.masked import passing
from clare.methods.piggyback import Piggyback, PiggybackSettings
from clare.steps import Adam, Group
from clare.tuners.backbone_weights import flat_weights


def test_a_step_by_hand() -> None:
    weights = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    scores = torch.nn.Parameter(torch.tensor([[0.01, 0.004], [0.006, 0.002]]))
    mask = (scores > 0.005).float()
    assert mask.tolist() == [[1, 0], [1, 0]]
    output = (passing(mask, scores) * weights) @ torch.tensor([1.0, 2.0])
    assert output.tolist() == [1.0, 0.5]
    loss = (output - torch.tensor([0.0, 1.0])).square().sum() / 2
    (gradient,) = torch.autograd.grad(loss, scores)
    assert loss.item() == 0.625
    assert gradient.tolist() == [[1, -4], [-0.25, -3]]
    optimizer = MaskedOptimizer([Group(scores)], Adam(1e-4))
    optimizer.set_rate(1e-4)
    optimizer.step([gradient])
    torch.testing.assert_close(scores.data, torch.tensor([[0.0099, 0.0041], [0.0061, 0.0021]]), atol=1e-7, rtol=0)


def test_the_backbone_is_masked_and_a_task_costs_a_bit_for_each_weight(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    stream, run, backbone = tiny_stream(), context(), tiny_backbone()
    weights = flat_weights(backbone.vit)
    settings = PiggybackSettings(epochs=3, batch_size=8, learning_rate=0.01, tunes="backbone")
    method = Piggyback(backbone, settings, 0)
    for task in stream.tasks[:2]:
        learn_task(run, method, task)
    assert torch.equal(method.values, weights)
    assert not any("scores" in name or "tuner" in name for name in method.state_dict() if "backbone" not in name)
    rows = 4 * 24 + method.head.block.numel()
    assert count_parameters(method)["num_stored"] == rows + -(-2 * len(weights) // 32)
    is_off = ~method.masks
    assert is_off.any(1).all()
    assert not torch.equal(method.masks[0], method.masks[1])
    matrices = zip(torch.split(is_off, method.layer_sizes, 1), method.is_matrix, strict=True)
    assert not any(part.any() for part, is_matrix in matrices if not is_matrix)


def test_an_adapter_is_trained_once_and_masked_from_then_on(
    tiny_backbone: Callable[..., Backbone], tiny_stream: Callable[..., Stream], context: Callable[..., Context]
) -> None:
    stream, run = tiny_stream(), context()
    method = Piggyback(tiny_backbone(), PiggybackSettings(epochs=3, batch_size=8, learning_rate=0.01), 0)
    learn_task(run, method, stream.tasks[0])
    values = method.values.detach().clone()
    assert method.masks.all()
    learn_task(run, method, stream.tasks[1])
    assert torch.equal(method.values, values)
    assert not method.masks[1].all()
