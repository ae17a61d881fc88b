"""SimpleCIL: class means of frozen features, whatever the order of the tasks."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from clare_runs import bits, learn

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.evaluate import evaluate
from clare.errors import SettingsError
from clare.methods.protocols import capacity_of
from clare.methods.simplecil import SimpleCil, SimpleCilSettings
from clare.settings import build_settings

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


def make_simplecil(backbone: Backbone, seed: int = 0) -> SimpleCil:
    return SimpleCil(backbone, SimpleCilSettings(), seed)


def test_rows_are_the_class_means_of_the_bare_backbone(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream, run = tiny_stream(), context(eval_batch_size=7)
    method = make_simplecil(tiny_backbone())
    learn(run, method, stream.tasks)
    means = []
    for task in stream.tasks:
        canvas, labels = task.train.batch(torch.arange(len(task.train)))
        features = tiny_backbone().vit(run.transforms.test(canvas))
        means += [features[labels == label].mean(0) for label in range(2)]
    torch.testing.assert_close(method.head.rows.detach(), torch.stack(means), rtol=1e-5, atol=1e-6)


def test_the_final_rows_do_not_depend_on_the_order_of_the_tasks(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    tasks = tiny_stream().tasks
    forward, backward = make_simplecil(tiny_backbone()), make_simplecil(tiny_backbone(), seed=5)
    learn(context(train="affine"), forward, tasks)
    learn(context(seed=5), backward, [replace(task, index=i) for i, task in enumerate(reversed(tasks))])
    assert backward.classes != forward.classes
    for name in forward.classes:
        rows = [method.head.rows[method.classes.index(name)] for method in (forward, backward)]
        torch.testing.assert_close(rows[0], rows[1], rtol=1e-6, atol=1e-7)


def test_it_tells_the_classes_apart_and_trains_nothing(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream, backbone = tiny_stream(), tiny_backbone()
    before = {name: bits(tensor) for name, tensor in backbone.vit.state_dict().items()}
    method = make_simplecil(backbone)
    learn(context(), method, stream.tasks)
    predicted, target, *_ = evaluate(context(), method, stream, 2)
    assert torch.equal(predicted, target)
    assert {name: bits(tensor) for name, tensor in backbone.vit.state_dict().items()} == before
    assert capacity_of(method) is None


@pytest.mark.parametrize("kind", ["trained", "aligned"])
def test_other_rows_than_class_means_are_refused_by_the_settings(kind: str) -> None:
    with pytest.raises(SettingsError, match=rf"'method\.head\.kind' got '{kind}'; it is prototype"):
        build_settings(SimpleCilSettings, {"head": {"kind": kind}}, "method")
    assert build_settings(SimpleCilSettings, {"head": {"kind": "prototype"}}, "method") == SimpleCilSettings()
