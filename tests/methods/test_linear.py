"""The head alone: frozen features, and rows of each kind."""

from collections.abc import Callable

import pytest
import torch
from clare_runs import bits, learn
from head_steps import small

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.evaluate import evaluate
from clare.methods.linear import Linear, LinearSettings
from clare.methods.protocols import capacity_of
from clare.methods.simplecil import SimpleCil, SimpleCilSettings

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


def make_linear(backbone: Backbone, kind: str) -> Linear:
    settings = {
        "epochs": 10,
        "batch_size": 8,
        "learning_rate": 0.01,
        "head": small(kind),
    }
    return Linear(backbone, LinearSettings.model_validate(settings), 0)


@pytest.mark.parametrize("kind", ["trained", "prototype", "aligned"])
def test_the_backbone_stays_and_old_rows_stay_unless_they_are_aligned(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, kind: str
) -> None:
    stream, run, method = tiny_stream(), context(), make_linear(tiny_backbone(), kind)
    backbone = {name: bits(tensor) for name, tensor in method.backbone.state_dict().items()}
    for task in stream.tasks:
        rows = method.head.rows.detach().clone()
        learn(run, method, [task])
        assert (bits(method.head.rows[: len(rows)]) == bits(rows)) == (kind != "aligned" or task.index == 0)
        # Rows trained on one task alone are comparable within the task, not across tasks.
        own = (stream.test.labels // 2 == task.index).nonzero().squeeze(1)
        canvas, labels = stream.test.batch(own)
        logits = method(run.transforms.test(canvas))[:, len(rows) :]
        assert torch.equal(logits.argmax(1), labels - len(rows))
    if kind != "trained":
        predicted, target, *_ = evaluate(run, method, stream, 2)
        assert torch.equal(predicted, target)
    assert {name: bits(tensor) for name, tensor in method.backbone.state_dict().items()} == backbone
    assert capacity_of(method) is None


def test_prototype_rows_are_those_of_simplecil(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    linear, simplecil = (
        make_linear(tiny_backbone(), "prototype"),
        SimpleCil(tiny_backbone(), SimpleCilSettings(), 0),
    )
    for method in (linear, simplecil):
        learn(context(), method, tiny_stream().tasks)
    torch.testing.assert_close(linear.head.rows, simplecil.head.rows, rtol=1e-6, atol=1e-7)


def test_aligned_rows_keep_one_gaussian_for_each_class(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_linear(tiny_backbone(), "aligned")
    learn(context(), method, tiny_stream().tasks)
    assert method.head.means.shape == (6, 24)
    assert method.head.factors.shape == (6, 24, 24)
    # Training starts at the class means and moves away from them.
    starts = torch.nn.functional.normalize(method.head.means, dim=1)
    assert not torch.equal(method.head.rows, starts)
    assert float((method.head.logits(starts).diagonal()).min()) > 0.5
