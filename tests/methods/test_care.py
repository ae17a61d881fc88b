"""CaRE: two halves of a later task, an adapter that tasks share, and images that are asked about every task."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from clare_runs import learn, phases_of

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.methods.care import Care, CareSettings, prober_loss, together
from clare.tuners.experts import ADAPTER

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]
TINY: dict[str, Any] = {
    "experts": {"bottleneck": 3, "shared_bottleneck": 4},
    "head": {"align_epochs": 1, "align_samples": 4},
    "epochs": 3,
    "batch_size": 8,
    "learning_rate": 0.02,
}


def make_care(backbone: Backbone, **changes: Any) -> Care:
    return Care(backbone, CareSettings.model_validate({**TINY, **changes}), 0)


def test_a_later_task_is_learnt_in_two_halves(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_care(tiny_backbone())
    phases = phases_of(method)
    learn(context(), method, tiny_stream().tasks[:2])
    assert [(phase.name, phase.epochs) for phase in phases] == [
        ("train", 3), ("first half", 1), ("align", 1), ("second half", 2), ("align", 1),
    ]  # fmt: skip
    rates = [(phase.optimizer.learning_rate, phase.optimizer.least_rate) for phase in phases]  # type: ignore[union-attr]
    assert [rates[0], rates[1], rates[3]] == [(0.02, 0.0), (0.02, 0.01), (0.01, 0.0)]
    # Classes that were taken back between the halves are there once.
    assert method.head.num_classes == len(method.head.means) == 4


@pytest.mark.parametrize("as_published", [False, True])
def test_the_shared_adapter_stays_or_almost(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, as_published: bool
) -> None:
    method = make_care(tiny_backbone(), as_published=as_published)
    tasks = tiny_stream().tasks
    learn(context(), method, tasks[:1])
    block = method.experts.blocks[0]
    shared = [parameter.clone() for parameter in block.shared()]
    first = [block.get_parameter(name)[0].clone() for name in ADAPTER]
    learn(context(), method, tasks[1:2])
    moved = max(float((now - before).abs().max()) for now, before in zip(block.shared(), shared, strict=True))
    assert (moved > 0) == as_published
    assert moved < 0.05
    for name, before in zip(ADAPTER, first, strict=True):
        assert torch.equal(block.get_parameter(name)[0].data, before)
        assert not torch.equal(block.get_parameter(name)[1].data, before)


def test_an_image_is_asked_about_every_task_or_once(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    for iterative in (True, False):
        method = make_care(tiny_backbone(), iterative=iterative, epochs=2)
        for task in tiny_stream().tasks:
            learn(context(), method, [task])
            expected = len(method.tasks) + 1 if iterative and task.index else 1
            assert method.num_passes == expected
            assert method.features(images).shape == (3, 24 * expected)
        assert method(images).shape == (3, 6)


def test_the_surest_task_joins_the_answer() -> None:
    sure, unsure, unknown = torch.tensor([4.0, 0.0]), torch.tensor([0.0, 0.1]), torch.tensor([0.0, 1.0])
    chances = together(torch.stack([unknown, unsure, sure])[None])
    expected = (1 / (1 + math.e) + 1 / (1 + math.exp(-4))) / 2
    torch.testing.assert_close(chances[0, 0], torch.tensor(expected))


@pytest.mark.parametrize(("temperature", "divergence"), [(1.0, 0.111), (2.0, 4 * 0.0300)])
def test_a_probers_loss_by_hand(temperature: float, divergence: float) -> None:
    own, teacher = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    # Cross-entropy log(1 + e^-20), and log(1 + e^x) - x / 2 - log 2 of a logit x against even chances.
    x = 1 / temperature
    soft = temperature**2 * (math.log(1 + math.exp(x)) - x / 2 - math.log(2))
    assert soft == pytest.approx(divergence, abs=0.02)
    found = prober_loss(own, teacher, torch.tensor([0]), 0.0, temperature)
    torch.testing.assert_close(found, torch.tensor([(math.log1p(math.exp(-20)) + soft) / 2]), rtol=1e-4, atol=1e-7)
