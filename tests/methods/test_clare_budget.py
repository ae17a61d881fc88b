"""A budget by what Stage 1 shows: never more than asked, less for what is easy or known, and in the record."""

import json
from collections.abc import Callable

import pytest
import torch
from clare_runs import learn, make_clare, mask_of, watch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.methods._shared import need
from clare.methods._shared.need import PARTS
from clare.settings import idle
from clare.sparse.select import budget_of, select_top
from clare.steps import Pass

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


def test_a_task_claims_the_part_of_its_share_that_the_record_tells(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone(), budget="auto", learning_rate=0.005)
    moments = watch(method)
    for task in tiny_stream(num_tasks=4).tasks:
        free, first = method.ledger.free.clone(), len(moments)
        learn(context(), method, [task])
        found, mask = method.diagnosis(), mask_of(method, task.index)
        steps = {moment.step.name: moment for moment in moments[first:]}  # type: ignore[union-attr]
        assert list(steps) == [*(["likeness"] if task.index else []), "probe", "need", "train", "statistics"]
        assert found["needed"] in PARTS
        assert 0 <= found["likeness"] <= 1
        scores = (steps["probe"].after["values"] - method.adapter.initial).abs()
        part = 0.2 * found["needed"] * (1 - found["likeness"])
        assert torch.equal(mask, select_top(scores, free, budget_of(int(free.sum()), part)))
        assert int(mask.sum()) <= budget_of(int(free.sum()), 0.2)
        assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(
    ("likeness", "part", "expected"), [(0.0, 1.0, 88), (0.5, 1.0, 44), (0.0, 0.25, 22), (1.0, 1.0, 1)]
)
def test_likeness_and_need_shrink_a_budget_together(
    tiny_backbone: MakeBackbone,
    tiny_stream: MakeStream,
    context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    likeness: float,
    part: float,
    expected: int,
) -> None:
    monkeypatch.setattr(need, "needed_part", lambda _: part)
    monkeypatch.setattr(need, "likeness", lambda *_: likeness)
    method = make_clare(tiny_backbone(), budget="auto", learning_rate=0.005)
    # Something must be claimed for a likeness to be asked for.
    method.ledger.claim_nothing()
    method.ledger.free[-1] = False
    learn(context(), method, tiny_stream().tasks[:1])
    assert int(mask_of(method, 1).sum()) == expected


def test_the_whole_need_is_the_share(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(need, "needed_part", lambda _: 1.0)
    monkeypatch.setattr(need, "likeness", lambda *_: 0.0)
    auto, fixed = (make_clare(tiny_backbone(), budget=budget) for budget in ("auto", "share"))
    for method in (auto, fixed):
        learn(context(), method, tiny_stream().tasks)
    assert torch.equal(mask_of(auto, 0), mask_of(fixed, 0))
    assert auto.ledger.lengths == fixed.ledger.lengths


def test_the_gradient_and_the_losses_are_those_of_the_task(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_clare(tiny_backbone(), head={"kind": "trained"})
    learn(context(), method, tiny_stream().tasks[:1])
    method.head.open_block(2, torch.Generator().manual_seed(0))
    images = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    weights, claimed = torch.tensor([1.0, 1, 1, 1, 0, 0]), ~method.ledger.free
    method.eval()
    step = next(need.find_likeness(method.adapter, method.loss, claimed))
    assert isinstance(step, Pass)
    method.adapter.values.requires_grad_(True)
    expected = torch.autograd.grad((method.loss(images, labels) * weights).sum(), method.adapter.values)[0]
    method.adapter.values.requires_grad_(False)
    torch.testing.assert_close(step.statistic(images, labels, weights)["gradient"], expected)
    start, moved = method.adapter.values.detach().clone(), method.adapter.values.detach() + 0.1
    masks = [torch.rand(len(start), generator=torch.Generator().manual_seed(1)) < part for part in PARTS]
    step = next(need.find_part(method.adapter, method.loss, start, moved, masks))
    assert isinstance(step, Pass)
    found = step.statistic(images, labels, weights)["losses"]
    for values, loss in zip([start, *(torch.where(mask, moved, start) for mask in masks)], found, strict=True):
        method.adapter.values.data.copy_(values)
        assert float(loss) == pytest.approx(float((method.loss(images, labels) * weights).sum()), rel=1e-5)


def test_it_acts_in_two_stages_alone(tiny_backbone: MakeBackbone) -> None:
    settings = make_clare(tiny_backbone(), budget="auto", two_stage=False).settings
    assert [key for key, _ in idle(settings, {"budget": "auto"}, "method.")] == ["method.budget"]
