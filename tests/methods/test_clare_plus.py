"""CLARE-plus: without its additions it is CLARE to the bit, and each addition does what it says."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from clare_runs import CLARE_RECIPE, bits, learn, make_clare, watch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.methods.base import prepare
from clare.methods.clare_plus import ClarePlus, ClarePlusSettings
from clare.methods.state import learnt_tensors
from clare.steps import Collect, Pass, Phase, TaskInfo

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]
ALIGNED = {"kind": "aligned", "align_epochs": 2, "align_samples": 4}


def make_plus(backbone: Backbone, **changes: Any) -> ClarePlus:
    """Return the method on the backbone, with CLARE's recipe and these changes."""
    return ClarePlus(backbone, ClarePlusSettings.model_validate({**CLARE_RECIPE, **changes}), 0)


@pytest.mark.parametrize("head", [{"kind": "prototype"}, ALIGNED])
def test_without_its_additions_it_is_clare_to_the_bit(
    head: dict[str, Any], context: MakeContext, tiny_backbone: MakeBackbone, tiny_stream: MakeStream
) -> None:
    plain = make_clare(tiny_backbone(), head=head)
    plus = make_plus(tiny_backbone(), head=head, contrast="task", follow_drift=False, hold=0.0)
    for method in (plain, plus):
        learn(context(), method, tiny_stream().tasks)
    assert bits(plain.adapter.values) == bits(plus.adapter.values)
    assert bits(plain.head.rows) == bits(plus.head.rows)


def test_the_loss_tells_new_classes_from_all_earlier_ones(
    context: MakeContext, tiny_backbone: MakeBackbone, tiny_stream: MakeStream
) -> None:
    method, stream = make_plus(tiny_backbone(), contrast="seen", follow_drift=False), tiny_stream()
    learn(context(), method, stream.tasks[:2])
    old = method.head.rows.data.clone()
    next(iter(method.learn(TaskInfo(2, stream.tasks[2].classes))))
    method.head.open_block(2, torch.Generator().manual_seed(0))
    images = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    features = F.normalize(method.eval().features(images), dim=1)
    rows = F.normalize(torch.cat([method.head.block.data, old]), dim=1)
    labels = torch.tensor([0, 1, 1])
    expected = F.cross_entropy(method.head.scale * features @ rows.T, labels, reduction="none")
    torch.testing.assert_close(method.loss(images, labels), expected)


def test_the_first_task_is_that_of_clare(
    context: MakeContext, tiny_backbone: MakeBackbone, tiny_stream: MakeStream
) -> None:
    plain, plus = make_clare(tiny_backbone()), make_plus(tiny_backbone(), hold=5.0)
    for method in (plain, plus):
        learn(context(), method, tiny_stream().tasks[:1])
    torch.testing.assert_close(plain.adapter.values, plus.adapter.values)
    torch.testing.assert_close(plain.head.rows, plus.head.rows)


def test_holding_features_costs_what_they_moved_since_the_task_began(
    context: MakeContext, tiny_backbone: MakeBackbone, tiny_stream: MakeStream
) -> None:
    stream, losses = tiny_stream(), {}
    images = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 1, 1])
    for hold in (0.0, 20.0):
        method = make_plus(tiny_backbone(), hold=hold)
        learn(context(), method, stream.tasks[:1])
        next(iter(method.learn(TaskInfo(1, stream.tasks[1].classes))))
        method.head.open_block(2, torch.Generator().manual_seed(0))
        before = method.eval().features(images)
        still = method.loss(images, labels).detach()
        values = method.adapter.values.data
        values.add_(0.5 * torch.randn(len(values), generator=torch.Generator().manual_seed(2)))
        moved = 1 - F.cosine_similarity(method.features(images), before)
        losses[hold] = (still, method.loss(images, labels).detach(), moved.detach())
    torch.testing.assert_close(losses[20.0][0], losses[0.0][0])
    assert float(losses[0.0][2].min()) > 1e-3
    torch.testing.assert_close(losses[20.0][1], losses[0.0][1] + 20.0 * losses[0.0][2])


def test_statistics_of_earlier_classes_follow_the_features(
    context: MakeContext, tiny_backbone: MakeBackbone, tiny_stream: MakeStream
) -> None:
    stream = tiny_stream(classes_per_task=4, num_train=30)
    errors = {}
    for follows in (False, True):
        method = make_plus(tiny_backbone(), head=ALIGNED, follow_drift=follows, learning_rate=0.5, sparsity=0.0)
        learn(context(), method, stream.tasks[:2])
        first = stream.tasks[0]
        transforms, store = context().transforms, first.train.store
        images = transforms.test(store.batch(first.train.indices))
        features = method.eval().features(images)
        true = torch.stack([features[first.train.labels == label].mean(0) for label in range(4)])
        errors[follows] = float((method.head.means[:4] - true).norm())
    assert errors[True] < errors[False]


@pytest.mark.parametrize("kind", ["prototype", "aligned", "discriminant", "quadratic"])
def test_images_are_swept_twice_and_the_rows_are_those_of_a_third_sweep(
    kind: str,
    context: MakeContext,
    tiny_backbone: MakeBackbone,
    tiny_stream: MakeStream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = ALIGNED if kind == "aligned" else {"kind": kind}
    method, stream = make_plus(tiny_backbone(), head=head), tiny_stream()
    moments = watch(method)
    learn(context(), method, stream.tasks[:2])
    sweeps = [moment.step.name for moment in moments if isinstance(moment.step, Pass | Collect)]
    assert sweeps == ["statistics", "features before", "features after"]
    monkeypatch.setattr("clare.methods.clare_plus.answered", lambda steps, collected: steps)
    swept = make_plus(tiny_backbone(), head=head)
    learn(context(), swept, stream.tasks[:2])
    if kind == "aligned":
        # Its rows are trained on features that are drawn anew for each step, so their statistics are compared.
        torch.testing.assert_close(method.head.factors, swept.head.factors)
        torch.testing.assert_close(method.head.means, swept.head.means)
    else:
        torch.testing.assert_close(method.head.rows, swept.head.rows)


def test_room_for_all_rows_is_made_before_the_first_task(tiny_backbone: MakeBackbone) -> None:
    method = make_plus(tiny_backbone(), contrast="seen")
    prepare(method, 5, 3)
    assert method.contrast.rows.shape[0] == 15
    assert not any(name.startswith(("contrast", "anchor", "hold")) for name in learnt_tensors(method))


def test_rows_learn_alone_first(context: MakeContext, tiny_backbone: MakeBackbone, tiny_stream: MakeStream) -> None:
    method = make_plus(tiny_backbone(), row_epochs=3, head={"kind": "quadratic"})
    moments = watch(method)
    learn(context(), method, tiny_stream().tasks[:2])
    phases = [moment for moment in moments if isinstance(moment.step, Phase)]
    assert [(moment.phase.name, moment.phase.epochs) for moment in phases] == 2 * [
        ("rows", 3),
        ("probe", 2),
        ("train", 2),
    ]
    for rows, probe, train in (phases[:3], phases[3:]):
        # While the rows learn, the adapter stands still; both stages start with what they have learnt.
        assert bits(rows.after["values"]) == bits(rows.before["values"])
        assert bits(rows.after["block"]) != bits(rows.before["block"])
        assert bits(train.before["block"]) == bits(probe.before["block"]) == bits(rows.after["block"])
