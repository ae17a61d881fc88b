"""LwF: distillation by hand, and answers that are kept."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.learn import learn_task
from clare.methods._shared.distil import distilled
from clare.methods.lwf import LearningWithoutForgetting, LwfSettings

BEFORE, AFTER = torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([[1.0, 1.0, 0.0]])


def test_distillation_by_hand() -> None:
    logits = AFTER.clone().requires_grad_()
    paid = distilled(logits, BEFORE, 2.0)
    assert paid.tolist() == pytest.approx([1.028142], abs=1e-6)
    (gradient,) = torch.autograd.grad(paid.sum(), logits)
    assert gradient[0].tolist() == pytest.approx([-0.122440, 0.076214, 0.046226], abs=1e-6)
    local = F.cross_entropy(torch.tensor([[3.0, -1.0]]), torch.tensor([0]))
    assert (local + 3 * paid).item() == pytest.approx(3.102577, abs=1e-5)


def test_closed_places_count_for_nothing() -> None:
    closed = torch.full((1, 2), -torch.inf)
    logits = torch.cat([AFTER, closed], 1).requires_grad_()
    paid = distilled(logits, torch.cat([BEFORE, closed], 1), 2.0)
    (gradient,) = torch.autograd.grad(paid.sum(), logits)
    assert paid.item() == pytest.approx(1.028142, abs=1e-6)
    assert gradient[0].tolist() == pytest.approx([-0.122440, 0.076214, 0.046226, 0, 0], abs=1e-6)


@pytest.mark.parametrize("row_epochs", [0, 1])
def test_answers_over_earlier_classes_stay_nearer(
    tiny_backbone: Callable[..., Backbone],
    tiny_stream: Callable[..., Stream],
    context: Callable[..., Context],
    row_epochs: int,
) -> None:
    stream, run, changes = tiny_stream(), context(), []
    canvas, _ = stream.tasks[1].train.batch(torch.arange(len(stream.tasks[1].train)))
    images = run.transforms.test(canvas)
    for weight in (0.0, 10.0):
        settings = LwfSettings.model_validate(
            {
                "epochs": 8,
                "batch_size": 8,
                "learning_rate": 0.05,
                "momentum": 0.0,
                "adapter": {"dropout": 0.0},
                "distillation": weight,
                "row_epochs": row_epochs,
                "head": {"kind": "trained"},
            }
        )
        method = LearningWithoutForgetting(tiny_backbone(), settings, 0)
        learn_task(run, method, stream.tasks[0])
        before = (20 * method(images)).softmax(1)
        learn_task(run, method, stream.tasks[1])
        changes.append(float(((20 * method(images)[:, :2]).softmax(1) - before).abs().mean()))
    assert changes[1] < 0.5 * changes[0]
