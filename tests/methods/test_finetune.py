"""Fine-tuning moves the whole adapter and nothing of the backbone."""

from collections.abc import Callable

import torch
from clare_runs import RECIPE, bits, learn, watch

from clare.backbones.vit import Backbone
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.evaluate import evaluate
from clare.methods._shared.adapted import AdaptedSettings
from clare.methods.finetune import FineTune
from clare.methods.protocols import capacity_of

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]


def make_finetune(backbone: Backbone, seed: int = 0, **changes: object) -> FineTune:
    return FineTune(backbone, AdaptedSettings.model_validate({**RECIPE, **changes}), seed)


def test_every_coordinate_moves_and_the_backbone_does_not(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    # With this seed no hidden unit is dead; a dead one would keep its zeros.
    method = make_finetune(tiny_backbone(), seed=3)
    backbone = {name: bits(tensor) for name, tensor in method.backbone.state_dict().items()}
    for task in tiny_stream().tasks:
        before = method.adapter.values.detach().clone()
        learn(context(), method, [task])
        assert bool((method.adapter.values != before).all())
        assert {name: bits(tensor) for name, tensor in method.backbone.state_dict().items()} == backbone
    assert capacity_of(method) is None


def test_one_phase_without_a_mask_then_the_head(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make_finetune(tiny_backbone())
    moments = watch(method)
    learn(context(), method, tiny_stream().tasks[:2])
    assert [moment.step.name for moment in moments] == ["train", "statistics"] * 2  # type: ignore[union-attr]
    for moment in moments[::2]:
        adapter, rows = moment.phase.groups
        assert adapter.parameter is method.adapter.values
        assert rows.parameter is method.head.block
        assert {group.mask for group in moment.phase.groups} == {None}
        assert {group.penalty for group in moment.phase.groups} == {None}
        assert bits(moment.before["block"]) != bits(moment.after["block"])
    assert bits(moments[2].before["values"]) == bits(moments[0].after["values"])
    assert bits(moments[2].before["block"]) != bits(moments[0].after["block"])


def test_it_learns_the_task_at_hand(tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext) -> None:
    stream = tiny_stream()
    method = make_finetune(tiny_backbone(), learning_rate=0.005)
    learn(context(), method, stream.tasks)
    predicted, target, *_ = evaluate(context(), method, stream, 2)
    assert float((predicted == target)[target >= 4].float().mean()) > 0.9


def test_trained_rows_fit_the_training_images(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    stream = tiny_stream()
    method = make_finetune(tiny_backbone(), learning_rate=0.005, epochs=4, head={"kind": "trained"})
    moments = watch(method)
    learn(context(), method, stream.tasks[:1])
    assert len(moments) == 1
    assert torch.equal(method.head.rows.detach(), moments[0].after["block"][:2])
    predicted, target, *_ = evaluate(context(), method, stream, 0)
    assert torch.equal(predicted, target)


def test_training_mode_never_reaches_the_backbone(tiny_backbone: MakeBackbone) -> None:
    method = make_finetune(tiny_backbone())
    method.train()
    assert method.adapter.training
    assert not any(module.training for module in method.backbone.modules())
    method.eval()
    assert not method.adapter.training
