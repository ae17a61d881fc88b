"""Full fine-tuning moves a second set of the backbone's weights, all or a share, and never the backbone's own."""

import json
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from clare_runs import RECIPE, all_bits, bits, learn
from torch import Tensor

from clare.backbones.vit import Backbone, fingerprint
from clare.data.stream import Stream
from clare.engine.context import Context
from clare.engine.evaluate import count_parameters, evaluate
from clare.engine.step import TrainStep
from clare.methods.full_finetune import FullFineTune, FullFineTuneSettings
from clare.methods.protocols import capacity_of
from clare.methods.state import learnt_tensors, restore, snapshot_of
from clare.sparse.diagnosis import movement_histogram
from clare.sparse.select import budget_of
from clare.steps import Phase, TaskInfo

MakeBackbone = Callable[..., Backbone]
MakeStream = Callable[..., Stream]
MakeContext = Callable[..., Context]

NUM_WEIGHTS = 16_128
SPARSE = {"share": 0.01, "probe_epochs": 1}


def make(backbone: Backbone, seed: int = 0, **changes: object) -> FullFineTune:
    recipe = {key: value for key, value in RECIPE.items() if key != "adapter"}
    values = {**recipe, "learning_rate": 0.01, **changes}
    return FullFineTune(backbone, FullFineTuneSettings.model_validate(values), seed)


def values_of(method: FullFineTune) -> Tensor:
    """Return a copy of the fine-tuned weights."""
    return method.weights.values.detach().clone()


def first_phase(method: FullFineTune) -> Phase:
    """Return what a method asks for first in a task of two classes."""
    step = next(method.learn(TaskInfo(0, ("a", "b"))))
    assert isinstance(step, Phase)
    return step


def test_every_kind_of_weight_moves_and_the_backbone_does_not(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    backbone, images = tiny_backbone(), torch.rand(2, 1, 28, 28)
    before, features = fingerprint(backbone.vit), backbone.vit(images)
    method = make(backbone)
    initial = {name: part.detach().clone() for name, part in method.weights.weights().items()}
    learn(context(), method, tiny_stream().tasks)
    after = method.weights.weights()
    assert {"cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.1.attn.qkv.bias", "norm.weight"} <= set(after)
    for name, part in after.items():
        assert float((part != initial[name]).float().mean()) > 0.9, name
    # Without the method, the backbone is the plain one.
    assert fingerprint(backbone.vit) == before
    assert torch.equal(backbone.vit(images), features)
    assert not torch.allclose(method.features(images), features)
    assert capacity_of(method) is None


@pytest.mark.parametrize("selection", ["largest", "random"])
def test_a_share_changes_exactly_as_many_weights(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, selection: str
) -> None:
    method = make(tiny_backbone(), selection=selection, **SPARSE)
    budget = budget_of(NUM_WEIGHTS, 0.01)
    assert budget == 161
    changed = []
    for task in tiny_stream().tasks:
        before = values_of(method)
        learn(context(train="affine"), method, [task])
        changed.append(values_of(method) != before)
        assert int(changed[-1].sum()) == budget
    # Every task chooses anew among all weights.
    assert not torch.equal(changed[0], changed[1])


def test_the_probe_chooses_the_largest_updates_and_leaves_no_trace(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make(tiny_backbone(), **SPARSE)
    start = values_of(method)
    with torch.no_grad():
        learning = method.learn(TaskInfo(0, ("a", "b")))
        probe = next(learning)
        assert isinstance(probe, Phase)
        assert (probe.name, probe.epochs, probe.groups[0].mask) == ("probe", 1, None)
        block = method.head.block.detach().clone()
        update = 0.001 * torch.randn(NUM_WEIGHTS, generator=torch.Generator().manual_seed(0))
        method.weights.values += update
        method.head.block += 1
        moved = (method.weights.values - start).abs()
        train = learning.send({})
        assert isinstance(train, Phase)
    assert (train.name, train.epochs, train.groups[0].penalty) == ("train", 2, None)
    mask = train.groups[0].mask
    assert mask is not None
    assert torch.equal(mask.nonzero().squeeze(1), moved.topk(161).indices.sort().values)
    assert bits(method.weights.values) == bits(start)
    assert bits(method.head.block) == bits(block)


def test_decay_in_the_probe_is_towards_the_start_and_in_training_towards_zero(tiny_backbone: MakeBackbone) -> None:
    probe, train = (first_phase(make(tiny_backbone(), **changes)) for changes in (SPARSE, {}))
    assert probe.groups[0].decay_towards is not None
    assert torch.equal(probe.groups[0].decay_towards, probe.groups[0].parameter)
    assert (train.name, train.groups[0].decay_towards) == ("train", None)


def test_a_step_is_a_plain_step_of_sgd_on_a_copy_of_the_vit(tiny_backbone: MakeBackbone, context: MakeContext) -> None:
    method, copy = make(tiny_backbone(), weight_decay=0.05), tiny_backbone().vit.requires_grad_(True)
    images, labels = torch.rand(6, 1, 28, 28), torch.tensor([0, 1, 0, 1, 1, 0])
    phase = first_phase(method)
    rows = method.head.block.detach().clone().requires_grad_(True)
    step = TrainStep(context().ranks, phase)
    step.optimizer.set_rate(0.01)
    for group in phase.groups:
        group.parameter.requires_grad_(True)
    optimizer = torch.optim.SGD([*copy.parameters(), rows], lr=0.01, momentum=0.9, weight_decay=0.05)
    for _ in range(3):
        step(images, labels, torch.ones(6), 6)
        optimizer.zero_grad()
        logits = 20 * F.normalize(copy(images), dim=1) @ F.normalize(rows, dim=1).T
        F.cross_entropy(logits, labels).backward()
        optimizer.step()
    expected = torch.cat([parameter.detach().flatten() for parameter in copy.parameters()])
    assert not torch.allclose(expected, torch.cat([p.flatten() for p in method.backbone.parameters()]), atol=1e-3)
    torch.testing.assert_close(values_of(method), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(method.head.block.detach(), rows.detach(), rtol=1e-4, atol=1e-6)


def test_it_learns_the_task_at_hand(tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext) -> None:
    stream = tiny_stream()
    for changes in ({}, {"share": 0.1, "probe_epochs": 1}):
        method = make(tiny_backbone(), learning_rate=0.002, **changes)
        learn(context(), method, stream.tasks)
        predicted, target, *_ = evaluate(context(), method, stream, 2)
        assert float((predicted == target)[target >= 4].float().mean()) > 0.9


def test_all_weights_count_as_stored(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    method = make(tiny_backbone(), **SPARSE)
    learn(context(), method, tiny_stream().tasks[:1])
    # The weights, two finished rows and the block of two.
    counts = count_parameters(method)
    assert (counts["num_stored"], counts["passes_per_image"]) == (NUM_WEIGHTS + 4 * 24, 1)
    assert set(learnt_tensors(method)) == {"weights.values", "head.rows", "head.block", "head.means", "head.factors"}


@pytest.mark.parametrize("changes", [{}, SPARSE, {**SPARSE, "selection": "random"}])
def test_the_diagnosis_is_the_update_of_the_task(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext, changes: dict[str, object]
) -> None:
    method = make(tiny_backbone(), **changes)
    assert method.diagnosis() == {}
    for task in tiny_stream().tasks:
        before = values_of(method)
        learn(context(), method, [task])
        update, found = (values_of(method) - before).abs(), method.diagnosis()["movement"]
        threshold = found["threshold"]
        assert (threshold is not None) == (changes == SPARSE)
        expected = movement_histogram(update, threshold)
        assert found == {**expected, "num_at_least_0.05": int((update >= 0.05).sum())}
        assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_snapshot_brings_the_weights_back(
    tiny_backbone: MakeBackbone, tiny_stream: MakeStream, context: MakeContext
) -> None:
    tasks = tiny_stream().tasks
    method, other = (make(tiny_backbone(), **SPARSE) for _ in range(2))
    learn(context(), method, tasks[:1])
    restore(other, snapshot_of(method))
    assert all_bits(other) == all_bits(method)
    for learner in (method, other):
        learn(context(), learner, tasks[1:2])
    assert all_bits(other) == all_bits(method)
    assert other.diagnosis() == method.diagnosis()
